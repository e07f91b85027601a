package functions_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"binrelay/functions"
)

// every is a table with every type, and a row of it.
var every, everyRow = func() (*functions.Table, []any) {
	t := &functions.Table{Database: "shop", Name: "every", Key: []int{1, 0}}
	var row []any
	add := func(name string, k functions.Kind, v any, set func(*functions.Column)) {
		c := functions.Column{Name: name, Kind: k, Nullable: true}
		if set != nil {
			set(&c)
		}
		t.Columns = append(t.Columns, c)
		row = append(row, v)
	}
	typ := func(code byte, length int) func(*functions.Column) {
		return func(c *functions.Column) { c.Type, c.Length = code, length }
	}
	add("id", functions.KindInteger, int64(7), typ(3, 0))
	add("Place", functions.KindString, "B1", func(c *functions.Column) { c.Type, c.Length, c.Charset = 254, 8, "utf8mb4" })
	add("tiny", functions.KindInteger, int64(-5), typ(1, 0))
	add("big", functions.KindInteger, uint64(1<<64-1), func(c *functions.Column) { c.Type, c.Unsigned = 8, true })
	add("year", functions.KindYear, int64(0), typ(13, 0))
	add("flag", functions.KindBit, uint64(1), typ(16, 1))
	add("bits", functions.KindBit, uint64(0x1ff), typ(16, 10))
	add("price", functions.KindDecimal, number("-12.50"), func(c *functions.Column) { c.Type, c.Length, c.Scale = 246, 10, 2 })
	add("f", functions.KindFloat, number("0.1"), typ(4, 0))
	add("d", functions.KindDouble, number("12510357"), typ(5, 0))
	add("name", functions.KindString, "<é>", func(c *functions.Column) { c.Type, c.Length, c.Charset = 15, 40, "utf8mb4" })
	add("note", functions.KindString, "a='b'&c", func(c *functions.Column) { c.Type, c.Length, c.Charset = 252, 65535, "latin1" })
	add("size", functions.KindEnum, "it's", func(c *functions.Column) { c.Type, c.Values = 247, []string{"small", "it's"} })
	add("tags", functions.KindSet, "a,c", func(c *functions.Column) { c.Type, c.Values = 248, []string{"a", "b", "c"} })
	add("bin", functions.KindBinary, []byte{0, 'j', 0xff, '"'}, typ(254, 4))
	add("blob", functions.KindBinary, []byte("jg"), typ(252, 65535))
	add("date", functions.KindDate, "2026-03-04", typ(10, 0))
	add("zero", functions.KindDate, "0000-00-00", typ(10, 0))
	add("dt", functions.KindDateTime, "2026-03-04 05:06:07.8", typ(18, 1))
	add("dt6", functions.KindDateTime, "1969-12-31 23:59:59.999999", typ(18, 6))
	add("ts", functions.KindTimestamp, "2026-03-04 05:06:07.890", typ(17, 3))
	add("time", functions.KindTime, "-838:59:58.9", typ(19, 1))
	add("doc", functions.KindJSON, jsonText(`{"a b": "x \" y", "n": [1, 2.0]}`), typ(245, 0))
	add("text", functions.KindJSON, jsonText(`{ "a":1}`), typ(252, 0))
	add("geo", functions.KindGeometry, geo("\x11\x0f\x00\x00\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\x04\x40"), typ(255, 0))
	add("vec", functions.KindVector, number("[1,-2.5]"), typ(242, 0))
	add("uuid", functions.KindUUID, "123e4567-e89b-12d3-a456-426655440000", typ(254, 16))
	add("net", functions.KindInet, "::1", typ(254, 16))
	add("none", functions.KindString, nil, func(c *functions.Column) { c.Type, c.Length, c.Charset = 15, 10, "latin1" })
	return t, row
}()

var everySource = functions.Source{
	GTID: "0-1-42", File: "binlog.000003", Pos: 1234, Row: 3, ServerID: 1, Seq: 99, MariaDB: true,
	Time: time.UnixMicro(1760000000123456).UTC(),
}

func everyChange(op functions.Op) *functions.Change {
	c := &functions.Change{Op: op, Table: every, Source: everySource}
	if op != functions.Create {
		c.Before = row(every, everyRow...)
	}
	if op != functions.Delete {
		after := append([]any{}, everyRow...)
		if op == functions.Update {
			after[2], after[10] = int64(6), nil
		}
		c.After = row(every, after...)
	}
	return c
}

// ddlChange is a statement as it comes from the source.
func ddlChange(statement string) *functions.Change {
	return &functions.Change{Op: functions.DDL, Database: "shop", Statement: statement, Source: everySource}
}

// formats are all that FORMAT can name.
var formats = func() map[string]functions.Format {
	m := map[string]functions.Format{}
	for _, name := range []string{"json", "debezium", "maxwell", "canal", "drs-json", "drs-json-c"} {
		if f, ok := functions.FormatNamed(name); ok {
			m[name] = f
		}
	}
	return m
}()

