package functions

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestJavaNumbers(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0.0", "-0": "-0.0", "1": "1.0", "-12.5": "-12.5", "100": "100.0", "9999999": "9999999.0", "10000000": "1.0E7", "12510357": "1.2510357E7",
		"0.001": "0.001", "0.0012": "0.0012", "0.00099": "9.9E-4", "1e22": "1.0E22", "1.5e-15": "1.5E-15", "-1.7976931348623157e308": "-1.7976931348623157E308",
		"0.1": "0.1", "1234567.25": "1234567.25", "120000": "120000.0", "1e+07": "1.0E7", "1.25e-03": "0.00125",
	} {
		if got := string(javaTail([]byte("x"+in), 1)); got != "x"+want {
			t.Errorf("%s: %s, want x%s", in, got, want)
		}
	}
	for _, f := range []float64{math.MaxFloat64, math.SmallestNonzeroFloat64, math.Pi, 1e7 - 0.5, 123456789012} {
		got := string(javaTail(strconv.AppendFloat(nil, f, 'e', -1, 64), 0))
		if back, err := strconv.ParseFloat(got, 64); err != nil || back != f {
			t.Errorf("%v became %s", f, got)
		}
	}
}

func TestUnscaledDecimals(t *testing.T) {
	nines := strings.Repeat("9", 65)
	for _, in := range []string{"0", "-0", "0.00", "1", "-1", "127", "128", "-128", "-129", "255", "256", "-12.50", "-32768", "32768", nines, "-" + nines, "18446744073709551616", "-18446744073709551616"} {
		got := unscaledTail([]byte("x"+in), 1)
		b, err := base64.StdEncoding.DecodeString(strings.Trim(string(got[1:]), `"`))
		if err != nil {
			t.Fatal(err)
		}
		want, _ := new(big.Int).SetString(strings.ReplaceAll(in, ".", ""), 10)
		n := new(big.Int).SetBytes(b)
		if b[0] >= 0x80 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
		}
		if n.Cmp(want) != 0 {
			t.Errorf("%s became %x", in, b)
		}
		if len(b) > 1 && (b[0] == 0 && b[1] < 0x80 || b[0] == 0xff && b[1] >= 0x80) {
			t.Errorf("%s takes a byte too many: %x", in, b)
		}
	}
}

func TestDatesAndTimes(t *testing.T) {
	for _, in := range []string{"0000-01-01", "0000-03-01 00:00:00", "0001-01-01", "1582-10-10 12:00:00.5", "1969-12-31 23:59:59.999999", "1970-01-01", "2000-02-29", "2024-12-31 23:59:59.1", "9999-12-31 23:59:59"} {
		layout := time.DateTime
		if len(in) == len(time.DateOnly) {
			layout = time.DateOnly
		}
		want, err := time.Parse(layout, in)
		if err != nil {
			t.Fatal(err)
		}
		us, day, ok := parseDateTime([]byte(in))
		if !ok || !day || us != want.UnixMicro() {
			t.Errorf("%s: %d, %v, %v, want %d", in, us, day, ok, want.UnixMicro())
		}
	}
	for _, in := range []string{"0000-00-00", "2024-00-05 10:11:12", "2024-05-00", "2023-02-29", "2024-04-31", "1900-02-29", "2024-13-01"} {
		if _, day, ok := parseDateTime([]byte(in)); day || !ok {
			t.Errorf("%s: day %v, ok %v", in, day, ok)
		}
	}
	for _, in := range []string{"", "2024", "2024-05-0x", "2024-05-01 1", "2024-05-01 10:11:12.1234567", "2024-05-01T10-11-12", "2024/05/01"} {
		if _, _, ok := parseDateTime([]byte(in)); ok {
			t.Errorf("%q was read", in)
		}
	}
	for in, want := range map[string]int64{"00:00:00": 0, "-00:00:00.000001": -1, "838:59:59": 3020399e6, "-838:59:58.9": -30203989e5, "01:02:03.4": 37234e5} {
		if us, ok := parseTime([]byte(in)); !ok || us != want {
			t.Errorf("%s: %d, %v, want %d", in, us, ok, want)
		}
	}
	for _, in := range []string{"", "12", "12:34", ":34:56", "1x:00:00"} {
		if _, ok := parseTime([]byte(in)); ok {
			t.Errorf("%q was read", in)
		}
	}
}

