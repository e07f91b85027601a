package binlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"binrelay/functions"
)

// partBuilder turns events into the parts that the reader would emit: one for each transaction. It knows
// neither compressed payloads nor limits; the reader has tests of its own.
type partBuilder struct {
	hints  Hints
	plans  *planCache
	crc    bool
	file   string
	parts  [][]byte
	events []byte
	head   partHeader
	open   bool
	// skipped counts events that only the reader can unpack.
	skipped int
}

// partsOf reads a binlog file.
func partsOf(t testing.TB, path string, hints Hints) [][]byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return partsOfBytes(t, data, path, hints)
}

func partsOfBytes(t testing.TB, data []byte, file string, hints Hints) [][]byte {
	t.Helper()
	b := &partBuilder{hints: hints, plans: newPlanCache(), file: file}
	if !bytes.HasPrefix(data, []byte("\xfebin")) {
		t.Fatalf("%s is no binlog", file)
	}
	for pos := 4; pos < len(data); {
		h, ok := parseEventHeader(data[pos:])
		if !ok || int(h.Size) > len(data)-pos || h.Size < eventHeaderLen {
			break // being written
		}
		b.event(t, h, data[pos:pos+int(h.Size)], uint64(pos))
		pos += int(h.Size)
	}
	b.flush()
	if b.skipped > 0 {
		t.Logf("%s: %d compressed events left out", file, b.skipped)
	}
	return b.parts
}

func (b *partBuilder) event(t testing.TB, h eventHeader, ev []byte, pos uint64) {
	if h.Type == evFormat {
		b.crc = ev[len(ev)-5] == 1
		return
	}
	if b.crc {
		ev = ev[:len(ev)-4]
	}
	body := ev[eventHeaderLen:]
	switch h.Type {
	case evGTID, evAnonymousGTID, evGTIDTagged, evMariaGTID:
		b.flush()
		b.open = true
		b.head = partHeader{Flags: partFirst | partLast, ServerID: h.ServerID, CommitMicros: uint64(h.Time) * 1e6, Pos: pos, File: b.file}
		if h.Type == evMariaGTID {
			b.head.Flags |= partMariaDB
			b.head.GTID = fmt.Sprintf("%d-%d-%d", binary.LittleEndian.Uint32(body[8:]), h.ServerID, binary.LittleEndian.Uint64(body))
		} else if h.Type == evGTID {
			b.head.GTID = fmt.Sprintf("%x:%d", body[1:17], binary.LittleEndian.Uint64(body[17:]))
		}
	case evPayload, evMariaQueryZ, evMariaWriteZV1, evMariaUpdateZV1, evMariaDeleteZV1, evMariaWriteZ, evMariaUpdateZ, evMariaDeleteZ:
		b.skipped++
	case evRotate, evPreviousGTIDs, evMariaGTIDList, evMariaCheckpoint, evStop, evHeartbeat, evHeartbeat2:
	default:
		if b.open {
			b.events = addEvent(b.events, h.Type, body)
		}
		if h.Type == evTableMap {
			p, err := b.plans.plan(body)
			if err != nil {
				t.Fatalf("table map at %d: %v", pos, err)
			}
			if p.wantsHints() && b.hints != nil {
				if hb := p.hintsEvent(b.hints); len(hb) > 0 {
					b.events = addEvent(b.events, eventHints, hb)
				}
			}
		}
	}
}

func addEvent(dst []byte, typ byte, body []byte) []byte {
	var h [eventHeaderLen]byte
	h[4] = typ
	binary.LittleEndian.PutUint32(h[9:], uint32(eventHeaderLen+len(body)))
	return append(append(dst, h[:]...), body...)
}

func (b *partBuilder) flush() {
	if b.open && len(b.events) > 0 {
		b.parts = append(b.parts, append(b.head.append(nil), b.events...))
	}
	b.open, b.events = false, nil
}

// decodeAll calls fn for each change of parts.
func decodeAll(t testing.TB, d *Decoder, parts [][]byte, fn func(*functions.Change)) {
	t.Helper()
	for i, p := range parts {
		if err := d.Decode(uint64(i), p, func(c *functions.Change) error { fn(c); return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

// mapHints are hints by "db.table.column".
type mapHints map[string]string

func (m mapHints) Declared(db, table, column string) string { return m[db+"."+table+"."+column] }

// serverHints asks information_schema.
func (s testServer) hints(t testing.TB, db string) mapHints {
	c, err := s.Connect("")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := mapHints{}
	if s.Flavor == "mysql" { // needs none
		return m
	}
	for _, table := range s.column(t, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA='"+db+"'") {
		h := columnTypes{c: &conn{Conn: c}}
		if err := h.read(db, table); err != nil {
			t.Fatal(err)
		}
		for column, typ := range h.types {
			m[db+"."+table+"."+column] = typ
		}
	}
	return m
}
