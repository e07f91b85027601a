package relaytest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"binrelay/functions"
)

// appendValue adds one value, not NULL, in the form in which a row image holds it.
func (c *column) appendValue(dst []byte, f Flavor, v any) ([]byte, error) {
	switch c.typ {
	case tyTiny, tyShort, tyInt24, tyLong, tyLongLong:
		return c.appendInteger(dst, v)
	case tyYear:
		n, err := toInt(v)
		if err != nil {
			return nil, err
		}
		if n != 0 && (n < 1901 || n > 2155) {
			return nil, fmt.Errorf("year %d is out of range", n)
		}
		return append(dst, byte(max(0, n-1900))), nil
	case tyBit:
		n, err := toUint(v)
		if err != nil {
			return nil, err
		}
		if c.size < 64 && n>>c.size != 0 {
			return nil, fmt.Errorf("%d has more than %d bits", n, c.size)
		}
		return appendBig(dst, n, (c.size+7)/8), nil
	case tyDecimal:
		return c.appendDecimal(dst, v)
	case tyFloat:
		x, err := toFloat(v)
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(x))), err
	case tyDouble:
		x, err := toFloat(v)
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(x)), err
	case tyDate, tyDateTime, tyTimestamp, tyTime:
		return c.appendTemporal(dst, v)
	case tyEnum:
		n, err := c.enumNumber(v)
		return appendLittle(dst, n, c.size), err
	case tySet:
		n, err := c.setBits(v)
		return appendLittle(dst, n, c.size), err
	case tyJSON:
		return c.appendJSON(dst, f, v)
	}
	return c.appendBytes(dst, v)
}

func (c *column) appendInteger(dst []byte, v any) ([]byte, error) {
	bits := uint(c.size * 8)
	if c.unsigned {
		n, err := toUint(v)
		if err == nil && bits < 64 && n>>bits != 0 {
			err = fmt.Errorf("%d does not fit", n)
		}
		return appendLittle(dst, n, c.size), err
	}
	n, err := toInt(v)
	if err == nil && (n < -1<<(bits-1) || n > 1<<(bits-1)-1) {
		err = fmt.Errorf("%d does not fit", n)
	}
	return appendLittle(dst, uint64(n), c.size), err
}

func (c *column) enumNumber(v any) (uint64, error) {
	s, ok := v.(string)
	if !ok {
		n, err := toUint(v)
		if err == nil && n > uint64(len(c.values)) {
			err = fmt.Errorf("there is no member %d", n)
		}
		return n, err
	}
	for i, m := range c.values {
		if strings.EqualFold(m, s) {
			return uint64(i + 1), nil
		}
	}
	if s == "" {
		return 0, nil
	}
	return 0, fmt.Errorf("there is no member %q", s)
}

func (c *column) setBits(v any) (bits uint64, err error) {
	s, ok := v.(string)
	if !ok {
		return toUint(v)
	}
	if s == "" {
		return 0, nil
	}
	for m := range strings.SplitSeq(s, ",") {
		n, err := c.enumNumber(m)
		if err != nil || n == 0 {
			return 0, fmt.Errorf("there is no member %q", m)
		}
		bits |= 1 << (n - 1)
	}
	return bits, nil
}

// appendBytes writes text, bytes, geometries and vectors: a length, then the bytes.
func (c *column) appendBytes(dst []byte, v any) ([]byte, error) {
	b, err := c.bytesOf(v)
	if err != nil {
		return nil, err
	}
	prefix := c.size // of blobs and their like it is the prefix's size
	switch c.typ {
	case tyVarchar, tyString:
		if len(b) > c.size {
			return nil, fmt.Errorf("%d bytes, at most %d", len(b), c.size)
		}
		prefix = 1
		if c.size > 255 {
			prefix = 2
		}
	default:
		if prefix < 4 && len(b)>>(8*prefix) != 0 {
			return nil, fmt.Errorf("%d bytes are too many", len(b))
		}
	}
	if c.typ == tyString {
		pad := byte(' ')
		if c.fixed {
			pad = 0
		}
		for len(b) > 0 && b[len(b)-1] == pad { // the server strips what it padded
			b = b[:len(b)-1]
		}
	}
	return append(appendLittle(dst, uint64(len(b)), prefix), b...), nil
}

