package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"binrelay/bench/internal/history"
)

const database = "soak"

// table is one of the tables that writers change. Every one has id, ver and chk (see package history).
type table struct {
	name    string
	id      string // declaration of the id column
	key     []string
	columns []column
	rest    string                 // keys and options of the CREATE TABLE
	text    bool                   // the id is text
	extra   func(id string) string // value of a further key column, from the id
}

// column is one column and how values for it are made.
type column struct {
	name, decl string
	kind       kind
	value      func(r *rand.Rand) string // an SQL literal
}

type kind int

const (
	number kind = iota // integers, also BIT and YEAR
	text               // printed the same by SELECT and JSON: strings, decimals, temporal types, JSON documents
	float32bits
	float64bits
	binaryHex
)

func (t *table) fullName() string { return database + "." + t.name }

func (t *table) literal(id string) string {
	if t.text {
		return "'" + id + "'"
	}
	return id
}

// all columns in table order, as the SELECT of the final comparison names them.
func (t *table) all() []column {
	idKind := number
	if t.text {
		idKind = text
	}
	cols := []column{{name: "id", kind: idKind}}
	if t.extra != nil {
		cols = append(cols, column{name: "region", kind: text})
	}
	cols = append(cols, column{name: "ver"}, column{name: "chk"})
	return append(cols, t.columns...)
}

func (t *table) create() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE %s (id %s", t.fullName(), t.id)
	if t.extra != nil {
		b.WriteString(", region CHAR(2) NOT NULL")
	}
	b.WriteString(", ver INT NOT NULL, chk INT UNSIGNED NOT NULL")
	for _, c := range t.columns {
		fmt.Fprintf(&b, ", %s %s", c.name, c.decl)
	}
	b.WriteString(t.rest + ") CHARACTER SET utf8mb4")
	return b.String()
}

func (t *table) checked() history.Table { return history.Table{Name: t.fullName(), Key: t.key} }

// writerTable has one row for each writer, changed in each of its transactions.
var writerTable = &table{name: "writer", id: "INT NOT NULL", key: []string{"id"}, rest: ", PRIMARY KEY (id)"}

// bulkTable takes the very large transaction.
var bulkTable = &table{name: "bulk", id: "INT NOT NULL", key: []string{"id"}, rest: ", PRIMARY KEY (id)",
	columns: []column{{"v", "VARCHAR(40) NOT NULL", text, nil}}}

