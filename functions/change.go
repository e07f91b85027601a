package functions

import "time"

// Op is what happened to a row.
type Op byte

const (
	Create Op = 'c' // a row was inserted; Before is absent
	Update Op = 'u' // a row was changed; both images are there
	Delete Op = 'd' // a row was deleted; After is absent
	DDL    Op = 's' // a schema statement; Statement holds its text, Table may be nil
)

// String gives the letter that FORMAT=json writes: "c", "u", "d" ("s" for DDL).
func (o Op) String() string { return string(rune(o)) }

// Change is one row changed by one committed transaction.
//
// A Change, its rows and everything reached through them are valid only during the call that
// received them: the relay decodes the next change into the same memory. Values returned by
// Row.Get and its typed siblings are the caller's to keep.
//
// An UPDATE that changes primary key columns arrives as two changes with the same Source: a Delete
// of the old key, then a Create of the new one, both with KeyChange set.
type Change struct {
	Op        Op
	Table     *Table // shape at the moment of the change; shared, read-only
	Before    Row    // absent on Create
	After     Row    // absent on Delete
	Source    Source
	KeyChange bool
	Moved     Row    // with KeyChange: the row under its other key, the new one on Delete, the old one on Create
	Database  string // DDL: the default database of the statement
	Statement string // DDL: the text of the statement
}

// Row is the image that identifies the row: After, or Before on Delete.
func (c *Change) Row() Row {
	if c.Op == Delete {
		return c.Before
	}
	return c.After
}

// Source is where and when a change was committed. (GTID, Row) identifies a change for ever;
// (File, Pos, Row) does where the server writes no GTIDs.
type Source struct {
	GTID     string // "" where the server has none
	File     string // binlog file of the transaction
	Pos      uint64 // byte offset in File at which the transaction begins
	Row      int    // ordinal of the row in its transaction, from 0, counted before any filter
	ServerID uint32
	Time     time.Time // commit time, UTC: microseconds where the server writes them, else seconds
	Seq      uint64    // log entry that holds the change
	Index    int       // ordinal of the change in that entry, from 0
	MariaDB  bool      // flavour of the server
}

// Table is the shape of a table at the moment of a change, as the binlog itself describes it.
type Table struct {
	Database string
	Name     string
	Columns  []Column
	Key      []int // indexes of the primary key columns, in key order; empty without a primary key
}

// Column returns the index of the column called name (exact match), or -1.
func (t *Table) Column(name string) int {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return i
		}
	}
	return -1
}

// Kind is the class of a column's type; it decides which Go type Row.Get returns.
type Kind uint8

const (
	KindInteger   Kind = iota // int64, or uint64 when Unsigned: TINYINT to BIGINT, BOOL
	KindYear                  // int64
	KindBit                   // uint64
	KindDecimal               // string, with the column's scale
	KindFloat                 // float32
	KindDouble                // float64
	KindString                // string, UTF-8: CHAR, VARCHAR, TEXT
	KindEnum                  // string, the member's name
	KindSet                   // string, members joined by ','
	KindBinary                // []byte: BINARY, VARBINARY, BLOB
	KindDate                  // string, "2026-01-02"
	KindDateTime              // string, "2026-01-02 03:04:05.123"
	KindTimestamp             // string, the same, in UTC
	KindTime                  // string, "-838:59:59.000"
	KindJSON                  // string, the document as the server prints it
	KindGeometry              // Geo
	KindVector                // []float32
	KindUUID                  // string
	KindInet                  // string: INET4, INET6
)

// Column describes one column.
type Column struct {
	Name     string
	Kind     Kind
	Type     byte // type code of the binlog after unpacking, e.g. 3 for INT (mysql: enum_field_types)
	Unsigned bool
	Nullable bool
	Length   int      // declared bytes of (VAR)CHAR/(VAR)BINARY, the most bytes that a TEXT or BLOB takes, bits of BIT, precision of DECIMAL, fraction digits of temporal types; 0 where it has none
	Scale    int      // DECIMAL only
	Charset  string   // of String, Enum and Set columns, e.g. "utf8mb4"; "" otherwise
	Values   []string // members of Enum and Set, UTF-8
}

// Geo is the value of a GEOMETRY column.
type Geo struct {
	SRID uint32
	WKB  []byte // well-known binary, without the SRID prefix
}
