package binlog

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"binrelay/functions"
)

var (
	errEnum       = errors.New("a number that no member has")
	errGeometry   = errors.New("a geometry shorter than its SRID")
	errVector     = errors.New("a vector of a fraction of numbers")
	errLongBinary = errors.New("a BINARY longer than its column")
	errAddress    = errors.New("an address or UUID of a wrong length")
)

// appendJSON appends the JSON form of a value that is there and not NULL. v is its bytes, without the
// length in front; for types of fixed size it has just that size.
func (c *column) appendJSON(dst, v []byte, d *Decoder) ([]byte, error) {
	switch c.conv {
	case convTiny, convShort, convInt24, convLong, convLongLong:
		if c.unsigned {
			return strconv.AppendUint(dst, leUint(v), 10), nil
		}
		return strconv.AppendInt(dst, c.signed(v), 10), nil
	case convText:
		dst = append(dst, '"')
		var bad int
		if c.cs.kind == charsetUTF8 {
			dst, bad = appendUTF8(dst, v, quoted)
		} else {
			dst, bad = c.cs.append(dst, v, quoted)
		}
		if bad > 0 {
			d.invalidText(c)
		}
		return append(dst, '"'), nil
	case convDate, convTime2, convDateTime2, convTimestamp2, convDecimal, convTimeOld, convDateTimeOld, convTimestampOld,
		convTimeHires, convDateTimeHires, convTimestampHires, convUUID, convInet4, convInet6:
		dst, err := c.appendText(append(dst, '"'), v)
		return append(dst, '"'), err
	case convFloat:
		return appendDouble(dst, float64(math.Float32frombits(binary.LittleEndian.Uint32(v))), 32)
	case convDouble:
		return appendDouble(dst, math.Float64frombits(binary.LittleEndian.Uint64(v)), 64)
	case convYear:
		return strconv.AppendInt(dst, year(v), 10), nil
	case convBit:
		return strconv.AppendUint(dst, beUint(v), 10), nil
	case convEnum:
		i := leUint(v)
		if i == 0 {
			return append(dst, '"', '"'), nil
		}
		if i > uint64(len(c.quoted)) {
			return dst, errEnum
		}
		return append(dst, c.quoted[i-1]...), nil
	case convSet:
		dst, err := c.appendSet(append(dst, '"'), leUint(v))
		return append(dst, '"'), err
	case convBinary:
		dst = append(dst, '"')
		dst, err := c.appendBase64(dst, v)
		return append(dst, '"'), err
	case convJSON:
		dst = append(dst, '"')
		dst, err := appendJSONDoc(dst, v, quoted)
		return append(dst, '"'), err
	case convGeometry:
		srid, wkb, err := geometry(v)
		if err != nil {
			return dst, err
		}
		dst = strconv.AppendUint(append(dst, `{"srid":`...), uint64(srid), 10)
		dst = base64.StdEncoding.AppendEncode(append(dst, `,"wkb":"`...), wkb)
		return append(dst, '"', '}'), nil
	case convVector:
		return appendVector(dst, v)
	case convTextZ, convBinaryZ:
		plainBytes, err := d.uncompress(v)
		if err != nil {
			return dst, err
		}
		dst = append(dst, '"')
		if c.conv == convBinaryZ {
			dst = base64.StdEncoding.AppendEncode(dst, plainBytes)
			return append(dst, '"'), nil
		}
		var bad int
		if dst, bad = c.cs.append(dst, plainBytes, quoted); bad > 0 {
			d.invalidText(c)
		}
		return append(dst, '"'), nil
	}
	return dst, fmt.Errorf("no conversion for column type %d", c.typ)
}

