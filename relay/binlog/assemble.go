package binlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"binrelay/relay"
)

// assembler turns the events of one connection into the parts of whole transactions. It never decodes a
// row. It is fed by event and hands parts to emit, in commit order; memory is bounded by partBytes and the
// largest single event.
//
// A transaction begins with a GTID event (or its anonymous form) and ends with XID, a COMMIT query, a
// statement that stands alone, XA PREPARE, or a whole payload. A GTID event while one is open means that
// the server lost its other half in a crash: it is dropped, and sent anew.
type assembler struct {
	match     *Matcher
	mariadb   bool
	partBytes int
	plans     *planCache
	hints     Hints // nil: none are looked up
	park      *parking
	emit      func(relay.Part) error
	live      *livePosition
	notBehind string // the first file must not be a later one, see errFilesPassed
	skipTo    uint64 // offset in the first file up to which transactions only count for the GTID set

	crc        bool // events of this file end with a checksum
	seenFormat bool
	begin, end uint64 // offsets of the event at hand
	trx        trx
	serial     uint64 // number of the part being built; a table map knows the last one that holds it
	tables     map[uint64]*tableEntry

	buf    []byte // the part being built; empty: none
	bufHdr int    // length of its header
	gtid   []byte // text of the open transaction's GTID
	quiet  quietPosition
	z      eventInflater
	frags  fragments
	stats  *counters
}

// trx is the transaction under way.
type trx struct {
	open       bool
	standalone bool // MariaDB: the next statement is all of it
	inBegin    bool // BEGIN was seen: statements do not end it
	muted      bool // already delivered, or before the start: only its GTID counts
	early      bool // muted because it is before the start
	anonymous  bool
	number     uint64 // counts transactions of this connection
	sid        [16]byte
	tag        []byte
	gno        uint64
	maria      mariaGTID
	micros     uint64
	serverID   uint32
	start      uint64 // offset of its first event
	emitted    bool   // a part is out
	cuts       int    // parts that are out or parked
	base       uint32 // ordinal of the first row of the part being built
	skipped    uint32 // rows of excluded tables since the last kept event
	savepoints []savepoint
	xa         bool   // rows are parked until XA COMMIT
	xid        string // of the XA transaction whose end this is
}

// savepoint is a place in the part being built.
type savepoint struct {
	name    string
	cuts    int
	at      int
	skipped uint32
}

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

func newAssembler(match *Matcher, p position, partBytes int, emit func(relay.Part) error) *assembler {
	return &assembler{
		match: match, mariadb: p.MariaDB, partBytes: partBytes, emit: emit,
		plans: newPlanCache(), live: newLivePosition(p), tables: make(map[uint64]*tableEntry), stats: new(counters),
	}
}

// event takes one event as the server sent it; ev is valid during the call.
func (a *assembler) event(ev []byte) error {
	h, ok := parseEventHeader(ev)
	if !ok || int64(h.Size) != int64(len(ev)) {
		return fmt.Errorf("event of %d bytes says that it has %d", len(ev), h.Size)
	}
	a.stats.events.Add(1)
	a.stats.bytes.Add(uint64(len(ev)))
	artificial := h.Flags&flagArtificial != 0
	switch {
	case h.Type == evRotate && artificial:
		// The checksum of an artificial rotate follows the file before or the one after it: look.
		if n := len(ev) - 4; n > eventHeaderLen+8 && crc32.ChecksumIEEE(ev[:n]) == binary.LittleEndian.Uint32(ev[n:]) {
			ev = ev[:n]
		}
	case h.Type == evFormat:
		if err := a.format(h, ev); err != nil {
			return err
		}
	case a.crc:
		n := len(ev) - 4
		if n < eventHeaderLen {
			return fmt.Errorf("event of %d bytes is too short for its checksum", len(ev))
		}
		if crc32.ChecksumIEEE(ev[:n]) != binary.LittleEndian.Uint32(ev[n:]) {
			return fmt.Errorf("checksum of event type %d at %s is wrong (damaged on the way, or on the server's disk: mysqlbinlog --verify-binlog-checksum)", h.Type, a.place())
		}
		ev = ev[:n]
	}
	a.advance(h, artificial)
	if err := a.logged(h, ev); err != nil {
		return err
	}
	return nil
}

