package relaytest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Table is the shape of a table whose rows a Builder or a Source writes. Make it by CreateTable, or fill
// in the exported fields; it must not be changed once it was used.
type Table struct {
	Database string
	Name     string
	Columns  []Column
	Key      []string // columns of the primary key, in key order
	Charset  string   // of columns that name none; "" means utf8mb4

	cols []column // compiled by compile
	maps map[Flavor]*tableMap
}

// Column describes one column. Type is SQL text, as in CREATE TABLE: "INT UNSIGNED", "DECIMAL(10,2)",
// "VARCHAR(40) CHARACTER SET latin1", "ENUM('a','b') NOT NULL".
type Column struct {
	Name string
	Type string
}

// CreateTable makes a Table from a CREATE TABLE statement. It knows column definitions and PRIMARY KEY;
// other keys, defaults, comments and table options are skipped. It panics when it cannot read the
// statement, as regexp.MustCompile does: the text is part of the program. The database is "test" where
// the statement names none.
func CreateTable(sql string) *Table {
	t, err := ParseTable(sql)
	if err != nil {
		panic("relaytest: " + err.Error())
	}
	return t
}

// ParseTable is CreateTable with an error instead of a panic.
func ParseTable(sql string) (*Table, error) {
	p := &sqlParser{toks: sqlTokens(sql)}
	t, err := p.createTable()
	if err != nil {
		return nil, fmt.Errorf("CREATE TABLE: %w, in %.60q", err, sql)
	}
	return t, t.compile()
}

func (t *Table) String() string { return t.Database + "." + t.Name }

// Types of columns as the binlog numbers them.
const (
	tyTiny      = 1
	tyShort     = 2
	tyLong      = 3
	tyFloat     = 4
	tyDouble    = 5
	tyLongLong  = 8
	tyInt24     = 9
	tyDate      = 10
	tyYear      = 13
	tyVarchar   = 15
	tyBit       = 16
	tyTimestamp = 17
	tyDateTime  = 18
	tyTime      = 19
	tyVector    = 242
	tyJSON      = 245
	tyDecimal   = 246
	tyEnum      = 247
	tySet       = 248
	tyBlob      = 252
	tyString    = 254
	tyGeometry  = 255
)

// column is a compiled Column.
type column struct {
	name     string
	sqlType  string // first word, upper case: what DATA_TYPE shows
	fullType string // what COLUMN_TYPE shows
	typ      byte   // one of ty…; enum and set as such, though the binlog calls them strings
	size     int    // bytes: of an integer, of a blob's length prefix, at most of a (var)char; bits of BIT; packed bytes of enum and set
	prec     int    // DECIMAL precision; fraction digits of temporal types
	scale    int
	chars    int // declared length of (var)char
	unsigned bool
	notNull  bool
	charset  *charset // of text, enum and set; binary for bytes; nil otherwise
	values   []string
	inline   bool // PRIMARY KEY behind the column
	json     bool // JSON: binary on MySQL, text on MariaDB
	fixed    bool // BINARY(n), UUID, INET: trailing zero bytes are not logged
	net      byte // 'u' UUID, '4' INET4, '6' INET6
}

func (t *Table) compile() error {
	if t.cols != nil {
		return nil
	}
	if t.Database == "" {
		t.Database = "test"
	}
	def := t.Charset
	if def == "" {
		def = "utf8mb4"
	}
	cols := make([]column, 0, len(t.Columns))
	for _, c := range t.Columns {
		p := &sqlParser{toks: sqlTokens(c.Type)}
		col, err := p.columnType(def)
		if err != nil {
			return fmt.Errorf("table %s, column %s: %w", t, c.Name, err)
		}
		col.name = c.Name
		if col.inline && !slices.Contains(t.Key, c.Name) {
			t.Key = append(t.Key, c.Name)
		}
		cols = append(cols, col)
	}
	for _, k := range t.Key {
		i := slices.IndexFunc(cols, func(c column) bool { return strings.EqualFold(c.name, k) })
		if i < 0 {
			return fmt.Errorf("table %s has no column %q of its primary key", t, k)
		}
		cols[i].notNull = true
	}
	t.cols = cols
	t.maps = map[Flavor]*tableMap{}
	return nil
}

