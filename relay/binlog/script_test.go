package binlog

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"

	"binrelay/relay"
)

// script builds the events of one server, as it would send them.
type script struct {
	maria  bool
	crc    bool
	noEnds bool // MariaDB 11.4: no end position inside transactions
	sid    [16]byte
	server uint32
	time   uint32
	pos    uint32
	gno    uint64
	events [][]byte
}

func newScript(maria, crc bool) *script {
	s := &script{maria: maria, crc: crc, server: 1, time: 1_700_000_000, pos: 4}
	copy(s.sid[:], "\x11\x11\x11\x11\xaa\xaa\x11\xee\x80\x00\x00\x00\x00\x00\x00\x01")
	return s
}

func (s *script) make(typ byte, flags uint16, body []byte) []byte {
	n := eventHeaderLen + len(body)
	crc := s.crc || typ == evFormat
	if crc {
		n += 4
	}
	ev := make([]byte, eventHeaderLen, n)
	binary.LittleEndian.PutUint32(ev, s.time)
	ev[4] = typ
	binary.LittleEndian.PutUint32(ev[5:], s.server)
	binary.LittleEndian.PutUint32(ev[9:], uint32(n))
	if flags&flagArtificial == 0 {
		s.pos += uint32(n)
		if !s.noEnds || typ == evXID || typ == evMariaGTID || typ == evFormat {
			binary.LittleEndian.PutUint32(ev[13:], s.pos)
		}
	}
	binary.LittleEndian.PutUint16(ev[17:], flags)
	ev = append(ev, body...)
	if crc {
		ev = binary.LittleEndian.AppendUint32(ev, crc32.ChecksumIEEE(ev))
	}
	return ev
}

func (s *script) add(typ byte, flags uint16, body []byte) *script {
	s.events = append(s.events, s.make(typ, flags, body))
	return s
}

// file begins a binlog file the way a dump does: artificial rotate, format description.
func (s *script) file(name string) *script {
	s.add(evRotate, flagArtificial, append(binary.LittleEndian.AppendUint64(nil, 4), name...))
	s.pos = 4
	body := make([]byte, 2+50+4+1)
	body[0] = 4
	copy(body[2:], "8.4.0")
	body[56] = eventHeaderLen
	body = append(body, make([]byte, 42)...)
	if s.crc {
		return s.add(evFormat, 0, append(body, 1))
	}
	return s.add(evFormat, 0, append(body, 0))
}

func (s *script) begin() *script {
	s.gtidEvent(0)
	if !s.maria {
		s.query("", "BEGIN")
	}
	return s
}

// alone begins a group that one statement makes up.
func (s *script) alone() *script { return s.gtidEvent(mariaStandalone) }

func (s *script) gtidEvent(flags byte) *script {
	s.gno++
	if s.maria {
		b := binary.LittleEndian.AppendUint64(nil, s.gno)
		b = binary.LittleEndian.AppendUint32(b, 0)
		return s.add(evMariaGTID, 0, append(append(b, flags), 0, 0, 0, 0, 0, 0))
	}
	b := append([]byte{1}, s.sid[:]...)
	b = binary.LittleEndian.AppendUint64(b, s.gno)
	b = append(b, 2)
	b = binary.LittleEndian.AppendUint64(b, s.gno-1)
	b = binary.LittleEndian.AppendUint64(b, s.gno)
	var t [8]byte
	binary.LittleEndian.PutUint64(t[:], 1_700_000_000_000_000+s.gno)
	return s.add(evGTID, 0, append(b, t[:7]...))
}

// mariaXA begins a group of an XA transaction.
func (s *script) mariaXA(flag byte, xid string) *script {
	s.gno++
	b := binary.LittleEndian.AppendUint64(nil, s.gno)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = append(b, flag)
	b = binary.LittleEndian.AppendUint32(b, 1)
	b = append(b, byte(len(xid)), 0)
	return s.add(evMariaGTID, 0, append(b, xid...))
}

func (s *script) query(db, text string) *script {
	return s.add(evQuery, 0, queryBody(db, text))
}

func queryBody(db, text string) []byte {
	b := make([]byte, 13)
	b[8] = byte(len(db))
	b = append(append(b, db...), 0)
	return append(b, text...)
}

func (s *script) xid() *script { return s.add(evXID, 0, make([]byte, 8)) }

func (s *script) table(id byte, db, name string) *script {
	return s.add(evTableMap, 0, tableBody(id, db, name))
}

// tableBody is (id INT PRIMARY KEY, v VARCHAR(100)) with full metadata.
func tableBody(id byte, db, name string) []byte {
	b := []byte{id, 0, 0, 0, 0, 0, 1, 0}
	b = append(append(append(b, byte(len(db))), db...), 0)
	b = append(append(append(b, byte(len(name))), name...), 0)
	b = append(b, 2, typeLong, typeVarchar, 2, 100, 0, 0)
	b = append(b, metaSignedness, 1, 0)
	b = append(b, metaDefaultCharset, 1, 45) // utf8mb4
	b = append(b, metaColumnName, 5, 2, 'i', 'd', 1, 'v')
	return append(b, metaPrimaryKey, 1, 0)
}

func rowsBody(v2 bool, id byte, rows ...string) []byte {
	b := []byte{id, 0, 0, 0, 0, 0, 1, 0}
	if v2 {
		b = append(b, 2, 0)
	}
	b = append(b, 2, 3)
	for i, r := range rows {
		b = append(b, 0)
		b = binary.LittleEndian.AppendUint32(b, uint32(i+1))
		b = append(append(b, byte(len(r))), r...)
	}
	return b
}

