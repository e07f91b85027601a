package binlog

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
)

// Value types of MySQL's binary JSON.
const (
	jsonSmallObject = 0
	jsonLargeObject = 1
	jsonSmallArray  = 2
	jsonLargeArray  = 3
	jsonLiteral     = 4
	jsonInt16       = 5
	jsonUint16      = 6
	jsonInt32       = 7
	jsonUint32      = 8
	jsonInt64       = 9
	jsonUint64      = 10
	jsonDouble      = 11
	jsonString      = 12
	jsonOpaque      = 15
)

// maxJSONDepth is above the server's limit of 100.
const maxJSONDepth = 128

// maxJSONDigits is what the server's decimals hold; in JSON the precision counts whole groups of nine digits and can pass 65.
const maxJSONDigits = 81

var errJSON = errors.New("damaged binary JSON")

// appendJSONDoc appends the text of a binary JSON document as the server prints it: members in stored order, ", "
// between and ": " inside them. l is asIs for the text itself, quoted where the text is the
// content of a JSON string.
func appendJSONDoc(dst, doc []byte, l level) ([]byte, error) {
	w := jsonWriter{dst: dst, level: l, budget: len(doc)}
	if len(doc) == 0 { // a NOT NULL column that got NULL where the server only warns
		return append(dst, "null"...), nil
	}
	w.value(doc[0], doc[1:])
	if w.bad {
		return w.dst, errJSON
	}
	return w.dst, nil
}

type jsonWriter struct {
	dst   []byte
	level level
	depth int
	// budget is how many bytes of values may still be read: no more than the document has. A damaged document
	// could point to one value from many places and be endless otherwise.
	budget int
	bad    bool
}

func (w *jsonWriter) spend(n int) bool {
	if n < 0 || n > w.budget {
		w.bad = true
		return false
	}
	w.budget -= n
	return true
}

// value appends a value of type t that begins at b; b may be longer than the value.
func (w *jsonWriter) value(t byte, b []byte) {
	if w.bad {
		return
	}
	switch t {
	case jsonSmallObject, jsonLargeObject, jsonSmallArray, jsonLargeArray:
		w.container(t, b)
	case jsonLiteral:
		w.literal(b)
	case jsonInt16, jsonUint16, jsonInt32, jsonUint32, jsonInt64, jsonUint64, jsonDouble:
		w.number(t, b)
	case jsonString:
		n, rest, ok := jsonLength(b)
		if !ok || !w.spend(n) {
			w.bad = true
			return
		}
		w.str(rest[:n])
	case jsonOpaque:
		w.opaque(b)
	default:
		w.bad = true
	}
}

func (w *jsonWriter) literal(b []byte) {
	if len(b) == 0 || b[0] > 2 {
		w.bad = true
		return
	}
	w.dst = append(w.dst, [...]string{"null", "true", "false"}[b[0]]...)
}

func (w *jsonWriter) number(t byte, b []byte) {
	size := [...]int{2, 2, 4, 4, 8, 8, 8}[t-jsonInt16]
	if len(b) < size {
		w.bad = true
		return
	}
	switch v := leUint(b[:size]); t {
	case jsonInt16, jsonInt32, jsonInt64:
		shift := 64 - 8*size
		w.dst = strconv.AppendInt(w.dst, int64(v<<shift)>>shift, 10)
	case jsonDouble:
		start := len(w.dst)
		var err error
		w.dst, err = appendDouble(w.dst, math.Float64frombits(v), 64)
		w.bad = err != nil
		if !bytes.ContainsAny(w.dst[start:], ".e") {
			w.dst = append(w.dst, '.', '0')
		}
	default:
		w.dst = strconv.AppendUint(w.dst, v, 10)
	}
}

// jsonLength reads a length of up to five bytes of seven bits, lowest first; rest has at least that many bytes.
func jsonLength(b []byte) (n int, rest []byte, ok bool) {
	for i := 0; i < 5 && i < len(b); i++ {
		n |= int(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			rest = b[i+1:]
			return n, rest, n <= len(rest)
		}
	}
	return 0, nil, false
}

// quote appends a quotation mark of the document.
func (w *jsonWriter) quote() {
	if w.level != asIs {
		w.dst = append(w.dst, '\\')
	}
	w.dst = append(w.dst, '"')
}

func (w *jsonWriter) str(s []byte) {
	w.quote()
	// A document is utf8mb4 and was checked by the server: bytes that are no text are not counted here.
	w.dst, _ = appendUTF8(w.dst, s, w.level+1)
	w.quote()
}

// container is an object or array: count, size, then for objects entries of the keys (offset, length u16), entries of the values
// (type u8, offset or the value itself), keys, values. Counts, sizes and offsets have 2 or 4 bytes.
func (w *jsonWriter) container(t byte, b []byte) {
	c, ok := openContainer(t, b)
	if w.depth++; !ok || w.depth > maxJSONDepth || !w.spend(c.entryBytes()) {
		w.bad = true
		return
	}
	begin, end := byte('{'), byte('}')
	if !c.object {
		begin, end = '[', ']'
	}
	w.dst = append(w.dst, begin)
	for i := 0; i < c.n && !w.bad; i++ {
		if i > 0 {
			w.dst = append(w.dst, ',', ' ')
		}
		if c.object {
			key, ok := c.key(i)
			if !ok || !w.spend(len(key)) {
				w.bad = true
				return
			}
			w.str(key)
			w.dst = append(w.dst, ':', ' ')
		}
		t, v, ok := c.value(i)
		if !ok {
			w.bad = true
			return
		}
		w.value(t, v)
	}
	w.dst = append(w.dst, end)
	w.depth--
}

