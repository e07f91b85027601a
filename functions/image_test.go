package functions_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"binrelay/functions"
)

// absent marks a column that an image leaves out; broken one that cannot be decoded.
type absent struct{}
type broken struct{}

// number is a value that is spelled the same in text and, but for DECIMAL's quotes, JSON; jsonText is a document;
// geo is a SRID and WKB.
type (
	number   string
	jsonText string
	geo      string
)

func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, s[i])
	}
	return append(dst, '"')
}

// mem is a row image in memory: values by column index.
type mem struct {
	t      *functions.Table
	values []any
}

func (m mem) Has(i int) bool    { _, out := m.values[i].(absent); return !out }
func (m mem) IsNull(i int) bool { return m.values[i] == nil }

func (m mem) Value(i int) (any, error) {
	switch v := m.values[i].(type) {
	case absent:
		return nil, nil
	case broken:
		return nil, errors.New("damaged")
	default:
		return v, nil
	}
}

func (m mem) AppendJSON(dst []byte, i int) ([]byte, error) {
	switch v := m.values[i].(type) {
	case nil, absent:
		return append(dst, "null"...), nil
	case broken:
		return dst, errors.New("damaged")
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case uint64:
		return strconv.AppendUint(dst, v, 10), nil
	case number:
		if m.t.Columns[i].Kind == functions.KindDecimal {
			dst = append(append(dst, '"'), v...)
			return append(dst, '"'), nil
		}
		return append(dst, v...), nil
	case jsonText:
		return appendQuoted(dst, string(v)), nil
	case geo:
		dst = append(dst, `{"srid":3857,"wkb":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, []byte(v[4:]))
		return append(dst, '"', '}'), nil
	case string:
		dst = append(dst, '"')
		dst = append(dst, v...)
		return append(dst, '"'), nil
	case []byte:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, v)
		return append(dst, '"'), nil
	default:
		return fmt.Append(dst, v), nil
	}
}

func (m mem) AppendText(dst []byte, i int) ([]byte, error) {
	switch v := m.values[i].(type) {
	case nil, absent:
		return dst, nil
	case string:
		return append(dst, v...), nil
	case []byte:
		return append(dst, v...), nil
	case jsonText:
		return append(dst, v...), nil
	case number:
		return append(dst, v...), nil
	case geo:
		return append(dst, v...), nil
	}
	return m.AppendJSON(dst, i)
}

func (m mem) AppendRowJSON(dst []byte) ([]byte, error) {
	dst = append(dst, '{')
	first := true
	for i := range m.values {
		if !m.Has(i) {
			continue
		}
		var err error
		if dst, err = m.field(dst, i, &first); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

func (m mem) AppendColumnsJSON(dst []byte, columns []int) ([]byte, error) {
	dst = append(dst, '{')
	first := true
	for _, i := range columns {
		var err error
		if dst, err = m.field(dst, i, &first); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

func (m mem) field(dst []byte, i int, first *bool) ([]byte, error) {
	if !*first {
		dst = append(dst, ',')
	}
	*first = false
	dst = append(dst, '"')
	dst = append(dst, m.t.Columns[i].Name...)
	dst = append(dst, '"', ':')
	return m.AppendJSON(dst, i)
}

func row(t *functions.Table, values ...any) functions.Row {
	for len(values) < len(t.Columns) {
		values = append(values, absent{})
	}
	return functions.NewRow(t, mem{t, values})
}

// table makes a shape from "name:kind" columns; a star marks the primary key, in order.
func table(db, name string, columns ...string) *functions.Table {
	t := &functions.Table{Database: db, Name: name}
	for i, s := range columns {
		if strings.HasSuffix(s, "*") {
			s = strings.TrimSuffix(s, "*")
			t.Key = append(t.Key, i)
		}
		name, kind, _ := strings.Cut(s, ":")
		c := functions.Column{Name: name}
		switch kind {
		case "text":
			c.Kind = functions.KindString
		case "decimal":
			c.Kind = functions.KindDecimal
		case "double":
			c.Kind = functions.KindDouble
		case "blob":
			c.Kind = functions.KindBinary
		case "date":
			c.Kind = functions.KindDate
		case "datetime":
			c.Kind = functions.KindDateTime
		case "timestamp":
			c.Kind = functions.KindTimestamp
		case "time":
			c.Kind = functions.KindTime
		}
		t.Columns = append(t.Columns, c)
	}
	return t
}

var item = table("shop", "item", "id*", "qty", "name:text")

var source = functions.Source{
	GTID: "0-1-42", File: "binlog.000003", Pos: 1234, Row: 3, ServerID: 1, Seq: 99,
	Time: time.UnixMicro(1760000000123456).UTC(),
}

func update() *functions.Change {
	return &functions.Change{
		Op: functions.Update, Table: item, Source: source,
		Before: row(item, int64(7), int64(5), "cup"), After: row(item, int64(7), int64(4), "cup"),
	}
}