// insert writes rows with ids from 1.
func (s *script) insert(id byte, rows ...string) *script {
	if s.maria {
		return s.add(evWriteRowsV1, 0, rowsBody(false, id, rows...))
	}
	return s.add(evWriteRows, 0, rowsBody(true, id, rows...))
}

// one is a whole transaction of one row.
func (s *script) one(db, name, v string) *script {
	return s.begin().table(7, db, name).insert(7, v).xid()
}

func (s *script) heartbeat() *script {
	return s.add(evHeartbeat, flagArtificial, []byte("bin.000001"))
}

func (s *script) xaPrepare(xid string, onePhase bool) *script {
	b := []byte{0}
	if onePhase {
		b[0] = 1
	}
	b = binary.LittleEndian.AppendUint32(b, 1)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(xid)))
	b = binary.LittleEndian.AppendUint32(b, 0)
	return s.add(evXAPrepare, 0, append(b, xid...))
}

// xaRows is the group up to and with the PREPARE.
func (s *script) xaRows(xid string, onePhase bool, rows ...string) *script {
	if s.maria {
		s.mariaXA(mariaPreparedXA, xid)
	} else {
		s.gtidEvent(0)
	}
	s.query("", fmt.Sprintf("XA START X'%x',X'',1", xid))
	s.table(7, "t", "a").insert(7, rows...)
	s.query("", fmt.Sprintf("XA END X'%x',X'',1", xid))
	return s.xaPrepare(xid, onePhase)
}

func (s *script) xaEnd(verb, xid string) *script {
	if s.maria {
		s.mariaXA(mariaCompletedXA|mariaStandalone, xid)
	} else {
		s.gtidEvent(0)
	}
	return s.query("", fmt.Sprintf("XA %s X'%x',X'',1", verb, xid))
}

// payload packs the events that f adds into a TRANSACTION_PAYLOAD event.
func (s *script) payload(compress bool, f func(*script)) *script {
	in := &script{maria: s.maria, sid: s.sid, server: s.server, time: s.time}
	f(in)
	data := bytes.Join(in.events, nil)
	size, kind := len(data), byte(payloadNone)
	if compress {
		w, _ := zstd.NewWriter(nil)
		data, kind = w.EncodeAll(data, nil), payloadZstd
		w.Close()
	}
	lenenc := func(n int) []byte { return []byte{0xfc, byte(n), byte(n >> 8)} }
	b := []byte{2, 1, kind}
	if kind == payloadNone {
		b = []byte{2, 3, 0xfc, kind, 0}
	}
	b = append(append(b, 3, 3), lenenc(size)...)
	b = append(append(b, 1, 3), lenenc(len(data))...)
	return s.add(evPayload, 0, append(append(b, 0), data...))
}

func deflated(b []byte) []byte {
	var out bytes.Buffer
	w := zlib.NewWriter(&out)
	w.Write(b)
	w.Close()
	return append([]byte{0x82, byte(len(b) >> 8), byte(len(b))}, out.Bytes()...)
}

// packets is the stream on the wire.
func (s *script) packets() []byte { return packets(s.events) }

func packets(events [][]byte) []byte {
	var out []byte
	seq := byte(1)
	for _, ev := range events {
		n := len(ev) + 1
		out = append(out, byte(n), byte(n>>8), byte(n>>16), seq, 0)
		out = append(out, ev...)
		seq++
	}
	return out
}

// executed is the set of all transactions so far.
func (s *script) executed() string {
	if s.maria {
		return fmt.Sprintf("0-%d-%d", s.server, s.gno)
	}
	set := mysqlSet{}
	set.addRange(&s.sid, "", run{1, s.gno})
	return set.String()
}

// from is what a server sends to a replica that has p: what it lacks, from the beginning of the first file.
func (s *script) from(p position) [][]byte {
	var out [][]byte
	skip := false
	for _, ev := range s.events {
		switch ev[4] {
		case evGTID:
			var sid [16]byte
			copy(sid[:], ev[eventHeaderLen+1:])
			skip = p.mysql.contains(&sid, nil, binary.LittleEndian.Uint64(ev[eventHeaderLen+17:]))
		case evMariaGTID:
			seq := binary.LittleEndian.Uint64(ev[eventHeaderLen:])
			skip = len(p.maria.domains) > 0 && seq <= p.maria.domains[0].seq
		case evRotate, evFormat:
			skip = false
		}
		if !skip {
			out = append(out, ev)
		}
	}
	return out
}

// play feeds a stream into an assembler that goes on from pos (nil: the beginning).
func play(stream []byte, maria bool, pos []byte, setup func(*assembler), emit func(relay.Part) error) error {
	p := position{MariaDB: maria, SetKnown: true, File: "bin.000001", Pos: 4}
	if pos != nil {
		var err error
		if p, err = parsePosition(pos); err != nil {
			return err
		}
	}
	m := Matcher{}
	a := newAssembler(&m, p, defaultPartBytes, emit)
	if setup != nil {
		setup(a)
	}
	r := packetReader{br: newTestReader(stream), seq: 1}
	for {
		b, err := r.next()
		if err != nil {
			a.drop()
			return err
		}
		if err := a.event(b[1:]); err != nil {
			a.drop()
			return err
		}
		r.done()
	}
}

var errPlayed = io.EOF
