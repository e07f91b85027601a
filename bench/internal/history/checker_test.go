package history

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// fake is a relay and its Kafka that can be told to do wrong.
type fake struct {
	parts   [][]Record // by partition
	records []Record   // in commit order
	state   map[ID]State
	images  map[ID]string
	txn     int
	row     int
}

const fakeTable = "soak.item"

func (f *fake) put(op, before, after string, id ID) {
	v := fmt.Sprintf(`{"op":%q,"before":%s,"after":%s,"source":{"db":"soak","table":"item","gtid":"0-1-%d","file":"binlog.000001","pos":%d,"row":%d}}`,
		op, before, after, f.txn, 100+10*f.txn, f.row)
	f.records = append(f.records, Record{Topic: fakeTable, Partition: partitionOf(id.ID), Key: []byte(`{"id":` + id.ID + `}`), Value: []byte(v)})
}

func partitionOf(id string) int32 { return int32(id[len(id)-1]-'0') % 4 }

func (f *fake) write(id ID) {
	s := f.state[id]
	s.Ver++
	im := fmt.Sprintf(`{"id":%s,"ver":%d,"chk":%d,"qty":%d}`, id.ID, s.Ver, Check(id.ID, s.Ver), f.txn*7)
	if s.Live {
		f.put("u", f.images[id], im, id)
	} else {
		f.put("c", "null", im, id)
	}
	s.Live = true
	f.images[id], f.state[id] = im, s
}

func (f *fake) remove(id ID) {
	f.put("d", f.images[id], "null", id)
	f.state[id] = State{f.state[id].Ver, false}
}

// newFake makes a right history: inserts, updates, deletes, re-creations and primary key changes.
func newFake() *fake {
	f := &fake{state: map[ID]State{}, images: map[ID]string{}}
	r := rand.New(rand.NewPCG(1, 2))
	for f.txn = 1; f.txn <= 300; f.txn++ {
		for f.row = range 1 + r.IntN(4) {
			id := ID{fakeTable, fmt.Sprint(1 + r.IntN(20))}
			other := ID{fakeTable, fmt.Sprint(1 + r.IntN(20))}
			switch n := r.IntN(10); {
			case n < 2 && f.state[id].Live:
				f.remove(id)
			case n < 4 && f.state[id].Live && !f.state[other].Live:
				f.remove(id)
				f.write(other) // same gtid and row
			default:
				f.write(id)
			}
		}
	}
	return f
}

// check lays the records into partitions and runs the checker over them.
func (f *fake) check() *Checker {
	f.parts = make([][]Record, 4)
	for _, r := range f.records {
		r.Offset = int64(len(f.parts[r.Partition]))
		f.parts[r.Partition] = append(f.parts[r.Partition], r)
	}
	c := New(Table{fakeTable, []string{"id"}})
	for _, p := range f.parts {
		for _, r := range p {
			c.Add(r)
		}
	}
	c.Finish(f.state)
	rows := map[string][]string{}
	for id, s := range f.state {
		if s.Live {
			rows[id.ID] = []string{f.images[id]}
		}
	}
	c.Compare(fakeTable, rows, func(im []byte, row []string) error {
		if string(im) != row[0] {
			return fmt.Errorf("the topics say %s, the table %s", im, row[0])
		}
		return nil
	})
	return c
}

// nth finds the n-th record that is fit.
func (f *fake) nth(n int, fit func(Record, message) bool) int {
	for i, r := range f.records {
		var m message
		json.Unmarshal(r.Value, &m)
		if fit(r, m) {
			if n--; n < 0 {
				return i
			}
		}
	}
	panic("no such record")
}

func op(want string) func(Record, message) bool {
	return func(_ Record, m message) bool { return m.Op == want }
}

// lastOf is the last record of an id whose history ends alive or not.
func (f *fake) lastOf(live bool) int {
	for i := len(f.records) - 1; i >= 0; i-- {
		for id, s := range f.state {
			if s.Live == live && string(f.records[i].Key) == `{"id":`+id.ID+`}` {
				return i
			}
		}
	}
	panic("no such id")
}

func (f *fake) edit(i int, old, new string) {
	v := strings.Replace(string(f.records[i].Value), old, new, 1)
	if v == string(f.records[i].Value) {
		panic("nothing to edit in " + v)
	}
	f.records[i].Value = []byte(v)
}

func TestCheckerAcceptsARightHistory(t *testing.T) {
	if c := newFake().check(); !c.OK() || c.Records < 500 {
		t.Fatalf("%d records: %s", c.Records, c.Report())
	}
}

