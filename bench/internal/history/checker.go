package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// Record is one Kafka record as a plain consumer sees it.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte
}

// Table tells the checker what it must know of a table.
type Table struct {
	Name string   // "db.table"
	Key  []string // primary key columns in key order; none: the Kafka key is null
}

// ID names a row for ever.
type ID struct {
	Table string
	ID    string // text of the column "id"
}

// State is where the history of an id stands.
type State struct {
	Ver  int64
	Live bool
}

// Fault is one broken promise.
type Fault string

const (
	Lost           Fault = "lost"
	Repeated       Fault = "repeated"
	OutOfOrder     Fault = "out of order"
	WrongPartition Fault = "wrong partition"
	WrongValue     Fault = "wrong value"
	Unexpected     Fault = "unexpected" // what nobody wrote, or what cannot be read
)

// Faults in the order in which a report shows them.
var Faults = []Fault{Lost, Repeated, OutOfOrder, WrongPartition, WrongValue, Unexpected}

const maxExamples = 6

// Checker collects what arrived.
type Checker struct {
	// Partition says where a key belongs, -1 for "do not care". nil: only that a key never moves.
	Partition func(topic string, key []byte) int32

	tables   map[string]Table
	ids      map[ID]*chain
	changes  map[change]struct{}
	gtids    map[string]uint32
	offsets  map[partition]int64 // the next
	keyless  map[string]int32    // partition of a table without a primary key
	parts    map[partition]*place
	Records  int
	Counts   map[Fault]int
	Examples map[Fault][]string
}

// chain is the history of one id as it arrived.
type chain struct {
	step      int64 // the last: 2*ver after an insert or update, 2*ver+1 after a delete; 0 before the first
	image     []byte
	partition int32
	missing   map[int64]bool // steps that were jumped over and have not come later
}

type change struct {
	gtid uint32
	row  int32
	op   byte
}

type partition struct {
	topic string
	n     int32
}

// place is where in the binlog the last record of a partition comes from.
type place struct {
	txn  uint64 // number of the transaction, from its GTID
	row  int
	op   byte
	file string
	pos  uint64
}

// New makes a checker for these tables; records of any other are faults.
func New(tables ...Table) *Checker {
	c := &Checker{tables: map[string]Table{}, ids: map[ID]*chain{}, changes: map[change]struct{}{}, gtids: map[string]uint32{},
		offsets: map[partition]int64{}, keyless: map[string]int32{}, parts: map[partition]*place{}, Counts: map[Fault]int{}, Examples: map[Fault][]string{}}
	for _, t := range tables {
		c.tables[t.Name] = t
	}
	return c
}