// appendBare appends the value of functions.Image's AppendText.
func (c *column) appendBare(dst, v []byte, d *Decoder) ([]byte, error) {
	var bad int
	switch c.conv {
	case convText:
		if c.cs.kind == charsetUTF8 {
			dst, bad = appendUTF8(dst, v, asIs)
		} else {
			dst, bad = c.cs.append(dst, v, asIs)
		}
	case convTextZ, convBinaryZ:
		b, err := d.uncompress(v)
		if err != nil {
			return dst, err
		}
		if c.conv == convBinaryZ {
			return append(dst, b...), nil
		}
		dst, bad = c.cs.append(dst, b, asIs)
	case convEnum:
		i := leUint(v)
		if i == 0 {
			return dst, nil
		}
		if i > uint64(len(c.values)) {
			return dst, errEnum
		}
		return append(dst, c.values[i-1]...), nil
	case convSet:
		return appendMembers(dst, c.values, leUint(v))
	case convBinary:
		missing := c.pad - len(v)
		if c.typ == typeString && missing < 0 {
			return dst, errLongBinary
		}
		dst = append(dst, v...)
		for ; c.typ == typeString && missing > 0; missing-- {
			dst = append(dst, 0)
		}
		return dst, nil
	case convJSON:
		return appendJSONDoc(dst, v, asIs)
	case convGeometry:
		if len(v) > 0 && len(v) < 4 {
			return dst, errGeometry
		}
		return append(dst, v...), nil
	case convDate, convTime2, convDateTime2, convTimestamp2, convDecimal, convTimeOld, convDateTimeOld, convTimestampOld,
		convTimeHires, convDateTimeHires, convTimestampHires, convUUID, convInet4, convInet6:
		return c.appendText(dst, v)
	default: // numbers
		return c.appendJSON(dst, v, d)
	}
	if bad > 0 {
		d.invalidText(c)
	}
	return dst, nil
}

// appendText appends what SELECT prints, for the types whose JSON form is that in quotes.
func (c *column) appendText(dst, v []byte) ([]byte, error) {
	switch c.conv {
	case convDecimal:
		return appendDecimal(dst, v, c.prec, c.scale)
	case convDate:
		return appendDate(dst, v)
	case convTime2:
		return appendTime2(dst, v, c.fsp)
	case convDateTime2:
		return appendDateTime2(dst, v, c.fsp)
	case convTimestamp2:
		return appendTimestamp2(dst, v, c.fsp)
	case convTimeOld:
		return appendTimeOld(dst, v)
	case convDateTimeOld:
		return appendDateTimeOld(dst, v)
	case convTimestampOld:
		return appendUnix(dst, int(leUint(v)), 0, 0)
	case convTimeHires:
		return appendTimeHires(dst, v, c.fsp)
	case convDateTimeHires:
		return appendDateTimeHires(dst, v, c.fsp)
	case convTimestampHires:
		return appendTimestampHires(dst, v, c.fsp)
	case convUUID:
		return appendUUID(dst, v)
	case convInet4:
		return appendInet4(dst, v)
	default:
		return appendInet6(dst, v)
	}
}

// value makes the Go value of a column, which keeps nothing of v.
func (c *column) value(v []byte, d *Decoder) (any, error) {
	switch c.conv {
	case convTiny, convShort, convInt24, convLong, convLongLong:
		if c.unsigned {
			return leUint(v), nil
		}
		return c.signed(v), nil
	case convText:
		return d.text(c, v), nil
	case convFloat:
		return math.Float32frombits(binary.LittleEndian.Uint32(v)), nil
	case convDouble:
		return math.Float64frombits(binary.LittleEndian.Uint64(v)), nil
	case convYear:
		return year(v), nil
	case convBit:
		return beUint(v), nil
	case convEnum:
		i := leUint(v)
		if i == 0 {
			return "", nil
		}
		if i > uint64(len(c.values)) {
			return nil, errEnum
		}
		return c.values[i-1], nil
	case convSet:
		return c.set(leUint(v))
	case convBinary:
		if len(v) > c.pad && c.typ == typeString {
			return nil, errLongBinary
		}
		b := make([]byte, max(len(v), c.pad))
		copy(b, v)
		return b, nil
	case convBinaryZ, convTextZ:
		b, err := d.uncompress(v)
		if err != nil {
			return nil, err
		}
		if c.conv == convTextZ {
			return d.text(c, b), nil
		}
		return append([]byte{}, b...), nil
	case convJSON:
		b, err := appendJSONDoc(nil, v, asIs)
		return string(b), err
	case convGeometry:
		srid, wkb, err := geometry(v)
		return functions.Geo{SRID: srid, WKB: append([]byte{}, wkb...)}, err
	case convVector:
		if len(v)%4 != 0 {
			return nil, errVector
		}
		f := make([]float32, len(v)/4)
		for i := range f {
			f[i] = math.Float32frombits(binary.LittleEndian.Uint32(v[4*i:]))
		}
		return f, nil
	default:
		b, err := c.appendText(nil, v)
		return string(b), err
	}
}

// signed reads a signed integer of the column's size.
func (c *column) signed(v []byte) int64 {
	shift := 64 - 8*len(v)
	return int64(leUint(v)<<shift) >> shift
}

