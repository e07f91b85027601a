package binlog

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"binrelay/functions"
	"binrelay/relay"
)

// Decoders makes decoders that share the shapes of tables. Its zero value is not ready: use NewDecoders.
type Decoders struct {
	plans       *planCache
	invalidText atomic.Uint64
	onInvalid   func(table, column string)
}

// NewDecoders returns a maker of decoders. onInvalidText, which may be nil, is called the first time that
// a column turns out to hold bytes that are no text in its charset; from any goroutine.
func NewDecoders(onInvalidText func(table, column string)) *Decoders {
	return &Decoders{plans: newPlanCache(), onInvalid: onInvalidText}
}

// InvalidText counts the values so far that were converted by the rule for bytes that are no text.
func (d *Decoders) InvalidText() uint64 { return d.invalidText.Load() }

// New returns a decoder, for one goroutine at a time.
func (d *Decoders) New() *Decoder {
	n := &Decoder{shared: d}
	n.before.d, n.after.d = n, n
	return n
}

// Decoder turns the parts that Source emits back into changes. In steady state it allocates nothing per
// row and one string (the GTID) per transaction.
type Decoder struct {
	shared        *Decoders
	change        functions.Change
	before, after rowView
	rows          rowsReader
	tables        []mapped // of this part, and shapes of earlier ones to be used again
	part          uint64   // counts parts: an entry of tables is valid in the part that mapped it
	header        partHeader
	row           int  // ordinal of the next row
	index         int  // ordinal of the next change in the part
	inFn          bool // user code runs: its panics are not ours to catch
	zip           inflater
}

var _ relay.Decoder = (*Decoder)(nil)

// mapped is a table id of the stream and what it stands for.
type mapped struct {
	id   uint64
	part uint64
	plan *plan
}

// maxMapped bounds the shapes that a decoder keeps beside the shared cache.
const maxMapped = 64