var rewrite = flag.Bool("update", false, "write the golden files anew")

// TestFormatsAreByteExact compares each format's records of a row with every type, and of DDL statements,
// with testdata/<format>.golden: key, value and headers, each on a line.
func TestFormatsAreByteExact(t *testing.T) {
	moved := func(op functions.Op) *functions.Change {
		c := everyChange(op)
		values := append([]any{int64(8)}, everyRow[1:]...)
		c.KeyChange, c.Moved = true, row(every, values...)
		return c
	}
	noGTID := everyChange(functions.Create)
	noGTID.Source.GTID, noGTID.Source.MariaDB = "", false
	noKey := &functions.Change{Op: functions.Create, Table: table("d", `we"ird`, "a"), Source: everySource}
	noKey.After = row(noKey.Table, int64(1))
	minimal := &functions.Change{Op: functions.Update, Table: item, Before: row(item, int64(7)), After: row(item, absent{}, int64(4)), Source: everySource}
	for name, f := range formats {
		var got []byte
		for _, c := range []*functions.Change{
			everyChange(functions.Create), everyChange(functions.Update), everyChange(functions.Delete), noGTID, noKey, minimal,
			moved(functions.Delete), moved(functions.Create),
			ddlChange("/* new */ ALTER TABLE `a``b` ADD x INT"), ddlChange("CREATE DATABASE IF NOT EXISTS other"),
			ddlChange("DROP INDEX i ON other.t"), ddlChange("TRUNCATE t"), ddlChange("RENAME TABLE a TO b"), ddlChange("DROP TABLE IF EXISTS a, b"), ddlChange("DROP VIEW v"),
		} {
			r, err := functions.NewRecord(f, c)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !json.Valid(r.Value) || r.Key != nil && !json.Valid(r.Key) {
				t.Errorf("%s: no JSON: %s %s", name, r.Key, r.Value)
			}
			got = fmt.Appendf(got, "%s\n%s\n", r.Key, r.Value)
			for _, h := range r.Headers {
				got = fmt.Appendf(got, "%s: %s\n", h.Key, h.Value)
			}
		}
		file := filepath.Join("testdata", name+".golden")
		if *rewrite {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got\n%s, want\n%s", name, got, want)
		}
	}
}

func TestFormatsAllocateNothing(t *testing.T) {
	for name, f := range formats {
		for _, op := range []functions.Op{functions.Create, functions.Update, functions.Delete} {
			c := everyChange(op)
			buf := make([]byte, 0, 1<<16)
			n := testing.AllocsPerRun(50, func() {
				b, _, err := f.AppendKey(buf[:0], c)
				if err == nil {
					_, err = f.AppendValue(b, c)
				}
				if err != nil {
					t.Fatal(err)
				}
			})
			if n != 0 {
				t.Errorf("%s %s: %v allocations, want 0", name, op, n)
			}
		}
	}
}

// A MINIMAL image of an update with a changed key holds the changed part of the key only.
func TestFormatsFindTheKey(t *testing.T) {
	old, fresh := row(every, int64(7), "B1"), row(every, absent{}, "B2")
	for name, f := range formats {
		for want, c := range map[string]*functions.Change{
			"B1": {Op: functions.Delete, Table: every, Before: old, Moved: fresh, KeyChange: true, Source: everySource},
			"B2": {Op: functions.Create, Table: every, After: fresh, Moved: old, KeyChange: true, Source: everySource},
		} {
			key, has, err := f.AppendKey(nil, c)
			var m map[string]any
			if err != nil || !has || json.Unmarshal(key, &m) != nil {
				t.Fatalf("%s: %s, %v, %v", name, key, has, err)
			}
			place, id := m["Place"], m["id"]
			if name == "maxwell" {
				place, id = m["pk.place"], m["pk.id"]
			}
			if place != want || id != 7.0 {
				t.Errorf("%s: key %s", name, key)
			}
		}
	}
}

func TestFormatsFailRatherThanGuess(t *testing.T) {
	for name, f := range formats {
		bad := &functions.Change{Op: functions.Create, Table: item, After: row(item, int64(1), broken{}, "x")}
		if _, err := functions.NewRecord(f, bad); err == nil {
			t.Errorf("%s: a damaged value made a record", name)
		}
		bad = &functions.Change{Op: functions.Create, Table: item, After: row(item, absent{}, int64(1))}
		if _, err := functions.NewRecord(f, bad); err == nil {
			t.Errorf("%s: a row without its key made a record", name)
		}
	}
}

func BenchmarkFormats(b *testing.B) {
	for name, f := range formats {
		b.Run(name, func(b *testing.B) {
			c := update()
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				buf, _, _ = f.AppendKey(buf[:0], c)
				buf, _ = f.AppendValue(buf, c)
			}
			b.SetBytes(int64(len(buf)))
		})
	}
}
