package binlog

import (
	"encoding/binary"
	"errors"
	"strconv"
)

var errTemporal = errors.New("damaged date or time")

const digitPairs = "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748" +
	"4950515253545556575859606162636465666768697071727374757677787980818283848586878889909192939495969798" + "99"

func append2(dst []byte, v int) []byte { return append(dst, digitPairs[2*v], digitPairs[2*v+1]) }
func append4(dst []byte, v int) []byte { return append2(append2(dst, v/100), v%100) }

// appendYMD appends a date; zero and partial dates are dates too.
func appendYMD(dst []byte, y, m, d int) ([]byte, error) {
	if uint(y) > 9999 || uint(m) > 12 || uint(d) > 31 {
		return dst, errTemporal
	}
	dst = append(append4(dst, y), '-')
	dst = append(append2(dst, m), '-')
	return append2(dst, d), nil
}

// appendHMS appends a time of day or, with its hours unbounded, the whole part of a TIME.
func appendHMS(dst []byte, h, m, s int) ([]byte, error) {
	if uint(h) > 9999 || uint(m) > 59 || uint(s) > 59 {
		return dst, errTemporal
	}
	if h > 99 {
		dst = strconv.AppendInt(dst, int64(h), 10)
	} else {
		dst = append2(dst, h)
	}
	dst = append(append2(append(dst, ':'), m), ':')
	return append2(dst, s), nil
}

// appendFraction appends the first fsp digits of a number of microseconds.
func appendFraction(dst []byte, micros uint64, fsp uint8) ([]byte, error) {
	if micros > 999999 {
		return dst, errTemporal
	}
	if fsp == 0 {
		return dst, nil
	}
	return appendDigits(append(dst, '.'), micros/powersOf10[maxTimeFraction-fsp], int(fsp)), nil
}

// fractionMicros reads a stored fraction: pairs of digits, so an odd last digit is zero.
func fractionMicros(b []byte) uint64 { return beUint(b) * powersOf10[6-2*len(b)] }

// appendDate reads a DATE: day 5 bits, month 4, year 15.
func appendDate(dst, b []byte) ([]byte, error) {
	v := int(leUint(b[:3]))
	return appendYMD(dst, v>>9, v>>5&15, v&31)
}

// appendDateTime2 reads a DATETIME: sign 1 bit, year×13+month 17, day 5, hour 5, minute 6, second 6, fraction.
func appendDateTime2(dst, b []byte, fsp uint8) ([]byte, error) {
	v := beUint(b[:5])
	if v&0x8000000000 == 0 {
		return dst, errTemporal
	}
	ym := int(v>>22) & 0x1ffff
	dst, err := appendYMD(dst, ym/13, ym%13, int(v>>17)&31)
	if err != nil {
		return dst, err
	}
	dst, err = appendHMS(append(dst, ' '), int(v>>12)&31, int(v>>6)&63, int(v)&63)
	if err != nil {
		return dst, err
	}
	return appendFraction(dst, fractionMicros(b[5:]), fsp)
}

// appendTimestamp2 reads a TIMESTAMP: seconds since 1970 UTC, fraction. 0 is the zero date.
func appendTimestamp2(dst, b []byte, fsp uint8) ([]byte, error) {
	return appendUnix(dst, int(binary.BigEndian.Uint32(b)), fractionMicros(b[4:]), fsp)
}

func appendUnix(dst []byte, sec int, micros uint64, fsp uint8) ([]byte, error) {
	if sec == 0 && micros == 0 {
		dst = append(dst, "0000-00-00 00:00:00"...)
	} else {
		y, m, d := civil(sec / 86400)
		s := sec % 86400
		dst, _ = appendYMD(dst, y, m, d)
		dst, _ = appendHMS(append(dst, ' '), s/3600, s/60%60, s%60)
	}
	return appendFraction(dst, micros, fsp)
}

// civil is the date so many days after 1970-01-01. Years begin in March here, which puts the leap day last.
func civil(days int) (y, m, d int) {
	const era = 146097 // days of 400 years
	days += 719468     // from 0000-03-01
	n := days % era
	yoe := (n - n/1460 + n/36524 - n/146096) / 365
	doy := n - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	y, m, d = yoe+days/era*400, mp+3, doy-(153*mp+2)/5+1
	if m > 12 {
		y, m = y+1, m-12
	}
	return y, m, d
}

