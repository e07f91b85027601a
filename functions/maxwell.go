package functions

import (
	"encoding/json"
	"strconv"
)

// Maxwell is FORMAT=maxwell: what Maxwell 1.45 writes.
//
// The key is {"database":"shop","table":"item","pk.id":7}, with the primary key columns in key order and
// their names in lower case. A table without a primary key has no key, where Maxwell makes up a random one.
// The value is, in this order,
//
//	{"database":"shop","table":"item","type":"update","ts":1760000000,"xoffset":3,"position":"binlog.000003:1234",
//	 "gtid":"…","server_id":1,"data":{"id":7,"qty":4},"old":{"qty":5}}
//
//	database   database of the table
//	table      name of the table
//	type       insert, update or delete
//	ts         commit time, in seconds
//	xoffset    ordinal of the row in its transaction, counted before any filter; Maxwell's last row has commit instead
//	position   binlog file and the offset at which the transaction begins
//	gtid       of the transaction; left out where the server has none
//	server_id  of the server that committed
//	data       the row; on delete the row that was. What a MINIMAL image left out and Before has stands behind the rest;
//	           what neither has is left out
//	old        update only: the former values of the columns that changed; left out when none is known
//
// Left out, because a row does not know them: xid, commit, thread_id, schema_id, query, push_ts. (gtid or position says
// which rows are one transaction.)
//
// Values: numbers, DECIMAL, BIT and YEAR are numbers; CHAR to TEXT, ENUM and the temporal types are text as SELECT prints
// it, TIMESTAMP in UTC; SET is a list; BINARY and BLOB are base64; JSON is the document itself; GEOMETRY is WKT, with
// "SRID=n;" in front where it has one; VECTOR is a list; UUID and INET are text.
//
// A changed primary key is a delete and an insert. A DDL statement is
//
//	{"type":"table-alter","database":"shop","table":"item","ts":1760000000123,"sql":"…","position":"…","gtid":"…"}
//
// with ts in milliseconds, as Maxwell has it there, and a type of table-create, table-alter, table-drop,
// database-create, database-alter, database-drop, or other. Maxwell's def and old are left out.
type Maxwell struct{}

var _ Format = Maxwell{}

// AppendKey implements Format.
func (Maxwell) AppendKey(dst []byte, c *Change) ([]byte, bool, error) {
	if c.Op == DDL || c.Table == nil || len(c.Table.Key) == 0 {
		return dst, false, nil
	}
	dst = appendString(append(dst, `{"database":`...), c.Table.Database)
	dst = appendString(append(dst, `,"table":`...), c.Table.Name)
	row, rest := keyRows(c)
	dst, err := appendKey(append(dst, ','), c.Table, row, rest, "pk.", maxwellValue)
	return dst, true, err
}

// AppendValue implements Format.
func (Maxwell) AppendValue(dst []byte, c *Change) ([]byte, error) {
	if c.Op == DDL {
		return appendMaxwellDDL(dst, c), nil
	}
	dst = appendString(append(dst, `{"database":`...), c.Table.Database)
	dst = appendString(append(dst, `,"table":`...), c.Table.Name)
	dst = append(dst, `,"type":"`...)
	switch c.Op {
	case Create:
		dst = append(dst, "insert"...)
	case Update:
		dst = append(dst, "update"...)
	default:
		dst = append(dst, "delete"...)
	}
	dst = appendInt(append(dst, `","ts":`...), c.Source.Time.Unix())
	dst = appendInt(append(dst, `,"xoffset":`...), int64(c.Source.Row))
	dst = appendMaxwellPosition(dst, &c.Source)
	dst = appendInt(append(dst, `,"server_id":`...), int64(c.Source.ServerID))
	row, rest := keyRows(c)
	dst, err := appendObject(append(dst, `,"data":`...), row, rest, maxwellValue)
	if err == nil && c.Op == Update {
		mark, any := len(dst), false
		if dst, any, err = appendChanged(append(dst, `,"old":`...), c.Before, c.After, maxwellValue); !any {
			dst = dst[:mark]
		}
	}
	return append(dst, '}'), err
}

func appendMaxwellPosition(dst []byte, s *Source) []byte {
	dst = appendEscaped(append(dst, `,"position":"`...), s.File)
	dst = strconv.AppendUint(append(dst, ':'), s.Pos, 10)
	dst = append(dst, '"')
	if s.GTID != "" {
		dst = appendString(append(dst, `,"gtid":`...), s.GTID)
	}
	return dst
}

func appendMaxwellDDL(dst []byte, c *Change) []byte {
	s := parseStatement(c.Statement)
	kind := "other"
	if s.object == "table" || s.object == "database" {
		switch s.verb {
		case "create", "alter", "drop":
			kind = s.verb
		case "rename":
			kind = "alter"
		}
	}
	dst = append(dst, `{"type":"`...)
	if kind != "other" {
		dst = append(append(dst, s.object...), '-')
	}
	dst = append(dst, kind...)
	dst = appendString(append(dst, `","database":`...), s.databaseOr(c.Database))
	if s.object == "table" {
		dst = appendString(append(dst, `,"table":`...), s.name)
	}
	dst = appendInt(append(dst, `,"ts":`...), c.Source.Time.UnixMilli())
	dst = appendString(append(dst, `,"sql":`...), c.Statement)
	return append(appendMaxwellPosition(dst, &c.Source), '}')
}

func maxwellValue(dst []byte, im Image, c *Column, i int) ([]byte, error) {
	start := len(dst)
	switch c.Kind {
	case KindDecimal:
		return im.AppendText(dst, i)
	case KindFloat, KindDouble, KindVector:
		dst, err := im.AppendText(dst, i)
		if err != nil {
			return dst, err
		}
		if c.Kind == KindVector {
			return javaListTail(dst, start), nil
		}
		return javaTail(dst, start), nil
	case KindSet: // members have no commas
		dst, err := im.AppendJSON(dst, i)
		if err != nil {
			return dst, err
		}
		mark := len(dst)
		dst = append(dst, '[')
		if mark-start > len(`""`) {
			for _, b := range dst[start:mark] {
				if b == ',' {
					dst = append(dst, '"', ',', '"')
				} else {
					dst = append(dst, b)
				}
			}
		}
		return replaceTail(append(dst, ']'), start, mark), nil
	case KindJSON:
		dst, err := im.AppendText(dst, i)
		if err != nil {
			return dst, err
		}
		if c.Type == typeJSON {
			return compactTail(dst, start), nil
		}
		// MariaDB's is what somebody wrote; the check that it is JSON can be switched off.
		if !json.Valid(dst[start:]) {
			return quoteTail(dst, start), nil
		}
		return dst, nil
	case KindGeometry:
		dst, err := im.AppendText(dst, i)
		if err != nil {
			return dst, err
		}
		return wktTail(dst, start)
	}
	return im.AppendJSON(dst, i)
}

// typeJSON is the type code of MySQL's JSON; MariaDB's is a LONGTEXT.
const typeJSON = 245
