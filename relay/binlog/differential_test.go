package binlog

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"

	"binrelay/functions"
)

var (
	seeds    = flag.Int("seeds", 12, "seeds of TestDifferential")
	seedFrom = flag.Uint64("seed", 1, "first seed of TestDifferential")
)

// TestDifferential writes random rows of random tables into real servers, asks the server after every
// statement what it holds now, and compares all that with what comes out of the binlog: values as JSON and as Go
// values, before and after images, under each row image. A long run: go test ./relay/binlog -run Differential -seeds 500
func TestDifferential(t *testing.T) {
	for _, kind := range serverKinds {
		t.Run(kind, func(t *testing.T) {
			s := server(t, kind)
			c := s.session(t)
			values := 0
			for i := range *seeds {
				seed := *seedFrom + uint64(i)
				values += differential(t, s, c, kind, seed)
				if t.Failed() {
					t.Fatalf("seed %d: run again with -run 'Differential/%s' -seed %d -seeds 1", seed, kind, seed)
				}
			}
			t.Logf("%d seeds, %d values equal", *seeds, values)
		})
	}
}

// event is one row change as the server's own answers tell it: nil for an image that is not there. A value is the
// text of the column's select expression.
type expected struct {
	op            functions.Op
	before, after map[string]any
	sql           string
}

