package binlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"

	"binrelay/functions"
	"binrelay/relay"
)

// run executes statements in a database of the test's own and returns the parts that they made.
func (s testServer) run(t *testing.T, hints func(db string) Hints, statements ...string) [][]byte {
	t.Helper()
	c := s.session(t)
	db := strings.ToLower(strings.NewReplacer("/", "_", "Test", "").Replace(t.Name()))
	execute(t, c, "DROP DATABASE IF EXISTS "+db, "CREATE DATABASE "+db, "USE "+db, "FLUSH BINARY LOGS")
	execute(t, c, statements...)
	file, err := s.Value(map[string]string{"mysql": "SHOW BINARY LOG STATUS", "mariadb": "SHOW MASTER STATUS"}[s.Flavor])
	if err != nil {
		t.Fatal(err)
	}
	var h Hints
	if hints != nil {
		h = hints(db)
	}
	return partsOf(t, filepath.Join(s.Dir, "data", file), h)
}

func execute(t testing.TB, c *client.Conn, statements ...string) {
	t.Helper()
	for _, q := range statements {
		if _, err := c.Execute(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// lines decodes parts and prints each change on a line: op, table, images.
func lines(t testing.TB, d *Decoder, parts [][]byte) (out []string, err error) {
	t.Helper()
	image := func(r functions.Row) string {
		if r.IsZero() {
			return "-"
		}
		b, err := r.Image().AppendRowJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(b) {
			t.Fatalf("no JSON: %s", b)
		}
		return string(b)
	}
	for i, p := range parts {
		err := d.Decode(uint64(i), p, func(c *functions.Change) error {
			if c.Op == functions.DDL {
				out = append(out, "ddl "+c.Statement)
				return nil
			}
			l := fmt.Sprintf("%s %s %s %s", c.Op, c.Table.Name, image(c.Before), image(c.After))
			if c.KeyChange {
				l += " key"
			}
			out = append(out, l)
			return nil
		})
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func wantLines(t *testing.T, got []string, err error, want ...string) {
	t.Helper()
	if err != nil {
		t.Errorf("%v", err)
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

// TestOldTemporalTypes: MariaDB's temporal types from before 10.1 (or mysql56_temporal_format=OFF) do not say in
// the binlog how many digits their fraction has. With a hint they are read, without they halt. (C089)
func TestOldTemporalTypes(t *testing.T) {
	s := server(t, "mariadb")
	c := s.session(t)
	execute(t, c, "SET GLOBAL mysql56_temporal_format=0")
	defer execute(t, c, "SET GLOBAL mysql56_temporal_format=1")
	var cols, vals []string
	for n := range 7 {
		cols = append(cols, fmt.Sprintf("t%d TIME(%d), d%d DATETIME(%d), s%d TIMESTAMP(%d) NULL", n, n, n, n, n, n))
		vals = append(vals, "%[1]s, %[2]s, %[3]s")
	}
	insert := func(id int, tm, dt, ts string) string {
		return fmt.Sprintf("INSERT INTO old VALUES (%d, ", id) + fmt.Sprintf(strings.Join(vals, ", "), "'"+tm+"'", "'"+dt+"'", "'"+ts+"'") + ")"
	}
	statements := []string{
		"CREATE TABLE old (id INT PRIMARY KEY, " + strings.Join(cols, ", ") + ")",
		insert(1, "-838:59:59", "2024-01-02 03:04:05.678901", "2024-01-02 03:04:05.678901"),
		insert(2, "-00:00:00.123456", "9999-12-31 23:59:59.999999", "2038-01-19 03:14:07.999999"),
		insert(3, "838:59:59.999999", "0000-00-00", "0000-00-00"),
		insert(4, "12:34:56.5", "2024-00-10 00:00:00.5", "1970-01-01 00:00:01"),
	}
	parts := s.run(t, func(db string) Hints { return s.hints(t, db) }, statements...)
	execute(t, c, "USE oldtemporaltypes")
	r, err := c.Execute("SELECT * FROM old ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	row := 0
	decodeAll(t, NewDecoders(nil).New(), parts, func(ch *functions.Change) {
		if ch.Op == functions.DDL {
			return
		}
		for i := 1; i < len(ch.Table.Columns); i++ {
			got, err := ch.After.Image().Value(i)
			want, _ := r.GetString(row, i)
			if err != nil || got != want {
				t.Errorf("row %d, %s (type %d): %v, %v, want %s", row+1, ch.Table.Columns[i].Name, ch.Table.Columns[i].Type, got, err, want)
			}
		}
		row++
	})
	if row != 4 {
		t.Errorf("%d rows, want 4", row)
	}
	parts = s.run(t, nil, "CREATE TABLE old (id INT PRIMARY KEY, t TIME)", "INSERT INTO old VALUES (1, '-838:59:59')")
	_, err = lines(t, NewDecoders(nil).New(), parts)
	var e *relay.DecodeError
	if !errors.As(err, &e) || e.Table != "oldtemporaltypes.old" || !strings.Contains(err.Error(), "ALTER TABLE oldtemporaltypes.old FORCE") || !strings.Contains(err.Error(), "column t") {
		t.Errorf("without a hint: %v", err)
	}
}

// TestMetadataNotFull: rows written without binlog_row_metadata=FULL halt and say how to mend it. (C002)
func TestMetadataNotFull(t *testing.T) {
	for _, kind := range serverKinds {
		t.Run(kind, func(t *testing.T) {
			s := server(t, kind)
			c := s.session(t)
			defer execute(t, c, "SET GLOBAL binlog_row_metadata=FULL")
			parts := s.run(t, nil, "CREATE TABLE a (id INT UNSIGNED PRIMARY KEY, v BIGINT UNSIGNED)", "INSERT INTO a VALUES (1, 18446744073709551615)",
				"SET GLOBAL binlog_row_metadata="+map[string]string{"mysql": "MINIMAL", "mariadb": "NO_LOG"}[kind], "FLUSH TABLES", "INSERT INTO a VALUES (2, 1)")
			got, err := lines(t, NewDecoders(nil).New(), parts)
			if len(got) != 2 || got[1] != `c a - {"id":1,"v":18446744073709551615}` {
				t.Errorf("%q", got)
			}
			var e *relay.DecodeError
			if !errors.As(err, &e) || !strings.HasSuffix(e.Table, ".a") || !strings.Contains(err.Error(), "SET GLOBAL binlog_row_metadata=FULL") || e.Row != 0 {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestKeyChanges: a changed primary key is a delete and a create with one ordinal, under every row image;
// the key of an unchanged row is whole though a MINIMAL after image leaves it out.
func TestKeyChanges(t *testing.T) {
	for _, kind := range serverKinds {
		t.Run(kind, func(t *testing.T) {
			s := server(t, kind)
			parts := s.run(t, nil, "CREATE TABLE a (v INT, b VARCHAR(9) COLLATE utf8mb4_general_ci, a INT, n INT, PRIMARY KEY (a, b))",
				"INSERT INTO a VALUES (1,'x',1,0),(2,'y',1,0)", "UPDATE a SET b='z', v=9 WHERE b='x'", "UPDATE a SET b='Z' WHERE b='z'",
				"SET SESSION binlog_row_image=MINIMAL", "UPDATE a SET v=3 WHERE b='y'", "UPDATE a SET b='w' WHERE b='y'", "DELETE FROM a WHERE b='w'",
				"SET SESSION binlog_row_image=FULL")
			got, err := lines(t, NewDecoders(nil).New(), parts)
			wantLines(t, got[1:], err,
				`c a - {"v":1,"b":"x","a":1,"n":0}`,
				`c a - {"v":2,"b":"y","a":1,"n":0}`,
				`d a {"v":1,"b":"x","a":1,"n":0} - key`,
				`c a - {"v":9,"b":"z","a":1,"n":0} key`,
				`d a {"v":9,"b":"z","a":1,"n":0} - key`,
				`c a - {"v":9,"b":"Z","a":1,"n":0} key`,
				`u a {"b":"y","a":1} {"v":3}`,
				`d a {"b":"y","a":1} - key`,
				`c a - {"b":"w"} key`,
				`d a {"b":"w","a":1} -`)
			keys := []string{}
			rows := []int{}
			decodeAll(t, NewDecoders(nil).New(), parts, func(c *functions.Change) {
				if c.Op == functions.DDL {
					return
				}
				k, err := c.Row().Image().AppendColumnsJSON(nil, c.Table.Key)
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, string(k))
				rows = append(rows, c.Source.Row)
			})
			wantLines(t, keys, nil, `{"a":1,"b":"x"}`, `{"a":1,"b":"y"}`, `{"a":1,"b":"x"}`, `{"a":1,"b":"z"}`, `{"a":1,"b":"z"}`, `{"a":1,"b":"Z"}`,
				`{"a":1,"b":"y"}`, `{"a":1,"b":"y"}`, `{"a":1,"b":"w"}`, `{"a":1,"b":"w"}`)
			if fmt.Sprint(rows) != "[0 1 0 0 0 0 0 0 0 0]" {
				t.Errorf("ordinals %v", rows)
			}
		})
	}
}

// TestDefaultsUnderMinimal: INSERT … VALUES () under MINIMAL is a row that takes no bytes on MySQL.
func TestDefaultsUnderMinimal(t *testing.T) {
	for _, kind := range serverKinds {
		t.Run(kind, func(t *testing.T) {
			parts := server(t, kind).run(t, nil, "CREATE TABLE a (n INT DEFAULT 7)", "SET SESSION binlog_row_image=MINIMAL", "INSERT INTO a VALUES ()", "SET SESSION binlog_row_image=FULL")
			got, err := lines(t, NewDecoders(nil).New(), parts)
			wantLines(t, got[1:], err, map[string]string{"mysql": `c a - {}`, "mariadb": `c a - {"n":7}`}[kind])
		})
	}
}

// TestHiddenColumns: what the server keeps for functional and multi-valued indexes is not in the row; invisible
// and generated columns and columns added in an instant are.
func TestHiddenColumns(t *testing.T) {
	parts := server(t, "mysql").run(t, nil,
		"CREATE TABLE a (id INT PRIMARY KEY, j JSON, k INT, INDEX ((CAST(j->'$.a' AS UNSIGNED ARRAY))), INDEX ((k+1)), s INT INVISIBLE DEFAULT 8)",
		`INSERT INTO a (id, j, k) VALUES (1, '{"a":[1,2]}', 5)`, "ALTER TABLE a ADD COLUMN z INT DEFAULT 3 FIRST, ALGORITHM=INSTANT",
		"UPDATE a SET k=6", "ALTER TABLE a DROP COLUMN z, ALGORITHM=INSTANT", "DELETE FROM a")
	got, err := lines(t, NewDecoders(nil).New(), parts)
	if len(got) < 6 {
		t.Fatal(got, err)
	}
	wantLines(t, []string{got[1], got[3], got[5]}, err, `c a - {"id":1,"j":"{\"a\": [1, 2]}","k":5,"s":8}`,
		`u a {"z":3,"id":1,"j":"{\"a\": [1, 2]}","k":5,"s":8} {"z":3,"id":1,"j":"{\"a\": [1, 2]}","k":6,"s":8}`,
		`d a {"id":1,"j":"{\"a\": [1, 2]}","k":6,"s":8} -`)
}

// TestPartialJSONWithoutDocument: changes to a document that the log does not hold halt. (C084)
func TestPartialJSONWithoutDocument(t *testing.T) {
	parts := server(t, "mysql").run(t, nil, "CREATE TABLE a (id INT PRIMARY KEY, j JSON)", `INSERT INTO a VALUES (1, '{"a":"aaaaaaaaaaaa","b":[1,2,3]}')`,
		"SET SESSION binlog_row_image=MINIMAL", "SET SESSION binlog_row_value_options=PARTIAL_JSON", "UPDATE a SET j=JSON_SET(j,'$.a','zz')",
		"SET SESSION binlog_row_image=FULL", "SET SESSION binlog_row_value_options=''")
	d := NewDecoders(nil).New()
	seen := false
	decodeAll(t, d, parts, func(c *functions.Change) {
		if c.Op != functions.Update {
			return
		}
		seen = true
		for _, f := range []func() error{
			func() error { _, err := c.After.Image().AppendRowJSON(nil); return err },
			func() error { _, err := c.After.Image().AppendJSON(nil, 1); return err },
			func() error { _, err := c.After.Image().Value(1); return err },
		} {
			err := f()
			var e *relay.DecodeError
			if !errors.As(err, &e) || !strings.Contains(err.Error(), "binlog_row_value_options") || !strings.Contains(err.Error(), "column j") || e.GTID == "" {
				t.Errorf("%v", err)
			}
		}
	})
	if !seen {
		t.Error("no update seen")
	}
}

// TestTextThatIsNoText: bytes that are no characters go through reversibly and are counted. (C030)
func TestTextThatIsNoText(t *testing.T) {
	parts := server(t, "mariadb").run(t, nil, "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET utf8mb4, k VARCHAR(9) CHARACTER SET koi8r)",
		"INSERT INTO a VALUES (1, x'61EDA08062', x'c1'), (2, 'ok', 'ok'), (3, x'EDA080', NULL)")
	var told []string
	ds := NewDecoders(func(table, column string) { told = append(told, table+"."+column) })
	got, err := lines(t, ds.New(), parts)
	wantLines(t, got[1:], err, "c a - {\"id\":1,\"v\":\"a\U0010feed\U0010fea0\U0010fe80b\",\"k\":\"а\"}", `c a - {"id":2,"v":"ok","k":"ok"}`,
		"c a - {\"id\":3,\"v\":\"\U0010feed\U0010fea0\U0010fe80\",\"k\":null}")
	if n := ds.InvalidText(); n != 2 || fmt.Sprint(told) != "[textthatisnotext.a.v]" {
		t.Errorf("%d values, told of %v", n, told)
	}
}

// TestStatementCharset: the text of DDL is in the charset of the client that sent it.
func TestStatementCharset(t *testing.T) {
	for _, kind := range serverKinds {
		t.Run(kind, func(t *testing.T) {
			parts := server(t, kind).run(t, nil, "SET NAMES latin1", "CREATE TABLE a (id INT COMMENT '\xe9')", "SET NAMES utf8mb4", "CREATE USER u IDENTIFIED BY 'secret'", "DROP USER u", "ALTER TABLE a COMMENT 'é😀'",
				"CREATE TEMPORARY TABLE b (id INT)", "DROP TABLE b")
			got, err := lines(t, NewDecoders(nil).New(), parts)
			wantLines(t, got, err, "ddl CREATE TABLE a (id INT COMMENT 'é')", "ddl ALTER TABLE a COMMENT 'é😀'")
		})
	}
}

// TestCutParts: a part that ends anywhere is an error that says where, or the changes before the cut.
func TestCutParts(t *testing.T) {
	for _, flavor := range serverKinds {
		d := NewDecoders(nil).New()
		for _, p := range partsOf(t, filepath.Join("testdata", flavor+".binlog"), nil) {
			for n := 0; n < len(p); n += 1 + len(p)/200 {
				err := d.Decode(1, p[:n], func(c *functions.Change) error {
					if !c.Row().IsZero() {
						_, err := c.Row().Image().AppendRowJSON(nil)
						return err
					}
					return nil
				})
				checkDecodeError(t, err)
			}
		}
	}
}

// TestDecodersShare: decoders of one maker share shapes and nothing else (run with -race).
func TestDecodersShare(t *testing.T) {
	parts := partsOf(t, filepath.Join("testdata", "mysql.binlog"), nil)
	ds := NewDecoders(nil)
	done := make(chan []string)
	for range 4 {
		go func() {
			got, _ := lines(t, ds.New(), parts)
			done <- got
		}()
	}
	first := <-done
	for range 3 {
		if got := <-done; strings.Join(got, "\n") != strings.Join(first, "\n") {
			t.Error("decoders differ")
		}
	}
}

// TestPanicOfFunction: what user code panics with is not taken for a mistake of the decoder, and the decoder
// works on behind it.
func TestPanicOfFunction(t *testing.T) {
	part := synthPart(narrowColumns(), evWriteRows, narrowRow(1))
	d := NewDecoders(nil).New()
	func() {
		defer func() {
			if r := recover(); r != "mine" {
				t.Errorf("recovered %v", r)
			}
		}()
		d.Decode(1, part, func(*functions.Change) error { panic("mine") })
	}()
	mine := errors.New("mine")
	if err := d.Decode(1, part, func(*functions.Change) error { return mine }); err != mine {
		t.Error(err)
	}
}

// TestOrdinals: rows are counted from the part's base, and rows of excluded tables with them.
func TestOrdinals(t *testing.T) {
	h := partHeader{Flags: partFirst, RowBase: 1000, File: "f", GTID: "g", CommitMicros: 1790000000123456, ServerID: 5, Pos: 77}
	cols := narrowColumns()
	b := h.append(nil)
	b = addEvent(b, evTableMap, synthTableMap(9, "db", "t", cols))
	b = addEvent(b, evWriteRows, synthRows(evWriteRows, 9, len(cols), narrowRow(1), narrowRow(2)))
	b = addEvent(b, eventSkip, []byte{5, 0, 0, 0})
	b = addEvent(b, evUpdateRows, synthRows(evUpdateRows, 9, len(cols), narrowRow(1), narrowRow(2)))
	b = addEvent(b, evXID, make([]byte, 8))
	var got []string
	err := NewDecoders(nil).New().Decode(42, b, func(c *functions.Change) error {
		s := c.Source
		got = append(got, fmt.Sprintf("%s %d %s %s %d %d %d %s", c.Op, s.Row, s.GTID, s.File, s.Pos, s.ServerID, s.Seq, s.Time))
		return nil
	})
	wantLines(t, got, err, "c 1000 g f 77 5 42 2026-09-21 14:13:20.123456 +0000 UTC", "c 1001 g f 77 5 42 2026-09-21 14:13:20.123456 +0000 UTC",
		"d 1007 g f 77 5 42 2026-09-21 14:13:20.123456 +0000 UTC", "c 1007 g f 77 5 42 2026-09-21 14:13:20.123456 +0000 UTC")
}

// TestUnreadableParts: each names its place.
func TestUnreadableParts(t *testing.T) {
	cols := narrowColumns()
	head := (&partHeader{Flags: partFirst, File: "binlog.000007", Pos: 99}).append(nil)
	with := func(events ...[]byte) []byte {
		b := append([]byte{}, head...)
		for _, e := range events {
			b = append(b, e...)
		}
		return b
	}
	tm := addEvent(nil, evTableMap, synthTableMap(9, "db", "t", cols))
	strange := append([]synthColumn{}, cols...)
	strange[3].typ = 199
	for name, c := range map[string]struct {
		part []byte
		want string
	}{
		"no header":          {[]byte{1, 2, 3}, "damaged part header"},
		"other version":      {append([]byte{9}, head[1:]...), "part version 9"},
		"damaged event":      {with([]byte{1, 2, 3}), "damaged event header"},
		"rows without map":   {with(addEvent(nil, evWriteRows, synthRows(evWriteRows, 9, 8, narrowRow(1)))), "table id 9 without a table map"},
		"short row":          {with(tm, addEvent(nil, evWriteRows, synthRows(evWriteRows, 9, 8, narrowRow(1)[:30]))), "table db.t at binlog.000007:99 row 0: row image ends"},
		"other column count": {with(tm, addEvent(nil, evWriteRows, synthRows(evWriteRows, 9, 7, narrowRow(1)))), "rows of 7 columns for a table map of 8"},
		"unknown type": {with(addEvent(nil, evTableMap, synthTableMap(9, "db", "t", strange)), addEvent(nil, evWriteRows, synthRows(evWriteRows, 9, 8, narrowRow(1)))),
			"column type 199 is unknown"},
		"unknown event": {with(addEvent(nil, 200, nil)), "event type 200"},
	} {
		err := NewDecoders(nil).New().Decode(1, c.part, func(*functions.Change) error { return nil })
		checkDecodeError(t, err)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
