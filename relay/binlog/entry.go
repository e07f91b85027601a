package binlog

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Part header flags.
const (
	partFirst   = 1 << 0 // first part of its transaction
	partLast    = 1 << 1 // last part: the transaction is whole
	partMariaDB = 1 << 2 // flavour of the server
)

const partVersion = 1

// partHeader opens the data of every log entry. What follows it is plain binlog events, back to back,
// each with its 19-byte header and without a checksum: compressed payloads, compressed events and row
// fragments are already undone, excluded tables are already left out, and every rows event is preceded,
// in the same part, by its table map. Layout, little endian:
//
//	version u8 | flags u8 | server id u32 | commit time µs u64 | row base u32 | pos u64 | file len u16 | file | gtid len u16 | gtid
type partHeader struct {
	Flags    byte
	ServerID uint32
	// CommitMicros is the commit time at the source in microseconds since 1970: the original
	// commit timestamp of MySQL's GTID event where there, else the seconds of the event header.
	CommitMicros uint64
	// RowBase is the ordinal, in its transaction, of the first row in this part. Rows of tables that were
	// left out are counted; a gap inside a part is written as a skip event (see eventSkip).
	RowBase uint32
	Pos     uint64 // offset in File at which the transaction begins
	File    string
	GTID    string // as the server prints it, "" without GTIDs
}

// eventSkip is our own event type inside a part: its 4-byte body says how many rows of excluded tables
// stood here, so that ordinals stay those of the whole transaction.
const eventSkip = 0xf0

var errPart = errors.New("damaged part header")

func (h *partHeader) append(dst []byte) []byte {
	dst = append(dst, partVersion, h.Flags)
	dst = binary.LittleEndian.AppendUint32(dst, h.ServerID)
	dst = binary.LittleEndian.AppendUint64(dst, h.CommitMicros)
	dst = binary.LittleEndian.AppendUint32(dst, h.RowBase)
	dst = binary.LittleEndian.AppendUint64(dst, h.Pos)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(h.File)))
	dst = append(dst, h.File...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(h.GTID)))
	return append(dst, h.GTID...)
}

// parsePart splits entry data into its header and its events. File and GTID alias data.
func parsePart(data []byte) (h partHeader, file, gtid, events []byte, err error) {
	const fixed = 1 + 1 + 4 + 8 + 4 + 8
	if len(data) < fixed+4 {
		return h, nil, nil, nil, errPart
	}
	if data[0] != partVersion {
		return h, nil, nil, nil, fmt.Errorf("part version %d, this program knows %d", data[0], partVersion)
	}
	h.Flags = data[1]
	h.ServerID = binary.LittleEndian.Uint32(data[2:])
	h.CommitMicros = binary.LittleEndian.Uint64(data[6:])
	h.RowBase = binary.LittleEndian.Uint32(data[14:])
	h.Pos = binary.LittleEndian.Uint64(data[18:])
	b := data[fixed:]
	next := func() (v []byte, ok bool) {
		if len(b) < 2 {
			return nil, false
		}
		n := int(binary.LittleEndian.Uint16(b))
		if len(b) < 2+n {
			return nil, false
		}
		v, b = b[2:2+n], b[2+n:]
		return v, true
	}
	var ok bool
	if file, ok = next(); !ok {
		return h, nil, nil, nil, errPart
	}
	if gtid, ok = next(); !ok {
		return h, nil, nil, nil, errPart
	}
	return h, file, gtid, b, nil
}
