package binlog

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// testType is a column type with what it takes to write and to read it back: ddl behind the column's name,
// sel a select expression with ? for the column, lit a random literal.
type testType struct {
	ddl      string
	sel      string
	lit      func(*rand.Rand) string
	patch    func(*rand.Rand) string // an update that changes a part of the value
	computed bool                    // a generated column: never written
}

type testColumn struct {
	name string
	typ  testType
}

const (
	selText = "CAST(? AS CHAR)"
	selHex  = "HEX(?)"
	selUTF8 = "HEX(CONVERT(? USING utf8mb4))"
)

// randomColumns makes the columns of a table: mostly a few, at times more than 255.
func randomColumns(r *rand.Rand, kind string) []testColumn {
	n := 3 + r.IntN(20)
	if r.IntN(10) == 0 {
		n = 260 + r.IntN(20)
	}
	wide := 0
	var cols []testColumn
	for i := 0; i < n; i++ {
		t := randomType(r, kind)
		if n > 100 && strings.Contains(t.ddl, "CHAR") || n > 100 && strings.Contains(t.ddl, "BINARY") || strings.Contains(t.ddl, "1000") {
			if wide++; wide > 8 { // InnoDB's limit of a row
				i--
				continue
			}
		}
		if r.IntN(4) > 0 && !t.computed {
			t.ddl += " NULL"
		} else if !t.computed && !strings.Contains(t.ddl, "TIMESTAMP") {
			t.ddl += " NOT NULL"
		}
		if strings.Contains(t.ddl, "TIMESTAMP") && !strings.HasSuffix(t.ddl, " NULL") {
			t.ddl += " NULL"
		}
		cols = append(cols, testColumn{fmt.Sprintf("c%d%s", i, []string{"", " x", "é", `"q`, "日本"}[r.IntN(5)]), t})
	}
	return cols
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// orNull makes a literal NULL at times.
func orNull(f func(*rand.Rand) string) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		if r.IntN(12) == 0 {
			return "NULL"
		}
		return f(r)
	}
}

func randomType(r *rand.Rand, kind string) testType {
	kinds := []func(*rand.Rand, string) testType{
		integerType, integerType, bitType, yearType, decimalType, floatType, textType, textType, textType, enumType, setType,
		binaryType, temporalType, temporalType, jsonType, geometryType, generatedType, flavourType, flavourType,
	}
	t := pick(r, kinds...)(r, kind)
	t.lit = orNull(t.lit)
	return t
}

func integerType(r *rand.Rand, _ string) testType {
	size := r.IntN(5)
	bits := []uint{8, 16, 24, 32, 64}[size]
	ddl := []string{"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"}[size]
	unsigned := r.IntN(2) == 0
	if unsigned {
		ddl += " UNSIGNED"
	}
	return testType{ddl: ddl, sel: selText, lit: func(r *rand.Rand) string {
		maxU := uint64(math.MaxUint64) >> (64 - bits)
		v := pick(r, 0, 1, maxU, maxU>>1, maxU>>1+1, r.Uint64()&maxU, uint64(r.IntN(100)))
		if unsigned {
			return strconv.FormatUint(v, 10)
		}
		return strconv.FormatInt(int64(v<<(64-bits))>>(64-bits), 10)
	}}
}

func bitType(r *rand.Rand, _ string) testType {
	n := pick(r, 1, 2, 7, 8, 9, 16, 31, 32, 33, 63, 64, 1+r.IntN(64))
	return testType{ddl: fmt.Sprintf("BIT(%d)", n), sel: "?+0", lit: func(r *rand.Rand) string {
		return strconv.FormatUint(pick(r, 0, 1, uint64(math.MaxUint64), r.Uint64())>>(64-n), 10)
	}}
}

func yearType(r *rand.Rand, _ string) testType {
	return testType{ddl: "YEAR", sel: selText, lit: func(r *rand.Rand) string {
		return pick(r, "0", "'0000'", "1901", "2155", strconv.Itoa(1901+r.IntN(254)))
	}}
}

func digits(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('0' + pick(r, 0, 9, r.IntN(10)))
	}
	return string(b)
}

func decimalType(r *rand.Rand, _ string) testType {
	prec := 1 + r.IntN(65)
	scale := r.IntN(min(prec, 30) + 1)
	sign := pick(r, "", "", " UNSIGNED", " ZEROFILL")
	// ZEROFILL is for display only, which CAST would show: take the value itself.
	return testType{ddl: fmt.Sprintf("DECIMAL(%d,%d)%s", prec, scale, sign), sel: fmt.Sprintf("CAST(CAST(? AS DECIMAL(%d,%d)) AS CHAR)", prec, scale),
		lit: func(r *rand.Rand) string {
			s := pick(r, "", "-") + "0" + digits(r, r.IntN(prec-scale+1))
			if scale > 0 {
				s += "." + digits(r, r.IntN(scale+1))
			}
			return "'" + s + "'"
		}}
}

