package binlog

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"binrelay/functions"
)

// TestGoldenBinlogs decodes two real binlog files of our own SQL over all types (testdata/README.md) and
// compares the contents of every table at the end with what SELECT showed.
func TestGoldenBinlogs(t *testing.T) {
	for _, flavor := range serverKinds {
		t.Run(flavor, func(t *testing.T) {
			parts := partsOf(t, filepath.Join("testdata", flavor+".binlog"), goldenHints)
			tables := map[string]map[string]map[string]any{} // table → key → column → value as SELECT shows it
			var moved map[string]any
			decodeAll(t, NewDecoders(nil).New(), parts, func(c *functions.Change) {
				if c.Op == functions.DDL {
					if verb, table, _ := strings.Cut(c.Statement, " TABLE "); verb == "TRUNCATE" {
						delete(tables, c.Database+"."+table)
					}
					return
				}
				name := c.Table.Database + "." + c.Table.Name
				rows := tables[name]
				if rows == nil {
					rows = map[string]map[string]any{}
					tables[name] = rows
				}
				key := func(r functions.Row) string {
					b, err := r.Image().AppendColumnsJSON(nil, keyColumns(c.Table))
					if err != nil {
						t.Fatal(err)
					}
					return string(b)
				}
				switch c.Op {
				case functions.Create:
					row := selected(t, c.After)
					if c.KeyChange { // a MINIMAL image of the new row has the changed columns only
						for k, v := range moved {
							if _, ok := row[k]; !ok {
								row[k] = v
							}
						}
					}
					rows[key(c.After)] = row
				case functions.Delete:
					if rows[key(c.Before)] == nil {
						t.Errorf("%s: delete of a row that is not there: %s", name, key(c.Before))
					}
					moved = rows[key(c.Before)]
					delete(rows, key(c.Before))
				case functions.Update:
					row := rows[key(c.Before)]
					if row == nil {
						t.Fatalf("%s: update of a row that is not there: %s", name, key(c.Before))
					}
					delete(rows, key(c.Before))
					for k, v := range selected(t, c.After) { // MINIMAL images have some columns only
						row[k] = v
					}
					if len(c.Table.Key) == 0 {
						rows[key(c.After)] = row
					} else {
						rows[key(c.Before)] = row
					}
				}
			})
			for _, table := range elsewhere[flavor] {
				delete(tables, table)
			}
			compareSelected(t, filepath.Join("testdata", "selected-"+flavor+".jsonl"), tables, elsewhere[flavor])
		})
	}
}

// goldenHints are what information_schema said of columns in mariadb.binlog.
var goldenHints = mapHints{"shop.ty_json.doc": "json"}

// elsewhere are tables whose contents at the end other tests are about: rows in compressed payloads and of
// XA transactions that were rolled back (the reader's), a column that was renamed after its rows were
// written, and what the MariaDB file does not reach.
var elsewhere = map[string][]string{
	"mysql":   {"edge_zip.item", "edge_zip.token", "edge_xa.item", "edge_hidden.hidden"},
	"mariadb": {"edge_end.last", "edge_minimal.stock", "edge_hidden.hidden", "edge_net.by_uuid", "edge_net.ty_net", "edge_squeezed.squeezed", "edge_xa.item"},
}

// keyColumns are the columns that tell rows apart: all of them where there is no primary key.
func keyColumns(t *functions.Table) []int {
	if len(t.Key) > 0 {
		return t.Key
	}
	all := make([]int, len(t.Columns))
	for i := range all {
		all[i] = i
	}
	return all
}

// selected is a row as the golden files spell it: text, 0x for bytes, nil for NULL.
func selected(t *testing.T, r functions.Row) map[string]any {
	row := map[string]any{}
	im := r.Image()
	for i, c := range r.Table().Columns {
		if !im.Has(i) {
			continue
		}
		js, err := im.AppendJSON(nil, i)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(js) {
			t.Fatalf("%s.%s: %s is no JSON", r.Table().Name, c.Name, js)
		}
		row[c.Name] = asSelected(t, c, string(js))
	}
	return row
}

func asSelected(t *testing.T, c functions.Column, js string) any {
	if js == "null" {
		return nil
	}
	var s string
	if js[0] == '"' {
		if err := json.Unmarshal([]byte(js), &s); err != nil {
			t.Fatal(err)
		}
	}
	upper := func(b []byte) string { return "0x" + strings.ToUpper(hex.EncodeToString(b)) }
	switch c.Kind {
	case functions.KindBinary:
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return upper(b)
	case functions.KindGeometry:
		var g struct {
			SRID uint32
			WKB  []byte
		}
		if err := json.Unmarshal([]byte(js), &g); err != nil {
			t.Fatal(err)
		}
		return upper(append([]byte{byte(g.SRID), byte(g.SRID >> 8), byte(g.SRID >> 16), byte(g.SRID >> 24)}, g.WKB...))
	case functions.KindVector:
		var v []float32
		if err := json.Unmarshal([]byte(js), &v); err != nil {
			t.Fatal(err)
		}
		var b []byte
		for _, f := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
		return upper(b)
	case functions.KindYear:
		if js == "0" {
			return "0000"
		}
		return js
	}
	if js[0] == '"' {
		return s
	}
	return js
}

func compareSelected(t *testing.T, path string, tables map[string]map[string]map[string]any, leaveOut []string) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := map[string][]map[string]any{}
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		var l struct {
			Table string
			Row   map[string]any
		}
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		want[l.Table] = append(want[l.Table], l.Row)
	}
	if n < 50 {
		t.Fatalf("%s: %d rows", path, n)
	}
	values := 0
	for table, rows := range want {
		if slices.Contains(leaveOut, table) {
			continue
		}
		got := make([]map[string]any, 0)
		for _, r := range tables[table] {
			got = append(got, r)
		}
		if len(got) != len(rows) {
			t.Errorf("%s: %d rows, SELECT shows %d", table, len(got), len(rows))
			continue
		}
		for _, w := range rows {
			best, bad := "", 1<<30
			k := slices.IndexFunc(got, func(g map[string]any) bool {
				d, n := differences(w, g)
				if n < bad {
					best, bad = d, n
				}
				return n == 0
			})
			if k < 0 {
				t.Errorf("%s: %s", table, best)
				continue
			}
			values += len(w)
			got = slices.Delete(got, k, k+1)
		}
	}
	t.Logf("%d values equal", values)
}

func differences(want, got map[string]any) (text string, n int) {
	for k, w := range want {
		g, ok := got[k]
		if !ok || !sameValue(w, g) {
			n++
			text += fmt.Sprintf(" %s = %v, SELECT shows %v;", k, g, w)
		}
	}
	return text, n
}

// sameValue compares as text, and FLOAT, of which SELECT shows six digits, as a number.
func sameValue(w, g any) bool {
	if w == g {
		return true
	}
	ws, ok1 := w.(string)
	gs, ok2 := g.(string)
	if !ok1 || !ok2 {
		return false
	}
	wf, err1 := strconv.ParseFloat(ws, 64)
	gf, err2 := strconv.ParseFloat(gs, 64)
	if err1 != nil || err2 != nil {
		return false
	}
	diff := wf - gf
	return max(diff, -diff) <= 1e-5*max(wf, -wf)
}