type message struct {
	Op     string          `json:"op"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
	Source struct {
		DB    string  `json:"db"`
		Table string  `json:"table"`
		GTID  *string `json:"gtid"`
		File  string  `json:"file"`
		Pos   uint64  `json:"pos"`
		Row   *int    `json:"row"`
	} `json:"source"`
}

// Add takes the next record of its partition.
func (c *Checker) Add(r Record) {
	c.Records++
	where := func() string { return fmt.Sprintf("%s/%d@%d key %s: ", r.Topic, r.Partition, r.Offset, r.Key) }
	at := partition{r.Topic, r.Partition}
	if want := c.offsets[at]; r.Offset != want {
		c.fault(Unexpected, "%soffset %d is missing or comes late", where(), want)
	}
	c.offsets[at] = r.Offset + 1
	var m message
	if err := json.Unmarshal(r.Value, &m); err != nil {
		c.fault(Unexpected, "%svalue is no JSON: %v: %.100q", where(), err, r.Value)
		return
	}
	t, ok := c.tables[m.Source.DB+"."+m.Source.Table]
	if !ok {
		c.fault(Unexpected, "%stable %s.%s was not selected", where(), m.Source.DB, m.Source.Table)
		return
	}
	if m.Source.GTID == nil || m.Source.Row == nil {
		c.fault(Unexpected, "%sno gtid or row: %.200s", where(), r.Value)
		return
	}
	before, after := image(m.Before), image(m.After)
	if (m.Op == "c") != (before == nil) || (m.Op == "d") != (after == nil) || (m.Op != "c" && m.Op != "u" && m.Op != "d") {
		c.fault(Unexpected, "%sop %q with before %.60s, after %.60s", where(), m.Op, m.Before, m.After)
		return
	}
	row := after
	if m.Op == "d" {
		row = before
	}
	new, err := readRow(row)
	if err != nil {
		c.fault(Unexpected, "%s%v: %.200s", where(), err, row)
		return
	}
	id := ID{t.Name, new.ID}

	if c.repeated(&m) {
		c.fault(Repeated, "%s%s of %v ver %d, gtid %s row %d came before", where(), m.Op, id, new.Ver, *m.Source.GTID, *m.Source.Row)
		return
	}
	c.order(&r, &m, where)
	c.key(&r, t, new.columns, id, where)

	ch := c.ids[id]
	if ch == nil {
		ch = &chain{partition: r.Partition}
		c.ids[id] = ch
	}
	if ch.partition != r.Partition {
		c.fault(WrongPartition, "%s%v was in partition %d before", where(), id, ch.partition)
		ch.partition = r.Partition
	}
	step := 2 * new.Ver
	if m.Op == "d" {
		step++
	}
	if step <= ch.step {
		if ch.missing[step] {
			delete(ch.missing, step)
			c.fault(OutOfOrder, "%s%s of %v ver %d came after step %d", where(), m.Op, id, new.Ver, ch.step)
		} else {
			c.fault(Repeated, "%s%s of %v ver %d came already, the history stands at step %d", where(), m.Op, id, new.Ver, ch.step)
		}
		return
	}
	if !c.gap(ch, m.Op, step) {
		// In sequence: the image before must be the one we know.
		if m.Op != "c" && !bytes.Equal(before, ch.image) {
			c.fault(WrongValue, "%s%s of %v ver %d: before is %.200s, the last after was %.200s", where(), m.Op, id, new.Ver, before, ch.image)
		}
	}
	if want := int64(Check(new.ID, new.Ver)); new.Chk != want {
		c.fault(WrongValue, "%s%s of %v ver %d: chk is %d, want %d", where(), m.Op, id, new.Ver, new.Chk, want)
	}
	ch.step, ch.image = step, append([]byte(nil), after...)
}

// gap notes the steps that were jumped over and reports whether there were any.
func (c *Checker) gap(ch *chain, op string, step int64) bool {
	live := ch.step > 0 && ch.step%2 == 0
	var from int64 // first step that had to come before this one
	switch {
	case op == "c" && live: // the delete before it is missing
		from = ch.step + 1
	case op != "c" && !live: // the insert is missing
		from = ch.step - ch.step%2 + 2
	default:
		from = ch.step - ch.step%2 + 2
	}
	found := false
	for s := from; s < step; s++ {
		// An odd step between two even ones is a delete that may never have been; the one right before
		// a create must have been.
		if s%2 == 1 && !(op == "c" && s == step-1) {
			continue
		}
		if ch.missing == nil {
			ch.missing = map[int64]bool{}
		}
		ch.missing[s], found = true, true
	}
	return found
}

// order checks the commit order within a partition.
func (c *Checker) order(r *Record, m *message, where func() string) {
	pk := partition{r.Topic, r.Partition}
	now := &place{txn: TransactionNumber(*m.Source.GTID), row: *m.Source.Row, op: m.Op[0], file: m.Source.File, pos: m.Source.Pos}
	last := c.parts[pk]
	c.parts[pk] = now
	if last == nil {
		return
	}
	if now.txn == 0 {
		c.fault(Unexpected, "%sgtid %s has no number", where(), *m.Source.GTID)
		return
	}
	bad := now.txn < last.txn || now.txn == last.txn && (now.row < last.row || now.row == last.row && !(last.op == 'd' && now.op == 'c'))
	bad = bad || now.file < last.file || now.file == last.file && now.pos < last.pos
	if bad {
		c.fault(OutOfOrder, "%s%s row %d at %s:%d came after transaction %d row %d at %s:%d", where(), *m.Source.GTID, now.row, now.file, now.pos,
			last.txn, last.row, last.file, last.pos)
		// Measure the next ones against the highest, so that one late record is one fault.
		now.txn, now.row, now.op, now.file, now.pos = last.txn, last.row, last.op, last.file, last.pos
	}
}

// repeated notes (gtid, row, op) and reports whether it was there.
func (c *Checker) repeated(m *message) bool {
	g, ok := c.gtids[*m.Source.GTID]
	if !ok {
		g = uint32(len(c.gtids))
		c.gtids[*m.Source.GTID] = g
	}
	k := change{g, int32(*m.Source.Row), m.Op[0]}
	if _, ok := c.changes[k]; ok {
		return true
	}
	c.changes[k] = struct{}{}
	return false
}

// key checks that the Kafka key is the primary key of the row, and where it lies.
func (c *Checker) key(r *Record, t Table, columns map[string]json.RawMessage, id ID, where func() string) {
	if len(t.Key) == 0 {
		if r.Key != nil {
			c.fault(WrongValue, "%s%v has no primary key, so its Kafka key must be null", where(), id)
		}
		if at, ok := c.keyless[t.Name]; ok && at != r.Partition {
			c.fault(WrongPartition, "%sthe table has no primary key and was in partition %d before", where(), at)
		}
		c.keyless[t.Name] = r.Partition
		return
	}
	var b strings.Builder
	for i, k := range t.Key {
		b.WriteString(map[bool]string{true: "{", false: ","}[i == 0])
		b.WriteString(strconv.Quote(k) + ":")
		b.Write(columns[k])
	}
	b.WriteString("}")
	if b.String() != string(r.Key) {
		c.fault(WrongValue, "%sthe Kafka key should be %s", where(), b.String())
	}
	if c.Partition != nil {
		if want := c.Partition(r.Topic, r.Key); want >= 0 && want != r.Partition {
			c.fault(WrongPartition, "%smurmur2 says partition %d", where(), want)
		}
	}
}

// Finish compares with the writers' ledger: every id that was ever written.
func (c *Checker) Finish(want map[ID]State) {
	for id, w := range want {
		ch := c.ids[id]
		if ch == nil {
			if w.Ver > 0 {
				c.lose(int(w.Ver), "%v: nothing of its %d versions came", id, w.Ver)
			}
			continue
		}
		if n := len(ch.missing); n > 0 {
			c.lose(n, "%v: steps %v never came", id, ch.missing)
		}
		step := 2 * w.Ver
		if !w.Live {
			step++
		}
		switch {
		case ch.step < step:
			n := int(w.Ver - ch.step/2) // inserts and updates
			if !w.Live {
				n++
			}
			c.lose(n, "%v: ends at step %d, the database at %d", id, ch.step, step)
		case ch.step > step:
			c.fault(Unexpected, "%v: goes on to step %d, the database ended at %d", id, ch.step, step)
		}
	}
	for id := range c.ids {
		if _, ok := want[id]; !ok {
			c.fault(Unexpected, "%v: nobody wrote this row", id)
		}
	}
}

// Rows returns the rows of a table as the topics rebuild them: id → after image.
func (c *Checker) Rows(table string) map[string][]byte {
	rows := map[string][]byte{}
	for id, ch := range c.ids {
		if id.Table == table && ch.step%2 == 0 && ch.step > 0 {
			rows[id.ID] = ch.image
		}
	}
	return rows
}

// Compare takes the rows that SELECT returns; same decides whether an image shows a row's values.
func (c *Checker) Compare(table string, selected map[string][]string, same func(image []byte, row []string) error) {
	rebuilt := c.Rows(table)
	for id, row := range selected {
		im, ok := rebuilt[id]
		if !ok {
			c.fault(Lost, "%s %s is in the table and not in the topics", table, id)
			continue
		}
		if err := same(im, row); err != nil {
			c.fault(WrongValue, "%s %s: %v", table, id, err)
		}
	}
	for id := range rebuilt {
		if _, ok := selected[id]; !ok {
			c.fault(Unexpected, "%s %s is in the topics and not in the table", table, id)
		}
	}
}

// Keys is how many rows by identity came.
func (c *Checker) Keys() int { return len(c.ids) }

// OK reports whether nothing is wrong.
func (c *Checker) OK() bool { return len(c.Counts) == 0 }

// Report names the counts and a few examples of each fault.
func (c *Checker) Report() string {
	var b strings.Builder
	for _, f := range Faults {
		fmt.Fprintf(&b, "%s %d  ", f, c.Counts[f])
	}
	for _, f := range Faults {
		for _, e := range c.Examples[f] {
			fmt.Fprintf(&b, "\n  %s: %s", f, e)
		}
	}
	return b.String()
}

func (c *Checker) fault(f Fault, format string, args ...any) {
	c.Counts[f]++
	if len(c.Examples[f]) < maxExamples {
		c.Examples[f] = append(c.Examples[f], fmt.Sprintf(format, args...))
	}
}

func (c *Checker) lose(n int, format string, args ...any) {
	c.fault(Lost, format, args...)
	c.Counts[Lost] += n - 1
}

// Check is the value of a row's column "chk".
func Check(id string, ver int64) uint32 {
	return crc32.ChecksumIEEE(fmt.Appendf(nil, "%s:%d", id, ver))
}

// TransactionNumber is the part of a GTID that grows with each commit of one server, 0 where there is none.
func TransactionNumber(gtid string) uint64 {
	i := strings.LastIndexAny(gtid, ":-")
	n, _ := strconv.ParseUint(gtid[i+1:], 10, 64)
	return n
}

type row struct {
	ID      string
	Ver     int64
	Chk     int64
	columns map[string]json.RawMessage
}

func readRow(image []byte) (r row, err error) {
	if err := json.Unmarshal(image, &r.columns); err != nil {
		return r, err
	}
	id := r.columns["id"]
	if r.ID = string(id); len(id) > 0 && id[0] == '"' {
		err = json.Unmarshal(id, &r.ID)
	}
	var err2, err3 error
	r.Ver, err2 = strconv.ParseInt(string(r.columns["ver"]), 10, 64)
	r.Chk, err3 = strconv.ParseInt(string(r.columns["chk"]), 10, 64)
	if err = errors.Join(err, err2, err3); err != nil || r.ID == "" {
		return r, fmt.Errorf("no id, ver or chk in the row: %w", err)
	}
	return r, nil
}

// image is nil for null.
func image(raw json.RawMessage) []byte {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	return raw
}
