package functions

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"strconv"
)

// Debezium is FORMAT=debezium: what the MySQL and MariaDB connectors of Debezium 3.6 write with their default options
// through Kafka Connect's JSON converter without schemas.
//
// The key is an object of the primary key columns in key order, {"id":7}, with values as below. The value is,
// in this order,
//
//	{"before":{…},"after":{…},
//	 "source":{"version":"3.6.1.Final","connector":"mysql","name":"binrelay","ts_ms":1760000000123,"snapshot":"false","db":"shop",
//	  "sequence":null,"ts_us":1760000000123456,"ts_ns":1760000000123456000,"table":"item","server_id":1,"gtid":"…",
//	  "file":"binlog.000003","pos":1234,"row":0,"thread":null,"query":null},
//	 "transaction":null,"op":"u","ts_ms":1760000000123,"ts_us":1760000000123456,"ts_ns":1760000000123456000}
//
//	before, after     the row; null on create and delete. Columns that a MINIMAL image left out are left out, but what
//	                  after does not repeat and before has stands behind the rest
//	source.version    of the Debezium whose records these are like
//	source.connector  mysql or mariadb
//	source.name       Name
//	source.ts_*       commit time in ms, µs and ns
//	source.snapshot   "false"
//	source.db, table  of the table
//	source.server_id  of the server that committed
//	source.gtid       of the transaction; null where the server has none
//	source.file, pos  binlog file and the offset at which the transaction begins (Debezium's pos: the row's event)
//	source.row        ordinal of the row in its transaction, counted before any filter (Debezium's: in its event)
//	source.sequence, thread, query, transaction  null
//	op                c, u or d
//	ts_*              commit time again: Debezium's clock would make the bytes of each run others
//
// Values:
//
//	integers, YEAR          number (BIGINT UNSIGNED up to 2⁶⁴−1, which Debezium's default wraps)
//	BIT(1), BIT(n)          true or false; base64 of the bits, the lowest byte first
//	DECIMAL                 base64 of the unscaled value, two's complement, the highest byte first
//	FLOAT, DOUBLE           number
//	CHAR to TEXT, ENUM, SET text, SET with commas
//	BINARY, BLOB            base64
//	DATE                    days since 1970-01-01
//	DATETIME                ms since 1970-01-01 where it has up to three fraction digits, else µs
//	TIMESTAMP               text, "2026-03-04T05:06:07.890Z"
//	TIME                    µs, with its sign
//	JSON                    the document as text, of MySQL's without blanks
//	GEOMETRY                {"wkb":"base64","srid":null or number}, a point with "x" and "y" in front
//	VECTOR                  list of numbers · UUID, INET4, INET6: text
//
// A date that is none (0000-00-00, 2026-00-00) is null, as with Debezium, where the column takes NULL; where
// it does not, it is the text that SELECT prints, and not 1970-01-01.
//
// A changed primary key is a delete with the header __debezium.newkey, which holds the other key, and a create
// with __debezium.oldkey. A DDL statement has the key {"databaseName":"shop"} and the value
// {"source":{…},"ts_ms":…,"databaseName":"shop","schemaName":null,"ddl":"…","tableChanges":[]}.
type Debezium struct {
	Name string // source.name, Debezium's topic.prefix; "": binrelay
}

var _ HeaderFormat = Debezium{}

// AppendKey implements Format.
func (Debezium) AppendKey(dst []byte, c *Change) ([]byte, bool, error) {
	if c.Op == DDL {
		s := parseStatement(c.Statement)
		dst = appendString(append(dst, `{"databaseName":`...), s.databaseOr(c.Database))
		return append(dst, '}'), true, nil
	}
	if c.Table == nil || len(c.Table.Key) == 0 {
		return dst, false, nil
	}
	row, rest := keyRows(c)
	dst, err := appendKey(append(dst, '{'), c.Table, row, rest, "", debeziumValue)
	return dst, true, err
}

// AppendHeaders implements HeaderFormat.
func (Debezium) AppendHeaders(dst []Header, c *Change) ([]Header, error) {
	if !c.KeyChange || c.Table == nil {
		return dst, nil
	}
	name := "__debezium.newkey"
	if c.Op == Create {
		name = "__debezium.oldkey"
	}
	row, rest := movedRows(c)
	key, err := appendKey([]byte{'{'}, c.Table, row, rest, "", debeziumValue)
	return append(dst, Header{Key: name, Value: key}), err
}