// advance keeps the 64-bit offset: events carry 32 bits, MariaDB 11.4 none at all inside a transaction.
func (a *assembler) advance(h eventHeader, artificial bool) {
	a.begin = a.end
	switch {
	case artificial || h.Type == evHeartbeat || h.Type == evHeartbeat2 || h.Type == evRotate:
	case h.Type == evFormat:
		if h.EndPos != 0 {
			a.begin, a.end = 4, uint64(h.EndPos)
		}
	case h.EndPos != 0:
		end := a.end&^0xffffffff | uint64(h.EndPos)
		if end < a.end { // one file can grow past 4 GiB inside a transaction
			end += 1 << 32
		}
		a.end = end
		if uint64(h.Size) <= end {
			a.begin = end - uint64(h.Size)
		}
	case h.Type != evMariaGTIDList:
		a.end += uint64(h.Size)
	}
}

// logged takes an event without its checksum: one of the log itself, or one out of a payload.
func (a *assembler) logged(h eventHeader, ev []byte) error {
	body := ev[eventHeaderLen:]
	switch h.Type {
	case evTableMap:
		return a.tableMap(ev)
	case evWriteRowsV1, evUpdateRowsV1, evDeleteRowsV1, evWriteRows, evUpdateRows, evDeleteRows, evPartialUpdate:
		return a.rows(h, ev)
	case evGTID, evAnonymousGTID, evGTIDTagged, evMariaGTID:
		return a.begins(h, body)
	case evXID:
		a.open(h)
		return a.commit()
	case evQuery:
		return a.query(h, ev)
	case evXAPrepare:
		return a.xaPrepare(h, body)
	case evPayload:
		return a.payload(h, body)
	case evMariaQueryZ, evMariaWriteZV1, evMariaUpdateZV1, evMariaDeleteZV1, evMariaWriteZ, evMariaUpdateZ, evMariaDeleteZ:
		return a.compressed(h, ev)
	case evMariaRowFragment:
		return a.fragment(h, body)
	case evRotate:
		return a.rotate(h, body)
	case evFormat:
		return nil
	case evPreviousGTIDs:
		return a.previous(body)
	case evHeartbeat, evHeartbeat2:
		return a.quiet.flush(a)
	case evIncident:
		return relay.Permanent(fmt.Errorf("the server wrote an incident event at %s: changes are missing from its binlog", a.place()),
			"the rows have to be copied anew; then begin behind it with MYSQL_START")
	case evExecuteLoad:
		return a.loadData(h, body)
	case evStop, evIntvar, evRand, evUserVar, evIgnorable, evRowsQuery, evTransactionCtx, evViewChange, evMariaAnnotate, evMariaCheckpoint,
		evMariaGTIDList, evMariaEncryption, evBeginLoad, evAppendBlock, evDeleteFile:
		return nil // they say nothing about rows that other events do not say
	}
	if h.Flags&flagIgnorable != 0 {
		return nil
	}
	return relay.Permanent(fmt.Errorf("event of unknown type %d at %s", h.Type, a.place()), "a newer version of the relay may know it; nothing behind it was read")
}

// Statement helpers that only logging in statement format writes.
const (
	evAppendBlock = 9
	evDeleteFile  = 11
	evBeginLoad   = 17
	evExecuteLoad = 18
)

func (a *assembler) place() string {
	return fmt.Sprintf("%s:%d", a.live.p.File, a.begin)
}

