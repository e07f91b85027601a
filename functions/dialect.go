package functions

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// What the formats have in common: walking a row's columns, and turning the text of a value into
// another shape. Everything is appended; where a value's text has to be read first, it is appended, read and
// overwritten, so that nothing is allocated.

// valueFunc appends the value of column i, which the image has and which is not NULL.
type valueFunc func(dst []byte, im Image, c *Column, i int) ([]byte, error)

func plainJSON(dst []byte, im Image, _ *Column, i int) ([]byte, error) {
	return im.AppendJSON(dst, i)
}

// keyRows are the rows that hold the whole primary key of c's record: row has what it has, rest the
// columns that a MINIMAL image did not repeat because they did not change.
func keyRows(c *Change) (row, rest Row) {
	switch c.Op {
	case Create:
		return c.After, c.Moved
	case Update:
		return c.After, c.Before
	}
	return c.Before, Row{}
}

// movedRows are the keyRows of the row's other key.
func movedRows(c *Change) (row, rest Row) {
	if c.Op == Delete {
		return c.Moved, c.Before
	}
	return c.Moved, Row{}
}

// appendKey appends "name":value, or "prefix+lower-case name":value, of the primary key columns, in key order, and the closing brace.
func appendKey(dst []byte, t *Table, row, rest Row, prefix string, value valueFunc) ([]byte, error) {
	var err error
	for n, i := range t.Key {
		im := row.image
		if im == nil || !im.Has(i) {
			if im = rest.image; im == nil || !im.Has(i) {
				return dst, &ColumnError{Table: t.Database + "." + t.Name, Column: t.Columns[i].Name, Err: errKeyAbsent}
			}
		}
		if n > 0 {
			dst = append(dst, ',')
		}
		if prefix == "" {
			dst = appendName(dst, t.Columns[i].Name)
		} else { // Maxwell's
			dst = append(append(dst, '"'), prefix...)
			dst = append(appendLower(dst, t.Columns[i].Name), '"', ':')
		}
		if dst, err = appendField(dst, im, &t.Columns[i], i, value); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// appendObject appends the columns that row has, in table order, as an object. Columns that only rest has,
// because they did not change, follow: the object is as much of the row as is known.
func appendObject(dst []byte, row, rest Row, value valueFunc) ([]byte, error) {
	return appendColumns(dst, row, rest, value, appendField)
}

// appendTypes is appendObject for what is said of columns and not of values: value is asked about NULL too.
func appendTypes(dst []byte, row, rest Row, value valueFunc) ([]byte, error) {
	return appendColumns(dst, row, rest, value, appendType)
}

func appendColumns(dst []byte, row, rest Row, value valueFunc, field fieldFunc) ([]byte, error) {
	t := row.table
	if row.image == nil {
		return dst, errNoImage
	}
	start := len(dst)
	var err error
	for i := range t.Columns {
		if !row.image.Has(i) {
			continue
		}
		dst = appendName(append(dst, ','), t.Columns[i].Name)
		if dst, err = field(dst, row.image, &t.Columns[i], i, value); err != nil {
			return dst, err
		}
	}
	if rest.image != nil {
		for i := range t.Columns {
			if row.image.Has(i) || !rest.image.Has(i) {
				continue
			}
			dst = appendName(append(dst, ','), t.Columns[i].Name)
			if dst, err = field(dst, rest.image, &t.Columns[i], i, value); err != nil {
				return dst, err
			}
		}
	}
	return closeObject(dst, start), nil
}

// appendChanged appends, as an object, the columns of before that after has with another value.
func appendChanged(dst []byte, before, after Row, value valueFunc) (out []byte, any bool, err error) {
	start := len(dst)
	if t := before.table; before.image != nil && after.image != nil {
		for i := range t.Columns {
			if !before.image.Has(i) || !after.image.Has(i) {
				continue
			}
			// The JSON forms of two values of one column are equal exactly when the values are.
			n := len(dst)
			if dst, err = before.image.AppendJSON(dst, i); err != nil {
				return dst, false, err
			}
			m := len(dst)
			if dst, err = after.image.AppendJSON(dst, i); err != nil {
				return dst, false, err
			}
			same := before.image.IsNull(i) == after.image.IsNull(i) && bytes.Equal(dst[n:m], dst[m:])
			if dst = dst[:n]; same {
				continue
			}
			dst = appendName(append(dst, ','), t.Columns[i].Name)
			if dst, err = appendField(dst, before.image, &t.Columns[i], i, value); err != nil {
				return dst, false, err
			}
		}
	}
	any = len(dst) > start
	return closeObject(dst, start), any, nil
}

// closeObject ends an object whose members, each with a comma in front, begin at start.
func closeObject(dst []byte, start int) []byte {
	if len(dst) == start {
		return append(dst, '{', '}')
	}
	dst[start] = '{'
	return append(dst, '}')
}

type fieldFunc func(dst []byte, im Image, c *Column, i int, value valueFunc) ([]byte, error)

func appendType(dst []byte, im Image, c *Column, i int, value valueFunc) ([]byte, error) {
	return value(dst, im, c, i)
}

func appendField(dst []byte, im Image, c *Column, i int, value valueFunc) ([]byte, error) {
	if im.IsNull(i) {
		return append(dst, "null"...), nil
	}
	return value(dst, im, c, i)
}

func appendName(dst []byte, name string) []byte {
	return append(appendString(dst, name), ':')
}

// appendLower appends the lower case of s as the content of a JSON string.
func appendLower(dst []byte, s string) []byte {
	start := len(dst)
	for _, r := range s {
		dst = utf8.AppendRune(dst, unicode.ToLower(r))
	}
	mark := len(dst)
	return replaceTail(appendEscaped(dst, dst[start:mark]), start, mark)
}

// appendString appends s as a JSON string: UTF-8 as it is, without HTML escapes; bytes that are not
// UTF-8 become U+FFFD.
func appendString[T string | []byte](dst []byte, s T) []byte {
	return append(appendEscaped(append(dst, '"'), s), '"')
}

// appendEscaped appends s as the content of a JSON string.
func appendEscaped[T string | []byte](dst []byte, s T) []byte {
	start := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b >= 0x20 && b < utf8.RuneSelf && b != '"' && b != '\\' {
			i++
			continue
		}
		if b >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			if r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
		}
		dst = append(dst, s[start:i]...)
		if b >= utf8.RuneSelf {
			dst = append(dst, `\ufffd`...)
		} else {
			dst = appendEscape(dst, b)
		}
		i++
		start = i
	}
	return append(dst, s[start:]...)
}

