package binlog

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-mysql-org/go-mysql/client"
)

var updateTables = flag.Bool("update-charsets", false, "write charset_tables.bin from what a real MySQL says")

// TestCharsetTables asks a real server for the character of every code of every charset and compares.
// Both servers agree on all of them (checked 2026-12 with MySQL 9.7.4 and MariaDB 10.11.19).
func TestCharsetTables(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: asks a server for a million characters")
	}
	for _, kind := range serverKinds {
		t.Run(kind, func(t *testing.T) {
			c := server(t, kind).session(t)
			var sections [][]byte
			for i, name := range append(append([]string{}, singleByte...), multiNames()...) {
				if name == "gb18030" && kind == "mariadb" {
					sections = append(sections, nil)
					continue
				}
				got := serverCodes(t, c, name)
				if *updateTables && kind == "mysql" {
					sections = append(sections, deflate(withBase(i, got)))
					continue
				}
				cs := charsetNamed(name)
				wrong := 0
				for k, want := range got {
					code := codeBytes(k, len(got))
					r, n := cs.char(code)
					if n != len(code) || r < 0 {
						r = 0
					}
					if r != rune(want) {
						if wrong++; wrong < 5 {
							t.Errorf("%s %x = %U, the server says %U", name, code, r, want)
						}
					}
				}
			}
			if *updateTables && kind == "mysql" {
				var b []byte
				for _, s := range sections {
					b = append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
				}
				if err := os.WriteFile("charset_tables.bin", b, 0o644); err != nil {
					t.Fatal(err)
				}
				t.Logf("charset_tables.bin: %d bytes; run again without the flag", len(b))
			}
		})
	}
}

func multiNames() (names []string) {
	for _, m := range multiByte {
		names = append(names, m.name)
	}
	return names
}

// serverCodes is what the server converts each code of a charset to, 0 where it has no single character.
func serverCodes(t *testing.T, c *client.Conn, name string) []uint16 {
	size := tableOne
	switch name {
	case "eucjpms", "ujis":
		size = tableOne + tableTwo + tableThree
	case "gb18030":
		size = tableOne + tableTwo + gb18030Basic
	default:
		for _, m := range multiNames() {
			if m == name {
				size = tableOne + tableTwo
			}
		}
	}
	codes := make([]uint16, size)
	const batch = 4096
	for from := 0; from < size; from += batch {
		// One row a batch: codes side by side, each converted by itself, joined as hex.
		var q strings.Builder
		q.WriteString("select ")
		n := min(batch, size-from)
		for i := range n {
			if i > 0 {
				q.WriteByte(',')
			}
			fmt.Fprintf(&q, "hex(convert(convert(x'%x' using %s) using utf32))", codeBytes(from+i, size), name)
		}
		r, err := c.Execute(q.String())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range n {
			s, _ := r.GetString(0, i)
			var v uint32
			if len(s) != 8 {
				continue
			}
			fmt.Sscanf(s, "%X", &v)
			if v == '?' && from+i != '?' || v == utf8.RuneError || v > 0xffff {
				continue
			}
			if i := from + i; i >= tableOne && codes[codeBytes(i, size)[0]] != 0 {
				continue // MySQL reads the first byte as a character and drops the rest
			}
			codes[from+i] = uint16(v)
		}
	}
	return codes
}

// withBase is a section's content: codes, less what x/text says of them where it is the base.
func withBase(section int, codes []uint16) []uint16 {
	if section < len(singleByte) {
		return codes
	}
	out := make([]uint16, len(codes))
	for i, v := range baseCodes(multiByte[section-len(singleByte)].base, len(codes)) {
		out[i] = codes[i] ^ v
	}
	return out
}

func deflate(codes []uint16) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestCompression)
	for _, v := range codes {
		w.Write([]byte{byte(v), byte(v >> 8)})
	}
	w.Close()
	return b.Bytes()
}

// TestCollations checks that every collation of both servers has the right charset.
func TestCollations(t *testing.T) {
	for _, kind := range serverKinds {
		t.Run(kind, func(t *testing.T) {
			c := server(t, kind).session(t)
			q := "select id, character_set_name from information_schema.collations"
			if kind == "mariadb" {
				q = "select id, character_set_name from information_schema.collation_character_set_applicability"
			}
			r, err := c.Execute(q)
			if err != nil {
				t.Fatal(err)
			}
			for i := range r.RowNumber() {
				id, _ := r.GetUint(i, 0)
				want, _ := r.GetString(i, 1)
				if want == "binary" {
					continue
				}
				if cs := charsetOf(id); cs == nil || cs.name != want {
					t.Errorf("collation %d: %v, want %s", id, cs, want)
				}
			}
		})
	}
}