// columnIndex returns the index of a column, or -1.
func (t *Table) columnIndex(name string) int {
	return slices.IndexFunc(t.cols, func(c column) bool { return strings.EqualFold(c.name, name) })
}

// integerSizes are the bytes of each integer type.
var integerSizes = map[string]struct {
	typ  byte
	size int
}{
	"TINYINT": {tyTiny, 1}, "BOOL": {tyTiny, 1}, "BOOLEAN": {tyTiny, 1}, "INT1": {tyTiny, 1},
	"SMALLINT": {tyShort, 2}, "INT2": {tyShort, 2}, "MEDIUMINT": {tyInt24, 3}, "INT3": {tyInt24, 3},
	"INT": {tyLong, 4}, "INTEGER": {tyLong, 4}, "INT4": {tyLong, 4}, "BIGINT": {tyLongLong, 8}, "INT8": {tyLongLong, 8},
	"SERIAL": {tyLongLong, 8},
}

// blobSizes are the bytes of each blob's or text's length prefix.
var blobSizes = map[string]int{
	"TINYBLOB": 1, "BLOB": 2, "MEDIUMBLOB": 3, "LONGBLOB": 4,
	"TINYTEXT": 1, "TEXT": 2, "MEDIUMTEXT": 3, "LONGTEXT": 4,
}

