package binlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"binrelay/functions"
	"binrelay/relay"
)

// The tests of `make compat`: testdata/mysql.binlog and mariadb.binlog go through our decoder and formats, and
// what comes out is compared, key by key, with what the originals wrote for the same files
// (testdata/peers). Every difference must be one of the table that a test gives; a line of the table that
// nothing needs is a mistake too.

// ourRecord is a record of ours and the change it is made of.
type ourRecord struct {
	table     string // "db.table"
	op        functions.Op
	keyChange bool
	key       any // nil without one
	value     map[string]any
	headers   map[string]any
}

// theirRecord is a line of a file of testdata/peers.
type theirRecord struct {
	Topic   string
	Key     *string
	Value   *string
	Headers map[string]any

	key   any
	value map[string]any
}

// difference is one that is meant: paths are dotted, globs as in path.Match.
type difference struct {
	table, path string
	why         string
	only        string // flavor whose binlog has it; "" for both
}

// ourRecords are the records of a format for the binlog of a flavor, DDL included.
func ourRecords(t *testing.T, flavor string, f functions.Format) []ourRecord {
	t.Helper()
	file := filepath.Join("testdata", flavor+".binlog")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := ParseTables("*.*")
	if err != nil {
		t.Fatal(err)
	}
	decoder := NewDecoders(nil).New()
	var records []ourRecord
	var seq uint64
	take := func(c *functions.Change) error {
		r := ourRecord{op: c.Op, keyChange: c.KeyChange, table: c.Database + "."}
		if c.Table != nil {
			r.table = c.Table.Database + "." + c.Table.Name
		}
		key, has, err := f.AppendKey(nil, c)
		if err != nil {
			return err
		}
		if has {
			r.key = decodeJSON(t, string(key))
		}
		value, err := f.AppendValue(nil, c)
		if err != nil {
			return fmt.Errorf("%s: %w", r.table, err)
		}
		r.value = decodeJSON(t, string(value)).(map[string]any)
		if h, ok := f.(functions.HeaderFormat); ok {
			headers, err := h.AppendHeaders(nil, c)
			if err != nil {
				return err
			}
			r.headers = map[string]any{}
			for _, h := range headers {
				r.headers[h.Key] = string(h.Value)
			}
		}
		records = append(records, r)
		return nil
	}
	var open [][]byte
	a := newAssembler(&tables, position{MariaDB: flavor == "mariadb", File: "binlog.000002", Pos: 4}, defaultPartBytes, func(p relay.Part) error {
		if p.First {
			open = nil
		}
		if len(p.Data) > 0 {
			open = append(open, bytes.Clone(p.Data))
		}
		if p.More {
			return nil
		}
		for _, d := range open {
			seq++
			if err := decoder.Decode(seq, d, take); err != nil {
				return err
			}
		}
		open = nil
		return nil
	})
	a.hints, a.park = goldenHints, &parking{dir: t.TempDir()}
	defer a.park.abort()
	for pos := 4; pos < len(data); {
		h, ok := parseEventHeader(data[pos:])
		if !ok || int(h.Size) > len(data)-pos || h.Size < eventHeaderLen {
			break
		}
		if err := a.event(data[pos : pos+int(h.Size)]); err != nil {
			t.Fatalf("%s at %d: %v", file, pos, err)
		}
		pos += int(h.Size)
	}
	return records
}

// theirRecords reads a file of testdata/peers.
func theirRecords(t *testing.T, name string) []theirRecord {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "peers", name))
	if err != nil {
		t.Fatal(err)
	}
	var records []theirRecord
	for line := range bytes.Lines(b) {
		var r theirRecord
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if r.Key != nil && strings.HasPrefix(*r.Key, "{") {
			r.key = decodeJSON(t, *r.Key)
		}
		if r.Value != nil {
			r.value = decodeJSON(t, *r.Value).(map[string]any)
		}
		records = append(records, r)
	}
	return records
}

