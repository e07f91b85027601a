package binlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"binrelay/relay"
)

// tableEntry is a table map as last seen under its id.
type tableEntry struct {
	event    []byte // header and body, as parts hold it
	hints    []byte // event of our own behind it; empty: none
	name     string
	selected bool
	plan     *plan
	trx      uint64 // transaction that it was last seen in
	part     uint64 // part that holds it
}

const maxTables = 8192 // table maps kept; ids grow with each reopened table

// tableMap notes a table map. It is written into the part only when rows of it follow.
func (a *assembler) tableMap(ev []byte) error {
	if a.trx.muted {
		return nil
	}
	body := ev[eventHeaderLen:]
	id, db, name, err := parseTableMapName(body)
	if err != nil {
		return fmt.Errorf("table map at %s: %w", a.place(), err)
	}
	e := a.tables[id]
	if e == nil || !bytes.Equal(e.event[eventHeaderLen:], body) {
		if e, err = a.newTable(id, db, name, ev); err != nil {
			return err
		}
	}
	e.trx = a.trx.number
	return nil
}

func (a *assembler) newTable(id uint64, db, name, ev []byte) (*tableEntry, error) {
	if len(a.tables) >= maxTables {
		for k, e := range a.tables {
			if e.trx != a.trx.number {
				delete(a.tables, k)
			}
		}
	}
	e := &tableEntry{name: string(db) + "." + string(name), selected: a.match.Match(db, name)}
	e.event = appendEvent(nil, ev)
	var err error
	if e.plan, err = a.plans.plan(e.event[eventHeaderLen:]); err != nil {
		if e.selected {
			return nil, relay.Permanent(fmt.Errorf("table map of %s at %s: %w", e.name, a.place(), err), "exclude the table with TABLES to go on without it")
		}
		e.plan = nil
	}
	if e.selected && e.plan != nil {
		if err := a.checkTable(e); err != nil {
			return nil, err
		}
	}
	a.tables[id] = e
	return e, nil
}

// checkTable refuses a selected table whose rows nobody could name, and looks up what the table map does
// not say.
func (a *assembler) checkTable(e *tableEntry) error {
	if e.plan.uncountable == nil && e.plan.table.Columns[0].Name == "" {
		// Capture halts, not delivery: leaving the table out mends it, and nothing unreadable is in the log.
		return relay.Permanent(fmt.Errorf("table %s at %s: the server wrote it without column names (binlog_row_metadata is not FULL)", e.name, a.place()),
			"SET GLOBAL binlog_row_metadata=FULL on the source; rows already written without it cannot be read: copy them, then begin behind them with MYSQL_START, or exclude the table with TABLES")
	}
	if a.hints == nil || !a.mariadb || !e.plan.wantsHints() {
		return nil
	}
	body, err := a.lookUp(e)
	if err != nil {
		return err
	}
	if len(body) > 0 {
		e.hints = ownEvent(nil, eventHints, body)
	}
	return nil
}

// rows takes a rows event in plain form.
func (a *assembler) rows(h eventHeader, ev []byte) error {
	t := &a.trx
	if t.muted {
		return nil
	}
	id, ok := rowsTableID(ev[eventHeaderLen:])
	if !ok {
		return fmt.Errorf("rows event at %s: %w", a.place(), errShort)
	}
	e := a.tables[id]
	if e == nil || e.trx != t.number || !t.open {
		if id == dummyTableID {
			return nil // ends a statement that has no rows
		}
		return relay.Permanent(fmt.Errorf("rows at %s belong to table id %d, which no table map has introduced", a.place(), id),
			"reading must begin at the start of a transaction: check MYSQL_START")
	}
	if !e.selected {
		// A type that nobody can walk must not stop the tables beside it: then the event counts as one row,
		// which keeps ordinals apart and the same in every run.
		n := 1
		if e.plan != nil {
			if k, err := countRows(e.plan, h.Type, ev[eventHeaderLen:]); err == nil {
				n = k
			}
		}
		t.skipped += uint32(n)
		return nil
	}
	if err := a.makeRoom(); err != nil {
		return err
	}
	if e.part != a.serial {
		e.part = a.serial
		a.buf = append(a.buf, e.event...)
		a.buf = append(a.buf, e.hints...)
	}
	a.buf = appendEvent(a.buf, ev)
	return nil
}