// AppendValue implements Format.
func (f Debezium) AppendValue(dst []byte, c *Change) ([]byte, error) {
	if c.Op == DDL {
		s := parseStatement(c.Statement)
		db, table := s.databaseOr(c.Database), s.name
		if s.object == "index" {
			table = s.indexOf
		} else if s.object != "table" {
			table = ""
		}
		dst = f.appendSource(append(dst, '{'), c, db, table)
		dst = appendInt(append(dst, `,"ts_ms":`...), c.Source.Time.UnixMilli())
		dst = appendString(append(dst, `,"databaseName":`...), db)
		dst = appendString(append(dst, `,"schemaName":null,"ddl":`...), c.Statement)
		return append(dst, `,"tableChanges":[]}`...), nil
	}
	dst, err := appendDebeziumRow(append(dst, `{"before":`...), c.Before, Row{})
	if err != nil {
		return dst, err
	}
	rest := c.Before
	if c.Op == Create {
		rest = c.Moved
	}
	if dst, err = appendDebeziumRow(append(dst, `,"after":`...), c.After, rest); err != nil {
		return dst, err
	}
	dst = f.appendSource(append(dst, ','), c, c.Table.Database, c.Table.Name)
	dst = append(dst, `,"transaction":null,"op":"`...)
	dst = append(dst, byte(c.Op), '"')
	t := c.Source.Time
	dst = appendInt(append(dst, `,"ts_ms":`...), t.UnixMilli())
	dst = appendInt(append(dst, `,"ts_us":`...), t.UnixMicro())
	dst = appendInt(append(dst, `,"ts_ns":`...), t.UnixNano())
	return append(dst, '}'), nil
}

func appendDebeziumRow(dst []byte, row, rest Row) ([]byte, error) {
	if row.image == nil {
		return append(dst, "null"...), nil
	}
	return appendObject(dst, row, rest, debeziumValue)
}

// debeziumVersion is the version whose records the format follows.
const debeziumVersion = "3.6.1.Final"

func (f Debezium) appendSource(dst []byte, c *Change, db, table string) []byte {
	s := &c.Source
	dst = append(dst, `"source":{"version":"`+debeziumVersion+`","connector":"`...)
	if s.MariaDB {
		dst = append(dst, "mariadb"...)
	} else {
		dst = append(dst, "mysql"...)
	}
	name := f.Name
	if name == "" {
		name = "binrelay"
	}
	dst = appendString(append(dst, `","name":`...), name)
	dst = appendInt(append(dst, `,"ts_ms":`...), s.Time.UnixMilli())
	dst = appendString(append(dst, `,"snapshot":"false","db":`...), db)
	dst = appendInt(append(dst, `,"sequence":null,"ts_us":`...), s.Time.UnixMicro())
	dst = appendInt(append(dst, `,"ts_ns":`...), s.Time.UnixNano())
	dst = appendStringOrNull(append(dst, `,"table":`...), table)
	dst = appendInt(append(dst, `,"server_id":`...), int64(s.ServerID))
	dst = appendStringOrNull(append(dst, `,"gtid":`...), s.GTID)
	dst = appendString(append(dst, `,"file":`...), s.File)
	dst = strconv.AppendUint(append(dst, `,"pos":`...), s.Pos, 10)
	dst = appendInt(append(dst, `,"row":`...), int64(s.Row))
	return append(dst, `,"thread":null,"query":null}`...)
}

func appendStringOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return appendString(dst, s)
}

var errTemporal = errors.New("a date or time that cannot be read")

