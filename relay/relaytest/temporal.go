package relaytest

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// appendTemporal writes DATE, DATETIME, TIMESTAMP or TIME in the form of MySQL 5.6 and later.
func (c *column) appendTemporal(dst []byte, v any) ([]byte, error) {
	if c.typ == tyTime {
		return c.appendTime(dst, v)
	}
	d, err := c.dateOf(v)
	if err != nil {
		return nil, err
	}
	switch c.typ {
	case tyDate:
		return appendLittle(dst, uint64(d.year<<9|d.month<<5|d.day), 3), nil
	case tyTimestamp:
		secs := int64(0)
		if d.year != 0 {
			t := time.Date(d.year, time.Month(d.month), d.day, d.hour, d.minute, d.second, 0, time.UTC)
			secs = t.Unix()
			if secs < 1 || secs > 1<<32-1 {
				return nil, fmt.Errorf("%v is out of range", v)
			}
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(secs))
	default:
		ymd := (d.year*13+d.month)<<5 | d.day
		hms := d.hour<<12 | d.minute<<6 | d.second
		dst = appendBig(dst, uint64(ymd<<17|hms)+0x8000000000, 5)
	}
	return appendFraction(dst, d.micros, c.prec), nil
}

// appendFraction writes 1, 2 or 3 bytes of the declared fraction digits.
func appendFraction(dst []byte, micros, digits int) []byte {
	switch (digits + 1) / 2 {
	case 1:
		return append(dst, byte(micros/10000))
	case 2:
		return appendBig(dst, uint64(micros/100), 2)
	case 3:
		return appendBig(dst, uint64(micros), 3)
	}
	return dst
}

// appendTime writes a signed TIME: hours, minutes, seconds and microseconds as one number, two's
// complement, moved into the positive.
func (c *column) appendTime(dst []byte, v any) ([]byte, error) {
	var d dateTime
	negative := false
	switch v := v.(type) {
	case time.Duration:
		negative = v < 0
		v = v.Abs()
		d = dateTime{hour: int(v / time.Hour), minute: int(v / time.Minute % 60), second: int(v / time.Second % 60), micros: int(v / time.Microsecond % 1e6)}
	case string:
		var rest string
		rest, negative = strings.CutPrefix(v, "-")
		if err := d.parseClock(rest); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("a %T has no place here", v)
	}
	if d.hour > 838 || d.minute > 59 || d.second > 59 {
		return nil, fmt.Errorf("%v is out of range", v)
	}
	d.micros = cutMicros(d.micros, c.prec)
	packed := int64(d.hour<<12|d.minute<<6|d.second)<<24 | int64(d.micros)
	if negative {
		packed = -packed
	}
	whole, frac := uint64(packed>>24+0x800000), packed%(1<<24)
	switch (c.prec + 1) / 2 {
	case 0:
		return appendBig(dst, whole, 3), nil
	case 1:
		return append(appendBig(dst, whole, 3), byte(frac/10000)), nil
	case 2:
		return appendBig(appendBig(dst, whole, 3), uint64(uint16(frac/100)), 2), nil
	}
	return appendBig(dst, uint64(packed+0x800000<<24), 6), nil
}

// dateTime is a calendar date and time of day; zero and partial dates are allowed.
type dateTime struct{ year, month, day, hour, minute, second, micros int }

func (c *column) dateOf(v any) (d dateTime, err error) {
	switch v := v.(type) {
	case time.Time:
		if c.typ == tyTimestamp {
			v = v.UTC()
		}
		d = dateTime{v.Year(), int(v.Month()), v.Day(), v.Hour(), v.Minute(), v.Second(), v.Nanosecond() / 1000}
	case string:
		date, clock, ok := strings.Cut(strings.Replace(v, "T", " ", 1), " ")
		parts := strings.Split(date, "-")
		if len(parts) != 3 {
			return d, fmt.Errorf("%q is no date", v)
		}
		for i, p := range []*int{&d.year, &d.month, &d.day} {
			if *p, err = strconv.Atoi(parts[i]); err != nil {
				return d, fmt.Errorf("%q is no date", v)
			}
		}
		if ok {
			if err = d.parseClock(clock); err != nil {
				return d, err
			}
		}
	default:
		return d, fmt.Errorf("a %T has no place here", v)
	}
	if d.year > 9999 || d.month > 12 || d.day > 31 || d.hour > 23 || d.minute > 59 || d.second > 59 {
		return d, fmt.Errorf("%v is out of range", v)
	}
	d.micros = cutMicros(d.micros, c.prec)
	return d, nil
}

// parseClock reads h:m:s with an optional fraction of up to six digits.
func (d *dateTime) parseClock(s string) error {
	s, frac, _ := strings.Cut(s, ".")
	parts := strings.Split(s, ":")
	bad := len(parts) != 3 || len(frac) > 6
	for i, p := range []*int{&d.hour, &d.minute, &d.second} {
		if !bad {
			var err error
			*p, err = strconv.Atoi(parts[i])
			bad = err != nil || *p < 0
		}
	}
	if !bad && frac != "" {
		var err error
		d.micros, err = strconv.Atoi(frac + "000000"[len(frac):])
		bad = err != nil
	}
	if bad {
		return fmt.Errorf("%q is no time", s)
	}
	return nil
}

// cutMicros drops the digits that the column does not declare.
func cutMicros(micros, digits int) int {
	for unit, i := 1, 6; i > digits; i-- {
		unit *= 10
		micros -= micros % unit
	}
	return micros
}