// format reads a FORMAT_DESCRIPTION_EVENT: each file begins with one, and each connection.
func (a *assembler) format(h eventHeader, ev []byte) error {
	// version u16, server version 50 bytes, time u32, header length u8, lengths by type, checksum algorithm u8, checksum u32
	const fixed = eventHeaderLen + 2 + 50 + 4 + 1
	if len(ev) < fixed+5 {
		return fmt.Errorf("format description event of %d bytes", len(ev))
	}
	if v := binary.LittleEndian.Uint16(ev[eventHeaderLen:]); v != 4 {
		return relay.Permanent(fmt.Errorf("binlog format version %d, not 4", v), "the server is older than MySQL 5.0")
	}
	if n := ev[fixed-1]; n != eventHeaderLen {
		return relay.Permanent(fmt.Errorf("binlog event headers of %d bytes, not %d", n, eventHeaderLen), "")
	}
	n := len(ev) - 4
	switch alg := ev[n-1]; alg {
	case 0:
		a.crc = false
	case 1:
		a.crc = true
		if crc32.ChecksumIEEE(ev[:n]) != binary.LittleEndian.Uint32(ev[n:]) {
			return fmt.Errorf("checksum of the format description of %s is wrong", a.live.p.File)
		}
	default:
		return relay.Permanent(fmt.Errorf("binlog checksum algorithm %d is unknown", alg), "SET GLOBAL binlog_checksum=CRC32 on the source")
	}
	if h.EndPos != 0 {
		a.drop() // a file begins: the server crashed in what was open
	}
	if !a.seenFormat { // the server has accepted the position: tell the relay that it reads again
		a.seenFormat = true
		return a.quiet.now(a)
	}
	return nil
}

// rotate follows the server into the next file.
func (a *assembler) rotate(h eventHeader, body []byte) error {
	if len(body) < 8 {
		return errShort
	}
	name, pos := body[8:], binary.LittleEndian.Uint64(body)
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	if len(name) == 0 || len(name) > 512 {
		return fmt.Errorf("rotate event with a file name of %d bytes", len(name))
	}
	if !a.seenFormat && a.notBehind != "" && laterFile(string(name), a.notBehind) {
		return errFilesPassed
	}
	a.drop()
	same := string(name) == a.live.p.File
	if a.skipTo > 0 && !same && a.end >= a.skipTo {
		a.skipTo = 0
	}
	if a.skipTo > 0 && !same {
		return relay.Permanent(fmt.Errorf("%s ends before offset %d", a.live.p.File, a.skipTo), "the start position is not of this server, or its binlog was reset")
	}
	a.end = pos
	if same && h.Flags&flagArtificial != 0 && pos <= a.live.p.Pos {
		return nil // the beginning of this connection: the position itself is what counts
	}
	a.live.file(string(name), pos)
	return a.quiet.moved(a, 64)
}

// laterFile reports whether binlog file a comes after b: same name, larger number behind the dot.
func laterFile(a, b string) bool {
	i, j := strings.LastIndexByte(a, '.'), strings.LastIndexByte(b, '.')
	if i < 0 || j < 0 || a[:i] != b[:j] {
		return false
	}
	m, err1 := strconv.ParseUint(a[i+1:], 10, 63)
	n, err2 := strconv.ParseUint(b[j+1:], 10, 63)
	return err1 == nil && err2 == nil && m > n
}

func (a *assembler) previous(body []byte) error {
	if a.live.p.SetKnown {
		return nil
	}
	s, err := parseMySQLWire(body)
	if err != nil {
		return fmt.Errorf("previous GTIDs event at %s: %w", a.place(), err)
	}
	a.live.setMySQL(s)
	return nil
}

// open begins a transaction if none is open: only an old server or a test writes one without a GTID event.
func (a *assembler) open(h eventHeader) {
	if a.trx.open {
		return
	}
	a.start(h)
	a.trx.anonymous = true
	a.mute()
}

func (a *assembler) start(h eventHeader) {
	a.drop()
	t := &a.trx
	*t = trx{open: true, number: t.number + 1, start: a.begin, serverID: h.ServerID, micros: uint64(h.Time) * 1e6,
		tag: t.tag[:0], savepoints: t.savepoints[:0], emitted: t.emitted}
	a.gtid = a.gtid[:0]
	a.frags.reset()
}

// drop forgets what was received of a transaction. Parts of it that are out already are dropped by the
// next part, which is a first one.
func (a *assembler) drop() {
	a.buf = a.buf[:0]
	if a.trx.open && a.trx.xa {
		a.park.abort()
	}
	a.trx.open = false
	a.trx.emitted = false
}