// Decode implements relay.Decoder.
func (d *Decoder) Decode(seq uint64, data []byte, fn func(*functions.Change) error) (err error) {
	defer func() {
		if d.inFn { // a panic of fn passes through
			d.inFn = false
			return
		}
		if r := recover(); r != nil {
			err = d.fail(nil, fmt.Errorf("mistake in the decoder: %v", r), "please report it; the log entry holds the event")
		}
	}()
	d.header, d.row, d.index = partHeader{}, -1, 0
	h, file, gtid, events, err := parsePart(data)
	if err != nil {
		return d.fail(nil, err, `see "relay wal verify"`)
	}
	h.File, h.GTID = keep(d.change.Source.File, file), keep(d.change.Source.GTID, gtid)
	d.header = h
	d.row = int(h.RowBase)
	d.part++
	d.change.Source = functions.Source{
		GTID: h.GTID, File: h.File, Pos: h.Pos, ServerID: h.ServerID, Seq: seq, MariaDB: h.Flags&partMariaDB != 0,
		Time: time.UnixMicro(int64(h.CommitMicros)).UTC(),
	}
	for len(events) > 0 {
		ev, rest, err := splitEvent(events)
		if err != nil {
			return d.fail(nil, err, `see "relay wal verify"`)
		}
		events = rest
		body := ev[eventHeaderLen:]
		switch typ := ev[4]; {
		case isRowsEvent(typ):
			err = d.rowsEvent(typ, body, fn)
		case typ == evTableMap:
			events, err = d.tableMap(body, events)
		case typ == eventSkip:
			if len(body) != 4 {
				return d.fail(nil, errShort, "")
			}
			d.row += int(leUint(body))
		case typ == evQuery:
			err = d.query(body, fn)
		case isQuiet(typ):
		default:
			err = d.fail(nil, fmt.Errorf("event type %d is unknown to this version", typ), "a newer version of the relay may know it")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keep returns b as a string: s itself if it says the same.
func keep(s string, b []byte) string {
	if s == string(b) {
		return s
	}
	return string(b)
}

// splitEvent takes the first event off b.
func splitEvent(b []byte) (ev, rest []byte, err error) {
	h, ok := parseEventHeader(b)
	if !ok || h.Size < eventHeaderLen || uint64(h.Size) > uint64(len(b)) {
		return nil, nil, errors.New("damaged event header")
	}
	return b[:h.Size], b[h.Size:], nil
}

// isQuiet reports whether an event holds nothing that becomes a change.
func isQuiet(typ byte) bool {
	switch typ {
	case evXID, evGTID, evAnonymousGTID, evGTIDTagged, evMariaGTID, evRowsQuery, evMariaAnnotate, evXAPrepare, evTransactionCtx,
		evViewChange, evIgnorable, eventHints, evIntvar, evRand, evUserVar:
		return true
	}
	return false
}

// tableMap notes a table map, with the hints that may follow it; it returns the events behind both.
func (d *Decoder) tableMap(body, events []byte) ([]byte, error) {
	var hints []byte
	if len(events) >= eventHeaderLen && events[4] == eventHints {
		ev, rest, err := splitEvent(events)
		if err != nil {
			return nil, d.fail(nil, err, "")
		}
		hints, events = ev[eventHeaderLen:], rest
	}
	if len(body) < 8 {
		return nil, d.fail(nil, errShort, "")
	}
	mariadb := d.header.Flags&partMariaDB != 0
	id := leUint(body[:6])
	free := -1
	for i := range d.tables {
		t := &d.tables[i]
		if t.id == id {
			if t.plan.compiledFrom(body[8:], hints, mariadb) {
				t.part = d.part
				return events, nil
			}
			free = i
			break
		}
		if t.part != d.part {
			free = i
		}
	}
	p, err := d.shared.plans.hinted(body, hints, mariadb)
	if err != nil {
		table := ""
		if _, db, name, err := parseTableMapName(body); err == nil {
			table = string(db) + "." + string(name)
		}
		return nil, d.fail(&plan{db: table}, fmt.Errorf("table map: %w", err), "")
	}
	if free >= 0 && (d.tables[free].id == id || len(d.tables) >= maxMapped) {
		d.tables[free] = mapped{id, d.part, p}
	} else {
		d.tables = append(d.tables, mapped{id, d.part, p})
	}
	return events, nil
}

// dummyTableID ends a statement that changed no row.
const dummyTableID = 0xffffff

func (d *Decoder) rowsEvent(typ byte, body []byte, fn func(*functions.Change) error) error {
	id, ok := rowsTableID(body)
	if !ok {
		return d.fail(nil, errShort, "")
	}
	var p *plan
	for i := range d.tables {
		if t := &d.tables[i]; t.id == id && t.part == d.part {
			p = t.plan
		}
	}
	if p == nil {
		if id == dummyTableID {
			return nil
		}
		return d.fail(nil, fmt.Errorf("rows of table id %d without a table map", id), `see "relay wal verify"`)
	}
	if err := d.readable(p); err != nil {
		return err
	}
	r := &d.rows
	if err := r.open(p, typ, body); err != nil {
		return d.fail(p, err, "")
	}
	d.before.begin(p, body)
	d.after.begin(p, body)
	c := &d.change
	c.Table, c.Database, c.Statement = p.table, "", ""
	for r.more() {
		c.Source.Row = d.row
		var err error
		switch typ {
		case evWriteRows, evWriteRowsV1:
			if err = r.image(0, d.after.spans); err != nil {
				return d.fail(p, err, "")
			}
			d.after.before = nil
			if !p.versioned || d.after.current(true) {
				err = d.emit(functions.Create, false, fn)
			}
		case evDeleteRows, evDeleteRowsV1:
			if err = r.image(0, d.before.spans); err != nil {
				return d.fail(p, err, "")
			}
			if !p.versioned || d.before.current(true) {
				err = d.emit(functions.Delete, false, fn)
			}
		default:
			if err = r.image(0, d.before.spans); err == nil {
				err = r.image(1, d.after.spans)
			}
			if err != nil {
				return d.fail(p, err, "")
			}
			d.after.before = &d.before
			d.after.patched = r.partialBits
			was, is := true, true
			if p.versioned {
				was = d.before.current(true)
				is = d.after.current(was)
			}
			switch {
			case !was && !is:
			case !is:
				err = d.emit(functions.Delete, false, fn)
			case !was:
				err = d.emit(functions.Create, false, fn)
			case d.keyChanged(p):
				if err = d.emit(functions.Delete, true, fn); err == nil {
					err = d.emit(functions.Create, true, fn)
				}
			default:
				err = d.emit(functions.Update, false, fn)
			}
		}
		if err != nil {
			return err
		}
		d.row++
	}
	return nil
}

// emit calls fn with the current row.
func (d *Decoder) emit(op functions.Op, keyChange bool, fn func(*functions.Change) error) error {
	c := &d.change
	c.Op, c.KeyChange = op, keyChange
	c.Before, c.After, c.Moved = functions.Row{}, functions.Row{}, functions.Row{}
	if op != functions.Create {
		c.Before = functions.NewRow(c.Table, &d.before)
	}
	if op != functions.Delete {
		c.After = functions.NewRow(c.Table, &d.after)
	}
	switch {
	case keyChange && op == functions.Delete:
		c.Moved = functions.NewRow(c.Table, &d.after)
	case keyChange:
		c.Moved = functions.NewRow(c.Table, &d.before)
	}
	c.Source.Index = d.index
	d.index++
	d.inFn = true
	err := fn(c)
	d.inFn = false
	return err
}

// keyChanged compares the key columns of both images by their bytes: any change of them would change the
// record's key, even one that the column's collation calls equal.
func (d *Decoder) keyChanged(p *plan) bool {
	for _, i := range p.table.Key {
		a, b := d.before.spans[i], d.after.spans[i]
		if a.start == spanAbsent || b.start == spanAbsent {
			continue // MINIMAL: a key column that the after image leaves out did not change
		}
		if string(d.before.bytesOf(a)) != string(d.after.bytesOf(b)) {
			return true
		}
	}
	return false
}

func (v *rowView) bytesOf(s span) []byte {
	if s.start == spanNull {
		return nil
	}
	return v.body[s.start:s.end]
}

// readable says why rows of a table cannot be turned into values.
func (d *Decoder) readable(p *plan) error {
	if p.uncountable != nil {
		return d.fail(p, p.uncountable, "a newer version of the relay may know it; exclude the table with TABLES until then")
	}
	if p.unreadable != nil {
		return d.fail(p, p.unreadable, p.hint)
	}
	if p.untold >= 0 && d.header.Flags&partMariaDB != 0 {
		return d.fail(p, fmt.Errorf("column %s has a temporal type in MariaDB's old format, whose fraction the binlog does not tell",
			p.table.Columns[p.untold].Name),
			fmt.Sprintf("with mysql56_temporal_format=ON: ALTER TABLE %s.%s FORCE; rows already written need the table to exist when they are captured", p.db, p.name))
	}
	return nil
}

// query makes a change of a DDL statement and passes over all others.
func (d *Decoder) query(body []byte, fn func(*functions.Change) error) error {
	db, text, err := parseQuery(body, 0)
	if err != nil {
		return d.fail(nil, err, "")
	}
	if classify(text).kind != stDDL {
		return nil
	}
	c := &d.change
	c.Op, c.KeyChange, c.Table = functions.DDL, false, nil
	c.Before, c.After, c.Moved = functions.Row{}, functions.Row{}, functions.Row{}
	c.Source.Row = d.row
	c.Database, c.Statement = string(db), queryCharset(body).utf8(text)
	c.Source.Index = d.index
	d.index++
	d.inFn = true
	err = fn(c)
	d.inFn = false
	return err
}

// invalidText counts a value of c that is not wholly text.
func (d *Decoder) invalidText(c *column) {
	d.shared.invalidText.Add(1)
	if f := d.shared.onInvalid; f != nil && c.warned.CompareAndSwap(false, true) {
		f(c.owner, c.name)
	}
}

// text makes a string of a text column's bytes.
func (d *Decoder) text(c *column, b []byte) string {
	if c.cs.ascii && plainPrefix(b) == len(b) {
		return string(b)
	}
	out, bad := c.cs.append(nil, b, asIs)
	if bad > 0 {
		d.invalidText(c)
	}
	return string(out)
}

// fail says where in the stream something cannot be decoded.
func (d *Decoder) fail(p *plan, err error, hint string) error {
	e := &relay.DecodeError{GTID: d.header.GTID, File: d.header.File, Pos: d.header.Pos, Row: d.row, Err: err, Hint: hint}
	if p != nil {
		e.Table = p.fullName()
	}
	return e
}