func (c *column) bytesOf(v any) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return v, nil
	case string:
		switch c.net {
		case 'u':
			u, err := parseUUID(v)
			return u[:], err
		case '4', '6':
			a, err := netip.ParseAddr(v)
			if err == nil && c.net == '6' && a.Is4() {
				a = netip.AddrFrom16(a.As16())
			}
			return a.AsSlice(), err
		}
		if c.charset == nil {
			return []byte(v), nil
		}
		return c.charset.encode(v)
	case []float32:
		var b []byte
		for _, x := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		return b, nil
	case functions.Geo:
		return append(binary.LittleEndian.AppendUint32(nil, v.SRID), v.WKB...), nil
	}
	return nil, fmt.Errorf("a %T has no place here", v)
}

func (c *column) appendJSON(dst []byte, f Flavor, v any) ([]byte, error) {
	var text []byte
	switch v := v.(type) {
	case string:
		text = []byte(v)
	case []byte:
		text = v
	case json.RawMessage:
		text = v
	default:
		var err error
		if text, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	if f != MariaDB { // MariaDB's JSON is its text
		var err error
		if text, err = encodeJSON(text); err != nil {
			return nil, err
		}
	}
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(text))), text...), nil
}

// toInt reads any integer, bool or decimal text.
func toInt(v any) (int64, error) {
	switch v := v.(type) {
	case int:
		return int64(v), nil
	case int64:
		return v, nil
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	case string:
		return strconv.ParseInt(v, 10, 64)
	case time.Duration:
		return 0, fmt.Errorf("a %T has no place here", v)
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return r.Int(), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if r.Uint() > math.MaxInt64 {
			return 0, fmt.Errorf("%d does not fit", r.Uint())
		}
		return int64(r.Uint()), nil
	}
	return 0, fmt.Errorf("a %T has no place here", v)
}

func toUint(v any) (uint64, error) {
	switch v := v.(type) {
	case uint64:
		return v, nil
	case string:
		return strconv.ParseUint(v, 10, 64)
	}
	n, err := toInt(v)
	if err == nil && n < 0 {
		err = fmt.Errorf("%d is negative", n)
	}
	return uint64(n), err
}

func toFloat(v any) (float64, error) {
	switch v := v.(type) {
	case float64:
		return v, nil
	case float32:
		return float64(v), nil
	case string:
		return strconv.ParseFloat(v, 64)
	}
	n, err := toInt(v)
	return float64(n), err
}

func appendLittle(b []byte, n uint64, size int) []byte {
	for ; size > 0; size-- {
		b = append(b, byte(n))
		n >>= 8
	}
	return b
}

func appendBig(b []byte, n uint64, size int) []byte {
	for size--; size >= 0; size-- {
		b = append(b, byte(n>>(8*size)))
	}
	return b
}

// decimalBytes is how many bytes a group of 0 to 9 decimal digits takes.
var decimalBytes = [10]int{0, 1, 1, 2, 2, 3, 3, 4, 4, 4}

// appendDecimal writes DECIMAL(prec,scale): groups of nine digits as big-endian integers, a shorter group
// first in the integer part and last in the fraction; the first bit is inverted, all bits of a negative.
func (c *column) appendDecimal(dst []byte, v any) ([]byte, error) {
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case float64:
		s = strconv.FormatFloat(v, 'f', c.scale, 64)
	case uint64:
		s = strconv.FormatUint(v, 10)
	default:
		n, err := toInt(v)
		if err != nil {
			return nil, err
		}
		s = strconv.FormatInt(n, 10)
	}
	digits, negative := strings.CutPrefix(s, "-")
	whole, frac, _ := strings.Cut(strings.TrimPrefix(digits, "+"), ".")
	whole = strings.TrimLeft(whole, "0")
	if len(whole) > c.prec-c.scale || len(strings.TrimRight(frac, "0")) > c.scale || strings.Trim(whole+frac, "0123456789") != "" {
		return nil, fmt.Errorf("%q does not fit", s)
	}
	if len(frac) > c.scale {
		frac = frac[:c.scale]
	}
	whole = strings.Repeat("0", c.prec-c.scale-len(whole)) + whole
	frac += strings.Repeat("0", c.scale-len(frac))
	if strings.Trim(whole+frac, "0") == "" {
		negative = false
	}
	at := len(dst)
	group := func(digits string) {
		n, _ := strconv.ParseUint(digits, 10, 64)
		dst = appendBig(dst, n, decimalBytes[len(digits)])
	}
	if n := len(whole) % 9; n > 0 {
		group(whole[:n])
		whole = whole[n:]
	}
	for ; len(whole) > 0; whole = whole[9:] {
		group(whole[:9])
	}
	for ; len(frac) >= 9; frac = frac[9:] {
		group(frac[:9])
	}
	if len(frac) > 0 {
		group(frac)
	}
	if negative {
		for i := at; i < len(dst); i++ {
			dst[i] = ^dst[i]
		}
	}
	dst[at] ^= 0x80
	return dst, nil
}