func debeziumValue(dst []byte, im Image, c *Column, i int) ([]byte, error) {
	switch c.Kind {
	case KindBit, KindDecimal, KindFloat, KindDouble, KindDate, KindDateTime, KindTimestamp, KindTime, KindJSON, KindGeometry, KindVector:
	default:
		return im.AppendJSON(dst, i)
	}
	start := len(dst)
	dst, err := im.AppendText(dst, i)
	if err != nil {
		return dst, err
	}
	text := dst[start:]
	switch c.Kind {
	case KindBit:
		var v uint64
		for _, b := range text {
			v = v*10 + uint64(b-'0')
		}
		if c.Length == 1 {
			return strconv.AppendBool(dst[:start], v != 0), nil
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		return appendBase64(dst[:start], b[:min((c.Length+7)/8, 8)]), nil
	case KindDecimal:
		return unscaledTail(dst, start), nil
	case KindFloat, KindDouble:
		return javaTail(dst, start), nil
	case KindVector:
		return javaListTail(dst, start), nil
	case KindTime:
		us, ok := parseTime(text)
		if !ok {
			return dst, errTemporal
		}
		return appendInt(dst[:start], us), nil
	case KindDate, KindDateTime, KindTimestamp:
		return debeziumDate(dst, start, c)
	case KindJSON:
		if c.Type == typeJSON {
			dst = compactTail(dst, start)
		}
		return quoteTail(dst, start), nil
	}
	return debeziumGeometry(dst, start)
}

// debeziumDate replaces the text of a date, appended since start.
func debeziumDate(dst []byte, start int, c *Column) ([]byte, error) {
	us, day, ok := parseDateTime(dst[start:])
	switch {
	case !ok:
		return dst, errTemporal
	case !day && c.Nullable:
		return append(dst[:start], "null"...), nil
	case !day:
		return quoteTail(dst, start), nil
	case c.Kind == KindDate:
		return appendInt(dst[:start], us/dayMicros), nil
	case c.Kind == KindDateTime && c.Length <= 3:
		return appendInt(dst[:start], us/1000), nil // whole ms: no more digits than that
	case c.Kind == KindDateTime:
		return appendInt(dst[:start], us), nil
	}
	dst[start+len("2006-01-02")] = 'T'
	return quoteTail(append(dst, 'Z'), start), nil
}

// debeziumGeometry replaces a SRID and WKB.
func debeziumGeometry(dst []byte, start int) ([]byte, error) {
	mark := len(dst)
	if mark == start {
		return append(dst, `{"wkb":"","srid":null}`...), nil
	}
	if mark-start < 4 {
		return dst, errWKB
	}
	srid, wkb := binary.LittleEndian.Uint32(dst[start:]), dst[start+4:mark:mark]
	dst = append(dst, '{')
	const point, pointBytes = 1, 1 + 4 + 8 + 8
	w := wkbReader{b: wkb}
	if order, kind := w.head(); kind == point && len(wkb) == pointBytes && !w.bad {
		dst = appendJavaDouble(append(dst, `"x":`...), w.coordinate(order))
		dst = appendJavaDouble(append(dst, `,"y":`...), w.coordinate(order))
		dst = append(dst, ',')
	}
	dst = appendBase64(append(dst, `"wkb":`...), wkb)
	dst = append(dst, `,"srid":`...)
	if srid == 0 {
		dst = append(dst, "null"...)
	} else {
		dst = strconv.AppendUint(dst, uint64(srid), 10)
	}
	return replaceTail(append(dst, '}'), start, mark), nil
}

func appendJavaDouble(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) { // no server takes them
		return append(dst, "null"...)
	}
	start := len(dst)
	return javaTail(strconv.AppendFloat(dst, f, 'e', -1, 64), start)
}

func appendBase64(dst, b []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"')
}

// unscaledTail replaces the text of a DECIMAL by base64 of its digits as one number, in two's complement,
// as java.math.BigInteger gives it: no more bytes than needed.
func unscaledTail(dst []byte, start int) []byte {
	var w [4]uint64 // lowest first; 65 digits need 216 bits
	negative := false
	for _, b := range dst[start:] {
		if b == '-' {
			negative = true
		}
		if b < '0' || b > '9' {
			continue
		}
		carry := uint64(b - '0')
		for k := range w {
			hi, lo := bits.Mul64(w[k], 10)
			var c uint64
			w[k], c = bits.Add64(lo, carry, 0)
			carry = hi + c
		}
	}
	if negative {
		carry := uint64(1)
		for k := range w {
			w[k], carry = bits.Add64(^w[k], 0, carry)
		}
	}
	var b [32]byte
	for k := range w {
		binary.BigEndian.PutUint64(b[24-8*k:], w[k])
	}
	n := 0
	for n < len(b)-1 && (b[n] == 0 && b[n+1] < 0x80 || b[n] == 0xff && b[n+1] >= 0x80) {
		n++
	}
	return appendBase64(dst[:start], b[n:])
}