func differential(t *testing.T, s testServer, c *client.Conn, kind string, seed uint64) (values int) {
	r := rand.New(rand.NewPCG(seed, 77))
	db := fmt.Sprintf("diff%d", seed)
	exec := func(q string) {
		t.Helper()
		if _, err := c.Execute(q); err != nil {
			t.Fatalf("seed %d: %s: %v", seed, q, err)
		}
	}
	exec("DROP DATABASE IF EXISTS " + db)
	exec("CREATE DATABASE " + db)
	exec("USE " + db)
	exec("FLUSH BINARY LOGS")
	cols := randomColumns(r, kind)
	var ddl, sel []string
	for _, col := range cols {
		ddl = append(ddl, fmt.Sprintf("`%s` %s", col.name, col.typ.ddl))
		sel = append(sel, strings.ReplaceAll(col.typ.sel, "?", "`"+col.name+"`"))
	}
	at := r.IntN(len(ddl) + 1) // the key column stands anywhere
	ddl = append(ddl[:at], append([]string{"id INT NOT NULL"}, ddl[at:]...)...)
	create := "CREATE TABLE t (" + strings.Join(ddl, ", ") + ", PRIMARY KEY (id))"
	if kind == "mysql" && r.IntN(2) == 0 {
		create += " ENGINE=InnoDB ROW_FORMAT=DYNAMIC"
	}
	versioned := kind == "mariadb" && seed%3 == 0
	if versioned {
		create += " WITH SYSTEM VERSIONING"
	}
	exec(create)
	query := "SELECT " + strings.Join(sel, ", ") + " FROM t WHERE id="
	current := func(id int) map[string]any {
		res, err := c.Execute(query + strconv.Itoa(id))
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, query, err)
		}
		if res.RowNumber() == 0 {
			return nil
		}
		row := map[string]any{}
		for i, col := range cols {
			if v, _ := res.GetValue(0, i); v == nil {
				row[col.name] = nil
				continue
			}
			row[col.name], _ = res.GetString(0, i)
		}
		return row
	}
	var history []expected
	state := map[int]map[string]any{}
	image := "FULL"
	for step := range 30 {
		if step%10 == 0 {
			image = []string{"FULL", "MINIMAL", "NOBLOB"}[r.IntN(3)]
			if versioned && image == "MINIMAL" { // the server then logs virtual columns of an INSERT as NULL
				image = "FULL"
			}
			exec("SET SESSION binlog_row_image=" + image)
			if kind == "mysql" {
				exec("SET SESSION binlog_row_value_options=" + []string{"''", "'PARTIAL_JSON'"}[b2i(image == "FULL" && r.IntN(2) == 0)])
			}
		}
		id := r.IntN(12) + 1
		old := state[id]
		var q string
		switch {
		case old == nil:
			names, lits := []string{"id"}, []string{strconv.Itoa(id)}
			for _, col := range cols {
				if r.IntN(10) > 0 && !col.typ.computed {
					names = append(names, "`"+col.name+"`")
					lits = append(lits, col.typ.lit(r))
				}
			}
			q = "INSERT INTO t (" + strings.Join(names, ",") + ") VALUES (" + strings.Join(lits, ",") + ")"
		case r.IntN(5) == 0:
			q = fmt.Sprintf("DELETE FROM t WHERE id=%d", id)
		default:
			var sets []string
			for _, col := range cols {
				if r.IntN(3) == 0 && !col.typ.computed {
					lit := col.typ.lit(r)
					if col.typ.patch != nil && r.IntN(2) == 0 {
						lit = strings.ReplaceAll(col.typ.patch(r), "?", "`"+col.name+"`")
					}
					sets = append(sets, fmt.Sprintf("`%s`=%s", col.name, lit))
				}
			}
			if len(sets) == 0 {
				continue
			}
			q = fmt.Sprintf("UPDATE t SET %s WHERE id=%d", strings.Join(sets, ", "), id)
		}
		res, err := c.Execute(q)
		if err != nil {
			if strings.Contains(err.Error(), "ERROR") { // a value that the server refuses: nothing is logged
				continue
			}
			t.Fatal(err)
		}
		now := current(id)
		switch {
		case old == nil:
			history = append(history, expected{functions.Create, nil, now, q})
		case now == nil:
			history = append(history, expected{functions.Delete, old, nil, q})
		case res.AffectedRows > 0:
			history = append(history, expected{functions.Update, old, now, q})
		}
		if now == nil {
			delete(state, id)
		} else {
			state[id] = now
		}
	}
	exec("SET SESSION binlog_row_image=FULL")
	file, err := s.Value(map[string]string{"mysql": "SHOW BINARY LOG STATUS", "mariadb": "SHOW MASTER STATUS"}[kind])
	if err != nil {
		t.Fatal(err)
	}
	parts := partsOf(t, filepath.Join(s.Dir, "data", file), s.hints(t, db))
	n := 0
	d := NewDecoders(nil).New()
	for i, p := range parts {
		err := d.Decode(uint64(i), p, func(ch *functions.Change) error {
			if ch.Op == functions.DDL || ch.Table.Database != db {
				return nil
			}
			if n >= len(history) {
				t.Errorf("more changes than the %d expected", len(history))
				return nil
			}
			h := history[n]
			n++
			if ch.Op != h.op {
				t.Errorf("%s: op %v, want %v", h.sql, ch.Op, h.op)
				return nil
			}
			values += compareImage(t, ch.Before, cols, h.before, h.sql, "before")
			values += compareImage(t, ch.After, cols, h.after, h.sql, "after")
			return nil
		})
		if err != nil {
			t.Errorf("%s\n%v", create, err)
		}
	}
	if n != len(history) {
		t.Errorf("%d changes, want %d", n, len(history))
	}
	if t.Failed() {
		t.Logf("%.3000s", create)
	}
	exec("DROP DATABASE " + db)
	return values
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func compareImage(t *testing.T, row functions.Row, cols []testColumn, want map[string]any, sql, which string) (n int) {
	t.Helper()
	if row.IsZero() {
		if want != nil {
			t.Errorf("%s: no %s image", sql, which)
		}
		return 0
	}
	im := row.Image()
	whole, err := im.AppendRowJSON(nil)
	if err != nil {
		t.Errorf("%s: %s: %v", sql, which, err)
		return 0
	}
	if !json.Valid(whole) {
		t.Errorf("%s: %s is no JSON: %s", sql, which, whole)
	}
	for _, col := range cols {
		i := row.Table().Column(col.name)
		if i < 0 {
			t.Fatalf("no column %s", col.name)
		}
		if !im.Has(i) {
			continue
		}
		n++
		if err := compareValue(row.Table().Columns[i], im, i, want[col.name]); err != nil {
			t.Errorf("%s image, %s %.100s: %v\n%.1500s", which, col.name, col.typ.ddl, err, sql)
		}
	}
	return n
}