func decodeJSON(t *testing.T, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// comparison counts what is the same and what each meant difference was good for.
type comparison struct {
	t      *testing.T
	flavor string
	meant  []difference
	used   []int
	equal  int
}

func compare(t *testing.T, flavor string, meant []difference) *comparison {
	return &comparison{t: t, flavor: flavor, meant: meant, used: make([]int, len(meant))}
}

func (c *comparison) done() {
	c.t.Helper()
	for i, d := range c.meant {
		if c.used[i] == 0 && (d.only == "" || d.only == c.flavor) {
			c.t.Errorf("no longer different: %s %s: %s", d.table, d.path, d.why)
		}
	}
	if c.equal < 500 {
		c.t.Errorf("only %d values compared", c.equal)
	}
	c.t.Logf("%d values equal, %d differences, all of them meant", c.equal, sum(c.used))
}

func sum(n []int) (s int) {
	for _, x := range n {
		s += x
	}
	return s
}

// missing marks a key that one side does not have.
type missing struct{}

func (missing) String() string { return "(left out)" }

func (c *comparison) values(table, at string, theirs, ours any) {
	c.t.Helper()
	a, ok1 := theirs.(map[string]any)
	b, ok2 := ours.(map[string]any)
	if ok1 && ok2 && (len(a) > 0 || len(b) > 0) {
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			x, in := a[k]
			if !in {
				x = missing{}
			}
			y, in := b[k]
			if !in {
				y = missing{}
			}
			c.values(table, strings.TrimPrefix(at+"."+k, "."), x, y)
		}
		return
	}
	x, ok1 := theirs.([]any)
	y, ok2 := ours.([]any)
	if ok1 && ok2 && len(x) == len(y) && len(x) > 0 {
		for i := range x {
			c.values(table, fmt.Sprintf("%s.%d", at, i), x[i], y[i])
		}
		return
	}
	if fmt.Sprintf("%T %v", theirs, theirs) == fmt.Sprintf("%T %v", ours, ours) {
		c.equal++
		return
	}
	for i, d := range c.meant {
		in, err1 := path.Match(d.table, table)
		is, err2 := path.Match(d.path, at)
		if err := errors.Join(err1, err2); err != nil {
			c.t.Fatal(err)
		}
		if in && is {
			c.used[i]++
			return
		}
	}
	c.t.Errorf("%s %s: theirs %v, ours %v", table, at, theirs, ours)
}

// byTable sorts records into tables, which keep their order.
func byTable(records []ourRecord) map[string][]ourRecord {
	m := map[string][]ourRecord{}
	for _, r := range records {
		if r.op != functions.DDL {
			m[r.table] = append(m[r.table], r)
		}
	}
	return m
}

func TestCompatMaxwell(t *testing.T) {
	for _, flavor := range serverKinds {
		t.Run(flavor, func(t *testing.T) {
			ours := byTable(ourRecords(t, flavor, functions.Maxwell{}))
			c := compare(t, flavor, maxwellMeant)
			for _, r := range theirRecords(t, "maxwell-"+flavor+".jsonl") {
				table := fmt.Sprintf("%v.%v", r.value["database"], r.value["table"])
				if flavor == "mariadb" && !strings.HasPrefix(table, "shop.") {
					continue // not in the binlog file
				}
				if len(ours[table]) == 0 {
					t.Errorf("%s: no record of ours for %s", table, *r.Value)
					continue
				}
				o := ours[table][0]
				ours[table] = ours[table][1:]
				if o.keyChange { // theirs is one update, ours a delete and an insert: put them together
					old := o.value["data"].(map[string]any)
					if o.value["type"] != "delete" {
						t.Errorf("%s: a changed key begins with %v", table, o.value)
					}
					o = ours[table][0]
					ours[table] = ours[table][1:]
					if o.value["type"] != "insert" || !o.keyChange {
						t.Errorf("%s: a changed key goes on with %v", table, o.value)
					}
					o.value["type"], o.value["old"] = "update", changed(old, o.value["data"].(map[string]any))
				}
				c.values(table, "key", r.key, o.key)
				c.values(table, "", r.value, o.value)
			}
			for table, rest := range ours {
				if len(rest) > 0 && strings.HasPrefix(table, "shop.") && table != "shop.again" { // excluded there
					t.Errorf("%s: %d records of ours are left: %v", table, len(rest), rest[0].value)
				}
			}
			c.done()
		})
	}
}

