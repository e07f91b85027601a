package binlog

import (
	"errors"
	"strconv"
)

// decimalDigitBytes is the size of a group of 0 to 9 decimal digits.
var decimalDigitBytes = [10]int{0, 1, 1, 2, 2, 3, 3, 4, 4, 4}

var powersOf10 = [10]uint64{1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}

var errDecimal = errors.New("damaged DECIMAL")

// decimalSize is the size of a DECIMAL(prec,scale) in bytes.
func decimalSize(prec, scale uint8) int {
	whole := int(prec - scale)
	return whole/9*4 + decimalDigitBytes[whole%9] + int(scale)/9*4 + decimalDigitBytes[int(scale)%9]
}

// appendDecimal appends a DECIMAL with all digits of its scale. b holds decimalSize bytes: groups of nine digits,
// big endian, the odd group outermost; the highest bit is set for numbers ≥ 0, and all bits of negative
// ones are inverted, so that the bytes sort like the numbers.
func appendDecimal(dst, b []byte, prec, scale uint8) ([]byte, error) {
	if len(b) != decimalSize(prec, scale) || len(b) == 0 {
		return dst, errDecimal
	}
	var mask uint64
	if b[0]&0x80 == 0 {
		mask = ^uint64(0)
		dst = append(dst, '-')
	}
	bad := false
	pos := 0
	group := func(digits int) uint64 {
		n := decimalDigitBytes[digits]
		v := beUint(b[pos : pos+n])
		if pos == 0 {
			v ^= 0x80 << (8 * (n - 1))
		}
		pos += n
		v = (v ^ mask) & (1<<(8*n) - 1)
		bad = bad || v >= powersOf10[digits]
		return v
	}
	whole := int(prec - scale)
	start := len(dst)
	if n := whole % 9; n > 0 {
		if v := group(n); v != 0 {
			dst = strconv.AppendUint(dst, v, 10)
		}
	}
	for range whole / 9 {
		v := group(9)
		if len(dst) > start {
			dst = appendDigits(dst, v, 9)
		} else if v != 0 {
			dst = strconv.AppendUint(dst, v, 10)
		}
	}
	if len(dst) == start {
		dst = append(dst, '0')
	}
	if scale > 0 {
		dst = append(dst, '.')
		for range scale / 9 {
			dst = appendDigits(dst, group(9), 9)
		}
		if n := int(scale % 9); n > 0 {
			dst = appendDigits(dst, group(n), n)
		}
	}
	if bad {
		return dst, errDecimal
	}
	return dst, nil
}

// appendDigits appends the last n digits of v, with leading zeros.
func appendDigits(dst []byte, v uint64, n int) []byte {
	start := len(dst)
	dst = append(dst, "000000000"[:n]...)
	for i := start + n - 1; i >= start; i-- {
		dst[i] = byte('0' + v%10)
		v /= 10
	}
	return dst
}