// compareValue compares both forms of a column with the server's answer.
func compareValue(c functions.Column, im functions.Image, i int, want any) error {
	js, err := im.AppendJSON(nil, i)
	if err != nil {
		return err
	}
	v, err := im.Value(i)
	if err != nil {
		return err
	}
	if want == nil {
		if string(js) != "null" || v != nil || !im.IsNull(i) {
			return fmt.Errorf("%s, %v, want NULL", js, v)
		}
		return nil
	}
	if im.IsNull(i) {
		return fmt.Errorf("NULL, want %v", want)
	}
	w := want.(string)
	var text string
	if js[0] == '"' {
		if err := json.Unmarshal(js, &text); err != nil {
			return err
		}
	}
	hexOf := func(b []byte) string { return strings.ToUpper(hex.EncodeToString(b)) }
	same := func(got, goValue string) error {
		if got != w || goValue != w {
			return fmt.Errorf("JSON %s (%.300s), value %.300q, the server says %.300s", got, js, goValue, w)
		}
		return nil
	}
	switch c.Kind {
	case functions.KindInteger, functions.KindBit:
		return same(string(js), fmt.Sprint(v))
	case functions.KindYear:
		return same(fmt.Sprintf("%04s", js), fmt.Sprintf("%04d", v))
	case functions.KindFloat:
		f, _ := strconv.ParseFloat(w, 64)
		g, err := strconv.ParseFloat(string(js), 32)
		if err != nil || math.Float32bits(float32(g)) != math.Float32bits(float32(f)) || math.Float32bits(v.(float32)) != math.Float32bits(float32(f)) {
			return fmt.Errorf("%s, %v, the server says %v", js, v, w)
		}
		return nil
	case functions.KindDouble:
		f, _ := strconv.ParseFloat(w, 64)
		g, err := strconv.ParseFloat(string(js), 64)
		// The spelling is compared where it fits into the 22 characters that MySQL's CAST has.
		if err != nil || math.Float64bits(f) != math.Float64bits(g) || math.Float64bits(f) != math.Float64bits(v.(float64)) || string(js) != w && len(js) <= 22 {
			return fmt.Errorf("%s, %v, the server says %v", js, v, w)
		}
		return nil
	case functions.KindDecimal, functions.KindDate, functions.KindDateTime, functions.KindTimestamp, functions.KindTime, functions.KindUUID, functions.KindInet:
		return same(text, v.(string))
	case functions.KindString, functions.KindEnum, functions.KindSet, functions.KindJSON:
		if hexOf([]byte(text)) != w {
			b, _ := hex.DecodeString(w)
			at := 0
			for at < min(len(b), len(text)) && b[at] == text[at] {
				at++
			}
			from := max(0, at-30)
			return fmt.Errorf("from byte %d: %.100q, the server says %.100q", from, text[min(from, len(text)):], b[min(from, len(b)):])
		}
		return same(hexOf([]byte(text)), hexOf([]byte(v.(string))))
	case functions.KindBinary:
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return err
		}
		return same(hexOf(b), hexOf(v.([]byte)))
	case functions.KindGeometry:
		var g struct {
			SRID uint32
			WKB  []byte
		}
		if err := json.Unmarshal(js, &g); err != nil {
			return err
		}
		geo := v.(functions.Geo)
		if w == "" && g.SRID == 0 && len(g.WKB) == 0 { // MariaDB without strict mode: NULL in a NOT NULL column
			return nil
		}
		return same(hexOf(append(binary.LittleEndian.AppendUint32(nil, g.SRID), g.WKB...)),
			hexOf(append(binary.LittleEndian.AppendUint32(nil, geo.SRID), geo.WKB...)))
	case functions.KindVector:
		var f []float32
		if err := json.Unmarshal(js, &f); err != nil {
			return err
		}
		bytesOf := func(f []float32) (b []byte) {
			for _, x := range f {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
			return b
		}
		return same(hexOf(bytesOf(f)), hexOf(bytesOf(v.([]float32))))
	}
	return fmt.Errorf("kind %d", c.Kind)
}