// changed are the values of old that are others in row.
func changed(old, row map[string]any) map[string]any {
	m := map[string]any{}
	for k, v := range old {
		if v != row[k] {
			m[k] = v
		}
	}
	return m
}

func TestCompatDebezium(t *testing.T) {
	for _, flavor := range serverKinds {
		t.Run(flavor, func(t *testing.T) {
			all := ourRecords(t, flavor, functions.Debezium{Name: "dbz"})
			ours := byTable(all)
			c := compare(t, flavor, debeziumMeant)
			theirs := theirRecords(t, "debezium-"+flavor+".jsonl")
			if flavor == "mysql" {
				theirs = append(theirs, theirRecords(t, "debezium-mysql-edges.jsonl")...)
			}
			var last ourRecord
			for _, r := range theirs {
				_, table, ok := strings.Cut(r.Topic, ".")
				switch {
				case !ok: // DDL
					continue
				case table == "edge_xa.item" && strings.Contains(*r.Value, `"xa gone"`): // rolled back
					continue
				case r.value == nil: // the tombstone; TOMBSTONES says whether we write it
					if fmt.Sprint(last.key) != fmt.Sprint(r.key) || last.op != functions.Delete {
						t.Errorf("%s: a tombstone for %v after %v", table, r.key, last.value)
					}
					c.values(table, "headers", r.Headers, last.headers)
					continue
				case len(ours[table]) == 0:
					t.Errorf("%s: no record of ours for %s", table, *r.Value)
					continue
				}
				last = ours[table][0]
				ours[table] = ours[table][1:]
				c.values(table, "key", r.key, last.key)
				c.values(table, "", r.value, last.value)
				c.values(table, "headers", r.Headers, last.headers)
			}
			for table, rest := range ours {
				if len(rest) > 0 && strings.HasPrefix(table, "shop.") && table != "shop.again" { // excluded there
					t.Errorf("%s: %d records of ours are left: %v", table, len(rest), rest[0].value)
				}
			}
			c.done()
		})
	}
}

func TestCompatCanal(t *testing.T) {
	for _, flavor := range serverKinds {
		t.Run(flavor, func(t *testing.T) {
			all := ourRecords(t, flavor, functions.Canal{})
			statements := slices.DeleteFunc(slices.Clone(all), func(r ourRecord) bool { return r.op != functions.DDL })
			ours := byTable(all)
			c := compare(t, flavor, canalMeant)
			for _, r := range theirRecords(t, "canal-"+flavor+".jsonl") {
				table := fmt.Sprintf("%v.%v", r.value["database"], r.value["table"])
				rows, _ := r.value["data"].([]any)
				if r.value["isDdl"] == true {
					for len(statements) > 0 && statements[0].value["sql"] != r.value["sql"] {
						statements = statements[1:] // views, other databases: Canal does not send them
					}
					if len(statements) == 0 {
						t.Fatalf("no statement of ours for %s", *r.Value)
					}
					if r.value["database"] != "" { // Canal could not parse the others, and says QUERY
						c.values("ddl", "", r.value, statements[0].value)
					}
					statements = statements[1:]
					continue
				}
				if !strings.HasPrefix(table, "shop.") {
					continue
				}
				for n, row := range rows { // theirs has all rows of an event, ours one
					one := maps.Clone(r.value)
					one["data"] = []any{row}
					if old, ok := one["old"].([]any); ok {
						one["old"] = []any{old[n]}
					}
					if len(ours[table]) == 0 {
						t.Errorf("%s: no record of ours for %s", table, *r.Value)
						continue
					}
					o := ours[table][0]
					ours[table] = ours[table][1:]
					if o.keyChange { // theirs is one update, ours a delete and an insert: put them together
						old := o.value["data"].([]any)[0].(map[string]any)
						if o.value["type"] != "DELETE" {
							t.Errorf("%s: a changed key begins with %v", table, o.value)
						}
						o = ours[table][0]
						ours[table] = ours[table][1:]
						if o.value["type"] != "INSERT" || !o.keyChange {
							t.Errorf("%s: a changed key goes on with %v", table, o.value)
						}
						o.value["type"] = "UPDATE"
						o.value["old"] = []any{changed(old, o.value["data"].([]any)[0].(map[string]any))}
					}
					for _, v := range []map[string]any{one, o.value} { // letter case is as somebody typed it
						types := v["mysqlType"].(map[string]any)
						for k, t := range types {
							types[k] = strings.ToLower(t.(string))
						}
					}
					c.values(table, "", one, o.value)
				}
			}
			for table, rest := range ours {
				if len(rest) > 0 && strings.HasPrefix(table, "shop.") {
					t.Errorf("%s: %d records of ours are left: %v", table, len(rest), rest[0].value)
				}
			}
			c.done()
		})
	}
}

