package functions

// DRS is FORMAT=drs-json, and with C set FORMAT=drs-json-c: what Huawei Cloud's Data Replication Service writes from MySQL
// to Kafka, after its documents. (What they leave open is marked so.)
//
// The key is an object of the primary key columns in key order, {"id":7}, as in FORMAT=json. The value is, in this order,
//
//	{"mysqlType":{"id":"int","qty":"int"},"id":1660944384,"es":1760000000123,"ts":1760000000123,"database":"shop","table":"item",
//	 "type":"UPDATE","isDdl":false,"sql":"","sqlType":{"id":4,"qty":4},"data":[{"id":"7","qty":"4"}],"old":[{"id":"7","qty":"5"}],
//	 "pkNames":["id"]}
//
//	mysqlType  type of each column, without anything in parentheses
//	id         grows with each record: the number of the log entry × 2²⁴ + the ordinal of the change in it
//	es         commit time, in ms
//	ts         es again: the clock would make the bytes of each run others
//	database, table
//	type       INSERT, UPDATE, DELETE or DDL
//	isDdl      whether type is DDL
//	sql        text of a DDL statement, else ""
//	sqlType    java.sql.Types number of each column, see below
//	data       a list of one row: the new one. On DELETE null; with C the deleted row
//	old        a list of one row: the former one, whole, on UPDATE and DELETE; null on INSERT, and with C on DELETE
//	pkNames    primary key columns, in table order; null without a key
//
// Columns that a MINIMAL image left out are left out; what the new row does not repeat and the former has stands behind
// the rest. A DDL statement has null in mysqlType, sqlType, data, old and pkNames.
//
// Values are strings, or null; in all strings the characters < > & = ' are \u escapes, as in the documents:
//
//	TINYINT -6, SMALLINT 5, MEDIUMINT and INT 4, BIGINT -5, BIT -7, YEAR 12    digits (numbers but INT's: open)
//	DECIMAL 3, FLOAT 6, DOUBLE 8   digits, DECIMAL with its scale, FLOAT and DOUBLE in Java's spelling
//	CHAR 1, VARCHAR 12, TEXT -1    the text
//	ENUM 1, SET 1                  the text; SET with commas (open)
//	BINARY -2, VARBINARY -3, BLOB 2004   "[106, 103]": the bytes in decimal; signed, as Java has them (the sign is open)
//	DATE 91, TIME 92, DATETIME 94  as SELECT prints it
//	TIMESTAMP 93                   seconds since 1970-01-01 with the declared fraction, "1624614713.201"; the zero
//	                               TIMESTAMP is 0, as it is stored. With C as SELECT prints it, in UTC
//	JSON -1, UUID, INET4, INET6 1, VECTOR 12   as SELECT prints it (open)
//	GEOMETRY -2                    the bytes of SRID and WKB (open)
//
// A changed primary key is a DELETE and an INSERT.
type DRS struct {
	C bool
}

var _ Format = DRS{}

// AppendKey implements Format.
func (DRS) AppendKey(dst []byte, c *Change) ([]byte, bool, error) { return JSON{}.AppendKey(dst, c) }

// AppendValue implements Format.
func (f DRS) AppendValue(dst []byte, c *Change) ([]byte, error) {
	start := len(dst)
	if c.Op == DDL {
		s := parseStatement(c.Statement)
		table := ""
		switch s.object {
		case "table":
			table = s.name
		case "index":
			table = s.indexOf
		}
		dst = appendDRSSource(append(dst, `{"mysqlType":null`...), c, s.databaseOr(c.Database), table)
		dst = appendString(append(dst, `,"type":"DDL","isDdl":true,"sql":`...), c.Statement)
		dst = append(dst, `,"sqlType":null,"data":null,"old":null,"pkNames":null}`...)
		return htmlTail(dst, start), nil
	}
	value := drsValue
	if f.C {
		value = drsValueC
	}
	row, rest := keyRows(c)
	dst, err := appendTypes(append(dst, `{"mysqlType":`...), row, rest, drsMySQLType)
	if err != nil {
		return dst, err
	}
	dst = appendDRSSource(dst, c, c.Table.Database, c.Table.Name)
	dst = append(append(dst, `,"type":"`...), sqlVerb(c.Op)...)
	dst = append(dst, `","isDdl":false,"sql":"","sqlType":`...)
	if dst, err = appendTypes(dst, row, rest, drsType); err != nil {
		return dst, err
	}
	dst = append(dst, `,"data":`...)
	if c.Op == Delete && !f.C {
		dst = append(dst, "null"...)
	} else {
		if dst, err = appendObject(append(dst, '['), row, rest, value); err != nil {
			return dst, err
		}
		dst = append(dst, ']')
	}
	dst = append(dst, `,"old":`...)
	if c.Op == Create || c.Op == Delete && f.C {
		dst = append(dst, "null"...)
	} else {
		if dst, err = appendObject(append(dst, '['), c.Before, Row{}, value); err != nil {
			return dst, err
		}
		dst = append(dst, ']')
	}
	dst = appendKeyNames(append(dst, `,"pkNames":`...), c.Table)
	return htmlTail(append(dst, '}'), start), nil
}

