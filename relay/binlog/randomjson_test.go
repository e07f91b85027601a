package binlog

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

func jsonType(r *rand.Rand, kind string) testType {
	if kind == "mariadb" {
		return testType{ddl: "JSON", sel: selUTF8, lit: func(r *rand.Rand) string {
			return pick(r, "'null'", "'{}'", "' [1, 2.50 ] '", `'{"b":1,"a":2,"b":3}'`, `'"s"'`, "'[-0, 1e400, 12345678901234567890123456789]'", `'{"é": "日\\n本"}'`)
		}}
	}
	return testType{ddl: "JSON", sel: "HEX(CAST(? AS CHAR))", lit: func(r *rand.Rand) string {
		if r.IntN(10) == 0 { // beyond 64 KB: the large format
			return fmt.Sprintf(`JSON_OBJECT('a', REPEAT('x', %d), 'big', JSON_ARRAY(%s, 70000, %s), 'n', 1)`, 60000+r.IntN(20000), jsonExpression(r, 2), jsonExpression(r, 1))
		}
		return jsonExpression(r, 3)
	}, patch: func(r *rand.Rand) string {
		path := func() string {
			return pick(r, "$.a", "$.b", "$[0]", "$[1]", "$.a.b", "$.a[0]", `$."x y"`, "$.c.a", `$."é"`, "$[2].a", `$."q\\"q"`)
		}
		var b strings.Builder
		b.WriteString("?")
		for range 1 + r.IntN(3) {
			s := b.String()
			b.Reset()
			switch r.IntN(3) {
			case 0:
				fmt.Fprintf(&b, "JSON_SET(%s, '%s', %s)", s, path(), jsonExpression(r, 1))
			case 1:
				fmt.Fprintf(&b, "JSON_REPLACE(%s, '%s', %s)", s, path(), jsonExpression(r, 1))
			default:
				fmt.Fprintf(&b, "JSON_REMOVE(%s, '%s')", s, path())
			}
		}
		return b.String()
	}}
}

// jsonExpression is an SQL expression of a random document with values of all types that it can hold.
func jsonExpression(r *rand.Rand, depth int) string {
	if depth > 0 && r.IntN(2) == 0 {
		var m []string
		if r.IntN(2) == 0 {
			for range r.IntN(6) {
				m = append(m, jsonExpression(r, depth-1))
			}
			return "JSON_ARRAY(" + strings.Join(m, ",") + ")"
		}
		for range r.IntN(6) {
			m = append(m, pick(r, "'a'", "'b'", "'c'", "'x y'", "'é'", `'q"q'`, "''", `'back\\slash'`, "'a much longer key'"), jsonExpression(r, depth-1))
		}
		return "JSON_OBJECT(" + strings.Join(m, ",") + ")"
	}
	f := func() string { return strconv.FormatFloat(r.NormFloat64()*pick(r, 1, 1e20, 1e-20, 1e5), 'e', -1, 64) }
	if r.IntN(8) == 0 {
		return f()
	}
	return pick(r, jsonScalars...)
}

// jsonScalars are SQL expressions of documents without members, of every type that a document can hold.
var jsonScalars = []string{
	"NULL", "true", "false", "CAST('null' AS JSON)",
	"0", "-1", "32767", "32768", "-32769", "65536", "2147483648", "-2147483649", "4294967296", "9223372036854775807", "18446744073709551615", "-9223372036854775808",
	"0e0", "-0e0", "1e0", "1.25e23", "1.5e-5", "1e100", "1e15", "1e14", "1e16", "1e-15", "1e-14", "1.7976931348623157e308", "2.2250738585072014e-308",
	"CAST(12.50 AS DECIMAL(20,10))", "CAST(-0.001 AS DECIMAL(5,4))", "CAST(99999999999999999999999999999999999 AS DECIMAL(65,30))", "1.1", "0.5", "CAST(0 AS DECIMAL(5,5))",
	"CAST('00:00:00' AS TIME)", "CAST('-838:59:59' AS TIME)", "CAST('-12:34:56.789' AS TIME(3))", "CAST('2021-03-04' AS DATE)", "CAST('0000-00-00' AS DATE)",
	"CAST('2021-03-04 05:06:07' AS DATETIME)", "CAST('2021-03-04 05:06:07.123456' AS DATETIME(6))", "TIMESTAMP'2021-03-04 05:06:07'",
	"_binary'ab'", "_binary''", "CAST('ab' AS BINARY(5))", "REPEAT(_binary'abcdefg', 8)", "REPEAT(_binary'abcdefg', 30)", "REPEAT(_binary'abc', 19)", "REPEAT(_binary'abc', 38)",
	"b'101'", "CAST(2021 AS YEAR)", "ST_GeomFromText('POINT(1 2)')",
	"'é😀'", `'q"uo\\te'`, `'\n\t\r\b\0\Z'`, "CHAR(1,2,31,127 USING utf8mb4)", "''", "REPEAT('long ', 30)", "_latin1 x'e9'", `'/ < > & \''`,
}
