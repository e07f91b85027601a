package relaytest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binrelay/bench/services"
	"binrelay/functions"
)

// literal is a value as SQL and as Go.
type literal struct {
	sql string
	v   any
}

func same(values ...any) (out []literal) {
	for _, v := range values {
		switch x := v.(type) {
		case string:
			out = append(out, literal{"'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(x) + "'", v})
		case []byte:
			out = append(out, literal{fmt.Sprintf("x'%x'", x), v})
		default:
			out = append(out, literal{fmt.Sprint(v), v})
		}
	}
	return append(out, literal{"NULL", nil})
}

// goldenTypes are the types of one column, with what is put in; only: the flavour that has it.
var goldenTypes = []struct {
	only   Flavor
	typ    string
	values []literal
}{
	{"", "TINYINT", same(-128, 127, 0)},
	{"", "TINYINT(3) UNSIGNED ZEROFILL", same(255, 0)},
	{"", "BOOL", same(true, false)},
	{"", "SMALLINT", same(-32768, 32767)},
	{"", "MEDIUMINT", same(-8388608, 8388607, -1)},
	{"", "MEDIUMINT UNSIGNED", same(16777215)},
	{"", "INT", same(-2147483648, 2147483647)},
	{"", "BIGINT", same(int64(-1<<63), int64(1<<63-1))},
	{"", "BIGINT UNSIGNED", same(uint64(1<<64-1), 1)},
	{"", "YEAR", same(1901, 2155, 2026, 0)},
	{"", "BIT(1)", same(1, 0)},
	{"", "BIT(20)", same(1<<20-1, 5)},
	{"", "BIT(64)", same(uint64(1<<64-1), 1)},
	{"", "DECIMAL(10,2)", same("-99999999.99", "12.5", "0", "0.01", "-0.01")},
	{"", "DECIMAL(65,30)", same("-99999999999999999999999999999999999.999999999999999999999999999999", "1", "123456789012.000000001")},
	{"", "DECIMAL(5,0)", same(-99999, 7)},
	{"", "DECIMAL(9,9)", same("0.123456789", "-0.000000001")},
	{"", "NUMERIC(20,3) UNSIGNED", same("12345678901234567.891")},
	{"", "FLOAT", same(0.5, -3.25e10)},
	{"", "FLOAT(30)", same(0.1)},
	{"", "DOUBLE PRECISION", same(0.1, -1.7976931348623157e308, 5e-324)},
	{"", "DATE", same("2026-03-04", "1000-01-01", "9999-12-31", "0000-00-00", "2024-00-15")},
	{"", "DATETIME", same("2026-03-04 05:06:07", "0000-00-00 00:00:00")},
	{"", "DATETIME(1)", same("2026-03-04 05:06:07.8")},
	{"", "DATETIME(3)", same("2026-03-04 05:06:07.890", "2024-02-00 10:11:12.5")},
	{"", "DATETIME(6)", same("9999-12-31 23:59:59.999999", "2026-03-04 05:06:07.000001")},
	{"", "TIMESTAMP NULL", same("2026-03-04 05:06:07", "1970-01-01 00:00:01", "2038-01-19 03:14:07", "0000-00-00 00:00:00")},
	{"", "TIMESTAMP(2) NULL", same("2026-03-04 05:06:07.89")},
	{"", "TIMESTAMP(6) NULL", same("2026-03-04 05:06:07.000001")},
	{"", "TIME", same("-838:59:59", "838:59:59", "00:00:00", "-00:00:01")},
	{"", "TIME(1)", same("-00:00:00.5", "-838:59:58.9", "01:02:03.4", "-01:00:00")},
	{"", "TIME(2)", same("-00:00:00.01")},
	{"", "TIME(4)", same("-01:02:03.4", "-00:00:00.0001", "10:11:12.1314")},
	{"", "TIME(6)", same("-838:59:58.999999", "-00:00:00.000001", "-01:02:03", "100:00:00.000100")},
	{"", "CHAR(8)", same("abc", "", "ab  ", "Grüße 🌍")},
	{"", "CHAR(200)", same("a", strings.Repeat("ü", 200))},
	{"", "CHAR(255) CHARACTER SET latin1", same("café ß")},
	{"", "VARCHAR(40)", same("Grüße 🌍", "", "trail  ")},
	{"", "VARCHAR(64)", same("long enough for two length bytes")},
	{"", "VARCHAR(255) CHARACTER SET latin1", same("€ œ ÿ")},
	{"", "VARCHAR(20) CHARACTER SET gbk", same("中文字a")},
	{"", "VARCHAR(20) CHARACTER SET utf16", same("a😀b")},
	{"", "VARCHAR(20) CHARACTER SET sjis", same("カナー")},
	{"", "VARCHAR(20) CHARACTER SET cp1251", same("Привет")},
	{"", "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", same("x")},
	{"", "VARCHAR(20) CHARACTER SET utf8mb3", same("ü語")},
	{"", "TINYTEXT", same("tiny", "")},
	{"", "TEXT CHARACTER SET latin1", same("naïve")},
	{"", "MEDIUMTEXT", same("medium ü")},
	{"", "LONGTEXT", same(strings.Repeat("long ", 300))},
	{"", "BINARY(4)", same([]byte("ab"), []byte{0xff, 0xfe, 0, 0}, []byte{0, 0, 0, 0})},
	{"", "VARBINARY(40)", same([]byte{0, 0xc3, 0x28}, []byte("a\x00"))},
	{"", "VARBINARY(300)", same([]byte{0})},
	{"", "TINYBLOB", same([]byte{1})},
	{"", "BLOB", same(bytes.Repeat([]byte{0, 1, 0xff}, 300))},
	{"", "LONGBLOB", same([]byte{0xed})},
	{"", "ENUM('small','large','it''s','a,b','grün')", same("large", "it's", "a,b", "grün")},
	{"", "ENUM('ä','ö') CHARACTER SET latin1", same("ö")},
	{"", "SET('a','b','c d','ü')", same("a,ü", "", "c d")},
	{"", "SET('a','b','c','d','e','f','g','h','i')", same("a,i")},
	{"", "POINT", []literal{
		{"ST_GeomFromText('POINT(1 2)')", functions.Geo{WKB: append([]byte{1, 1, 0, 0, 0}, point(1, 2)...)}}, {"NULL", nil}}},
	{MySQL, "JSON", same(`{}`, `[]`, `null`, `true`, `-1`, `"text"`, `1.5`, `{"b": 1, "a": [1, 70000, -70000, 5000000000, 18446744073709551615, null, false, 1e30], "long name": {"x": "ü"}}`,
		`{"a": "`+strings.Repeat("x", 200)+`", "b": "`+strings.Repeat("y", 70000)+`", "c": [1, -2, 70000, 1.25]}`, `["`+strings.Repeat("z", 20000)+`"]`)},
	{MySQL, "VECTOR(3)", []literal{{"STRING_TO_VECTOR('[1,-2.5,3]')", []float32{1, -2.5, 3}}, {"NULL", nil}}},
	{MariaDB, "JSON", same(`{"b": 1, "a":  [1]}`)},
	{MariaDB, "UUID", same("123e4567-e89b-12d3-a456-426614174000", "00000000-0000-0000-0000-000000000000", "123e4567-e89b-72d3-a456-426614170000", "ffffffff-ffff-ffff-ffff-ffffffffff00")},
	{MariaDB, "INET6", same("2001:db8::ff00:42:8329", "::", "::ffff:1.2.3.4", "1::")},
	{MariaDB, "INET4", same("192.168.0.1", "10.0.0.0", "0.0.0.0")},
}

func point(x, y float64) []byte {
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, []float64{x, y})
	return b.Bytes()
}

// goldenTables have several columns: what depends on the others.
var goldenTables = []struct {
	only Flavor
	sql  string
	row  []literal
}{
	{"", "CREATE TABLE golden.mixed (id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY COMMENT 'a, (comment', name VARCHAR(60) NOT NULL DEFAULT 'x, y', mail VARCHAR(80) CHARACTER SET latin1, " +
		"n DECIMAL(10,2) NOT NULL DEFAULT 0.00, seen TIMESTAMP(3) NULL DEFAULT NULL, UNIQUE KEY mail_once (mail), KEY (name)) COMMENT = 'who buys'",
		[]literal{{"1", 1}, {"'a'", "a"}, {"'b'", "b"}, {"1.5", "1.5"}, {"NULL", nil}}},
	{"", "CREATE TABLE golden.shelf (label VARCHAR(20), place INT NOT NULL, hall CHAR(2) NOT NULL, made DATETIME(3) NOT NULL, PRIMARY KEY (hall, place, made))",
		[]literal{{"NULL", nil}, {"1", 1}, {"'h'", "h"}, {"'2026-01-02 03:04:05'", "2026-01-02 03:04:05"}}},
	{"", "CREATE TABLE golden.visit (at DATETIME, page VARCHAR(40), ms INT) CHARACTER SET latin1", []literal{{"NULL", nil}, {"'p'", "p"}, {"1", 1}}},
	{"", "CREATE TABLE golden.texts (id INT PRIMARY KEY, a VARCHAR(9), b VARCHAR(9) CHARACTER SET latin1, c VARCHAR(9) CHARACTER SET gbk, d TEXT CHARACTER SET ascii, e BLOB, " +
		"f ENUM('x') CHARACTER SET latin1, g SET('y','z'), h ENUM('q') CHARACTER SET gbk, i CHAR(3) CHARACTER SET ucs2)",
		[]literal{{"1", 1}, {"NULL", nil}, {"NULL", nil}, {"'c'", "c"}, {"NULL", nil}, {"x'00'", []byte{0}}, {"'x'", "x"}, {"'z'", "z"}, {"NULL", nil}, {"'i'", "i"}}},
	{"", "CREATE TABLE golden.nine (id INT PRIMARY KEY, a INT, b INT UNSIGNED, c INT, d INT, e INT, f INT, g INT UNSIGNED, h INT UNSIGNED)",
		[]literal{{"1", 1}, {"NULL", nil}, {"2", 2}, {"NULL", nil}, {"NULL", nil}, {"NULL", nil}, {"NULL", nil}, {"7", 7}, {"NULL", nil}}},
}

// goldenCase is one table with its rows, as it is put into a server and into a Builder.
type goldenCase struct {
	create string
	rows   [][]literal
}

func goldenCases(f Flavor) (cases []goldenCase) {
	for i, g := range goldenTypes {
		if g.only != "" && g.only != f {
			continue
		}
		c := goldenCase{create: fmt.Sprintf("CREATE TABLE golden.t%02d (id INT NOT NULL PRIMARY KEY, v %s)", i, g.typ)}
		for k, v := range g.values {
			c.rows = append(c.rows, []literal{{fmt.Sprint(k), k}, v})
		}
		cases = append(cases, c)
	}
	for _, g := range goldenTables {
		if g.only == "" || g.only == f {
			cases = append(cases, goldenCase{g.sql, [][]literal{g.row}})
		}
	}
	return cases
}

// TestBuilderWritesWhatServersWrite puts the same rows into a real server and into a Builder and compares
// the table maps and the row images byte for byte.
func TestBuilderWritesWhatServersWrite(t *testing.T) {
	for _, f := range flavors {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			db := services.Database(t, string(f))
			statements := []string{"SET SESSION sql_mode = ''", "SET SESSION time_zone = '+00:00'", "SET NAMES utf8mb4", "FLUSH BINARY LOGS", "CREATE DATABASE golden DEFAULT CHARACTER SET utf8mb4"}
			cases := goldenCases(f)
			for _, c := range cases {
				statements = append(statements, c.create)
				for _, row := range c.rows {
					var sql []string
					for _, v := range row {
						sql = append(sql, v.sql)
					}
					statements = append(statements, fmt.Sprintf("INSERT INTO %s VALUES (%s)", CreateTable(c.create), strings.Join(sql, ", ")))
				}
			}
			if err := db.Exec(append(statements, "FLUSH BINARY LOGS")...); err != nil {
				t.Fatal(err)
			}
			logs, _ := filepath.Glob(filepath.Join(db.Dir, "data", "binlog.0*"))
			if len(logs) < 2 {
				t.Fatalf("binlogs %v", logs)
			}
			file, err := os.ReadFile(logs[len(logs)-2])
			if err != nil {
				t.Fatal(err)
			}
			want := rowsBodies(file[4:])
			b := Builder{Flavor: f, Checksum: true}
			b.Version = string(bytes.TrimRight(file[4+eventHeader+2:][:50], "\x00"))
			const created = 52 // a time, unless it is the newest file
			description := b.FormatDescription()[eventHeader:]
			if theirs := file[4+eventHeader:][:len(description)]; !bytes.Equal(description[:created], theirs[:created]) || !bytes.Equal(description[created+4:len(description)-4], theirs[created+4:len(description)-4]) {
				t.Errorf("format description\n%x\nserver\n%x", description, theirs)
			}
			i := 0
			for _, c := range cases {
				table := CreateTable(c.create)
				for _, row := range c.rows {
					var values []any
					for _, v := range row {
						values = append(values, v.v)
					}
					events, err := b.Changes(Insert(table, values...))
					if err != nil {
						t.Errorf("%s: %v", c.create, err)
						i++
						continue
					}
					if i >= len(want) {
						t.Fatalf("the server wrote %d inserts only", len(want))
					}
					got := rowsBodies(bytes.Join(events, nil))[0]
					if !bytes.Equal(got[0], want[i][0]) {
						t.Errorf("%s\ntable map %x\nserver    %x", c.create, got[0], want[i][0])
					}
					if !bytes.Equal(got[1], want[i][1]) {
						t.Errorf("%s\nvalues %.80v\nimage  %.200x\nserver %.200x", c.create, values, got[1], want[i][1])
					}
					i++
				}
			}
		})
	}
}

// rowsBodies returns the table map and the write rows bodies, without table id and flags.
func rowsBodies(data []byte) (out [][2][]byte) {
	var tableMap []byte
	eachEvent(data, func(ev []byte) error {
		switch ev[4] {
		case evTableMap:
			tableMap = ev[eventHeader+8 : len(ev)-4]
		case 23, 30:
			out = append(out, [2][]byte{tableMap, ev[eventHeader+8 : len(ev)-4]})
		}
		return nil
	})
	return out
}