// appendTime2 reads a TIME: big endian with an offset, so that the bytes sort like the times: sign 1 bit,
// unused 1, hour 10, minute 6, second 6, fraction. Of a negative time the whole number is negated.
func appendTime2(dst, b []byte, fsp uint8) ([]byte, error) {
	v := int64(beUint(b)) - 1<<(8*len(b)-1)
	if v < 0 {
		dst = append(dst, '-')
		v = -v
	}
	bits := 8 * (len(b) - 3)
	micros := uint64(v) & (1<<bits - 1) * powersOf10[6-bits/4]
	hms := int(v >> bits)
	dst, err := appendHMS(dst, hms>>12, hms>>6&63, hms&63)
	if err != nil {
		return dst, err
	}
	return appendFraction(dst, micros, fsp)
}

// The types from before MySQL 5.6, without a fraction.

// appendTimeOld reads the decimal number HHMMSS, signed.
func appendTimeOld(dst, b []byte) ([]byte, error) {
	v := int(int32(leUint(b[:3])<<8) >> 8)
	if v < 0 {
		dst = append(dst, '-')
		v = -v
	}
	return appendHMS(dst, v/10000, v/100%100, v%100)
}

// appendDateTimeOld reads the decimal number YYYYMMDDHHMMSS.
func appendDateTimeOld(dst, b []byte) ([]byte, error) {
	v := leUint(b[:8])
	if v > 99999999999999 {
		return dst, errTemporal
	}
	day, t := int(v/1000000), int(v%1000000)
	dst, err := appendYMD(dst, day/10000, day/100%100, day%100)
	if err != nil {
		return dst, err
	}
	return appendHMS(append(dst, ' '), t/10000, t/100%100, t%100)
}

// The types of MariaDB before its mysql56_temporal_format, with a fraction: a number of the smallest unit,
// big endian. Only information_schema knows how many digits the fraction has.

// hiresTimeZero is the number that is added to a TIME so that it is never negative: one more than
// 838:59:59 in microseconds.
const hiresTimeZero = (838*3600 + 59*60 + 59 + 1) * 1000000

func appendTimeHires(dst, b []byte, fsp uint8) ([]byte, error) {
	unit := powersOf10[maxTimeFraction-fsp]
	v := int64(beUint(b)) - int64(hiresTimeZero/unit)
	if v < 0 {
		dst = append(dst, '-')
		v = -v
	}
	perSecond := int64(1000000 / unit)
	s := int(v / perSecond)
	dst, err := appendHMS(dst, s/3600, s/60%60, s%60)
	if err != nil {
		return dst, err
	}
	return appendFraction(dst, uint64(v%perSecond)*unit, fsp)
}

// appendDateTimeHires reads ((((year×13+month)×32+day)×24+hour)×60+minute)×60+second, and the fraction below.
func appendDateTimeHires(dst, b []byte, fsp uint8) ([]byte, error) {
	unit := powersOf10[maxTimeFraction-fsp]
	v := beUint(b)
	perSecond := 1000000 / unit
	micros := v % perSecond * unit
	v /= perSecond
	s, v := int(v%60), v/60
	mi, v := int(v%60), v/60
	h, v := int(v%24), v/24
	d, v := int(v%32), v/32
	if v > 9999*13+12 {
		return dst, errTemporal
	}
	dst, err := appendYMD(dst, int(v/13), int(v%13), d)
	if err != nil {
		return dst, err
	}
	dst, err = appendHMS(append(dst, ' '), h, mi, s)
	if err != nil {
		return dst, err
	}
	return appendFraction(dst, micros, fsp)
}

// appendTimestampHires reads seconds since 1970 UTC and a fraction, each big endian.
func appendTimestampHires(dst, b []byte, fsp uint8) ([]byte, error) {
	unit := powersOf10[maxTimeFraction-fsp]
	return appendUnix(dst, int(beUint(b[:4])), beUint(b[4:])*unit, fsp)
}