// mute decides whether the open transaction is only counted.
func (a *assembler) mute() {
	if a.skipTo > 0 {
		a.trx.early = a.begin < a.skipTo
		a.trx.muted = a.trx.early
		if !a.trx.early {
			a.skipTo = 0
		}
	}
}

// begins takes any of the GTID events.
func (a *assembler) begins(h eventHeader, body []byte) error {
	if (h.Type == evMariaGTID) != a.mariadb {
		return relay.Permanent(fmt.Errorf("GTID event of the other flavour at %s: this file was not written by this kind of server", a.place()), "begin behind it with MYSQL_START")
	}
	a.start(h)
	t := &a.trx
	var err error
	switch h.Type {
	case evMariaGTID:
		err = a.beginsMaria(h, body)
	case evGTIDTagged:
		err = a.beginsTagged(body)
	default:
		err = a.beginsMySQL(h.Type, body)
	}
	if err != nil {
		t.open = false
		return fmt.Errorf("GTID event at %s: %w", a.place(), err)
	}
	a.mute()
	if !a.mariadb && !t.anonymous && a.live.p.mysql.contains(&t.sid, t.tag, t.gno) {
		t.muted = true // resumed by file and offset: what the set has is delivered
	}
	return nil
}

// beginsTagged reads a GTID event of MySQL 8.3, which has an encoding of its own that the library knows.
func (a *assembler) beginsTagged(body []byte) (err error) {
	defer func() {
		if recover() != nil { // of the library, on damaged bytes
			err = errors.New("tagged GTID is not understood")
		}
	}()
	var e replication.GtidTaggedLogEvent
	t := &a.trx
	if e.Decode(body) != nil || len(e.SID) != len(t.sid) || e.GNO <= 0 {
		return errors.New("tagged GTID is not understood")
	}
	tag := e.Tag.String()
	if tag != "" && !isTag(tag) {
		return errors.New("tagged GTID is not understood")
	}
	copy(t.sid[:], e.SID)
	t.tag = append(t.tag[:0], tag...)
	t.gno = uint64(e.GNO)
	if v := e.OriginalCommitTimestamp; v != 0 {
		t.micros = v
	}
	a.textMySQL()
	return nil
}

// beginsMySQL reads flags u8, sid 16 bytes, gno i64, then typ u8, last committed i64, sequence i64, and
// since 8.0 the commit times: immediate u56, whose top bit says that the original one follows, u56.
func (a *assembler) beginsMySQL(typ byte, body []byte) error {
	t := &a.trx
	c := cursor{b: body}
	c.skip(1)
	copy(t.sid[:], c.bytes(16))
	t.gno = c.u64()
	if c.bad {
		return errShort
	}
	if len(c.b) >= 1+16+7 {
		c.skip(1 + 16)
		v := c.uint(7)
		if v>>55 != 0 {
			v = c.uint(7)
		}
		if c.bad {
			return errShort
		}
		if v != 0 {
			t.micros = v
		}
	}
	if typ == evAnonymousGTID {
		t.anonymous = true
		return nil
	}
	if t.gno == 0 || t.gno > maxGNO {
		return fmt.Errorf("transaction number %d", t.gno)
	}
	a.textMySQL()
	return nil
}

func (a *assembler) textMySQL() {
	t := &a.trx
	a.gtid = appendSID(a.gtid[:0], &t.sid)
	if len(t.tag) > 0 {
		a.gtid = append(append(a.gtid, ':'), t.tag...)
	}
	a.gtid = appendUint(append(a.gtid, ':'), t.gno)
}

// MariaDB's GTID flags.
const (
	mariaStandalone  = 1
	mariaGroupCommit = 2
	mariaPreparedXA  = 64
	mariaCompletedXA = 128
)

