package relaytest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
)

// Types in MySQL's binary JSON.
const (
	jsonSmallObject = 0
	jsonLargeObject = 1
	jsonSmallArray  = 2
	jsonLargeArray  = 3
	jsonLiteral     = 4
	jsonInt16       = 5
	jsonInt32       = 7
	jsonInt64       = 9
	jsonUint64      = 10
	jsonDouble      = 11
	jsonString      = 12
)

// encodeJSON turns a document's text into MySQL's binary form: members sorted by the length of their
// names, then by their bytes, the last of equal names kept; two-byte offsets while everything fits 64 KiB.
func encodeJSON(text []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("JSON: %w", err)
	}
	if d.More() {
		return nil, errors.New("JSON: more than one document")
	}
	typ, b, err := jsonValue(v)
	if err != nil {
		return nil, err
	}
	return append([]byte{typ}, b...), nil
}

// jsonValue returns the type and the bytes of a value, without inlining.
func jsonValue(v any) (typ byte, b []byte, err error) {
	switch v := v.(type) {
	case nil:
		return jsonLiteral, []byte{0}, nil
	case bool:
		if v {
			return jsonLiteral, []byte{1}, nil
		}
		return jsonLiteral, []byte{2}, nil
	case string:
		return jsonString, append(jsonLength(nil, len(v)), v...), nil
	case json.Number:
		return jsonNumber(v.String())
	case []any:
		return jsonContainer(jsonSmallArray, nil, v)
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Slice(keys, func(i, j int) bool {
			if len(keys[i]) != len(keys[j]) {
				return len(keys[i]) < len(keys[j])
			}
			return keys[i] < keys[j]
		})
		values := make([]any, len(keys))
		for i, k := range keys {
			values[i] = v[k]
		}
		return jsonContainer(jsonSmallObject, keys, values)
	}
	return 0, nil, fmt.Errorf("JSON: %T", v)
}

func jsonNumber(s string) (typ byte, b []byte, err error) {
	if !strings.ContainsAny(s, ".eE") {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			switch {
			case n == int64(int16(n)):
				return jsonInt16, appendLittle(nil, uint64(n), 2), nil
			case n == int64(int32(n)):
				return jsonInt32, appendLittle(nil, uint64(n), 4), nil
			case n > math.MaxUint32: // what MySQL's parser reads as unsigned
				return jsonUint64, appendLittle(nil, uint64(n), 8), nil
			}
			return jsonInt64, appendLittle(nil, uint64(n), 8), nil
		}
		if n, err := strconv.ParseUint(s, 10, 64); err == nil {
			return jsonUint64, appendLittle(nil, n, 8), nil
		}
	}
	x, err := strconv.ParseFloat(s, 64)
	return jsonDouble, binary.LittleEndian.AppendUint64(nil, math.Float64bits(x)), err
}

// jsonContainer writes an array (keys nil) or an object: count, size, then entries for the keys and the
// values, then the keys' and the values' bytes. It is tried small first.
func jsonContainer(small byte, keys []string, values []any) (typ byte, b []byte, err error) {
	for large := range 2 {
		size := 2 + 2*large // of counts and offsets
		head := 2*size + len(keys)*(size+2) + len(values)*(1+size)
		b = make([]byte, head)
		put := func(at, n int) {
			if size == 2 {
				binary.LittleEndian.PutUint16(b[at:], uint16(n))
			} else {
				binary.LittleEndian.PutUint32(b[at:], uint32(n))
			}
		}
		for i, k := range keys {
			at := 2*size + i*(size+2)
			put(at, len(b))
			binary.LittleEndian.PutUint16(b[at+size:], uint16(len(k)))
			b = append(b, k...)
		}
		for i, v := range values {
			typ, data, err := jsonValue(v)
			if err != nil {
				return 0, nil, err
			}
			at := 2*size + len(keys)*(size+2) + i*(1+size)
			b[at] = typ
			if typ == jsonLiteral || typ == jsonInt16 || typ == jsonInt32 && size == 4 {
				if typ == jsonInt16 && int16(binary.LittleEndian.Uint16(data)) < 0 && size == 4 {
					data = append(data, 0xff, 0xff)
				}
				copy(b[at+1:at+1+size], data) // small enough to stand in the entry itself
				continue
			}
			put(at+1, len(b))
			b = append(b, data...)
		}
		put(0, len(values))
		put(size, len(b))
		if len(b) < 1<<16 || size == 4 {
			return small + byte(large), b, nil
		}
	}
	panic("unreachable")
}

// jsonLength writes a string's length, seven bits a byte.
func jsonLength(b []byte, n int) []byte {
	for n >= 0x80 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}