func TestWKT(t *testing.T) {
	u32 := func(order binary.AppendByteOrder, n ...uint32) (b []byte) {
		for _, n := range n {
			b = order.AppendUint32(b, n)
		}
		return b
	}
	point := func(order binary.AppendByteOrder, xy ...float64) (b []byte) {
		for _, f := range xy {
			b = order.AppendUint64(b, math.Float64bits(f))
		}
		return b
	}
	var le, be binary.AppendByteOrder = binary.LittleEndian, binary.BigEndian
	cat := func(parts ...any) []byte {
		var b []byte
		for _, p := range parts {
			switch p := p.(type) {
			case int:
				b = append(b, byte(p))
			case []byte:
				b = append(b, p...)
			}
		}
		return b
	}
	line := cat(1, u32(le, 2, 2), point(le, 0, 0, 1, 1.5))
	ring := cat(u32(le, 3), point(le, 0, 0, 1, 0, 0, 0))
	polygon := cat(1, u32(le, 3, 2), ring, ring)
	for want, wkb := range map[string][]byte{
		"POINT (1 -2.5)":                                            cat(0, u32(be, 1), point(be, 1, -2.5)),
		"LINESTRING (0 0, 1 1.5)":                                   line,
		"MULTIPOINT ((1 2), (3 4))":                                 cat(1, u32(le, 4, 2), 1, u32(le, 1), point(le, 1, 2), 0, u32(be, 1), point(be, 3, 4)),
		"MULTILINESTRING ((0 0, 1 1.5))":                            cat(1, u32(le, 5, 1), line),
		"MULTIPOLYGON (((0 0, 1 0, 0 0), (0 0, 1 0, 0 0)))":         cat(1, u32(le, 6, 1), polygon),
		"GEOMETRYCOLLECTION (LINESTRING (0 0, 1 1.5), POINT (1 2))": cat(1, u32(le, 7, 2), line, 1, u32(le, 1), point(le, 1, 2)),
		"GEOMETRYCOLLECTION EMPTY":                                  cat(1, u32(le, 7, 0)),
		"POLYGON ((0 0, 1 0, 0 0), (0 0, 1 0, 0 0))":                polygon,
	} {
		got, err := wktTail(cat([]byte("x"), 0, 0, 0, 0, wkb), 1)
		if err != nil || string(got) != `x"`+want+`"` {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
		for n := range wkb { // cut anywhere
			if got, err := wktTail(cat(0, 0, 0, 0, wkb[:n]), 0); err == nil {
				t.Errorf("%s: cut at %d gives %s", want, n, got)
			}
		}
	}
	if _, err := wktTail(cat(0, 0, 0, 0, 1, u32(le, 8, 0)), 0); err == nil {
		t.Error("a kind that there is not was read")
	}
	deep := cat(0, 0, 0, 0)
	for range 100_000 {
		deep = cat(deep, 1, u32(le, 7, 1))
		if len(deep) > 1<<12 {
			break
		}
	}
	if _, err := wktTail(deep, 0); err == nil {
		t.Error("an endless collection was read")
	}
}

func TestStatements(t *testing.T) {
	for text, want := range map[string]statement{
		"CREATE TABLE t (a INT)":                                   {verb: "create", object: "table", name: "t"},
		"create or replace temporary table `a``b`.c x":             {verb: "create", object: "table", database: "a`b", name: "c"},
		"ALTER TABLE t RENAME TO u":                                {verb: "alter", object: "table", name: "t", alters: "rename to", renamed: "u"},
		"-- x\nALTER /*!50100 ONLINE */ TABLE d . t ADD INDEX (a)": {verb: "alter", object: "table", database: "d", name: "t", alters: "add index"},
		"DROP TABLE IF EXISTS \"t\", u /* generated by server */":  {verb: "drop", object: "table", name: "t"},
		"CREATE UNIQUE INDEX `on` ON d.t (a)":                      {verb: "create", object: "index", name: "on", indexOf: "t", database: "d"},
		"RENAME TABLE a TO `d`.`b`, c TO a":                        {verb: "rename", object: "table", name: "a", renamed: "b"},
		"CREATE SCHEMA s":                                          {verb: "create", object: "database", name: "s"},
		"TRUNCATE d.t":                                             {verb: "truncate", object: "table", database: "d", name: "t"},
		"":                                                         {},
		"/* open":                                                  {},
		"CREATE TABLE `open":                                       {verb: "create", object: "table", name: "`open"},
	} {
		if got := parseStatement(text); got != want && !(want.name == "`open" && got.verb == "create") {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func TestHTMLEscapes(t *testing.T) {
	const text = `{"a":"<b> & 'c'=\"\\","é":"="}`
	got := htmlTail([]byte("x<"+text), 2)
	if strings.ContainsAny(string(got[2:]), "<>&='") || string(got[:2]) != "x<" {
		t.Errorf("%s", got)
	}
	var was, is map[string]any
	if json.Unmarshal([]byte(text), &was) != nil || json.Unmarshal(got[2:], &is) != nil || was["a"] != is["a"] || was["é"] != is["é"] {
		t.Errorf("%s", got)
	}
}

func FuzzTails(f *testing.F) {
	f.Add([]byte("12:34:56.7"))
	f.Add([]byte("\x00\x00\x00\x00\x01\x07\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		tail := func() []byte { return append([]byte("x"), b...) }
		for name, got := range map[string][]byte{
			"quote": quoteTail(tail(), 1), "latin1": latin1Tail(tail(), 1), "bytes": bytesTail(tail(), 1), "unscaled": unscaledTail(tail(), 1),
		} {
			if got[0] != 'x' || !json.Valid(got[1:]) {
				t.Errorf("%s: %q", name, got)
			}
		}
		if got, err := wktTail(tail(), 1); err == nil && !json.Valid(got[1:]) {
			t.Errorf("%q", got)
		}
		if got, err := debeziumGeometry(tail(), 1); err == nil && !json.Valid(got[1:]) {
			t.Errorf("%q", got)
		}
		parseTime(b)
		parseDateTime(b)
		parseStatement(string(b))
		javaTail(tail(), 1)
		compactTail(tail(), 1)
	})
}