func floatType(r *rand.Rand, _ string) testType {
	values := func(bits int) func(*rand.Rand) string {
		return func(r *rand.Rand) string {
			f := pick(r, 0, math.Copysign(0, -1), 1, 0.1, 1e15, 1e14, 999999999999999, 1e16, 1e-14, 1e-15, 1e-16, 123456789, 1.5e-5, math.MaxFloat32, math.SmallestNonzeroFloat32,
				16777217, math.Float64frombits(r.Uint64()), r.NormFloat64(), r.NormFloat64()*1e10, float64(r.Int64()), math.Trunc(r.NormFloat64()*1e6)/100)
			if bits == 32 {
				f = float64(float32(f))
				if r.IntN(2) == 0 {
					f = float64(math.Float32frombits(r.Uint32()))
				}
			}
			if math.IsNaN(f) || math.IsInf(f, 0) {
				f = 7
			}
			return strconv.FormatFloat(f, 'e', -1, 64)
		}
	}
	if r.IntN(2) == 0 {
		return testType{ddl: pick(r, "FLOAT", "FLOAT UNSIGNED", "FLOAT(7,3)"), sel: "CAST(?*1e0 AS CHAR)", lit: values(32)}
	}
	return testType{ddl: pick(r, "DOUBLE", "DOUBLE", "DOUBLE UNSIGNED"), sel: selText, lit: values(64)}
}

// charsetNames are the charsets of text columns; MariaDB has no gb18030.
func charsetNames(kind string) []string {
	names := append([]string{"utf8mb4", "utf8mb4", "utf8mb3", "ucs2", "utf16", "utf16le", "utf32"}, singleByte...)
	for _, m := range multiByte {
		if m.name != "gb18030" || kind == "mysql" {
			names = append(names, m.name)
		}
	}
	return names
}

// randomCoded is a random string in a charset as an SQL literal.
func randomCoded(r *rand.Rand, cs *charset, maxChars int) string {
	var b []byte
	for range r.IntN(maxChars + 1) {
		b = append(b, randomCode(r, cs)...)
	}
	return fmt.Sprintf("_%s x'%s'", cs.name, hex.EncodeToString(b))
}

func randomCode(r *rand.Rand, cs *charset) []byte {
	unicodeChar := func(top rune) rune {
		for {
			c := pick(r, rune(r.IntN(0x80)), ' ', '"', '\\', '\n', '\t', 'é', '中', '😀', rune(r.IntN(int(top)+1)), rune(r.IntN(0x2000)))
			if c <= top && (c < 0xd800 || c > 0xdfff) && !isRaw(c) {
				return c
			}
		}
	}
	utf16be := func(c rune) []byte {
		if c >= 0x10000 {
			c -= 0x10000
			h, l := 0xd800+c>>10, 0xdc00+c&0x3ff
			return []byte{byte(h >> 8), byte(h), byte(l >> 8), byte(l)}
		}
		return []byte{byte(c >> 8), byte(c)}
	}
	switch cs.kind {
	case charsetUTF8:
		if cs.name == "utf8mb3" {
			return []byte(string(unicodeChar(0xffff)))
		}
		return []byte(string(unicodeChar(0x10ffff)))
	case charsetUCS2:
		return utf16be(unicodeChar(0xffff))
	case charsetUTF16:
		return utf16be(unicodeChar(0x10ffff))
	case charsetUTF16LE:
		b := utf16be(unicodeChar(0x10ffff))
		for i := 0; i < len(b); i += 2 {
			b[i], b[i+1] = b[i+1], b[i]
		}
		return b
	case charsetUTF32:
		c := unicodeChar(0x10ffff)
		return []byte{0, byte(c >> 16), byte(c >> 8), byte(c)}
	}
	for {
		size := tableOne
		if cs.two != nil {
			size += tableTwo + len(cs.three)
			if cs.four != nil {
				size += gb18030Basic
			}
		}
		i := r.IntN(size)
		if r.IntN(3) == 0 {
			i = r.IntN(tableOne)
		}
		code := codeBytes(i, size)
		if c, n := cs.char(code); c >= 0 && n == len(code) && c != '?' {
			return code
		}
	}
}

