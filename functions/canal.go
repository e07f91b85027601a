package functions

import "slices"

// Canal is FORMAT=canal: what Canal 1.1.8 writes with canal.mq.flatMessage=true.
//
// The key is an object of the primary key columns in key order, {"id":7}, as in FORMAT=json: Canal has none, but the
// rows of one key must stay together. The value is, in this order,
//
//	{"data":[{"id":"7","qty":"4"}],"database":"shop","es":1760000000123,"gtid":"…","id":12,"isDdl":false,
//	 "mysqlType":{"id":"int","qty":"int"},"old":[{"qty":"5"}],"pkNames":["id"],"sql":"","sqlType":{"id":4,"qty":4},
//	 "table":"item","ts":1760000000123,"type":"UPDATE"}
//
//	data       a list of one row (Canal: of all rows of one event); on DELETE the row that was. What a MINIMAL image left out
//	           and the former row has stands behind the rest; what neither has is left out
//	database   database of the table
//	es         commit time, in ms
//	gtid       of the transaction, "" where the server has none
//	id         number of the log entry that holds the row: a transaction has one, or several in a row if it is big
//	isDdl      false
//	mysqlType  declared type of each column of data, as information_schema spells it, as far as the stream says it: without
//	           the width of integers, ZEROFILL, and the class of a GEOMETRY
//	old        UPDATE only: a list of the former values of the columns that changed; else null
//	pkNames    primary key columns, in table order; null without a key
//	sql        ""
//	sqlType    java.sql.Types number of each column of data, see below
//	table      name of the table
//	ts         es again: Canal's clock would make the bytes of each run others
//	type       INSERT, UPDATE or DELETE
//
// Values are strings, or null:
//
//	integers              digits; -6 TINYINT, 5 SMALLINT, 4 MEDIUMINT and INT, -5 BIGINT; an UNSIGNED value above the signed
//	                      range has the next wider one (3, DECIMAL, above BIGINT)
//	DECIMAL 3, FLOAT 7, DOUBLE 8, BIT -7, YEAR 12   digits, DECIMAL with its scale, FLOAT and DOUBLE in Java's spelling
//	CHAR 1, VARCHAR 12, TEXT 2005                   the text, whatever the charset
//	ENUM 12               the member's name (Canal: its number, 4)
//	SET -7                the bits of its members, as Canal has it; mysqlType names them
//	BINARY, BLOB 2004     one character per byte (ISO-8859-1), BINARY with its zero bytes
//	DATE 91, DATETIME and TIMESTAMP 93, TIME 92     as SELECT prints it, TIMESTAMP in UTC
//	JSON 12               the document's text
//	GEOMETRY 2004         SRID and WKB, one character per byte
//	VECTOR, UUID, INET4, INET6 12                   as SELECT prints it
//
// A changed primary key is a DELETE and an INSERT. A DDL statement has isDdl true, its text in sql, the first table
// that it names (of a RENAME the new name) in table, CREATE, ALTER, ERASE, RENAME, TRUNCATE, CINDEX, DINDEX or QUERY in type, and null in data,
// mysqlType, old, pkNames and sqlType; it has no key.
type Canal struct{}

var _ Format = Canal{}

// AppendKey implements Format.
func (Canal) AppendKey(dst []byte, c *Change) ([]byte, bool, error) { return JSON{}.AppendKey(dst, c) }

// AppendValue implements Format.
func (Canal) AppendValue(dst []byte, c *Change) ([]byte, error) {
	if c.Op == DDL {
		return appendCanalDDL(dst, c), nil
	}
	row, rest := keyRows(c)
	dst, err := appendObject(append(dst, `{"data":[`...), row, rest, canalValue)
	if err != nil {
		return dst, err
	}
	dst = appendString(append(dst, `],"database":`...), c.Table.Database)
	dst = appendCanalSource(dst, c)
	dst = append(dst, `,"isDdl":false,"mysqlType":`...)
	if dst, err = appendTypes(dst, row, rest, mysqlType); err != nil {
		return dst, err
	}
	dst = append(dst, `,"old":`...)
	if c.Op == Update {
		if dst, _, err = appendChanged(append(dst, '['), c.Before, c.After, canalValue); err != nil {
			return dst, err
		}
		dst = append(dst, ']')
	} else {
		dst = append(dst, "null"...)
	}
	dst = appendKeyNames(append(dst, `,"pkNames":`...), c.Table)
	dst = append(dst, `,"sql":"","sqlType":`...)
	if dst, err = appendTypes(dst, row, rest, canalType); err != nil {
		return dst, err
	}
	dst = appendString(append(dst, `,"table":`...), c.Table.Name)
	dst = appendInt(append(dst, `,"ts":`...), c.Source.Time.UnixMilli())
	dst = append(dst, `,"type":"`...)
	return append(append(dst, sqlVerb(c.Op)...), '"', '}'), nil
}

