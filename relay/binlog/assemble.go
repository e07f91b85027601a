package binlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

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
			return fmt.Errorf("event of %d bytes at %s is too short for its checksum", len(ev), a.next())
		}
		if crc32.ChecksumIEEE(ev[:n]) != binary.LittleEndian.Uint32(ev[n:]) {
			return fmt.Errorf("checksum of event type %d at %s is wrong (damaged on the way, or on the server's disk: mysqlbinlog --verify-binlog-checksum)", h.Type, a.next())
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
	case evStartV3, evPreWriteRows, evPreUpdateRows, evPreDeleteRows:
		return relay.Permanent(fmt.Errorf("event of type %d in %s: a format of before MySQL 5.1 was released", h.Type, a.live.p.File), "only servers from MySQL 8.0 and MariaDB 10.5 on are read")
	case evStop, evIntvar, evRand, evUserVar, evIgnorable, evRowsQuery, evTransactionCtx, evViewChange, evMariaAnnotate, evMariaCheckpoint,
		evMariaGTIDList, evMariaEncryption, evBeginLoad, evAppendBlock, evDeleteFile:
		return nil // they say nothing about rows that other events do not say
	}
	if h.Flags&flagIgnorable != 0 {
		return nil
	}
	return relay.Permanent(fmt.Errorf("event of unknown type %d at %s", h.Type, a.place()), "a newer version of the relay may know it; nothing behind it was read")
}

// Events of servers that are not read.
const (
	evStartV3       = 1 // before MySQL 5.0
	evPreWriteRows  = 20
	evPreUpdateRows = 21
	evPreDeleteRows = 22
)

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

// next is the place of an event that advance has not seen yet.
func (a *assembler) next() string {
	return fmt.Sprintf("%s:%d", a.live.p.File, a.end)
}

// format reads a FORMAT_DESCRIPTION_EVENT: each file begins with one, and each connection.
func (a *assembler) format(h eventHeader, ev []byte) error {
	// version u16, server version 50 bytes, time u32, header length u8, lengths by type, checksum algorithm u8, checksum u32
	const fixed = eventHeaderLen + 2 + 50 + 4 + 1
	if len(ev) < fixed+5 {
		return fmt.Errorf("format description event of %s has %d bytes", a.live.p.File, len(ev))
	}
	if v := binary.LittleEndian.Uint16(ev[eventHeaderLen:]); v != 4 {
		return relay.Permanent(fmt.Errorf("binlog format of %s is version %d, not 4", a.live.p.File, v), "the server is older than MySQL 5.0")
	}
	if n := ev[fixed-1]; n != eventHeaderLen {
		return relay.Permanent(fmt.Errorf("binlog format of %s has event headers of %d bytes, not %d", a.live.p.File, n, eventHeaderLen),
			"only servers from MySQL 8.0 and MariaDB 10.5 on are read")
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
		return relay.Permanent(fmt.Errorf("binlog format of %s has the unknown checksum algorithm %d", a.live.p.File, alg),
			"SET GLOBAL binlog_checksum=CRC32 on the source; a file of before MySQL 5.6 has no such field and is not read")
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
