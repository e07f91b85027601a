package relaytest

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"time"
)

// Flavor is which server's protocol and binlog are spoken.
type Flavor string

const (
	MySQL   Flavor = "mysql"
	MariaDB Flavor = "mariadb"
)

// Types of the binlog events that a Builder makes.
const (
	evQuery      = 2
	evRotate     = 4
	evFormat     = 15
	evXID        = 16
	evTableMap   = 19
	evHeartbeat  = 27
	evGTID       = 33
	evAnonymous  = 34
	evPrevGTIDs  = 35
	evAnnotate   = 160
	evCheckpoint = 161
	evMariaGTID  = 162
	evGTIDList   = 163
	evRowsQuery  = 29
	flArtificial = 0x20 // made for one connection: not in the file, position 0
	flIgnorable  = 0x80
	eventHeader  = 19
	stmtEndFlag  = 1
)

// Builder makes binlog events (version 4) byte for byte as a server writes them. It keeps the position, so
// events must be made in the order in which they are to lie in the file. The zero value makes MySQL events
// without checksums, from position 0; a file begins at 4.
type Builder struct {
	Flavor   Flavor
	Version  string // for the format description; "" means 8.4.6 or 10.11.19-MariaDB-log
	ServerID uint32
	Time     time.Time // of the events' headers (seconds) and of MySQL's GTID event (microseconds)
	Checksum bool      // append a CRC32 to each event
	Minimal  bool      // leave out what binlog_row_metadata=FULL adds to table maps
	Pos      uint32    // end of the last event
	// MaxRowsEvent is where a rows event ends and the next one begins, in bytes of row images; 0 means
	// 8192, binlog_row_event_max_size's default. A larger row has an event of its own.
	MaxRowsEvent int
	SQLMode      uint64
}

// Event wraps a body into an event of the given type: header, position, checksum.
func (b *Builder) Event(typ byte, flags uint16, body []byte) []byte {
	n := eventHeader + len(body)
	if b.Checksum {
		n += 4
	}
	ev := make([]byte, eventHeader, n)
	if !b.Time.IsZero() {
		binary.LittleEndian.PutUint32(ev, uint32(b.Time.Unix()))
	}
	ev[4] = typ
	binary.LittleEndian.PutUint32(ev[5:], b.ServerID)
	binary.LittleEndian.PutUint32(ev[9:], uint32(n))
	if flags&flArtificial == 0 {
		b.Pos += uint32(n)
		binary.LittleEndian.PutUint32(ev[13:], b.Pos)
	}
	binary.LittleEndian.PutUint16(ev[17:], flags)
	ev = append(ev, body...)
	if b.Checksum {
		ev = binary.LittleEndian.AppendUint32(ev, crc32.ChecksumIEEE(ev))
	}
	return ev
}

// FormatDescription is the first event of a file. Its last five bytes, checksum algorithm and checksum,
// are always there.
func (b *Builder) FormatDescription() []byte {
	body := make([]byte, 2+50+4+1, 256)
	body[0] = 4
	version := b.Version
	if version == "" {
		version = defaultVersion(b.Flavor)
	}
	copy(body[2:52], version)
	body[56] = eventHeader
	body = append(body, b.postHeaders()...)
	algorithm := byte(0)
	if b.Checksum {
		algorithm = 1
	}
	body = append(body, algorithm)
	saved := b.Checksum
	b.Checksum = true
	ev := b.Event(evFormat, 0, body)
	b.Checksum = saved
	return ev
}

func defaultVersion(f Flavor) string {
	if f == MariaDB {
		return "10.11.19-MariaDB-log"
	}
	return "8.4.6"
}

// postHeaders is the length of each event type's fixed part, by type number from 1.
func (b *Builder) postHeaders() []byte {
	if b.Flavor != MariaDB {
		return []byte{ // types 1 to 42
			0, 13, 0, 8, 0, 0, 0, 0, 4, 0, 4, 0, 0, 0, 99, 0, 4, 26, 8, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0,
			10, 10, 10, 42, 42, 0, 18, 52, 0, 10, 40, 0, 0,
		}
	}
	lens := make([]byte, 171)
	copy(lens, []byte{
		56, 13, 0, 8, 0, 18, 0, 4, 4, 4, 4, 18, 0, 0, 228, 0, 4, 26, 8, 0, 0, 0, 8, 8, 8, 2, 0, 0, 0,
		10, 10, 10, 0, 0, 0, 0, 0, 0, 10, 10, 10,
	})
	copy(lens[evAnnotate:], []byte{4, 19, 4, 0, 13, 8, 8, 8, 10, 10, 10}) // MariaDB's own, from 161 on
	return lens
}

// Rotate says where the log goes on. The one at the end of a file is real; one that opens a connection's
// stream is artificial: its time and position are 0.
func (b *Builder) Rotate(file string, pos uint64, artificial bool) []byte {
	body := append(binary.LittleEndian.AppendUint64(nil, pos), file...)
	if !artificial {
		return b.Event(evRotate, 0, body)
	}
	return b.artificial(evRotate, body)
}