// appendEscape appends the escape of one ASCII character.
func appendEscape(dst []byte, b byte) []byte {
	const hex = "0123456789abcdef"
	switch b {
	case '"', '\\':
		return append(dst, '\\', b)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
}

// replaceTail makes the bytes from mark on, which were made of those between start and mark, take their place.
func replaceTail(dst []byte, start, mark int) []byte {
	n := copy(dst[start:], dst[mark:])
	return dst[:start+n]
}

// quoteTail makes a JSON string of what was appended since start.
func quoteTail(dst []byte, start int) []byte {
	mark := len(dst)
	dst = appendString(dst, dst[start:mark])
	return replaceTail(dst, start, mark)
}

// compactTail takes the blanks between the tokens of the JSON text appended since start.
func compactTail(dst []byte, start int) []byte {
	out, inside := start, false
	for i := start; i < len(dst); i++ {
		b := dst[i]
		switch {
		case inside && b == '\\' && i+1 < len(dst):
			dst[out] = b
			out, i = out+1, i+1
			b = dst[i]
		case b == '"':
			inside = !inside
		case !inside && (b == ' ' || b == '\n' || b == '\r' || b == '\t'):
			continue
		}
		dst[out] = b
		out++
	}
	return dst[:out]
}

// javaTail spells the number appended since start as Java's Double.toString does: 100.0, 0.001, 1.0E7, 3.1E-5.
func javaTail(dst []byte, start int) []byte {
	var digits [24]byte
	n, point, sign := 0, 0, false // ±0.digits × 10^point
	fraction := false
	text := dst[start:]
scan:
	for i, b := range text {
		switch {
		case b == '-':
			sign = true
		case b == '.':
			fraction = true
		case b == 'e':
			point += int(integer(text[i+1:]))
			break scan
		case b == '0' && n == 0:
			if fraction {
				point--
			}
		default:
			if n < len(digits) {
				digits[n] = b
				n++
			}
			if !fraction {
				point++
			}
		}
	}
	for n > 0 && digits[n-1] == '0' {
		n--
	}
	dst = dst[:start]
	if sign {
		dst = append(dst, '-')
	}
	d := digits[:n]
	const zeros = "00000000"
	switch {
	case n == 0:
		return append(dst, "0.0"...)
	case point <= -3 || point > 7:
		dst = append(dst, d[0], '.')
		if n == 1 {
			dst = append(dst, '0')
		}
		dst = append(append(dst, d[1:]...), 'E')
		return appendInt(dst, int64(point-1))
	case point <= 0:
		dst = append(append(dst, "0."...), zeros[:-point]...)
		return append(dst, d...)
	case point >= n:
		dst = append(append(dst, d...), zeros[:point-n]...)
		return append(dst, ".0"...)
	}
	dst = append(append(dst, d[:point]...), '.')
	return append(dst, d[point:]...)
}

// javaListTail is javaTail for each number of a list.
func javaListTail(dst []byte, start int) []byte {
	mark := len(dst)
	from := start + len("[")
	dst = append(dst, '[')
	for i := from; i < mark; i++ {
		if dst[i] != ',' && dst[i] != ']' {
			continue
		}
		n := len(dst)
		dst = append(dst, dst[from:i]...)
		if i > from {
			dst = javaTail(dst, n)
		}
		dst = append(dst, dst[i])
		from = i + 1
	}
	return replaceTail(dst, start, mark)
}

// integer reads an integer with a sign; other characters are not expected.
func integer(b []byte) int64 {
	var n int64
	negative := false
	for _, c := range b {
		switch {
		case c == '-':
			negative = true
		case c >= '0' && c <= '9' && n < math.MaxInt64/10:
			n = n*10 + int64(c-'0')
		}
	}
	if negative {
		return -n
	}
	return n
}

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

func appendUint(dst []byte, n uint64) []byte { return strconv.AppendUint(dst, n, 10) }

var errNoImage = errors.New("the change has no row image")
