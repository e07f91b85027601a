package relaytest

import (
	"encoding/binary"
	"hash/fnv"
	"sync"
)

// tableMap is the body of a table's map event, ready but for the table id.
type tableMap struct {
	full, minimal []byte
}

var mapsMu sync.Mutex // guards Table.maps: a table may be used by several sources

// TableMap describes the table whose rows follow. The id is derived from the table, so that a changed
// table has another one.
func (b *Builder) TableMap(t *Table) []byte {
	m := t.tableMap(b.Flavor)
	body := m.full
	if b.Minimal {
		body = m.minimal
	}
	return b.Event(evTableMap, 0, body)
}

func (t *Table) tableMap(f Flavor) *tableMap {
	mapsMu.Lock()
	defer mapsMu.Unlock()
	if err := t.compile(); err != nil {
		panic("relaytest: " + err.Error())
	}
	m := t.maps[f]
	if m == nil {
		m = &tableMap{full: t.mapBody(f, true), minimal: t.mapBody(f, false)}
		t.maps[f] = m
	}
	return m
}

// id is a table id of the same shape and name for ever.
func (t *Table) id() uint64 {
	h := fnv.New32a()
	h.Write([]byte(t.String()))
	for _, c := range t.cols {
		h.Write([]byte(c.name + c.fullType))
	}
	return uint64(h.Sum32()&0xffffff | 0x100)
}

func (t *Table) appendID(b []byte) []byte {
	id := binary.LittleEndian.AppendUint64(nil, t.id())
	return append(b, id[:6]...)
}

func (t *Table) mapBody(f Flavor, full bool) []byte {
	b := t.appendID(nil)
	b = append(b, 1, 0, byte(len(t.Database)))
	b = append(append(b, t.Database...), 0, byte(len(t.Name)))
	b = append(append(b, t.Name...), 0)
	b = appendLenEnc(b, len(t.cols))
	var meta []byte
	nulls := make([]byte, (len(t.cols)+7)/8)
	for i := range t.cols {
		c := &t.cols[i]
		typ, m := c.wire(f)
		b = append(b, typ)
		meta = append(meta, m...)
		if !c.notNull {
			nulls[i/8] |= 1 << (i % 8)
		}
	}
	b = appendLenEnc(b, len(meta))
	b = append(append(b, meta...), nulls...)
	if sign := t.signedness(); len(sign) > 0 {
		b = appendField(b, 1, sign)
	}
	b = t.appendCharsets(b, f, 2, 3, func(c *column) bool { return c.isCharacter(f) })
	if kinds := t.geometryTypes(); len(kinds) > 0 {
		b = appendField(b, 7, kinds)
	}
	if dims := t.vectorDimensions(); len(dims) > 0 {
		b = appendField(b, 13, dims)
	}
	if !full {
		return b
	}
	b = appendField(b, 4, t.names())
	b = t.appendCharsets(b, f, 10, 11, func(c *column) bool { return c.typ == tyEnum || c.typ == tySet })
	for _, s := range []struct{ typ, field byte }{{tySet, 5}, {tyEnum, 6}} {
		if v := t.members(s.typ); len(v) > 0 {
			b = appendField(b, s.field, v)
		}
	}
	if len(t.Key) > 0 {
		var key []byte
		for _, k := range t.Key {
			key = appendLenEnc(key, t.columnIndex(k))
		}
		b = appendField(b, 8, key)
	}
	if f != MariaDB {
		b = appendField(b, 12, t.visible())
	}
	return b
}

// wire is the type code and metadata of a column in the map.
func (c *column) wire(f Flavor) (typ byte, meta []byte) {
	switch c.typ {
	case tyFloat, tyDouble:
		return c.typ, []byte{byte(c.size)}
	case tyDecimal:
		return c.typ, []byte{byte(c.prec), byte(c.scale)}
	case tyBit:
		return c.typ, []byte{byte(c.size % 8), byte(c.size / 8)}
	case tyTimestamp, tyDateTime, tyTime:
		return c.typ, []byte{byte(c.prec)}
	case tyVarchar:
		return c.typ, []byte{byte(c.size), byte(c.size >> 8)}
	case tyString: // two high bits of the length hide in the type byte, inverted
		return tyString, []byte{tyString ^ byte(c.size&0x300>>4), byte(c.size)}
	case tyEnum, tySet:
		return tyString, []byte{c.typ, byte(c.size)}
	case tyJSON:
		if f == MariaDB {
			return tyBlob, []byte{4}
		}
		return tyJSON, []byte{4}
	case tyBlob, tyVector, tyGeometry:
		return c.typ, []byte{byte(c.size)}
	}
	return c.typ, nil
}

