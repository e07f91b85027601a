package binlog

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"binrelay/functions"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestValues: one value of each type from its bytes, as the servers lay them out.
func TestValues(t *testing.T) {
	text := func(cs string) column { return column{conv: convText, typ: typeVarchar, cs: charsetNamed(cs)} }
	dec := func(p, s uint8) column { return column{conv: convDecimal, prec: p, scale: s} }
	enum := column{conv: convEnum, values: []string{"a", `q"`}, quoted: [][]byte{[]byte(`"a"`), []byte(`"q\""`)}}
	set := column{conv: convSet, values: []string{"x", "y", "z"}, quoted: [][]byte{[]byte("x"), []byte("y"), []byte("z")}}
	for _, c := range []struct {
		name  string
		col   column
		bytes string
		json  string
		value any
	}{
		{"tiny", column{conv: convTiny}, "80", "-128", int64(-128)},
		{"tiny unsigned", column{conv: convTiny, unsigned: true}, "80", "128", uint64(128)},
		{"medium", column{conv: convInt24}, "ffff ff", "-1", int64(-1)},
		{"medium unsigned", column{conv: convInt24, unsigned: true}, "ffffff", "16777215", uint64(16777215)},
		{"bigint unsigned", column{conv: convLongLong, unsigned: true}, "ffffffffffffffff", "18446744073709551615", uint64(math.MaxUint64)},
		{"bigint", column{conv: convLongLong}, "0000000000000080", "-9223372036854775808", int64(math.MinInt64)},
		{"bit", column{conv: convBit}, "0aaa", "2730", uint64(2730)},
		{"bit 64", column{conv: convBit}, "ffffffffffffffff", "18446744073709551615", uint64(math.MaxUint64)},
		{"year zero", column{conv: convYear}, "00", "0", int64(0)},
		{"year", column{conv: convYear}, "ff", "2155", int64(2155)},
		{"decimal", dec(10, 2), "7f ff ff f3 cd", `"-12.50"`, "-12.50"},
		{"decimal zero", dec(5, 5), "80 00 00", `"0.00000"`, "0.00000"},
		{"float", column{conv: convFloat}, "cdcccc3d", "0.1", float32(0.1)},
		{"double", column{conv: convDouble}, "9a9999999999b93f", "0.1", 0.1},
		{"date", column{conv: convDate}, leHex(1956<<9|11<<5|4, 3), `"1956-11-04"`, "1956-11-04"},
		{"date partial", column{conv: convDate}, "00c80f", `"2020-00-00"`, "2020-00-00"},
		{"datetime zero", column{conv: convDateTime2, fsp: 3}, "8000000000 0000", `"0000-00-00 00:00:00.000"`, "0000-00-00 00:00:00.000"},
		{"timestamp zero", column{conv: convTimestamp2, fsp: 0}, "00000000", `"0000-00-00 00:00:00"`, "0000-00-00 00:00:00"},
		{"timestamp", column{conv: convTimestamp2, fsp: 6}, "7fffffff 0f423f", `"2038-01-19 03:14:07.999999"`, "2038-01-19 03:14:07.999999"},
		{"timestamp beyond 2038", column{conv: convTimestamp2, fsp: 1}, "f4865700 0a", `"2100-01-01 00:00:00.1"`, "2100-01-01 00:00:00.1"},
		{"time", column{conv: convTime2}, "4b9105", `"-838:59:59"`, "-838:59:59"},
		{"time little negative", column{conv: convTime2, fsp: 6}, "7fffff ffffff", `"-00:00:00.000001"`, "-00:00:00.000001"},
		{"time negative fraction 1", column{conv: convTime2, fsp: 1}, "7fffff ce", `"-00:00:00.5"`, "-00:00:00.5"},
		{"old time", column{conv: convTimeOld}, leHex(-8385959, 3), `"-838:59:59"`, "-838:59:59"},
		{"old datetime", column{conv: convDateTimeOld}, leHex(20240102030405, 8), `"2024-01-02 03:04:05"`, "2024-01-02 03:04:05"},
		{"old timestamp", column{conv: convTimestampOld}, leHex(1, 4), `"1970-01-01 00:00:01"`, "1970-01-01 00:00:01"},
		{"enum", enum, "02", `"q\""`, `q"`},
		{"enum index 0", enum, "00", `""`, ""},
		{"set", set, "05", `"x,z"`, "x,z"},
		{"set empty", set, "00", `""`, ""},
		{"text", text("utf8mb4"), hex.EncodeToString([]byte("a\"\\\n\x00\x1f é😀/<>&\x7f\u2028")), `"a\"\\\n\u0000\u001f é😀/<>&` + "\x7f\u2028\"", "a\"\\\n\x00\x1f é😀/<>&\x7f\u2028"},
		{"latin1 is cp1252", text("latin1"), "e9809e93 81", "\"é€ž“\u0081\"", "é€ž“\u0081"},
		{"sjis backslash bytes", text("sjis"), "955c 835c", `"表ソ"`, "表ソ"},
		{"gbk", text("gbk"), "c9cfbaa3", `"上海"`, "上海"},
		{"gb18030 four bytes", text("gb18030"), "95328236", `"𠀀"`, "𠀀"},
		{"utf16", text("utf16"), "d83dde00 0022", `"😀\""`, `😀"`},
		{"utf16le", text("utf16le"), "3dd800de", `"😀"`, "😀"},
		{"utf32", text("utf32"), "0001f600", `"😀"`, "😀"},
		{"swe7 is not ASCII", text("swe7"), "5b5c5d", `"ÄÖÅ"`, "ÄÖÅ"},
		{"binary padded", column{conv: convBinary, typ: typeString, pad: 4}, "0102", `"AQIAAA=="`, []byte{1, 2, 0, 0}},
		{"binary empty", column{conv: convBinary, typ: typeString, pad: 16}, "", `"AAAAAAAAAAAAAAAAAAAAAA=="`, make([]byte, 16)},
		{"varbinary", column{conv: convBinary, typ: typeVarchar}, "0100", `"AQA="`, []byte{1, 0}},
		{"geometry", column{conv: convGeometry}, "e6100000 0101", `{"srid":4326,"wkb":"AQE="}`, functions.Geo{SRID: 4326, WKB: []byte{1, 1}}},
		{"vector", column{conv: convVector}, "0000803f 000020c0", `[1,-2.5]`, []float32{1, -2.5}},
		{"uuid", column{conv: convUUID}, "123e4567e89b12d3a456426655", `"123e4567-e89b-12d3-a456-426655000000"`, "123e4567-e89b-12d3-a456-426655000000"},
		{"inet4", column{conv: convInet4}, "0a", `"10.0.0.0"`, "10.0.0.0"},
		{"inet6 zero", column{conv: convInet6}, "", `"::"`, "::"},
		{"inet6 mapped", column{conv: convInet6}, "00000000000000000000ffffc0000280", `"::ffff:192.0.2.128"`, "::ffff:192.0.2.128"},
		{"inet6", column{conv: convInet6}, "20010db8000000000000ff0000428329", `"2001:db8::ff00:42:8329"`, "2001:db8::ff00:42:8329"},
		{"json", column{conv: convJSON}, "00 0100 0c00 0b00 0100 05 0100 78", `"{\"x\": 1}"`, `{"x": 1}`},
		{"json nothing", column{conv: convJSON}, "", `"null"`, "null"},
		{"json opaque decimal", column{conv: convJSON}, "0ff604 0302 8132", `"1.50"`, "1.50"},
		{"json string", column{conv: convJSON}, "0c 03 22 0a 5c", `"\"\\\"\\n\\\\\""`, `"\"\n\\"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := NewDecoders(nil).New()
			b := unhex(t, c.bytes)
			got, err := c.col.appendJSON(nil, b, d)
			if err != nil || string(got) != c.json {
				t.Errorf("JSON %s, %v, want %s", got, err, c.json)
			}
			if !json.Valid(got) {
				t.Errorf("%s is no JSON", got)
			}
			v, err := c.col.value(b, d)
			if err != nil || fmt.Sprintf("%T %#v", v, v) != fmt.Sprintf("%T %#v", c.value, c.value) && c.name != "json string" {
				t.Errorf("value %T %#v, %v, want %T %#v", v, v, err, c.value, c.value)
			}
		})
	}
}

func leHex(v int64, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
	return hex.EncodeToString(b)
}

// TestDamagedValues: bytes that no server writes are errors, not values.
func TestDamagedValues(t *testing.T) {
	for _, c := range []struct {
		name  string
		col   column
		bytes string
	}{
		{"enum beyond its members", column{conv: convEnum, values: []string{"a"}, quoted: [][]byte{[]byte(`"a"`)}}, "02"},
		{"set beyond its members", column{conv: convSet, values: []string{"a"}, quoted: [][]byte{[]byte(`a`)}}, "02"},
		{"not a number", column{conv: convDouble}, "000000000000f87f"},
		{"infinity in a vector", column{conv: convVector}, "0000807f"},
		{"part of a number in a vector", column{conv: convVector}, "000080"},
		{"geometry without SRID", column{conv: convGeometry}, "0101"},
		{"thirteenth month", column{conv: convDate}, leHex(2024<<9|13<<5|1, 3)},
		{"decimal group beyond its digits", column{conv: convDecimal, prec: 4, scale: 2}, "e464"},
		{"BINARY longer than its column", column{conv: convBinary, typ: typeString, pad: 1}, "0101"},
		{"address too long", column{conv: convInet4}, "0102030405"},
		{"JSON of unknown type", column{conv: convJSON}, "0d00"},
		{"JSON offset outside", column{conv: convJSON}, "02 0100 0700 0c ffff"},
		{"JSON that contains itself", column{conv: convJSON}, "02 0100 0700 02 0000"},
		{"COMPRESSED by an unknown method", column{conv: convBinaryZ}, "91 01 00"},
		{"COMPRESSED of a length that cannot be", column{conv: convBinaryZ}, "84 ffffffff 789c"},
	} {
		d := NewDecoders(nil).New()
		b := unhex(t, c.bytes)
		if got, err := c.col.appendJSON(nil, b, d); err == nil {
			t.Errorf("%s: %s", c.name, got)
		}
		if got, err := c.col.value(b, d); err == nil && c.col.conv != convVector && c.col.conv != convDouble {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestRawRule: whatever the bytes and the charset, what comes out is valid UTF-8 that leads back to the
// bytes, one reserved character for each byte that is no text.
func TestRawRule(t *testing.T) {
	back := func(cs *charset, s string) (b []byte) { // for charsets whose text is ASCII here
		for _, r := range s {
			switch {
			case isRaw(r):
				b = append(b, byte(r-rawBase))
			case cs.kind == charsetUTF16:
				b = append(b, byte(r>>8), byte(r))
			default:
				b = append(b, string(r)...)
			}
		}
		return b
	}
	for _, c := range []struct{ charset, bytes, want string }{
		{"utf8mb4", "61 eda080 62", "a\U0010feed\U0010fea0\U0010fe80b"},
		{"utf8mb4", "c3", "\U0010fec3"},
		{"utf8mb4", "f48fb880", "\U0010fef4\U0010fe8f\U0010feb8\U0010fe80"}, // the source holds U+10FE00 itself
		{"utf8mb4", "efbfbd", "\ufffd"},
		{"ascii", "61 80", "a\U0010fe80"},
		{"gbk", "61 81", "a\U0010fe81"},
		{"gbk", "817f", "\U0010fe81\x7f"},
		{"gb2312", "feff61", "\U0010fefe\U0010feffa"},
		{"utf16", "d800 0041", "\U0010fed8\U0010fe00A"},
		{"utf16", "0041 00", "A\U0010fe00"},
		{"ucs2", "d83d", "\U0010fed8\U0010fe3d"},
		{"utf32", "00110000", "\U0010fe00\U0010fe11\U0010fe00\U0010fe00"},
		{"tis620", "db", "\U0010fedb"},
	} {
		cs := charsetNamed(c.charset)
		in := unhex(t, c.bytes)
		out, bad := cs.append(nil, in, asIs)
		if string(out) != c.want {
			t.Errorf("%s %s = %+q, want %+q", c.charset, c.bytes, out, c.want)
		}
		raws := 0
		for _, r := range string(out) {
			if isRaw(r) {
				raws++
			}
		}
		if raws != bad {
			t.Errorf("%s %s: %d bytes reported, %d written", c.charset, c.bytes, bad, raws)
		}
		if b := back(cs, string(out)); !bytes.Equal(b, in) {
			t.Errorf("%s %x leads back to %x", c.charset, in, b)
		}
	}
}

// TestPlainPrefix compares the eight-at-a-time scan with the plain one.
func TestPlainPrefix(t *testing.T) {
	for b := range 256 {
		for at := range 20 {
			s := bytes.Repeat([]byte{'x'}, 20)
			s[at] = byte(b)
			want := 20
			if b < 0x20 || b >= 0x80 || b == '"' || b == '\\' {
				want = at
			}
			if got := plainPrefix(s); got != want {
				t.Fatalf("byte %#x at %d: %d", b, at, got)
			}
		}
	}
}

// TestDoubleSpelling: exponents where the servers write them, and always the same number again.
func TestDoubleSpelling(t *testing.T) {
	for _, c := range []struct {
		f    float64
		want string
	}{
		{0, "0"}, {math.Copysign(0, -1), "-0"}, {1, "1"}, {-1.5, "-1.5"}, {0.1, "0.1"}, {1e14, "100000000000000"}, {1e15, "1e15"}, {1e16, "1e16"}, {123456789012345680, "1.2345678901234568e17"},
		{999999999999999, "999999999999999"}, {1e21, "1e21"}, {1e-7, "0.0000001"}, {1e-15, "0.000000000000001"}, {1e-16, "1e-16"}, {1.5e-5, "0.000015"}, {1.25e23, "1.25e23"},
		{math.MaxFloat64, "1.7976931348623157e308"}, {5e-324, "5e-324"}, {2.2250738585072014e-308, "2.2250738585072014e-308"},
	} {
		got, err := appendDouble(nil, c.f, 64)
		if err != nil || string(got) != c.want {
			t.Errorf("%v: %s, %v, want %s", c.f, got, err, c.want)
		}
		if back, err := strconv.ParseFloat(string(got), 64); err != nil || math.Float64bits(back) != math.Float64bits(c.f) {
			t.Errorf("%s leads back to %v", got, back)
		}
	}
}

// TestCompressedColumns: each way in which MariaDB stores a COMPRESSED value.
func TestCompressedColumns(t *testing.T) {
	text := []byte(strings.Repeat("abc", 1000))
	var z, f bytes.Buffer
	zw := zlib.NewWriter(&z)
	zw.Write(text)
	zw.Close()
	fw, _ := flate.NewWriter(&f, 6)
	fw.Write(text)
	fw.Close()
	d := NewDecoders(nil).New()
	for range 2 { // readers are used again
		for name, v := range map[string][]byte{
			"stored":       append([]byte{0}, text...),
			"zlib":         append([]byte{0x82, 0x0b, 0xb8}, z.Bytes()...),
			"bare deflate": append([]byte{0x8a, 0x0b, 0xb8}, f.Bytes()...),
		} {
			got, err := d.uncompress(v)
			if err != nil || !bytes.Equal(got, text) {
				t.Errorf("%s: %.20q, %v", name, got, err)
			}
			if _, err := d.uncompress(v[:len(v)-5]); err == nil && name != "stored" {
				t.Errorf("%s: cut off and no error", name)
			}
		}
		if got, err := d.uncompress([]byte{0x82, 0x0b, 0xb9, 0x78, 0x9c}); err == nil {
			t.Errorf("wrong length: %q", got)
		}
	}
	if got, err := d.uncompress(nil); len(got) != 0 || err != nil {
		t.Error(got, err)
	}
}