// TestCompatDRS compares with the documents: nobody has recorded what DRS writes. The values are compared with
// those of Canal, whose kin it is, and whose ids must grow.
func TestCompatDRS(t *testing.T) {
	for _, flavor := range serverKinds {
		t.Run(flavor, func(t *testing.T) {
			canal := ourRecords(t, flavor, functions.Canal{})
			for _, f := range []functions.DRS{{}, {C: true}} {
				var last int64
				same := 0
				for n, r := range ourRecords(t, flavor, f) {
					id, err := r.value["id"].(json.Number).Int64()
					if err != nil || id <= last {
						t.Fatalf("id %v after %d", r.value["id"], last)
					}
					last = id
					if r.op == functions.DDL {
						if r.value["type"] != "DDL" || r.value["isDdl"] != true || r.value["sql"] != canal[n].value["sql"] {
							t.Errorf("%v", r.value)
						}
						continue
					}
					row, at := r.value["data"], "data"
					if r.op == functions.Delete && !f.C {
						row, at = r.value["old"], "old"
					}
					if at == "old" && r.value["data"] != nil || r.op == functions.Create && r.value["old"] != nil {
						t.Errorf("%s %s: data %v, old %v", r.table, r.op, r.value["data"], r.value["old"])
					}
					theirs := canal[n].value["data"].([]any)[0].(map[string]any)
					kinds := r.value["mysqlType"].(map[string]any)
					for k, v := range row.([]any)[0].(map[string]any) {
						switch kind := kinds[k]; {
						case v == nil && theirs[k] == nil:
						case kind == "set" || kind == "geometry" || strings.Contains(kind.(string), "bin") || strings.Contains(kind.(string), "blob"):
						case kind == "timestamp" && !f.C:
						case v != theirs[k]:
							t.Errorf("%s.%s: %v, Canal has %v", r.table, k, v, theirs[k])
						default:
							same++
						}
					}
				}
				if same < 500 {
					t.Errorf("%d values compared", same)
				}
			}
		})
	}
}

// TestFormatsAllocateNothing: a format costs nothing on the heap that decoding alone does not.
func TestFormatsAllocateNothing(t *testing.T) {
	for _, flavor := range serverKinds {
		parts := partsOf(t, filepath.Join("testdata", flavor+".binlog"), goldenHints)
		d := NewDecoders(nil).New()
		buf := make([]byte, 0, 1<<20)
		allocs := func(f functions.Format) float64 {
			fn := func(c *functions.Change) error {
				// Partial JSON updates are put together anew each time that their column is asked for.
				if c.Op == functions.DDL || strings.Contains(c.Table.Name, "json") {
					return nil
				}
				b, _, err := f.AppendKey(buf[:0], c)
				if err == nil {
					_, err = f.AppendValue(b, c)
				}
				return err
			}
			return testing.AllocsPerRun(3, func() {
				for i, p := range parts {
					if err := d.Decode(uint64(i), p, fn); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
		base := allocs(functions.JSON{})
		for _, name := range []string{"debezium", "maxwell", "canal", "drs-json", "drs-json-c"} {
			f, ok := functions.FormatNamed(name)
			if !ok {
				t.Fatal(name)
			}
			if n := allocs(f); n > base+1 { // a pool may be emptied under way
				t.Errorf("%s %s: %v allocations, json has %v", flavor, name, n, base)
			}
		}
	}
}