// jsonContainer gives access to the members of an object or array.
type jsonContainer struct {
	b      []byte
	object bool
	width  int // of counts and offsets
	n      int
}

func openContainer(t byte, b []byte) (c jsonContainer, ok bool) {
	c = jsonContainer{object: t == jsonSmallObject || t == jsonLargeObject, width: 2}
	if t == jsonLargeObject || t == jsonLargeArray {
		c.width = 4
	}
	if len(b) < 2*c.width {
		return c, false
	}
	c.n = int(leUint(b[:c.width]))
	size := int(leUint(b[c.width : 2*c.width]))
	if size > len(b) || size < 2*c.width {
		return c, false
	}
	c.b = b[:size]
	return c, c.n <= size && 2*c.width+c.entryBytes() <= size
}

func (c *jsonContainer) entryBytes() int {
	if c.object {
		return c.n * (c.width + 2 + 1 + c.width)
	}
	return c.n * (1 + c.width)
}

func (c *jsonContainer) key(i int) ([]byte, bool) {
	e := c.b[2*c.width+i*(c.width+2):]
	at, n := int(leUint(e[:c.width])), int(binary.LittleEndian.Uint16(e[c.width:]))
	if at > len(c.b) || n > len(c.b)-at {
		return nil, false
	}
	return c.b[at : at+n], true
}

// value returns the type of the i-th value and where it begins.
func (c *jsonContainer) value(i int) (t byte, v []byte, ok bool) {
	at := 2*c.width + i*(1+c.width)
	if c.object {
		at += c.n * (c.width + 2)
	}
	e := c.b[at : at+1+c.width]
	t, e = e[0], e[1:]
	switch t {
	case jsonLiteral, jsonInt16, jsonUint16:
		return t, e, true // stored in the entry
	case jsonInt32, jsonUint32:
		if c.width == 4 {
			return t, e, true
		}
	}
	offset := int(leUint(e))
	if offset >= len(c.b) || offset < 2*c.width+c.entryBytes() {
		return t, nil, false
	}
	return t, c.b[offset:], true
}

// opaque is a value of an SQL type that JSON does not have.
func (w *jsonWriter) opaque(b []byte) {
	if len(b) == 0 {
		w.bad = true
		return
	}
	typ := b[0]
	n, rest, ok := jsonLength(b[1:])
	if !ok || !w.spend(n) {
		w.bad = true
		return
	}
	v := rest[:n]
	var err error
	switch typ {
	case typeNewDecimal:
		if len(v) < 2 || v[0] == 0 || v[0] > maxJSONDigits || v[1] > v[0] {
			w.bad = true
			return
		}
		w.dst, err = appendDecimal(w.dst, v[2:], v[0], v[1])
	case typeDate, typeTime, typeDateTime, typeTimestamp:
		w.quote()
		w.dst, err = appendPackedTemporal(w.dst, typ, v)
		w.quote()
	default:
		w.quote()
		w.dst = append(strconv.AppendUint(append(w.dst, "base64:type"...), uint64(typ), 10), ':')
		w.base64(v)
		w.quote()
	}
	w.bad = w.bad || err != nil
}

// base64Line is where the server breaks the lines of base64: after 76 characters.
const base64Line = 76 / 4 * 3

func (w *jsonWriter) base64(v []byte) {
	for len(v) > base64Line {
		w.dst = base64.StdEncoding.AppendEncode(w.dst, v[:base64Line])
		w.dst = append(w.dst, escapes[w.level+1]['\n']...)
		v = v[base64Line:]
	}
	w.dst = base64.StdEncoding.AppendEncode(w.dst, v)
}

// appendPackedTemporal reads the server's own form of a date or time: fraction 24 bits, second 6, minute 6,
// hour 5 (TIME: 10), day 5, year×13+month 17; a negative TIME is negated as a whole.
func appendPackedTemporal(dst []byte, typ byte, b []byte) ([]byte, error) {
	if len(b) != 8 {
		return dst, errJSON
	}
	v := int64(binary.LittleEndian.Uint64(b))
	if v < 0 {
		dst = append(dst, '-')
		v = -v
	}
	micros, hms := uint64(v&0xffffff), int(v>>24)
	hour := hms >> 12
	if typ != typeTime {
		ym := hms >> 22
		var err error
		if dst, err = appendYMD(dst, ym/13, ym%13, hms>>17&31); err != nil || typ == typeDate {
			return dst, err
		}
		dst = append(dst, ' ')
		hour &= 31
	}
	dst, err := appendHMS(dst, hour, hms>>6&63, hms&63)
	if err != nil {
		return dst, err
	}
	return appendFraction(dst, micros, maxTimeFraction)
}
