package binlog

import (
	"encoding/binary"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"binrelay/functions"
	"binrelay/relay"
)

// versionedColumns are id, v and ROW START and ROW END under the names given.
func versionedColumns(start, end string) []synthColumn {
	return []synthColumn{
		{typ: typeLong, name: "id", numeric: true, key: true},
		{typ: typeLong, name: "v", numeric: true},
		{typ: typeTimestamp2, meta: []byte{6}, name: start},
		{typ: typeTimestamp2, meta: []byte{6}, name: end, key: true},
	}
}

func versionedRow(id, v uint32, end string) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{0}, id)
	b = binary.LittleEndian.AppendUint32(b, v)
	return append(append(b, "\x60\x00\x00\x00\x00\x00\x01"...), end...)
}

// versionedPart is a part of MariaDB with the hints of a versioned table and one rows event.
func versionedPart(t *testing.T, cols []synthColumn, h Hints, typ byte, images ...[]byte) []byte {
	t.Helper()
	body := synthTableMap(99, "t", "c", cols)
	p, err := compile(body, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	head := partHeader{Flags: partFirst | partLast | partMariaDB, ServerID: 1, File: "bin.000001", GTID: "0-1-2"}
	part := addEvent(head.append(nil), evTableMap, body)
	if p.wantsHints() {
		part = addEvent(part, eventHints, p.hintsEvent(h))
	}
	return addEvent(part, typ, synthRows(typ, 99, len(cols), images...))
}

var (
	implicitHints = mapHints{"t.c.row_start": "timestamp(6)" + declaredStart + declaredHidden, "t.c.row_end": "timestamp(6)" + declaredEnd + declaredHidden}
	explicitHints = mapHints{"t.c.s": "timestamp(6)" + declaredStart, "t.c.e": "timestamp(6)" + declaredEnd}
)

const someTime = "\x60\x00\x00\x09\x00\x00\x02"

func decodeLines(t *testing.T, part []byte) (out []string) {
	t.Helper()
	err := NewDecoders(nil).New().Decode(1, part, func(ch *functions.Change) error {
		l := strings.SplitN(line(ch), " ", 4)
		_, row, _ := strings.Cut(l[2], "#")
		out = append(out, ch.Op.String()+" #"+row+" "+l[3])
		key, err := ch.Row().Image().AppendColumnsJSON(nil, ch.Table.Key)
		if string(key) != strings.SplitAfter(l[3], ",")[0][:len(key)-1]+"}" || err != nil {
			t.Errorf("key %s of %s: %v", key, l[3], err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestVersionedRows(t *testing.T) {
	row := versionedRow
	for _, c := range []struct {
		what   string
		typ    byte
		images [][]byte
		want   []string
	}{
		{"history counts as a row", evWriteRows, [][]byte{row(1, 1, forever2038), row(1, 0, someTime), row(2, 5, forever2106)},
			[]string{`c #0 {"id":1,"v":1}`, `c #2 {"id":2,"v":5}`}},
		{"updates and deletes", evUpdateRows, [][]byte{
			row(1, 1, forever2038), row(1, 2, forever2038),
			row(1, 2, forever2038), row(1, 2, someTime),
			row(3, 2, someTime), row(3, 3, someTime),
			row(4, 2, someTime), row(4, 2, forever2106),
			row(5, 2, forever2038), row(6, 2, forever2038),
		}, []string{`u #0 {"id":1,"v":2}`, `d #1 {"id":1,"v":2}`, `c #3 {"id":4,"v":2}`, `d #4 {"id":5,"v":2}`, `c #4 {"id":6,"v":2}`}},
		{"history deleted", evDeleteRows, [][]byte{row(1, 1, someTime), row(2, 2, forever2038)}, []string{`d #1 {"id":2,"v":2}`}},
	} {
		got := decodeLines(t, versionedPart(t, versionedColumns(implicitStart, implicitEnd), implicitHints, c.typ, c.images...))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
	}
	got := decodeLines(t, versionedPart(t, versionedColumns("s", "e"), explicitHints, evWriteRows, row(1, 1, forever2038), row(1, 1, someTime)))
	if len(got) != 1 || !strings.Contains(got[0], `"s":"2021-01-14`) || !strings.Contains(got[0], `"e":"2038-01-19`) {
		t.Errorf("declared columns: %q", got)
	}
}

// TestPeriodHintsMustFit: hints on columns that cannot be the period change nothing.
func TestPeriodHintsMustFit(t *testing.T) {
	for what, change := range map[string]func([]synthColumn) []synthColumn{
		"nullable":       func(c []synthColumn) []synthColumn { c[3].nullable = true; return c },
		"not in the key": func(c []synthColumn) []synthColumn { c[3].key = false; return c },
		"fewer digits":   func(c []synthColumn) []synthColumn { c[3].meta = []byte{5}; return c },
		"not the last": func(c []synthColumn) []synthColumn {
			return append(c, synthColumn{typ: typeLong, name: "z", numeric: true})
		},
	} {
		cols := change(versionedColumns(implicitStart, implicitEnd))
		hints := []byte{2, 0, hintRowStart, 1, 3, 0, hintRowEnd, 1, 99, 0, hintRowEnd, 0}
		p, err := compile(synthTableMap(99, "t", "c", cols), hints, true)
		if err != nil {
			t.Fatal(err)
		}
		if p.versioned || len(p.table.Columns) != len(cols) {
			t.Errorf("%s: taken for a versioned table", what)
		}
	}
	if p, err := compile(synthTableMap(99, "t", "c", wideColumns()), nil, true); err != nil || p.wantsHints() {
		t.Errorf("an ordinary table wants hints (%v)", err)
	}
}

// TestForgottenVersioning: rows of a versioned table that is gone are refused, not published as logged.
func TestForgottenVersioning(t *testing.T) {
	s := newScript(true, true).file("bin.000001").begin()
	s.add(evTableMap, 0, synthTableMap(99, "t", "c", versionedColumns(implicitStart, implicitEnd)))
	for what, h := range map[string]Hints{"gone": mapHints{}, "plain": mapHints{"t.c.row_end": "timestamp(6)"}} {
		err := play(s.packets(), true, nil, func(a *assembler) { a.hints = h }, func(relay.Part) error { return nil })
		if refused := relay.IsPermanent(err) && strings.Contains(err.Error(), "t.c"); refused != (what == "gone") || !refused && !errors.Is(err, errPlayed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestStreamTranslatesVersioning: what statements did to the current rows of real system-versioned tables.
func TestStreamTranslatesVersioning(t *testing.T) {
	s := server(t, "mariadb")
	exec(t, s, "DROP DATABASE IF EXISTS b_vers", "CREATE DATABASE b_vers",
		"CREATE TABLE b_vers.a (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
		"CREATE TABLE b_vers.b (id INT, v INT) WITH SYSTEM VERSIONING",
		"CREATE TABLE b_vers.p (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME (PARTITION h HISTORY, PARTITION c CURRENT)",
		"CREATE TABLE b_vers.e (s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, id INT PRIMARY KEY, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END INVISIBLE, v INT, PERIOD FOR SYSTEM_TIME(s,e)) WITH SYSTEM VERSIONING",
		// Not versioned, though it looks so.
		"CREATE TABLE b_vers.n (id INT, row_start TIMESTAMP(6) NOT NULL DEFAULT '2001-01-01', row_end TIMESTAMP(6) NOT NULL DEFAULT '2001-01-01', PRIMARY KEY (id, row_end))",
		"CREATE TABLE b_vers.z (i INT)")
	c := newCollector(t)
	src := sourceOf(t, s.DB, onlyTables(t, "b_vers.*"))
	stop := c.run(src)
	c.wait("position", func() bool { return c.pos != nil })
	for _, image := range []string{"FULL", "MINIMAL"} {
		for _, table := range []string{"a", "b", "p", "e"} {
			q := []string{"SET SESSION binlog_row_image=" + image, "USE b_vers"}
			for _, text := range []string{
				"INSERT INTO ? (id,v) VALUES (1,1),(2,2)", "UPDATE ? SET v=3 WHERE id=1", "UPDATE ? SET id=4 WHERE id=2",
				"DELETE FROM ? WHERE id=4", "DELETE HISTORY FROM ?", "DELETE FROM ?", "INSERT INTO ? (id,v) VALUES (9,9)", "DELETE FROM ?",
			} {
				q = append(q, strings.ReplaceAll(text, "?", table))
			}
			exec(t, s, q...)
		}
	}
	exec(t, s, "INSERT INTO b_vers.n (id) VALUES (1)", "INSERT INTO b_vers.z VALUES (1)")
	last := func(table string) func() bool {
		return func() bool {
			return len(c.lines) > 0 && strings.HasPrefix(c.lines[len(c.lines)-1], "c b_vers."+table+" ")
		}
	}
	c.wait("the last row", last("z"))
	got := map[string][]string{}
	for _, l := range c.snapshot() {
		if op, rest, _ := strings.Cut(l, " b_vers."); len(op) == 1 {
			table, row, _ := strings.Cut(rest, " ")
			row = strings.ReplaceAll(periodValue.ReplaceAllString(row, ""), "{,", "{")
			got[table] = append(got[table], op+" "+row)
		}
	}
	keyed := []string{
		`c #0 {"id":1,"v":1}`, `c #1 {"id":2,"v":2}`, `u #0 {"id":1,"v":3}`, `d #0 {"id":2,"v":2}`, `c #0 {"id":4,"v":2}`,
		`d #0 {"id":4,"v":2}`, `d #0 {"id":1,"v":3}`, `c #0 {"id":9,"v":9}`, `d #0 {"id":9,"v":9}`,
		`c #0 {"id":1,"v":1}`, `c #1 {"id":2,"v":2}`, `u #0 {"id":1,"v":3}`, `d #0 {"id":2}`, `c #0 {"id":4,"v":2}`,
		`d #0 {"id":4}`, `d #0 {"id":1}`, `c #0 {"id":9,"v":9}`, `d #0 {"id":9}`,
	}
	unkeyed := slices.Concat(keyed[:3], []string{`u #0 {"id":4,"v":2}`}, keyed[5:9])
	for table, want := range map[string][]string{
		"a": keyed, "p": keyed, "e": keyed, "b": append(unkeyed, unkeyed...),
		"n": {`c #0 {"id":1,"row_start":"2001-01-01 00:00:00.000000","row_end":"2001-01-01 00:00:00.000000"}`},
	} {
		if !slices.Equal(got[table], want) {
			t.Errorf("%s: got\n%s\nwant\n%s", table, strings.Join(got[table], "\n"), strings.Join(want, "\n"))
		}
	}
	declared := 0
	for _, l := range c.snapshot() {
		if strings.Contains(l, `,"e":"2`) && strings.HasPrefix(l, "c b_vers.e ") {
			declared++
		}
	}
	if declared != 8 {
		t.Errorf("%d created rows have the declared columns, want 8", declared)
	}

	// History that a user inserts is history.
	exec(t, s, "USE b_vers", "SET system_versioning_insert_history=1", "INSERT INTO a (id,v,row_start,row_end) VALUES (7,7,'2001-01-01','2002-01-01')", "INSERT INTO a (id,v) VALUES (8,8)")
	c.wait("the row after history", last("a"))
	if l := c.snapshot(); strings.Contains(l[len(l)-2], " b_vers.a ") {
		t.Errorf("inserted history: %q", l[len(l)-2])
	}
	stop()

	// A table that is gone before its rows are captured.
	exec(t, s, "INSERT INTO b_vers.a (id,v) VALUES (10,10)", "DROP TABLE b_vers.a")
	if err := c.end(src); !relay.IsPermanent(err) || !strings.Contains(err.Error(), "b_vers.a") {
		t.Errorf("a dropped table: %v", err)
	}
	// Versioning by transaction is logged as statements.
	c = newCollector(t)
	stop = c.run(src)
	c.wait("position", func() bool { return c.pos != nil })
	stop()
	exec(t, s, "CREATE TABLE b_vers.x (id INT PRIMARY KEY, s BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, e BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME(s,e)) WITH SYSTEM VERSIONING",
		"INSERT INTO b_vers.x (id) VALUES (1)")
	if err := c.end(src); !relay.IsPermanent(err) || !strings.Contains(err.Error(), "statement") {
		t.Errorf("versioning by transaction: %v", err)
	} else {
		t.Log(err)
	}
	exec(t, s, "DROP DATABASE b_vers")
}

// periodValue are the declared columns of table e.
var periodValue = regexp.MustCompile(`,?"[se]":"[^"]*"`)
