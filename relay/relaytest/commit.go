package relaytest

import (
	"bytes"
	"strconv"
	"strings"
)

// Tx commits one transaction of the given changes and returns its GTID ("" with gtid_mode=OFF). It panics
// when a value does not fit its column: test data is part of the program. Without changes it commits an
// empty transaction.
func (s *Source) Tx(changes ...Change) (gtid string) {
	g, err := s.Commit(changes...)
	if err != nil {
		panic("relaytest: " + err.Error())
	}
	return g
}

// Commit is Tx with an error instead of a panic; then nothing was written.
func (s *Source) Commit(changes ...Change) (gtid string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.register(changes)
	g, data, err := s.transaction(changes)
	if err != nil {
		return "", err
	}
	s.add(block{data: data, start: s.build.Pos - uint32(len(data)), first: g, ends: []int{len(data)}, copies: 1})
	return g.String(), nil
}

// DDL logs a statement that commits by itself and returns its GTID.
func (s *Source) DDL(db, sql string) (gtid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statement(db, sql)
}

func (s *Source) statement(db, sql string) string {
	g := s.nextGTID()
	s.stamp()
	start := s.build.Pos
	data := s.build.gtidEvent(g, true, s.sequence, s.sequence+1)
	s.sequence++
	data = append(data, s.build.Query(db, sql)...)
	s.add(block{data: data, start: start, first: g, ends: []int{len(data)}, copies: 1})
	return g.String()
}

// CreateTable makes a Table, logs its statement, and shows it in information_schema.
func (s *Source) CreateTable(sql string) *Table {
	t := CreateTable(sql)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tables[t.String()] = t
	s.statement(t.Database, sql)
	return t
}

// Repeat appends a run of transactions times over, each copy under GTIDs of its own, without storing the
// copies: the way to a source that is never the bottleneck. Rows are the same in each copy. It is seen by
// a running dump at once.
func (s *Source) Repeat(times int, transactions ...[]Change) error {
	if times < 1 || len(transactions) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := block{start: s.build.Pos}
	next, sequence := s.next, s.sequence
	for i, changes := range transactions {
		s.register(changes)
		g, data, err := s.transaction(changes)
		if err != nil {
			s.next, s.sequence, s.build.Pos = next, sequence, b.start
			return err
		}
		if i == 0 {
			b.first = g
		}
		b.data = append(b.data, data...)
		b.ends = append(b.ends, len(b.data))
	}
	s.next, s.build.Pos = next, b.start
	const fileMax = 1 << 30 // positions are 32 bits
	for perFile := max(1, fileMax/len(b.data)); times > 0; {
		b.copies = min(times, perFile)
		b.first.seq, b.start = s.next, s.build.Pos
		if s.cfg.NoGTID {
			b.first.seq = 0
		}
		s.next += b.transactions()
		s.build.Pos = b.end()
		s.add(b)
		if times -= b.copies; times > 0 {
			s.rotate(nil)
		}
	}
	return nil
}

// transaction builds the events of one transaction at the log's end.
func (s *Source) transaction(changes []Change) (g gtid, data []byte, err error) {
	before := s.build
	s.stamp()
	g = s.nextGTID()
	events := [][]byte{s.build.gtidEvent(g, false, s.sequence, s.sequence+1)}
	if s.cfg.Flavor != MariaDB { // MariaDB's GTID event is the BEGIN
		events = append(events, s.build.Query(defaultDatabase(changes), "BEGIN"))
	}
	body, err := s.build.Changes(changes...)
	if err != nil {
		s.build, s.next = before, s.next-1
		return g, nil, err
	}
	s.sequence++
	s.xid++
	events = append(append(events, body...), s.build.XID(s.xid))
	return g, bytes.Join(events, nil), nil
}

func defaultDatabase(changes []Change) string {
	for _, c := range changes {
		if c.table != nil {
			return c.table.Database
		}
	}
	return ""
}

func (s *Source) stamp() {
	s.build.Time = s.cfg.Clock()
	s.build.Minimal = !strings.EqualFold(s.vars["binlog_row_metadata"], "FULL")
	if n, err := strconv.Atoi(s.vars["binlog_row_event_max_size"]); err == nil {
		s.build.MaxRowsEvent = n
	}
}

func (s *Source) nextGTID() gtid {
	g := gtid{uuid: s.uuid, seq: s.next}
	if s.cfg.Flavor == MariaDB {
		g = gtid{maria: true, domain: s.cfg.Domain, server: s.build.ServerID, seq: s.next}
	}
	s.next++
	if s.cfg.NoGTID && s.cfg.Flavor != MariaDB {
		return gtid{}
	}
	return g
}

func (s *Source) register(changes []Change) {
	for _, c := range changes {
		if c.table != nil {
			s.tables[c.table.String()] = c.table
		}
	}
}

// add appends a block and keeps the log within its bounds.
func (s *Source) add(b block) {
	s.executed.add(b.first, b.transactions())
	s.log.append(b)
	if int64(s.log.current().bytes) >= s.cfg.FileBytes || s.build.Pos > 1<<31 {
		s.rotate(nil)
	}
	for s.log.bytes > s.cfg.KeepBytes && len(s.log.files) > 1 {
		s.log.drop(1)
	}
}

// rotate ends the current file, applies a change of settings (may be nil), and opens the next file.
func (s *Source) rotate(change func()) {
	start := s.build.Pos
	s.build.Time = s.cfg.Clock()
	data := s.build.Rotate(fileName(s.log.number+1), 4, false)
	s.log.append(block{data: data, start: start, copies: 1})
	s.log.current().done = true
	if change != nil {
		change()
	}
	s.openFile()
}

func (s *Source) openFile() {
	s.log.number++
	f := &logFile{name: fileName(s.log.number), before: s.executed.clone()}
	s.build.Pos, s.sequence = 4, 0
	s.build.Time = s.cfg.Clock()
	s.log.files = append(s.log.files, f)
	data := s.build.FormatDescription()
	s.log.append(block{data: data, start: 4, copies: 1})
	start := s.build.Pos
	data = s.build.previous(&s.executed)
	if s.cfg.Flavor == MariaDB {
		data = append(data, s.build.checkpoint(f.name)...)
	}
	s.log.append(block{data: data, start: start, copies: 1})
}