// beginsMaria reads seq u64, domain u32, flags u8, then a commit id u64 if bit 2 is set, then the xid if
// it belongs to an XA transaction: format u32, two lengths u8, data.
func (a *assembler) beginsMaria(h eventHeader, body []byte) error {
	t := &a.trx
	c := cursor{b: body}
	seq, domain, flags := c.u64(), c.u32(), c.u8()
	if c.bad {
		return errShort
	}
	t.maria = mariaGTID{domain, h.ServerID, seq}
	t.standalone = flags&mariaStandalone != 0
	a.gtid = t.maria.appendText(a.gtid[:0])
	if flags&(mariaPreparedXA|mariaCompletedXA) != 0 {
		if flags&mariaGroupCommit != 0 {
			c.skip(8)
		}
		format := c.u32()
		g, b := int(c.u8()), int(c.u8())
		t.xid = xidKey(format, c.bytes(g), c.bytes(b))
		if c.bad {
			return errShort
		}
		if flags&mariaPreparedXA != 0 {
			return a.xaStart(t.xid)
		}
	}
	return nil
}

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

// commit ends the open transaction and emits what is left of it.
func (a *assembler) commit() error {
	t := &a.trx
	if t.early && a.end > a.skipTo {
		return relay.Permanent(fmt.Errorf("%s:%d lies inside a transaction that begins at %d", a.live.p.File, a.skipTo, t.start), "begin at the start of a transaction: check MYSQL_START")
	}
	a.countGTID()
	first := !t.emitted
	t.open, t.emitted = false, false
	a.stats.transactions.Add(1)
	a.stats.commit.Store(int64(t.micros))
	if len(a.buf) == 0 {
		return a.quiet.moved(a, a.end-t.start)
	}
	a.buf[1] |= partLast
	err := a.emit(relay.Part{Data: a.buf, Pos: a.live.bytes(), First: first})
	a.quiet.clear()
	a.buf = a.buf[:0]
	if cap(a.buf) > 16*a.partBytes {
		a.buf = nil
	}
	return err
}

// countGTID moves the position behind the open transaction.
func (a *assembler) countGTID() {
	t := &a.trx
	switch {
	case t.anonymous:
	case a.mariadb:
		a.live.addMariaDB(t.maria)
	default:
		a.live.addMySQL(&t.sid, t.tag, t.gno)
	}
	if !t.early { // else the position stays at the start
		a.live.move(a.end)
	}
}

// rollback ends the open transaction without its rows.
func (a *assembler) rollback() error {
	a.buf = a.buf[:0]
	out := a.trx.emitted
	if err := a.commit(); err != nil {
		return err
	}
	if out { // the log holds parts of it: the next part has to say that they end here
		return a.quiet.now(a)
	}
	return nil
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

// quietPosition holds back positions of transactions with nothing for us in them: at most one is emitted
// for each 64 KiB or 100 ms of them, and the last at the next heartbeat.
type quietPosition struct {
	pending bool
	bytes   uint64
	last    time.Time
}

const (
	quietBytes = 64 << 10
	quietTime  = 100 * time.Millisecond
)

func (q *quietPosition) moved(a *assembler, n uint64) error {
	q.pending = true
	q.bytes += n
	if a.skipTo > 0 || q.bytes < quietBytes && time.Since(q.last) < quietTime { // before the start, set and offset do not belong together
		return nil
	}
	return q.now(a)
}

func (q *quietPosition) flush(a *assembler) error {
	if !q.pending || a.trx.open || a.skipTo > 0 {
		return nil
	}
	return q.now(a)
}

// now emits the position.
func (q *quietPosition) now(a *assembler) error {
	q.clear()
	q.last = time.Now()
	return a.emit(relay.Part{Pos: a.live.bytes(), First: true})
}

// fragment collects the pieces of a rows event: total u32, number from 1 u32, flags u8, the size of the
// whole u64 if bit 1 is set, bytes.
func (a *assembler) fragment(h eventHeader, body []byte) error {
	if a.trx.muted {
		return nil
	}
	ev, err := a.frags.add(body)
	if err != nil {
		return relay.Permanent(fmt.Errorf("row fragment at %s: %w", a.place(), err), "exclude the table with TABLES does not help here: the fragment does not say which table it is of; begin behind it with MYSQL_START")
	}
	if ev == nil {
		return nil
	}
	fh, _ := parseEventHeader(ev)
	err = a.logged(fh, ev)
	a.frags.reset()
	return err
}

func (q *quietPosition) clear() { q.pending, q.bytes = false, 0 }