func TestCheckerCatches(t *testing.T) {
	tests := []struct {
		name  string
		plant func(f *fake)
		want  Fault
	}{
		{"an insert is lost", func(f *fake) { i := f.nth(5, op("c")); f.records = slices.Delete(f.records, i, i+1) }, Lost},
		{"an update is lost", func(f *fake) { i := f.nth(50, op("u")); f.records = slices.Delete(f.records, i, i+1) }, Lost},
		{"a delete is lost", func(f *fake) { i := f.nth(5, op("d")); f.records = slices.Delete(f.records, i, i+1) }, Lost},
		{"the last change of a living row is lost", func(f *fake) { i := f.lastOf(true); f.records = slices.Delete(f.records, i, i+1) }, Lost},
		{"the last delete is lost", func(f *fake) { i := f.lastOf(false); f.records = slices.Delete(f.records, i, i+1) }, Lost},
		{"all of one row is lost", func(f *fake) {
			f.records = slices.DeleteFunc(f.records, func(r Record) bool { return string(r.Key) == `{"id":7}` })
		}, Lost},
		{"the tail is lost", func(f *fake) { f.records = f.records[:len(f.records)-20] }, Lost},
		{"a record is repeated at once", func(f *fake) { i := f.nth(20, op("u")); f.records = slices.Insert(f.records, i, f.records[i]) }, Repeated},
		{"a record is repeated at the end", func(f *fake) { f.records = append(f.records, f.records[100]) }, Repeated},
		{"a window is repeated", func(f *fake) { f.records = slices.Insert(f.records, 200, f.records[150:200]...) }, Repeated},
		{"a delete is repeated", func(f *fake) { f.records = append(f.records, f.records[f.nth(3, op("d"))]) }, Repeated},
		{"a change is repeated under another gtid", func(f *fake) {
			i := len(f.records) - 1
			f.records = append(f.records, f.records[i])
			f.edit(i+1, `"gtid":"0-1-`, `"gtid":"0-1-9`)
		}, Repeated},
		{"two changes of a row change places", func(f *fake) {
			i := f.nth(60, op("u"))
			for j := i + 1; ; j++ {
				if string(f.records[j].Key) == string(f.records[i].Key) {
					f.records[i], f.records[j] = f.records[j], f.records[i]
					return
				}
			}
		}, OutOfOrder},
		{"two rows of one partition change places", func(f *fake) {
			i := f.nth(60, op("u"))
			for j := i + 1; ; j++ {
				if f.records[j].Partition == f.records[i].Partition && string(f.records[j].Key) != string(f.records[i].Key) {
					f.records[i], f.records[j] = f.records[j], f.records[i]
					return
				}
			}
		}, OutOfOrder},
		{"a record lies in another partition", func(f *fake) { i := f.nth(30, op("u")); f.records[i].Partition = (f.records[i].Partition + 1) % 4 }, WrongPartition},
		{"the final value is wrong", func(f *fake) { f.edit(f.lastOf(true), `"qty":`, `"qty":9`) }, WrongValue},
		{"a value in the middle is wrong", func(f *fake) { i := f.nth(50, op("u")); f.edit(i, `"after":{"id"`, `"after":{"x":1,"id"`) }, WrongValue},
		{"an image of another version", func(f *fake) { i := f.nth(8, op("c")); f.edit(i, `"chk":`, `"chk":1`) }, WrongValue},
		{"a value is null instead", func(f *fake) { f.edit(f.lastOf(true), `"after":{`, `"after":{"qty":null,`) }, WrongValue},
		{"the key is of another row", func(f *fake) { f.records[40].Key = []byte(`{"id":99}`) }, WrongValue},
		{"the key is missing", func(f *fake) { f.records[40].Key = nil }, WrongValue},
		{"a row that nobody wrote", func(f *fake) { f.txn = 900; f.write(ID{fakeTable, "77"}); delete(f.state, ID{fakeTable, "77"}) }, Unexpected},
		{"a change that was rolled back", func(f *fake) { f.txn = 900; id := ID{fakeTable, "7"}; s := f.state[id]; f.write(id); f.state[id] = s }, Unexpected},
		{"a table that was not selected", func(f *fake) { f.edit(9, `"table":"item"`, `"table":"noise"`) }, Unexpected},
		{"a value that is no JSON", func(f *fake) { f.records[9].Value = f.records[9].Value[:30] }, Unexpected},
		{"a tombstone nobody asked for", func(f *fake) { f.records[9].Value = nil }, Unexpected},
		{"no gtid", func(f *fake) { i := 9; f.edit(i, `"gtid":"`, `"gtid":null,"was":"`) }, Unexpected},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			tt.plant(f)
			if c := f.check(); c.Counts[tt.want] == 0 {
				t.Errorf("not caught as %q; the report: %s", tt.want, c.Report())
			}
		})
	}
}

func TestCheckerCountsWhatIsLost(t *testing.T) {
	f := newFake()
	i := f.nth(50, op("u"))
	f.records = slices.Delete(f.records, i, i+1)
	j := f.nth(10, op("c"))
	f.records = slices.Delete(f.records, j, j+1)
	if c := f.check(); c.Counts[Lost] != 2 {
		t.Errorf("two records are gone; %s", c.Report())
	}
}