// makeRoom leaves a part that one more event can be appended to.
func (a *assembler) makeRoom() error {
	t := &a.trx
	if len(a.buf) >= a.partBytes {
		if err := a.cut(); err != nil {
			return err
		}
	}
	if len(a.buf) == 0 {
		t.base += t.skipped
		t.skipped = 0
		a.serial++
		a.header()
	}
	if t.skipped > 0 {
		var n [4]byte
		binary.LittleEndian.PutUint32(n[:], t.skipped)
		a.buf = ownEvent(a.buf, eventSkip, n[:])
		t.skipped = 0
	}
	return nil
}

// header begins a part.
func (a *assembler) header() {
	t := &a.trx
	h := partHeader{ServerID: t.serverID, CommitMicros: t.micros, RowBase: t.base, Pos: t.start, File: a.live.p.File}
	if a.mariadb {
		h.Flags |= partMariaDB
	}
	if !t.emitted {
		h.Flags |= partFirst
	}
	a.buf = h.append(a.buf[:0])
	// The GTID is the last field: put in here, it need not become a string.
	binary.LittleEndian.PutUint16(a.buf[len(a.buf)-2:], uint16(len(a.gtid)))
	a.buf = append(a.buf, a.gtid...)
	a.bufHdr = len(a.buf)
}

// cut emits the part being built; more of the transaction follows.
func (a *assembler) cut() error {
	t := &a.trx
	t.cuts++
	n, err := a.rowsInPart()
	if err != nil {
		return err
	}
	first := !t.emitted
	t.emitted = true
	t.base += n
	err = a.out(relay.Part{Data: a.buf, First: first, More: true})
	a.buf = a.buf[:0]
	if cap(a.buf) > 16*a.partBytes { // one huge row must not stay in memory
		a.buf = nil
	}
	return err
}

// rowsInPart counts the ordinals that the part being built uses.
func (a *assembler) rowsInPart() (n uint32, err error) {
	for b := a.buf[a.bufHdr:]; len(b) > 0; {
		h, ok := parseEventHeader(b)
		if !ok || int(h.Size) > len(b) {
			return 0, errors.New("a part of our own is damaged")
		}
		body := b[eventHeaderLen:h.Size]
		switch {
		case h.Type == eventSkip:
			n += binary.LittleEndian.Uint32(body)
		case isRowsEvent(h.Type):
			id, _ := rowsTableID(body)
			k, err := countRows(a.tables[id].plan, h.Type, body)
			if err != nil {
				k = 1 // the decoder halts at this event and says why
			}
			n += uint32(k)
		}
		b = b[h.Size:]
	}
	return n, nil
}

// out emits a part, or parks it when its transaction is only prepared.
func (a *assembler) out(p relay.Part) error {
	if a.trx.xa {
		return a.park.add(p.Data)
	}
	return a.emit(p)
}

// appendEvent appends ev, whose checksum is cut off, with the size that it has now.
func appendEvent(dst, ev []byte) []byte {
	n := len(dst)
	dst = append(dst, ev...)
	binary.LittleEndian.PutUint32(dst[n+9:], uint32(len(ev)))
	return dst
}

// ownEvent appends an event of a type of our own.
func ownEvent(dst []byte, typ byte, body []byte) []byte {
	var h [eventHeaderLen]byte
	h[4] = typ
	binary.LittleEndian.PutUint32(h[9:], uint32(eventHeaderLen+len(body)))
	return append(append(dst, h[:]...), body...)
}