// drsIndexBits is room for the changes of one log entry: an entry has 256 KiB of rows or one bigger event.
const drsIndexBits = 24

// appendDRSSource appends id to table.
func appendDRSSource(dst []byte, c *Change, db, table string) []byte {
	dst = appendUint(append(dst, `,"id":`...), c.Source.Seq<<drsIndexBits+uint64(c.Source.Index))
	dst = appendInt(append(dst, `,"es":`...), c.Source.Time.UnixMilli())
	dst = appendInt(append(dst, `,"ts":`...), c.Source.Time.UnixMilli())
	dst = appendString(append(dst, `,"database":`...), db)
	return appendString(append(dst, `,"table":`...), table)
}

func drsMySQLType(dst []byte, _ Image, c *Column, _ int) ([]byte, error) {
	return appendString(dst, typeName(c)), nil
}

func drsType(dst []byte, im Image, c *Column, i int) ([]byte, error) {
	n := 12
	switch c.Kind {
	case KindInteger:
		n = sqlInteger(c)
	case KindBit:
		n = -7
	case KindDecimal:
		n = 3
	case KindFloat:
		n = 6
	case KindDouble:
		n = 8
	case KindEnum, KindSet, KindUUID, KindInet:
		n = 1
	case KindString:
		switch c.Type {
		case typeString:
			n = 1
		case typeBlob, typeBlobCompressed:
			n = -1
		}
	case KindBinary:
		switch c.Type {
		case typeString:
			n = -2
		case typeBlob, typeBlobCompressed:
			n = 2004
		default:
			n = -3
		}
	case KindGeometry:
		n = -2
	case KindJSON:
		n = -1
	case KindDate:
		n = 91
	case KindTime:
		n = 92
	case KindTimestamp:
		n = 93
	case KindDateTime:
		n = 94
	}
	return appendInt(dst, int64(n)), nil
}

// drsValue is the values of drs-json.
func drsValue(dst []byte, im Image, c *Column, i int) ([]byte, error) {
	if c.Kind != KindTimestamp {
		return drsValueC(dst, im, c, i)
	}
	start := len(dst)
	dst, err := im.AppendText(dst, i)
	if err != nil {
		return dst, err
	}
	us, day, ok := parseDateTime(dst[start:])
	if !ok {
		return dst, errTemporal
	}
	if !day { // 0000-00-00: there is no other of its kind
		us = 0
	}
	mark := len(dst)
	dst = appendInt(append(dst, '"'), us/secondMicros) // never before 1970
	if fraction := start + len("2006-01-02 15:04:05"); fraction < mark {
		dst = append(dst, dst[fraction:mark]...)
	}
	return replaceTail(append(dst, '"'), start, mark), nil
}

// drsValueC is the values of drs-json-c.
func drsValueC(dst []byte, im Image, c *Column, i int) ([]byte, error) {
	switch c.Kind {
	case KindBinary, KindGeometry:
		start := len(dst)
		dst, err := im.AppendText(dst, i)
		if err != nil {
			return dst, err
		}
		return bytesTail(dst, start), nil
	case KindSet:
		return im.AppendJSON(dst, i)
	}
	return canalValue(dst, im, c, i)
}

// bytesTail makes a string of the bytes appended since start, as Java's Arrays.toString does.
func bytesTail(dst []byte, start int) []byte {
	mark := len(dst)
	dst = append(dst, '"', '[')
	for i := start; i < mark; i++ {
		if i > start {
			dst = append(dst, ',', ' ')
		}
		dst = appendInt(dst, int64(int8(dst[i])))
	}
	return replaceTail(append(dst, ']', '"'), start, mark)
}

// htmlTail escapes what the documents of DRS list, in the JSON text appended since start: these characters stand in
// strings only.
func htmlTail(dst []byte, start int) []byte {
	const escape = len(`\u003c`)
	n := 0
	for _, b := range dst[start:] {
		if isHTML(b) {
			n++
		}
	}
	if n == 0 {
		return dst
	}
	const hex = "0123456789abcdef"
	from := len(dst) - 1
	for range n * (escape - 1) {
		dst = append(dst, 0)
	}
	for to := len(dst) - 1; from < to; from-- {
		b := dst[from]
		if !isHTML(b) {
			dst[to] = b
			to--
			continue
		}
		to -= escape
		copy(dst[to+1:], `\u00`)
		dst[to+5], dst[to+6] = hex[b>>4], hex[b&15]
	}
	return dst
}

func isHTML(b byte) bool { return b == '<' || b == '>' || b == '&' || b == '=' || b == '\'' }