var writtenTables = []*table{
	{name: "item", id: "BIGINT UNSIGNED NOT NULL", key: []string{"id"}, rest: ", PRIMARY KEY (id)", columns: []column{
		{"name", "VARCHAR(40) NOT NULL", text, words(4)},
		{"qty", "INT", number, orNull(10, integer(-1<<31, 1<<31-1))},
		{"price", "DECIMAL(12,2) NOT NULL", text, func(r *rand.Rand) string { return fmt.Sprintf("%d.%02d", r.IntN(1e9)-5e8, r.IntN(100)) }},
		{"ts", "TIMESTAMP(6) NULL", text, orNull(10, moment("2001-01-01", 6))},
		{"note", "TEXT", text, orNull(3, words(30))},
	}},
	{name: "orders", id: "BIGINT NOT NULL", key: []string{"id", "region"}, rest: ", PRIMARY KEY (id, region)",
		extra: func(id string) string { return []string{"eu", "us", "as"}[int(id[len(id)-1])%3] },
		columns: []column{
			{"total", "DECIMAL(30,10)", text, orNull(8, func(r *rand.Rand) string { return fmt.Sprintf("%d.%010d", r.Int64N(1e18), r.Int64N(1e10)) })},
			{"state", "ENUM('new','paid','sent','zurück') NOT NULL", text, oneOf("'new'", "'paid'", "'sent'", "'zurück'")},
			{"flags", "SET('a','b','c') NOT NULL", text, oneOf("''", "'a'", "'b,c'", "'a,b,c'")},
			{"made", "DATETIME(3)", text, orNull(8, moment("1970-03-04", 3))},
		}},
	{name: "typed", id: "INT UNSIGNED NOT NULL", key: []string{"id"}, rest: ", PRIMARY KEY (id)", columns: []column{
		{"f", "FLOAT", float32bits, orNull(9, func(r *rand.Rand) string { return fmt.Sprint(float32(r.NormFloat64() * 1e5)) })},
		{"d", "DOUBLE", float64bits, orNull(9, func(r *rand.Rand) string { return fmt.Sprintf("%g", r.NormFloat64()*1e100) })},
		{"bits", "BIT(20)", number, integer(0, 1<<20-1)},
		{"y", "YEAR", number, integer(1901, 2155)},
		{"t", "TIME(2)", text, func(r *rand.Rand) string {
			return fmt.Sprintf("'%s%d:%02d:%02d.%02d'", []string{"", "-"}[r.IntN(2)], r.IntN(838), r.IntN(60), r.IntN(60), r.IntN(100))
		}},
		{"dt", "DATE", text, moment("1000-01-01", -1)},
		{"bin", "BINARY(8)", binaryHex, bytesOf(0, 8)},
		{"vb", "VARBINARY(60)", binaryHex, orNull(5, bytesOf(0, 60))},
		{"doc", "JSON", text, orNull(4, func(r *rand.Rand) string {
			return fmt.Sprintf(`'{"a": %d, "b": [true, null, "x%d"], "longer": {"n": -%d.5}}'`, r.IntN(1e6), r.IntN(100), 1+r.IntN(1000))
		})},
		{"tiny", "TINYINT", number, integer(-128, 127)},
		{"med", "MEDIUMINT UNSIGNED", number, integer(0, 1<<24-1)},
		{"big", "BIGINT UNSIGNED", number, func(r *rand.Rand) string { return fmt.Sprint(r.Uint64()) }},
	}},
	{name: "blobs", id: "VARCHAR(30) CHARACTER SET latin1 NOT NULL", text: true, key: []string{"id"}, rest: ", PRIMARY KEY (id)", columns: []column{
		{"body", "MEDIUMBLOB", binaryHex, func(r *rand.Rand) string {
			if r.IntN(200) == 0 {
				return bytesOf(50_000, 200_000)(r)
			}
			return bytesOf(0, 600)(r)
		}},
		{"lat", "VARCHAR(60) CHARACTER SET latin1", text, orNull(5, oneOf("'Grüße'", "'naïve café'", "'plain'"))},
	}},
	// Without a primary key: no Kafka key, one partition for the whole table.
	{name: "nopk", id: "BIGINT NOT NULL", rest: ", INDEX (id)", columns: []column{
		{"txt", "VARCHAR(100) NOT NULL", text, words(6)},
	}},
}

func checkedTables() []history.Table {
	tables := []history.Table{writerTable.checked(), bulkTable.checked()}
	for _, t := range writtenTables {
		tables = append(tables, t.checked())
	}
	return tables
}

// noise is written too, and not selected: none of it may arrive.
const createNoise = "CREATE TABLE " + database + ".noise (id BIGINT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(40))"

func integer(from, to int64) func(*rand.Rand) string {
	return func(r *rand.Rand) string { return fmt.Sprint(from + r.Int64N(to-from+1)) }
}

func orNull(oneIn int, f func(*rand.Rand) string) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		if r.IntN(oneIn) == 0 {
			return "NULL"
		}
		return f(r)
	}
}

func oneOf(v ...string) func(*rand.Rand) string {
	return func(r *rand.Rand) string { return v[r.IntN(len(v))] }
}

func words(most int) func(*rand.Rand) string {
	list := []string{"alpha", "Öl", "漢字", "z", "quote\\'s", "line\\nend", "back\\\\slash", "", "🙂", "tab\\t", "longer words here", "\\\"json\\\""}
	return func(r *rand.Rand) string {
		var b strings.Builder
		for range 1 + r.IntN(most) {
			b.WriteString(list[r.IntN(len(list))])
			if b.Len() > 30 && most <= 4 {
				break // what the narrow column takes
			}
		}
		return "'" + b.String() + "'"
	}
}

// moment makes dates within 30 years of a day: digits of the fraction of a second, -1 for a date alone.
func moment(day string, digits int) func(*rand.Rand) string {
	year, rest := day[:4], day[4:]
	var y int
	fmt.Sscan(year, &y)
	return func(r *rand.Rand) string {
		s := fmt.Sprintf("'%04d%s", y+r.IntN(30), rest)
		if digits >= 0 {
			s += fmt.Sprintf(" %02d:%02d:%02d", r.IntN(24), r.IntN(60), r.IntN(60))
		}
		if digits > 0 {
			s += "." + fmt.Sprintf("%06d", r.IntN(1e6))[:digits]
		}
		return s + "'"
	}
}

func bytesOf(from, to int) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		b := make([]byte, from+r.IntN(to-from+1))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return fmt.Sprintf("x'%x'", b)
	}
}
