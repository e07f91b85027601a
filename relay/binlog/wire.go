package binlog

import (
	"encoding/binary"
	"errors"
)

// Event types of MySQL and MariaDB, as far as anything in this package branches on them.
const (
	evQuery            = 2
	evStop             = 3
	evRotate           = 4
	evIntvar           = 5
	evRand             = 13
	evUserVar          = 14
	evFormat           = 15 // FORMAT_DESCRIPTION_EVENT
	evXID              = 16
	evTableMap         = 19
	evWriteRowsV1      = 23 // MariaDB writes v1, MySQL since 5.6 v2
	evUpdateRowsV1     = 24
	evDeleteRowsV1     = 25
	evIncident         = 26
	evHeartbeat        = 27
	evIgnorable        = 28
	evRowsQuery        = 29
	evWriteRows        = 30
	evUpdateRows       = 31
	evDeleteRows       = 32
	evGTID             = 33
	evAnonymousGTID    = 34
	evPreviousGTIDs    = 35
	evTransactionCtx   = 36
	evViewChange       = 37
	evXAPrepare        = 38
	evPartialUpdate    = 39 // PARTIAL_UPDATE_ROWS_EVENT
	evPayload          = 40 // TRANSACTION_PAYLOAD_EVENT
	evHeartbeat2       = 41
	evGTIDTagged       = 42
	evMariaAnnotate    = 160
	evMariaCheckpoint  = 161
	evMariaGTID        = 162
	evMariaGTIDList    = 163
	evMariaEncryption  = 164
	evMariaQueryZ      = 165 // QUERY_COMPRESSED_EVENT
	evMariaWriteZV1    = 166 // *_ROWS_COMPRESSED_EVENT_V1
	evMariaUpdateZV1   = 167
	evMariaDeleteZV1   = 168
	evMariaWriteZ      = 169
	evMariaUpdateZ     = 170
	evMariaDeleteZ     = 171
	evMariaRowFragment = 172 // PARTIAL_ROW_DATA_EVENT, MariaDB 12.3
)

// Event header flags.
const (
	flagArtificial = 0x20
	flagIgnorable  = 0x80
)

const eventHeaderLen = 19

// eventHeader is the fixed head of every event.
type eventHeader struct {
	Time     uint32 // seconds since 1970
	Type     byte
	ServerID uint32
	Size     uint32 // of the whole event, header and checksum included
	EndPos   uint32 // in its file, modulo 2³²
	Flags    uint16
}

// parseEventHeader reads the head of an event; ok is false when b is shorter than one.
func parseEventHeader(b []byte) (h eventHeader, ok bool) {
	if len(b) < eventHeaderLen {
		return h, false
	}
	return eventHeader{
		Time:     binary.LittleEndian.Uint32(b),
		Type:     b[4],
		ServerID: binary.LittleEndian.Uint32(b[5:]),
		Size:     binary.LittleEndian.Uint32(b[9:]),
		EndPos:   binary.LittleEndian.Uint32(b[13:]),
		Flags:    binary.LittleEndian.Uint16(b[17:]),
	}, true
}

// isRowsEvent reports whether typ is a plain (not compressed) rows event.
func isRowsEvent(typ byte) bool {
	switch typ {
	case evWriteRowsV1, evUpdateRowsV1, evDeleteRowsV1, evWriteRows, evUpdateRows, evDeleteRows, evPartialUpdate:
		return true
	}
	return false
}

// rowsTableID is the table id of a rows event, from its body.
func rowsTableID(body []byte) (uint64, bool) {
	if len(body) < 6 {
		return 0, false
	}
	return leUint(body[:6]), true
}

// errShort says that an event ends before its content does.
var errShort = errors.New("event is shorter than its content")

// cursor reads little-endian fields from b and never past its end: after a read that does not fit, bad is
// set, b is empty, and every further read gives zero.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) err() error {
	if c.bad {
		return errShort
	}
	return nil
}

// bytes takes the next n bytes; they alias the input.
func (c *cursor) bytes(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.bad, c.b = true, nil
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) skip(n int) { c.bytes(n) }

func (c *cursor) u8() byte {
	if len(c.b) < 1 {
		c.bad, c.b = true, nil
		return 0
	}
	v := c.b[0]
	c.b = c.b[1:]
	return v
}

// uint takes the next n ≤ 8 bytes as a number.
func (c *cursor) uint(n int) uint64 { return leUint(c.bytes(n)) }

func (c *cursor) u16() uint16 { return uint16(c.uint(2)) }
func (c *cursor) u32() uint32 { return uint32(c.uint(4)) }
func (c *cursor) u64() uint64 { return c.uint(8) }

// lenenc takes a length-encoded integer (1, 3, 4 or 9 bytes).
func (c *cursor) lenenc() uint64 {
	switch v := c.u8(); v {
	case 0xfc:
		return c.uint(2)
	case 0xfd:
		return c.uint(3)
	case 0xfe:
		return c.uint(8)
	case 0xfb, 0xff: // NULL and ERR in the protocol: no number
		c.bad, c.b = true, nil
		return 0
	default:
		return uint64(v)
	}
}

// count takes a length-encoded integer that counts things of at least one byte each, so that a damaged
// one cannot make anybody allocate more than the input is long.
func (c *cursor) count() int {
	v := c.lenenc()
	if v > uint64(len(c.b)) {
		c.bad, c.b = true, nil
		return 0
	}
	return int(v)
}

// lenencBytes takes a length-encoded string; it aliases the input.
func (c *cursor) lenencBytes() []byte { return c.bytes(c.count()) }

// leUint reads b (at most 8 bytes) as a little-endian number.
func leUint(b []byte) (v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v
}

// beUint reads b (at most 8 bytes) as a big-endian number.
func beUint(b []byte) (v uint64) {
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	return v
}
