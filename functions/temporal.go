package functions

const (
	secondMicros = 1_000_000
	dayMicros    = 24 * 60 * 60 * secondMicros
)

// parseTime reads a TIME as SELECT prints it, "-838:59:59.000": microseconds with their sign.
func parseTime(b []byte) (us int64, ok bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	colon := 0
	for colon < len(b) && b[colon] != ':' {
		colon++
	}
	hours, ok1 := digits(b[:colon])
	rest, ok2 := minutes(b[min(colon+1, len(b)):])
	us = hours*3600*secondMicros + rest
	if negative {
		us = -us
	}
	return us, ok1 && ok2
}

// parseDateTime reads a DATE, DATETIME or TIMESTAMP: microseconds since 1970-01-01, in the calendar of
// today, as the servers have it. day is false for what is no day of the calendar, as 0000-00-00 and 2024-00-05.
func parseDateTime(b []byte) (us int64, day, ok bool) {
	const date = len("2006-01-02")
	if len(b) < date || b[4] != '-' || b[7] != '-' {
		return 0, false, false
	}
	y, ok1 := digits(b[:4])
	m, ok2 := digits(b[5:7])
	d, ok3 := digits(b[8:date])
	if !ok1 || !ok2 || !ok3 {
		return 0, false, false
	}
	if rest := b[date:]; len(rest) > 0 {
		if len(rest) < len(" 15:04:05") || rest[3] != ':' {
			return 0, false, false
		}
		h, ok1 := digits(rest[1:3])
		sub, ok2 := minutes(rest[4:])
		if !ok1 || !ok2 {
			return 0, false, false
		}
		us = h*3600*secondMicros + sub
	}
	if m < 1 || m > 12 || d < 1 || d > daysIn(y, m) {
		return 0, false, true
	}
	return us + days(y, m, d)*dayMicros, true, true
}

// minutes reads "04:05" or "04:05.123456".
func minutes(b []byte) (us int64, ok bool) {
	if len(b) < 5 || b[2] != ':' {
		return 0, false
	}
	m, ok1 := digits(b[:2])
	s, ok2 := digits(b[3:5])
	us = (m*60 + s) * secondMicros
	if len(b) == 5 {
		return us, ok1 && ok2
	}
	f, ok3 := digits(b[6:])
	for range 12 - len(b) {
		f *= 10
	}
	return us + f, ok1 && ok2 && ok3 && b[5] == '.' && len(b) <= 12
}

func digits(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(b) > 0
}

func daysIn(y, m int64) int64 {
	switch m {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// days counts from 1970-01-01. A year begins in March here, so that the leap day is its last.
func days(y, m, d int64) int64 {
	if m <= 2 {
		y--
		m += 12
	}
	y += 400 // the year 0 may have become -1
	inYear := (153*(m-3)+2)/5 + d - 1
	const (
		march0    = 719468 // days from 0000-03-01 to 1970-01-01
		daysOf400 = 146097 // years
	)
	return y*365 + y/4 - y/100 + y/400 + inYear - march0 - daysOf400
}