func textType(r *rand.Rand, kind string) testType {
	cs := charsetNamed(pick(r, charsetNames(kind)...))
	ddl := pick(r, "CHAR(5)", "CHAR(255)", "VARCHAR(5)", "VARCHAR(80)", "VARCHAR(300)", "VARCHAR(1000)", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")
	length := 5
	if ddl != "CHAR(5)" && ddl != "VARCHAR(5)" {
		length = 60
	}
	compressed := ""
	if kind == "mariadb" && !strings.HasPrefix(ddl, "CHAR") && r.IntN(3) == 0 {
		compressed = " COMPRESSED"
		length *= pick(r, 1, 4)
		if strings.HasPrefix(ddl, "VARCHAR") && length > 80 {
			length = 5
		}
	}
	return testType{ddl: ddl + compressed + " CHARACTER SET " + cs.name, sel: selUTF8, lit: func(r *rand.Rand) string {
		if r.IntN(8) == 0 && strings.HasSuffix(ddl, "TEXT") && ddl != "TINYTEXT" {
			return fmt.Sprintf("REPEAT('ab\"cd', %d)", r.IntN(12000))
		}
		return randomCoded(r, cs, length)
	}}
}

func memberNames(r *rand.Rand, cs *charset, n int) (lits []string) {
	for i := range n {
		lits = append(lits, fmt.Sprintf("'m%d%s'", i, pick(r, "", " x", `"`, "''", `\\`, "é")))
	}
	return lits
}

func enumType(r *rand.Rand, _ string) testType {
	cs := charsetNamed(pick(r, "utf8mb4", "latin1", "utf8mb3", "cp1250"))
	n := pick(r, 1, 2, 5, 255, 256, 300)
	return testType{ddl: "ENUM(" + strings.Join(memberNames(r, cs, n), ",") + ") CHARACTER SET " + cs.name, sel: selUTF8,
		lit: func(r *rand.Rand) string {
			return pick(r, "'bogus'", strconv.Itoa(1+r.IntN(n)), strconv.Itoa(1+r.IntN(n)), strconv.Itoa(n))
		}}
}

func setType(r *rand.Rand, _ string) testType {
	cs := charsetNamed(pick(r, "utf8mb4", "latin1", "utf8mb3", "cp1250"))
	n := pick(r, 1, 2, 8, 9, 17, 25, 33, 64)
	return testType{ddl: "SET(" + strings.Join(memberNames(r, cs, n), ",") + ") CHARACTER SET " + cs.name, sel: selUTF8,
		lit: func(r *rand.Rand) string {
			return strconv.FormatUint(pick(r, 0, 1, uint64(math.MaxUint64), r.Uint64())>>(64-n), 10)
		}}
}

func randomBytes(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = pick(r, 0, 255, byte(r.Uint32()))
	}
	if n > 1 && r.IntN(3) == 0 {
		clear(b[r.IntN(n):])
	}
	return "x'" + hex.EncodeToString(b) + "'"
}