// isCharacter tells which columns have a collation in the map: text and bytes of all kinds, but no enum and set.
func (c *column) isCharacter(f Flavor) bool {
	switch c.typ {
	case tyString, tyVarchar, tyBlob, tyVector:
		return true
	}
	return (c.typ == tyJSON || c.typ == tyGeometry) && f == MariaDB
}

func (c *column) collationID(f Flavor) uint16 {
	switch {
	case c.typ == tyJSON:
		return 46 // MariaDB: utf8mb4_bin
	case c.charset == nil:
		return 63 // binary
	}
	return c.charset.collationID(f)
}

// signedness has a bit for each numeric column, the first in the highest bit.
func (t *Table) signedness() (b []byte) {
	n := 0
	for i := range t.cols {
		switch t.cols[i].typ {
		case tyTiny, tyShort, tyInt24, tyLong, tyLongLong, tyYear, tyFloat, tyDouble, tyDecimal:
			if n%8 == 0 {
				b = append(b, 0)
			}
			if t.cols[i].unsigned {
				b[n/8] |= 0x80 >> (n % 8)
			}
			n++
		}
	}
	return b
}

// appendCharsets writes either one collation for all columns and the exceptions, or one for each,
// whichever is shorter, as the servers do.
func (t *Table) appendCharsets(b []byte, f Flavor, withDefault, each byte, include func(*column) bool) []byte {
	var ids []uint16
	count := map[uint16]int{}
	for i := range t.cols {
		if c := &t.cols[i]; include(c) {
			id := c.collationID(f)
			ids = append(ids, id)
			count[id]++
		}
	}
	if len(ids) == 0 {
		return b
	}
	most := ids[0]
	for id, n := range count {
		if n > count[most] || n == count[most] && id < most {
			most = id
		}
	}
	var v []byte
	if len(ids) < 1+2*(len(ids)-count[most]) {
		for _, id := range ids {
			v = appendLenEnc(v, int(id))
		}
		return appendField(b, each, v)
	}
	v = appendLenEnc(v, int(most))
	for i, id := range ids {
		if id != most {
			v = appendLenEnc(appendLenEnc(v, i), int(id))
		}
	}
	return appendField(b, withDefault, v)
}

func (t *Table) names() (b []byte) {
	for i := range t.cols {
		b = appendLenEnc(b, len(t.cols[i].name))
		b = append(b, t.cols[i].name...)
	}
	return b
}

// members lists the names of the members of each enum or set column, in the column's character set.
func (t *Table) members(typ byte) (b []byte) {
	for i := range t.cols {
		c := &t.cols[i]
		if c.typ != typ {
			continue
		}
		b = appendLenEnc(b, len(c.values))
		for _, v := range c.values {
			enc, err := c.charset.encode(v)
			if err != nil {
				enc = []byte("?")
			}
			b = append(appendLenEnc(b, len(enc)), enc...)
		}
	}
	return b
}

func (t *Table) geometryTypes() (b []byte) {
	kinds := map[string]byte{"POINT": 1, "LINESTRING": 2, "POLYGON": 3, "MULTIPOINT": 4, "MULTILINESTRING": 5, "MULTIPOLYGON": 6, "GEOMETRYCOLLECTION": 7, "GEOMCOLLECTION": 7}
	for i := range t.cols {
		if t.cols[i].typ == tyGeometry {
			b = append(b, kinds[t.cols[i].sqlType])
		}
	}
	return b
}

func (t *Table) vectorDimensions() (b []byte) {
	for i := range t.cols {
		if t.cols[i].typ == tyVector {
			b = appendLenEnc(b, t.cols[i].chars)
		}
	}
	return b
}

// visible is MySQL's bitmap of columns that SELECT * shows: all, here.
func (t *Table) visible() []byte {
	b := make([]byte, (len(t.cols)+7)/8)
	for i := range t.cols {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return b
}

// appendField adds one optional field of a table map: type, length, value.
func appendField(b []byte, typ byte, v []byte) []byte {
	return append(appendLenEnc(append(b, typ), len(v)), v...)
}

// appendLenEnc adds an integer in the protocol's length-encoded form.
func appendLenEnc(b []byte, n int) []byte {
	switch {
	case n < 251:
		return append(b, byte(n))
	case n < 1<<16:
		return append(b, 0xfc, byte(n), byte(n>>8))
	case n < 1<<24:
		return append(b, 0xfd, byte(n), byte(n>>8), byte(n>>16))
	}
	return binary.LittleEndian.AppendUint64(append(b, 0xfe), uint64(n))
}