// Heartbeat is what an idle source sends: the file and, in the header, the position of its end.
func (b *Builder) Heartbeat(file string, pos uint32) []byte {
	ev := b.artificial(evHeartbeat, []byte(file))
	binary.LittleEndian.PutUint32(ev[13:], pos)
	binary.LittleEndian.PutUint16(ev[17:], 0) // servers do not mark it as artificial
	b.reseal(ev)
	return ev
}

func (b *Builder) artificial(typ byte, body []byte) []byte {
	t := b.Time
	b.Time = time.Time{}
	ev := b.Event(typ, flArtificial, body)
	b.Time = t
	return ev
}

// reseal computes the checksum of an event anew after its header was changed.
func (b *Builder) reseal(ev []byte) {
	if b.Checksum {
		binary.LittleEndian.PutUint32(ev[len(ev)-4:], crc32.ChecksumIEEE(ev[:len(ev)-4]))
	}
}

// previous is the event that says what was executed before this file.
func (b *Builder) previous(s *gtidSet) []byte {
	if b.Flavor == MariaDB {
		return b.Event(evGTIDList, 0, s.encodeList())
	}
	return b.Event(evPrevGTIDs, flIgnorable, s.encode())
}

// reached is what MariaDB sends to a client that asked by GTID, once it is where the client has to go on.
func (b *Builder) reached(s *gtidSet, pos uint32) []byte {
	ev := b.artificial(evGTIDList, s.encodeList())
	binary.LittleEndian.PutUint32(ev[13:], pos)
	b.reseal(ev)
	return ev
}

// checkpoint is MariaDB's note of the oldest file that crash recovery needs.
func (b *Builder) checkpoint(file string) []byte {
	return b.Event(evCheckpoint, 0, append(binary.LittleEndian.AppendUint32(nil, uint32(len(file))), file...))
}

// gtidEvent opens a transaction. ddl: a statement that commits by itself, no XID follows.
func (b *Builder) gtidEvent(g gtid, ddl bool, lastCommitted, sequence int64) []byte {
	if b.Flavor == MariaDB {
		body := binary.LittleEndian.AppendUint64(nil, g.seq)
		body = binary.LittleEndian.AppendUint32(body, g.domain)
		flags := byte(4 | 8) // transactional, may be applied in parallel
		if ddl {
			flags = 1 | 8 | 32 // standalone, a DDL statement
		}
		body = append(append(body, flags), make([]byte, 6)...)
		return b.Event(evMariaGTID, 8, body)
	}
	typ, flag := byte(evGTID), byte(1)
	if g.seq == 0 {
		typ = evAnonymous
	}
	if !ddl {
		flag = 0 // rows only: no statement that could be unsafe
	}
	body := append([]byte{flag}, g.uuid[:]...)
	body = binary.LittleEndian.AppendUint64(body, g.seq)
	body = append(body, 2) // logical timestamps follow
	body = binary.LittleEndian.AppendUint64(body, uint64(lastCommitted))
	body = binary.LittleEndian.AppendUint64(body, uint64(sequence))
	micros := binary.LittleEndian.AppendUint64(nil, uint64(b.Time.UnixMicro()))
	body = append(body, micros[:7]...) // top bit clear: original commit time is the same
	body = append(body, 0)             // transaction length: unknown
	body = binary.LittleEndian.AppendUint32(body, 80406)
	return b.Event(typ, 0, body)
}

// Query is a statement: BEGIN, DDL, or anything else that is logged as text. db is the default database.
func (b *Builder) Query(db, sql string) []byte {
	vars := []byte{0, 0, 0, 0, 0, 1} // flags2, then SQL mode
	vars = binary.LittleEndian.AppendUint64(vars, b.SQLMode)
	vars = append(vars, 6, 3, 's', 't', 'd')
	collation := byte(255)
	if b.Flavor == MariaDB {
		collation = 45
	}
	vars = append(vars, 4, collation, 0, collation, 0, collation, 0)
	body := make([]byte, 13, 13+len(vars)+len(db)+1+len(sql))
	body[0] = 10 // thread
	body[8] = byte(len(db))
	binary.LittleEndian.PutUint16(body[11:], uint16(len(vars)))
	body = append(append(append(body, vars...), db...), 0)
	flags := uint16(0)
	if u := strings.ToUpper(sql); u == "BEGIN" || strings.HasPrefix(u, "CREATE DATABASE") {
		flags = 8 // no USE is needed to execute it
	}
	return b.Event(evQuery, flags, append(body, sql...))
}

// XID commits a transaction.
func (b *Builder) XID(xid uint64) []byte {
	return b.Event(evXID, 0, binary.LittleEndian.AppendUint64(nil, xid))
}

// RowsQuery holds the statement that made the rows after it: MySQL's binlog_rows_query_log_events,
// MariaDB's annotate event.
func (b *Builder) RowsQuery(sql string) []byte {
	if b.Flavor == MariaDB {
		return b.Event(evAnnotate, 0, []byte(sql))
	}
	return b.Event(evRowsQuery, flIgnorable, append([]byte{byte(min(len(sql), 255))}, sql...))
}
