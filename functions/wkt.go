package functions

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
)

var errWKB = errors.New("a damaged geometry")

// maxNesting bounds collections inside collections.
const maxNesting = 64

var wktNames = [...]string{1: "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION"}

// wktTail makes well-known text, a JSON string, of the geometry appended since start: SRID and WKB.
func wktTail(dst []byte, start int) ([]byte, error) {
	mark := len(dst)
	if mark == start {
		return append(dst, `""`...), nil
	}
	if mark-start < 4 {
		return dst, errWKB
	}
	dst = append(dst, '"')
	if srid := binary.LittleEndian.Uint32(dst[start:]); srid != 0 {
		dst = append(dst, "SRID="...)
		dst = append(strconv.AppendUint(dst, uint64(srid), 10), ';')
	}
	w := wkbReader{b: dst[start+4 : mark : mark]}
	dst = w.geometry(dst, true, 0)
	if w.bad || len(w.b) > 0 {
		return dst, errWKB
	}
	return replaceTail(append(dst, '"'), start, mark), nil
}

// wkbReader reads well-known binary off the front of b.
type wkbReader struct {
	b   []byte
	bad bool
}

// geometry appends one geometry, with its name or, as a member of a MULTI one, without.
func (w *wkbReader) geometry(dst []byte, named bool, depth int) []byte {
	order, kind := w.head()
	if w.bad || depth > maxNesting {
		w.bad = true
		return dst
	}
	if named {
		dst = append(append(dst, wktNames[kind]...), ' ')
	}
	if kind == 1 {
		return append(w.point(append(dst, '('), order), ')')
	}
	return w.list(dst, order, func(dst []byte) []byte {
		switch kind {
		case 2:
			return w.point(dst, order)
		case 3:
			return w.list(dst, order, func(dst []byte) []byte { return w.point(dst, order) })
		}
		return w.geometry(dst, kind == 7, depth+1)
	})
}

func (w *wkbReader) head() (order binary.ByteOrder, kind uint32) {
	if len(w.b) < 5 || w.b[0] > 1 {
		w.bad = true
		return binary.LittleEndian, 1
	}
	order = binary.LittleEndian
	if w.b[0] == 0 {
		order = binary.BigEndian
	}
	kind = order.Uint32(w.b[1:])
	w.b = w.b[5:]
	if kind < 1 || int(kind) >= len(wktNames) {
		w.bad = true
		kind = 1
	}
	return order, kind
}

// list appends a counted list in parentheses.
func (w *wkbReader) list(dst []byte, order binary.ByteOrder, item func([]byte) []byte) []byte {
	if len(w.b) < 4 {
		w.bad = true
		return dst
	}
	n := order.Uint32(w.b)
	w.b = w.b[4:]
	if n == 0 {
		return append(dst, "EMPTY"...)
	}
	dst = append(dst, '(')
	for k := range n {
		if w.bad {
			return dst
		}
		if k > 0 {
			dst = append(dst, ',', ' ')
		}
		dst = item(dst)
	}
	return append(dst, ')')
}

func (w *wkbReader) point(dst []byte, order binary.ByteOrder) []byte {
	x, y := w.coordinate(order), w.coordinate(order)
	dst = append(strconv.AppendFloat(dst, x, 'f', -1, 64), ' ')
	return strconv.AppendFloat(dst, y, 'f', -1, 64)
}

func (w *wkbReader) coordinate(order binary.ByteOrder) float64 {
	if len(w.b) < 8 {
		w.bad = true
		return 0
	}
	f := math.Float64frombits(order.Uint64(w.b))
	w.b = w.b[8:]
	return f
}