func binaryType(r *rand.Rand, kind string) testType {
	n := pick(r, 1, 2, 3, 4, 5, 16, 255)
	ddl := pick(r, fmt.Sprintf("BINARY(%d)", n), fmt.Sprintf("BINARY(%d)", n), fmt.Sprintf("VARBINARY(%d)", n), "VARBINARY(1000)", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")
	if ddl[0] != 'B' && !strings.HasPrefix(ddl, "VARB") {
		n = 255
	}
	if kind == "mariadb" && !strings.HasPrefix(ddl, "BINARY") && r.IntN(3) == 0 {
		ddl += " COMPRESSED"
	}
	return testType{ddl: ddl, sel: selHex, lit: func(r *rand.Rand) string {
		if r.IntN(6) == 0 && strings.Contains(ddl, "BLOB") && !strings.HasPrefix(ddl, "TINY") {
			return fmt.Sprintf("REPEAT(%s, %d)", randomBytes(r, 5), r.IntN(12000))
		}
		return randomBytes(r, r.IntN(n+1))
	}}
}

func temporalType(r *rand.Rand, kind string) testType {
	fsp := r.IntN(7)
	frac := func(r *rand.Rand) string {
		if r.IntN(3) == 0 {
			return ""
		}
		return "." + digits(r, 6)
	}
	suffix := ""
	if fsp > 0 || r.IntN(2) == 0 {
		suffix = fmt.Sprintf("(%d)", fsp)
	}
	date := func(r *rand.Rand) string {
		return pick(r, "0000-00-00", "9999-12-31", "2020-00-00", "2020-02-00", "0001-01-01", "2024-02-29",
			fmt.Sprintf("%04d-%02d-%02d", r.IntN(10000), 1+r.IntN(12), 1+r.IntN(28)))
	}
	clock := func(r *rand.Rand) string {
		return fmt.Sprintf("%02d:%02d:%02d", r.IntN(24), r.IntN(60), r.IntN(60))
	}
	switch r.IntN(4) {
	case 0:
		return testType{ddl: "DATE", sel: selText, lit: func(r *rand.Rand) string { return "'" + date(r) + "'" }}
	case 1:
		return testType{ddl: "DATETIME" + suffix, sel: selText, lit: func(r *rand.Rand) string { return "'" + date(r) + " " + clock(r) + frac(r) + "'" }}
	case 2:
		return testType{ddl: "TIMESTAMP" + suffix, sel: selText, lit: func(r *rand.Rand) string {
			return pick(r, "'0000-00-00 00:00:00'", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07"+frac(r)+"'",
				fmt.Sprintf("'%04d-%02d-%02d %s%s'", 1971+r.IntN(66), 1+r.IntN(12), 1+r.IntN(28), clock(r), frac(r)))
		}}
	default:
		return testType{ddl: "TIME" + suffix, sel: selText, lit: func(r *rand.Rand) string {
			return "'" + pick(r, "", "-") + pick(r, "838:59:59", "00:00:00"+frac(r), fmt.Sprintf("%02d:%02d:%02d%s", r.IntN(839), r.IntN(60), r.IntN(60), frac(r))) + "'"
		}}
	}
}

func geometryType(r *rand.Rand, _ string) testType {
	ddl := pick(r, "GEOMETRY", "GEOMETRY")
	return testType{ddl: ddl, sel: selHex, lit: func(r *rand.Rand) string {
		p := func() string { return fmt.Sprintf("%d %g", r.IntN(90), math.Trunc(r.Float64()*9000)/100) }
		a, b := p(), p()
		wkt := pick(r, "POINT("+a+")", "LINESTRING("+a+","+b+")", "POLYGON((0 0,0 9,9 9,9 0,0 0))", "MULTIPOINT("+a+","+b+")",
			"MULTILINESTRING(("+a+","+b+"))", "MULTIPOLYGON(((0 0,0 9,9 9,9 0,0 0)))", "GEOMETRYCOLLECTION(POINT("+a+"))", "GEOMETRYCOLLECTION EMPTY")
		return fmt.Sprintf("ST_GeomFromText('%s',%d)", wkt, pick(r, 0, 0, 4326))
	}}
}

func generatedType(r *rand.Rand, _ string) testType {
	store := pick(r, "STORED", "VIRTUAL")
	t := pick(r, testType{ddl: "INT AS (id+1) ", sel: selText}, testType{ddl: "VARCHAR(40) CHARACTER SET latin1 AS (CONCAT('é',id)) ", sel: selUTF8})
	t.ddl += store
	t.computed = true
	t.lit = func(*rand.Rand) string { return "DEFAULT" }
	return t
}

func flavourType(r *rand.Rand, kind string) testType {
	if kind == "mysql" {
		if r.IntN(3) > 0 {
			return jsonType(r, kind)
		}
		n := 1 + r.IntN(20)
		return testType{ddl: fmt.Sprintf("VECTOR(%d)", n), sel: selHex, lit: func(r *rand.Rand) string {
			var f []string
			for range 1 + r.IntN(n) {
				f = append(f, strconv.FormatFloat(float64(float32(r.NormFloat64()*pick(r, 1, 1e9, 1e-9))), 'g', -1, 32))
			}
			return "STRING_TO_VECTOR('[" + strings.Join(f, ",") + "]')"
		}}
	}
	only := *mariadbKind
	if only == "mariadb10.5" {
		return testType{ddl: "INET6", sel: selText, lit: randomInet6}
	}
	if only == "mariadb11.8" && r.IntN(3) == 0 {
		n := 1 + r.IntN(80)
		return testType{ddl: fmt.Sprintf("VECTOR(%d)", n), sel: selHex, lit: func(r *rand.Rand) string {
			f := make([]string, n)
			for i := range f {
				f[i] = strconv.FormatFloat(float64(float32(r.NormFloat64()*pick(r, 1, 1e9, 1e-9))), 'g', -1, 32)
			}
			return "VEC_FromText('[" + strings.Join(f, ",") + "]')"
		}}
	}
	switch r.IntN(3) {
	case 0:
		return testType{ddl: "UUID", sel: selText, lit: func(r *rand.Rand) string {
			h := fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64())
			if r.IntN(3) == 0 {
				h = h[:32-4*r.IntN(8)]
				h += strings.Repeat("0", 32-len(h))
			}
			return "'" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:] + "'"
		}}
	case 1:
		return testType{ddl: "INET4", sel: selText, lit: func(r *rand.Rand) string {
			o := func() int { return pick(r, 0, 255, r.IntN(256)) }
			return fmt.Sprintf("'%d.%d.%d.%d'", o(), o(), o(), o())
		}}
	default:
		return testType{ddl: "INET6", sel: selText, lit: randomInet6}
	}
}

func randomInet6(r *rand.Rand) string {
	var w []string
	for range 8 {
		w = append(w, fmt.Sprintf("%x", pick(r, 0, 0, 0xffff, r.IntN(0x10000))))
	}
	return pick(r, "'::'", "'::1'", "'::ffff:1.2.3.4'", "'::1.2.3.4'", "'fe80::'", "'"+strings.Join(w, ":")+"'")
}