// appendCanalSource appends es, gtid and id.
func appendCanalSource(dst []byte, c *Change) []byte {
	dst = appendInt(append(dst, `,"es":`...), c.Source.Time.UnixMilli())
	dst = appendString(append(dst, `,"gtid":`...), c.Source.GTID)
	return appendInt(append(dst, `,"id":`...), int64(c.Source.Seq))
}

func appendCanalDDL(dst []byte, c *Change) []byte {
	s := parseStatement(c.Statement)
	kind, table := "QUERY", ""
	switch s.object {
	case "table":
		table = s.name
		switch s.verb {
		case "create", "alter", "rename", "truncate":
			kind = upperVerbs[s.verb]
		case "drop":
			kind = "ERASE"
		}
		if s.renamed != "" {
			kind, table = "RENAME", s.renamed
		}
		switch s.alters {
		case "drop index", "drop key":
			kind = "DINDEX"
		case "add index", "add key", "add unique", "add fulltext", "add spatial":
			kind = "CINDEX"
		}
	case "index":
		table = s.indexOf
		switch s.verb {
		case "create":
			kind = "CINDEX"
		case "drop":
			kind = "DINDEX"
		}
	}
	dst = appendString(append(dst, `{"data":null,"database":`...), s.databaseOr(c.Database))
	dst = appendCanalSource(dst, c)
	dst = appendString(append(dst, `,"isDdl":true,"mysqlType":null,"old":null,"pkNames":null,"sql":`...), c.Statement)
	dst = appendString(append(dst, `,"sqlType":null,"table":`...), table)
	dst = appendInt(append(dst, `,"ts":`...), c.Source.Time.UnixMilli())
	return append(append(append(dst, `,"type":"`...), kind...), '"', '}')
}

var upperVerbs = map[string]string{"create": "CREATE", "alter": "ALTER", "rename": "RENAME", "truncate": "TRUNCATE"}

// sqlVerb is the name that Canal and DRS give an operation.
func sqlVerb(o Op) string {
	switch o {
	case Create:
		return "INSERT"
	case Update:
		return "UPDATE"
	}
	return "DELETE"
}

// appendKeyNames appends the names of the primary key columns, null for none.
func appendKeyNames(dst []byte, t *Table) []byte {
	if len(t.Key) == 0 {
		return append(dst, "null"...)
	}
	open := byte('[')
	for i := range t.Columns {
		if slices.Contains(t.Key, i) {
			dst = appendString(append(dst, open), t.Columns[i].Name)
			open = ','
		}
	}
	return append(dst, ']')
}

func canalValue(dst []byte, im Image, c *Column, i int) ([]byte, error) {
	start := len(dst)
	switch c.Kind {
	case KindBinary, KindGeometry:
		dst, err := im.AppendText(dst, i)
		if err != nil {
			return dst, err
		}
		return latin1Tail(dst, start), nil
	case KindSet:
		dst, err := im.AppendText(dst, i)
		if err != nil {
			return dst, err
		}
		return setBitsTail(dst, start, c.Values)
	case KindYear:
		return appendYear(dst, im, i)
	case KindFloat, KindDouble:
		dst, err := im.AppendText(append(dst, '"'), i)
		if err != nil {
			return dst, err
		}
		return append(javaTail(dst, start+1), '"'), nil
	case KindInteger, KindBit, KindVector:
		dst, err := im.AppendText(append(dst, '"'), i)
		return append(dst, '"'), err
	}
	return im.AppendJSON(dst, i) // a string already
}

// sqlInteger is the java.sql.Types number of a signed integer column.
func sqlInteger(c *Column) int {
	switch c.Type {
	case typeTiny:
		return -6
	case typeShort:
		return 5
	case typeLongLong:
		return -5
	}
	return 4
}

// canalType is a valueFunc: the java.sql.Types number of a value. NULL has that of its type.
func canalType(dst []byte, im Image, c *Column, i int) ([]byte, error) {
	n := 12
	switch c.Kind {
	case KindInteger:
		n = sqlInteger(c)
		if !c.Unsigned || im.IsNull(i) {
			break
		}
		start := len(dst)
		var err error
		if dst, err = im.AppendText(dst, i); err != nil {
			return dst, err
		}
		v, over := unsigned(dst[start:])
		dst = dst[:start]
		switch {
		case over || v > 1<<63-1:
			n = 3
		case c.Type == typeTiny && v > 1<<7-1:
			n = 5
		case c.Type == typeShort && v > 1<<15-1:
			n = 4
		case c.Type == typeLong && v > 1<<31-1:
			n = -5
		}
	case KindBit, KindSet:
		n = -7
	case KindDecimal:
		n = 3
	case KindFloat:
		n = 7
	case KindDouble:
		n = 8
	case KindString:
		switch c.Type {
		case typeString:
			n = 1
		case typeBlob, typeBlobCompressed:
			n = 2005
		}
	case KindBinary, KindGeometry:
		n = 2004
	case KindDate:
		n = 91
	case KindTime:
		n = 92
	case KindDateTime, KindTimestamp:
		n = 93
	}
	return appendInt(dst, int64(n)), nil
}
