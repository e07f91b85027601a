package binlog

import (
	"errors"
	"math"
	"strconv"
)

var errFloat = errors.New("a floating-point column holds no number")

// Numbers whose decimal point stands within these many digits of the first one are written without an
// exponent: this is where the servers draw the line too.
const (
	minPoint = -14
	maxPoint = 15
)

// appendDouble appends the shortest digits that give the same float (bits 64 or 32), spelled as the servers
// spell a DOUBLE: 0.1, 1e22, 1.5e-15, -0.
func appendDouble(dst []byte, f float64, bits int) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return dst, errFloat
	}
	exact := 1e15 // whole numbers below need all their digits
	if bits == 32 {
		exact = 1 << 24
	}
	if f > -exact && f < exact {
		if i := int64(f); float64(i) == f && (i != 0 || !math.Signbit(f)) {
			return strconv.AppendInt(dst, i, 10), nil
		}
	}
	var buf [32]byte
	s := strconv.AppendFloat(buf[:0], f, 'e', -1, bits) // -d.ddde±xx
	if s[0] == '-' {
		dst = append(dst, '-')
		s = s[1:]
	}
	e := len(s) - 1
	for s[e] != 'e' {
		e--
	}
	exp := 0
	for _, c := range s[e+2:] {
		exp = exp*10 + int(c-'0')
	}
	if s[e+1] == '-' {
		exp = -exp
	}
	digits := s[:e]
	if len(digits) > 1 { // d.ddd → dddd
		digits[1] = digits[0]
		digits = digits[1:]
	}
	point := exp + 1 // 0.dddd × 10^point
	switch {
	case point < minPoint || point > maxPoint:
		dst = append(dst, digits[0])
		if len(digits) > 1 {
			dst = append(append(dst, '.'), digits[1:]...)
		}
		return strconv.AppendInt(append(dst, 'e'), int64(exp), 10), nil
	case digits[0] == '0':
		return append(dst, '0'), nil // -0
	case point <= 0:
		dst = append(append(dst, '0', '.'), "00000000000000"[:-point]...)
		return append(dst, digits...), nil
	case point >= len(digits):
		dst = append(dst, digits...)
		return append(dst, "000000000000000"[:point-len(digits)]...), nil
	default:
		dst = append(append(dst, digits[:point]...), '.')
		return append(dst, digits[point:]...), nil
	}
}