func year(v []byte) int64 {
	if v[0] == 0 {
		return 0
	}
	return 1900 + int64(v[0])
}

// appendSet appends the members of a SET, as the content of a JSON string, in the order of their definition.
func (c *column) appendSet(dst []byte, v uint64) ([]byte, error) {
	return appendMembers(dst, c.quoted, v)
}

func appendMembers[T string | []byte](dst []byte, members []T, v uint64) ([]byte, error) {
	if bits.Len64(v) > len(members) {
		return dst, errEnum
	}
	for first := true; v != 0; v &= v - 1 {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, members[bits.TrailingZeros64(v)]...)
	}
	return dst, nil
}

func (c *column) set(v uint64) (string, error) {
	s, err := appendMembers(nil, c.values, v)
	return string(s), err
}

// appendBase64 appends bytes, of a BINARY(n) with the zero bytes that the log leaves out at its end.
func (c *column) appendBase64(dst, v []byte) ([]byte, error) {
	missing := c.pad - len(v)
	if c.typ != typeString || missing == 0 {
		return base64.StdEncoding.AppendEncode(dst, v), nil
	}
	if missing < 0 {
		return dst, errLongBinary
	}
	// Groups of three bytes become four characters: whole groups first, then the last one filled up.
	whole := len(v) / 3 * 3
	dst = base64.StdEncoding.AppendEncode(dst, v[:whole])
	var tail [1024]byte // BINARY is at most 255 bytes, but a damaged map may say 1023
	rest := copy(tail[:], v[whole:])
	return base64.StdEncoding.AppendEncode(dst, tail[:rest+missing]), nil
}

// geometry splits a GEOMETRY value.
func geometry(v []byte) (srid uint32, wkb []byte, err error) {
	if len(v) == 0 {
		return 0, nil, nil
	}
	if len(v) < 4 {
		return 0, nil, errGeometry
	}
	return binary.LittleEndian.Uint32(v), v[4:], nil
}

func appendVector(dst, v []byte) ([]byte, error) {
	if len(v)%4 != 0 {
		return dst, errVector
	}
	dst = append(dst, '[')
	for i := 0; i < len(v); i += 4 {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendDouble(dst, float64(math.Float32frombits(binary.LittleEndian.Uint32(v[i:]))), 32); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

const hexDigits = "0123456789abcdef"

// padded is v with the trailing zero bytes that the log leaves out.
func padded(v []byte, size int) (b [16]byte, err error) {
	if len(v) > size {
		return b, errAddress
	}
	copy(b[:], v)
	return b, nil
}

func appendUUID(dst, v []byte) ([]byte, error) {
	b, err := padded(v, uuidBytes)
	if err != nil {
		return dst, err
	}
	for i, x := range b {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, hexDigits[x>>4], hexDigits[x&15])
	}
	return dst, nil
}

func appendInet4(dst, v []byte) ([]byte, error) {
	b, err := padded(v, inet4Bytes)
	if err != nil {
		return dst, err
	}
	return appendDotted(dst, b[:4]), nil
}

func appendDotted(dst, b []byte) []byte {
	for i, x := range b {
		if i > 0 {
			dst = append(dst, '.')
		}
		dst = strconv.AppendUint(dst, uint64(x), 10)
	}
	return dst
}

// appendInet6 prints an address as MariaDB does: the first of the longest runs of zero words, even a run of one, is "::",
// and what begins with six zero words, or five and ffff, ends in dotted form.
func appendInet6(dst, v []byte) ([]byte, error) {
	b, err := padded(v, inet6Bytes)
	if err != nil {
		return dst, err
	}
	word := func(i int) uint64 { return uint64(b[2*i])<<8 | uint64(b[2*i+1]) }
	gap, length := -1, 0
	for i := 0; i < 8; i++ {
		n := 0
		for i+n < 8 && word(i+n) == 0 {
			n++
		}
		if n > length {
			gap, length = i, n
		}
		if n > 0 {
			i += n - 1
		}
	}
	for i := 0; i < 8; i++ {
		switch {
		case i == gap:
			if i == 0 {
				dst = append(dst, ':')
			}
			dst = append(dst, ':')
			i += length - 1
		case i == 6 && gap == 0 && (length == 6 || length == 5 && word(5) == 0xffff):
			return appendDotted(dst, b[12:]), nil
		default:
			dst = strconv.AppendUint(dst, word(i), 16)
			if i < 7 {
				dst = append(dst, ':')
			}
		}
	}
	return dst, nil
}
