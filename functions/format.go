package functions

import (
	"errors"
	"strconv"
)

// Format turns changes into the bytes of Kafka records. It must be deterministic (the same change gives
// the same bytes in every run) and safe for concurrent use.
type Format interface {
	// AppendKey appends the record key of c to dst. has is false for a change without a key: the record
	// then has none.
	AppendKey(dst []byte, c *Change) (key []byte, has bool, err error)
	// AppendValue appends the record value of c to dst.
	AppendValue(dst []byte, c *Change) ([]byte, error)
}

// HeaderFormat is a Format whose records have headers.
type HeaderFormat interface {
	Format
	// AppendHeaders appends the headers of c's record, and of its tombstone, to dst.
	AppendHeaders(dst []Header, c *Change) ([]Header, error)
}

// FormatNamed is the format that FORMAT=name asks for.
func FormatNamed(name string) (f Format, ok bool) {
	switch name {
	case "json":
		return JSON{}, true
	case "canal":
		return Canal{}, true
	case "debezium":
		return Debezium{}, true
	case "drs-json":
		return DRS{}, true
	case "drs-json-c":
		return DRS{C: true}, true
	case "maxwell":
		return Maxwell{}, true
	}
	return nil, false
}

// NewRecord is the record that the relay would make of c without a Serialize function: a Serialize
// that only adds a header or picks a topic starts from it.
func NewRecord(f Format, c *Change) (*Record, error) {
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	b, has, err := f.AppendKey((*buf)[:0], c)
	if err != nil {
		return nil, err
	}
	n := len(b)
	if b, err = f.AppendValue(b, c); err != nil {
		return nil, err
	}
	if cap(b) <= maxScratch {
		*buf = b
	}
	own := append(make([]byte, 0, len(b)), b...) // one allocation, of the right size
	r := &Record{Value: own[n:]}
	if has {
		r.Key = own[:n:n]
	}
	if h, ok := f.(HeaderFormat); ok {
		if r.Headers, err = h.AppendHeaders(nil, c); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// JSON is FORMAT=json.
//
// The key is an object of the primary key columns in key order, {"id":7}. The value is, in this order
// and without blanks,
//
//	{"op":"u","before":{…},"after":{…},"source":{"db":"shop","table":"item","gtid":"…","file":"binlog.000003","pos":1234,"row":0,"server_id":1,"ts_ms":1760000000123}}
//
// with before null on "c", after null on "d" and gtid null where the server has none. A DDL change is
//
//	{"op":"ddl","db":"shop","statement":"…","source":{…}}
type JSON struct{}

var _ Format = JSON{}

// AppendKey implements Format.
func (JSON) AppendKey(dst []byte, c *Change) ([]byte, bool, error) {
	if c.Op == DDL || c.Table == nil || len(c.Table.Key) == 0 {
		return dst, false, nil
	}
	row, rest := keyRows(c)
	if row.missing(c.Table.Key) >= 0 {
		dst, err := appendKey(append(dst, '{'), c.Table, row, rest, "", plainJSON)
		return dst, true, err
	}
	dst, err := row.image.AppendColumnsJSON(dst, c.Table.Key)
	return dst, true, err
}

// AppendValue implements Format.
func (JSON) AppendValue(dst []byte, c *Change) ([]byte, error) {
	if c.Op == DDL {
		dst = append(dst, `{"op":"ddl","db":`...)
		dst = appendString(dst, c.Database)
		dst = append(dst, `,"statement":`...)
		dst = appendString(dst, c.Statement)
		return appendSource(dst, c), nil
	}
	dst = append(dst, `{"op":"`...)
	dst = append(dst, byte(c.Op))
	dst = append(dst, `","before":`...)
	dst, err := appendRow(dst, c.Before)
	if err != nil {
		return dst, err
	}
	dst = append(dst, `,"after":`...)
	if dst, err = appendRow(dst, c.After); err != nil {
		return dst, err
	}
	return appendSource(dst, c), nil
}

// appendSource closes a value with its "source" object.
func appendSource(dst []byte, c *Change) []byte {
	dst = append(dst, `,"source":{"db":`...)
	if c.Table != nil {
		dst = appendString(dst, c.Table.Database)
		dst = append(dst, `,"table":`...)
		dst = appendString(dst, c.Table.Name)
	} else {
		dst = appendString(dst, c.Database)
		dst = append(dst, `,"table":null`...)
	}
	s := &c.Source
	if s.GTID == "" {
		dst = append(dst, `,"gtid":null`...)
	} else {
		dst = append(dst, `,"gtid":`...)
		dst = appendString(dst, s.GTID)
	}
	dst = append(dst, `,"file":`...)
	dst = appendString(dst, s.File)
	dst = append(dst, `,"pos":`...)
	dst = strconv.AppendUint(dst, s.Pos, 10)
	dst = append(dst, `,"row":`...)
	dst = strconv.AppendInt(dst, int64(s.Row), 10)
	dst = append(dst, `,"server_id":`...)
	dst = strconv.AppendUint(dst, uint64(s.ServerID), 10)
	dst = append(dst, `,"ts_ms":`...)
	dst = strconv.AppendInt(dst, s.Time.UnixMilli(), 10)
	return append(dst, '}', '}')
}

func appendRow(dst []byte, r Row) ([]byte, error) {
	if r.image == nil {
		return append(dst, "null"...), nil
	}
	return r.image.AppendRowJSON(dst)
}

var errKeyAbsent = errors.New("the row image does not hold this primary key column; set binlog_row_image=FULL on the source")

// missing is the first of columns that the row does not hold, or -1.
func (r Row) missing(columns []int) int {
	for _, i := range columns {
		if r.image == nil || !r.image.Has(i) {
			return i
		}
	}
	return -1
}
