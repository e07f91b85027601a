package binlog

import (
	"encoding/binary"
	"fmt"
	"math"
)

// synthColumn is a column of a table map made by hand.
type synthColumn struct {
	typ      byte
	meta     []byte
	name     string
	numeric  bool
	unsigned bool
	nullable bool
	enum     []string
	key      bool
}

func putLenenc(b []byte, n int) []byte {
	switch {
	case n < 251:
		return append(b, byte(n))
	case n < 1<<16:
		return append(b, 0xfc, byte(n), byte(n>>8))
	default:
		return append(b, 0xfd, byte(n), byte(n>>8), byte(n>>16))
	}
}

func putString(b []byte, s string) []byte { return append(putLenenc(b, len(s)), s...) }

func putMeta(b []byte, typ byte, v []byte) []byte {
	return append(putLenenc(append(b, typ), len(v)), v...)
}

// synthTableMap is the body of a table map with full metadata, all text in utf8mb4.
func synthTableMap(id uint64, db, table string, cols []synthColumn) []byte {
	b := binary.LittleEndian.AppendUint64(nil, id)[:6]
	b = append(b, 1, 0)
	b = append(putString(b, db), 0)
	b = append(putString(b, table), 0)
	b = putLenenc(b, len(cols))
	var meta, signs, names, enums, keys []byte
	nulls := make([]byte, (len(cols)+7)/8)
	numeric := 0
	for i, c := range cols {
		b = append(b, c.typ)
		meta = append(meta, c.meta...)
		if c.nullable {
			nulls[i/8] |= 1 << (i % 8)
		}
		if c.numeric {
			if numeric%8 == 0 {
				signs = append(signs, 0)
			}
			if c.unsigned {
				signs[numeric/8] |= 0x80 >> (numeric % 8)
			}
			numeric++
		}
		names = putString(names, c.name)
		if c.enum != nil {
			enums = putLenenc(enums, len(c.enum))
			for _, e := range c.enum {
				enums = putString(enums, e)
			}
		}
		if c.key {
			keys = putLenenc(keys, i)
		}
	}
	b = append(putLenenc(b, len(meta)), meta...)
	b = append(b, nulls...)
	if signs != nil {
		b = putMeta(b, metaSignedness, signs)
	}
	utf8mb4Default := []byte{45}
	b = putMeta(b, metaDefaultCharset, utf8mb4Default)
	b = putMeta(b, metaColumnName, names)
	if keys != nil {
		b = putMeta(b, metaPrimaryKey, keys)
	}
	if enums != nil {
		b = putMeta(b, metaEnumValues, enums)
		b = putMeta(b, metaEnumDefault, utf8mb4Default)
	}
	return b
}

// synthRows is the body of a rows event with full images.
func synthRows(typ byte, id uint64, ncol int, images ...[]byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, id)[:6]
	b = append(b, 1, 0, 2, 0)
	b = putLenenc(b, ncol)
	for range 1 + b2i(typ == evUpdateRows) {
		for i := 0; i < ncol; i += 8 {
			b = append(b, byte(1<<min(8, ncol-i)-1))
		}
	}
	for _, im := range images {
		b = append(b, im...)
	}
	return b
}

// synthPart is a part with one table map and one event of its rows.
func synthPart(cols []synthColumn, typ byte, images ...[]byte) []byte {
	h := partHeader{Flags: partFirst | partLast, ServerID: 1, CommitMicros: 1790000000123456, Pos: 4711, File: "binlog.000001",
		GTID: "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"}
	b := h.append(nil)
	b = addEvent(b, evTableMap, synthTableMap(99, "shop", "orders", cols))
	return addEvent(b, typ, synthRows(typ, 99, len(cols), images...))
}

// narrowColumns are eight integers.
func narrowColumns() []synthColumn {
	c := make([]synthColumn, 8)
	for i := range c {
		c[i] = synthColumn{typ: typeLong, name: fmt.Sprintf("c%d", i), numeric: true, key: i == 0}
	}
	return c
}

func narrowRow(i int) []byte {
	b := []byte{0}
	for k := range 8 {
		b = binary.LittleEndian.AppendUint32(b, uint32(i*31+k*7919))
	}
	return b
}

// wideColumns are the fourteen columns of an order.
func wideColumns() []synthColumn {
	return []synthColumn{
		{typ: typeLongLong, name: "id", numeric: true, unsigned: true, key: true},
		{typ: typeLong, name: "user_id", numeric: true, unsigned: true},
		{typ: typeTiny, name: "status", numeric: true},
		{typ: typeVarchar, meta: []byte{0xfc, 0x03}, name: "sku"},
		{typ: typeVarchar, meta: []byte{0xfc, 0x03}, name: "email"},
		{typ: typeNewDecimal, meta: []byte{12, 2}, name: "price", numeric: true},
		{typ: typeDouble, meta: []byte{8}, name: "weight", numeric: true},
		{typ: typeDateTime2, meta: []byte{3}, name: "created_at"},
		{typ: typeTimestamp2, meta: []byte{6}, name: "updated_at"},
		{typ: typeDate, name: "ship_date", nullable: true},
		{typ: typeString, meta: []byte{247, 1}, name: "channel", enum: []string{"web", "app", "store"}},
		{typ: typeBlob, meta: []byte{2}, name: "note", nullable: true},
		{typ: typeVarchar, meta: []byte{0xfc, 0x03}, name: "country"},
		{typ: typeLong, name: "qty", numeric: true, nullable: true},
	}
}

func wideRow(i int) []byte {
	b := make([]byte, 2, 220)
	var nulls uint16
	if i%3 == 0 {
		nulls |= 1 << 9
	}
	if i%5 == 0 {
		nulls |= 1 << 13
	}
	str := func(s string) { b = append(append(b, byte(len(s)), byte(len(s)>>8)), s...) }
	binary.LittleEndian.PutUint16(b, nulls)
	b = binary.LittleEndian.AppendUint64(b, uint64(1_000_000+i))
	b = binary.LittleEndian.AppendUint32(b, uint32(i*7%100000))
	b = append(b, byte(i%5))
	str(fmt.Sprintf("SKU-%08d-AB", i))
	str(fmt.Sprintf("customer%d@example.com", i%50000))
	price := binary.BigEndian.AppendUint32([]byte{0x80}, uint32(i*13%999999)) // ten digits before the point, two behind
	b = append(append(b, price...), byte(i%100))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(i%1000)*1.25))
	date := int64(2026*13+1+i%12)<<5 | int64(1+i%28)
	clock := int64(i%24)<<12 | int64(i%60)<<6 | int64(i%60)
	at := uint64(date<<17|clock) + 0x8000000000
	b = append(b, byte(at>>32), byte(at>>24), byte(at>>16), byte(at>>8), byte(at))
	b = append(b, byte((i%1000)*10>>8), byte((i%1000)*10))
	b = binary.BigEndian.AppendUint32(b, uint32(1_790_000_000+i))
	us := i % 1000000
	b = append(b, byte(us>>16), byte(us>>8), byte(us))
	if i%3 != 0 {
		day := uint32(2026*512 + (1+i%12)*32 + 1 + i%28)
		b = append(b, byte(day), byte(day>>8), byte(day>>16))
	}
	b = append(b, byte(1+i%3))
	str(fmt.Sprintf("please leave order %d at the \"front\" desk, thanks", i))
	str("DE")
	if i%5 != 0 {
		b = binary.LittleEndian.AppendUint32(b, uint32(i%50))
	}
	return b
}