// columnType reads a column's definition: its type and what follows it.
func (p *sqlParser) columnType(defaultCharset string) (c column, err error) {
	start := p.pos
	name := strings.ToUpper(p.next())
	if name == "DOUBLE" && p.accept("PRECISION") || name == "REAL" {
		name = "DOUBLE"
	}
	if name == "LONG" && (p.accept("VARCHAR") || p.accept("TEXT")) {
		name = "MEDIUMTEXT"
	}
	var args []string
	if p.accept("(") {
		for !p.accept(")") {
			if p.done() {
				return c, fmt.Errorf("%s: missing )", name)
			}
			if a := p.next(); a != "," {
				args = append(args, a)
			}
		}
	}
	arg := func(i, def int) int {
		if i < len(args) {
			if n, err := strconv.Atoi(args[i]); err == nil {
				return n
			}
		}
		return def
	}
	c.sqlType = name
	text, binary := false, false
	switch name {
	case "YEAR":
		c.typ, c.size, c.unsigned = tyYear, 1, true
	case "BIT":
		c.typ, c.size = tyBit, arg(0, 1)
	case "DECIMAL", "NUMERIC", "DEC", "FIXED":
		c.sqlType = "DECIMAL"
		c.typ, c.prec, c.scale = tyDecimal, arg(0, 10), arg(1, 0)
		if c.prec < 1 || c.prec > 65 || c.scale > c.prec || c.scale > 38 {
			return c, fmt.Errorf("%s(%d,%d) is no type", name, c.prec, c.scale)
		}
	case "FLOAT":
		c.typ, c.size = tyFloat, 4
		if len(args) == 1 && arg(0, 0) > 24 {
			c.typ, c.size = tyDouble, 8
		}
	case "DOUBLE":
		c.typ, c.size = tyDouble, 8
	case "DATE":
		c.typ = tyDate
	case "DATETIME":
		c.typ, c.prec = tyDateTime, arg(0, 0)
	case "TIMESTAMP":
		c.typ, c.prec = tyTimestamp, arg(0, 0)
	case "TIME":
		c.typ, c.prec = tyTime, arg(0, 0)
	case "CHAR", "CHARACTER", "NCHAR":
		c.sqlType = "CHAR"
		c.typ, c.chars, text = tyString, arg(0, 1), true
	case "BINARY":
		c.typ, c.chars, c.fixed, binary = tyString, arg(0, 1), true, true
	case "VARCHAR", "NVARCHAR":
		c.sqlType = "VARCHAR"
		c.typ, c.chars, text = tyVarchar, arg(0, 1), true
	case "VARBINARY":
		c.typ, c.chars, binary = tyVarchar, arg(0, 1), true
	case "ENUM", "SET":
		c.typ, c.values, c.size, text = tyEnum, args, 1, true
		if len(args) > 255 {
			c.size = 2
		}
		if name == "SET" {
			c.typ = tySet
			if c.size = (len(args) + 7) / 8; c.size > 4 {
				c.size = 8
			}
		}
		if len(args) == 0 || name == "SET" && len(args) > 64 {
			return c, fmt.Errorf("%s with %d members", name, len(args))
		}
	case "JSON":
		c.typ, c.size, c.json = tyJSON, 4, true
	case "UUID":
		c.typ, c.chars, c.fixed, c.net, binary = tyString, 16, true, 'u', true
	case "INET6":
		c.typ, c.chars, c.fixed, c.net, binary = tyString, 16, true, '6', true
	case "INET4":
		c.typ, c.chars, c.fixed, c.net, binary = tyString, 4, true, '4', true
	case "VECTOR":
		c.typ, c.size, c.chars = tyVector, 4, arg(0, 2048)
	case "GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION", "GEOMCOLLECTION":
		c.typ, c.size = tyGeometry, 4
	default:
		if i, ok := integerSizes[name]; ok {
			c.typ, c.size = i.typ, i.size
			c.unsigned = name == "SERIAL"
			break
		}
		n, ok := blobSizes[name]
		if !ok {
			return c, fmt.Errorf("type %q is not known here", name)
		}
		c.typ, c.size = tyBlob, n
		text, binary = strings.HasSuffix(name, "TEXT"), strings.HasSuffix(name, "BLOB")
	}
	if c.prec > 6 && c.typ != tyDecimal || c.prec < 0 {
		return c, fmt.Errorf("%s with %d fraction digits", name, c.prec)
	}
	typeEnd := p.pos
	charset, collation := "", ""
	for !p.done() {
		switch w := strings.ToUpper(p.next()); w {
		case "UNSIGNED", "ZEROFILL":
			c.unsigned, typeEnd = true, p.pos
		case "SIGNED":
		case "NOT":
			c.notNull = c.notNull || p.accept("NULL")
		case "PRIMARY":
			c.inline = p.accept("KEY")
		case "KEY":
			c.inline = true
		case "CHARSET":
			charset = p.next()
		case "CHARACTER":
			p.accept("SET")
			charset = p.next()
		case "COLLATE":
			collation = p.next()
		case "DEFAULT", "COMMENT", "AS", "CHECK", "GENERATED", "REFERENCES", "ON", "UPDATE":
			p.skipExpression()
		case "UNIQUE":
			p.accept("KEY") // so that it is not taken for the primary key
		}
	}
	c.fullType = strings.ToLower(p.text(start, typeEnd))
	if text || binary {
		if binary {
			charset, collation = "binary", ""
		} else if charset == "" && collation == "" {
			charset = defaultCharset
		}
		if c.charset, err = findCharset(charset, collation); err != nil {
			return c, err
		}
		if strings.EqualFold(c.charset.name, "binary") && text { // TEXT CHARACTER SET binary is BLOB
			c.fixed = c.typ == tyString
		}
		if c.typ == tyString || c.typ == tyVarchar {
			c.size = c.chars * c.charset.maxBytes
			if c.typ == tyString && c.size > 1023 || c.size > 65535 {
				return c, fmt.Errorf("%s(%d) is %d bytes long", name, c.chars, c.size)
			}
		}
	}
	return c, nil
}
