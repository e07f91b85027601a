package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"binrelay/functions"
	"binrelay/relay"

	"github.com/klauspost/compress/s2"
)

// A journal file is a run of frames:
//
//	magic 4 | crc32c 4 of all that follows | length of the body 4 | kind 1 | zero 3 | synced 8 | body
//
// synced is how much of the file was durable when the frame was written. It tells a torn tail (nothing
// behind the damage was written after a sync that covered the damage) from a damaged middle.
const (
	frameMagic  = 0x6a4c5242 // "BRLj"
	frameHeader = 24
	// maxFrame bounds what a damaged length can make us allocate. A batch is the records of one job of
	// the relay, 256 KiB of log, or of one entry.
	maxFrame = 1 << 30
)

type frameKind byte

const (
	kindSnapshot frameKind = iota + 1 // everything that is known, first frame of each file
	kindTopic                         // a topic with its partition count, or its growth
	kindBatch                         // records handed over and the log entries they cover
	kindNotes                         // acknowledged counts and offsets
	kindSession                       // partitions that go on in another producer session, and perhaps a dead letter
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame adds a frame with the given body to dst.
func appendFrame(dst []byte, kind frameKind, synced int64, body []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, frameMagic)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(body)))
	dst = append(dst, byte(kind), 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(synced))
	dst = append(dst, body...)
	binary.LittleEndian.PutUint32(dst[at+4:], crc32.Checksum(dst[at+8:], castagnoli))
	return dst
}

// parseFrame takes the frame at the beginning of b. ok is false where there is no whole, sound frame.
func parseFrame(b []byte) (kind frameKind, synced int64, body, rest []byte, ok bool) {
	if len(b) < frameHeader || binary.LittleEndian.Uint32(b) != frameMagic {
		return
	}
	n := int(binary.LittleEndian.Uint32(b[8:]))
	if n > maxFrame || n > len(b)-frameHeader {
		return
	}
	if crc32.Checksum(b[8:frameHeader+n], castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return
	}
	return frameKind(b[12]), int64(binary.LittleEndian.Uint64(b[16:])), b[frameHeader : frameHeader+n], b[frameHeader+n:], true
}

// partCount is how many records a frame adds to a partition.
type partCount struct {
	topic int
	part  int32
	count int
}

// batchHead is a batch frame without its records.
type batchHead struct {
	first, last uint64 // log entries covered; 0, 0: none, a dead letter
	index       []partCount
	packed      []byte // records, see appendPacked
}

func appendBatchHead(dst []byte, first, last uint64, index []partCount) []byte {
	dst = binary.AppendUvarint(dst, first)
	dst = binary.AppendUvarint(dst, last-first)
	dst = binary.AppendUvarint(dst, uint64(len(index)))
	for _, c := range index {
		dst = binary.AppendUvarint(dst, uint64(c.topic))
		dst = binary.AppendUvarint(dst, uint64(c.part))
		dst = binary.AppendUvarint(dst, uint64(c.count))
	}
	return dst
}

func (r *reader) batchHead() (h batchHead) {
	h.first = r.uvarint()
	h.last = h.first + r.uvarint()
	n := r.count(3)
	h.index = make([]partCount, n)
	for i := range h.index {
		h.index[i] = partCount{int(r.uvarint()), int32(r.uvarint()), int(r.uvarint())}
	}
	h.packed = r.b
	r.b = nil
	return h
}

// packBlock is how much is compressed at a time: in blocks that stay in the cache it costs a third.
const packBlock = 64 << 10

// appendPacked adds raw, compressed in blocks.
func appendPacked(dst, raw []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(raw)))
	for len(raw) > 0 {
		block := raw[:min(len(raw), packBlock)]
		raw = raw[len(block):]
		n := s2.MaxEncodedLen(len(block))
		dst = slices.Grow(dst, n+4)
		at := len(dst)
		packed := s2.EncodeSnappy(dst[at+4:at+4+n:at+4+n], block)
		binary.LittleEndian.PutUint32(dst[at:at+4], uint32(len(packed)))
		dst = dst[:at+4+len(packed)]
	}
	return dst
}

func unpack(packed []byte) ([]byte, error) {
	r := &reader{b: packed}
	size := r.uvarint()
	if r.err != nil || size > maxFrame {
		return nil, errShort
	}
	raw := make([]byte, 0, min(int(size), 64*len(packed)+1))
	for len(r.b) > 0 {
		n := r.take(4)
		if r.err != nil {
			return nil, r.err
		}
		b := r.take(uint64(binary.LittleEndian.Uint32(n)))
		k, err := s2.DecodedLen(b)
		if r.err != nil || err != nil || k > packBlock {
			return nil, errors.Join(errShort, r.err, err)
		}
		raw = slices.Grow(raw, k)
		if _, err := s2.Decode(raw[len(raw):len(raw)+k], b); err != nil {
			return nil, err
		}
		raw = raw[:len(raw)+k]
	}
	if len(raw) != int(size) {
		return nil, errShort
	}
	return raw, nil
}

const (
	recNoKey = 1 << iota
	recNoValue
	recDead
)

// appendJournalRecord adds one record to the unpacked payload of a batch frame. slot is the place of
// its partition in the frame's index.
func appendJournalRecord(dst []byte, rec *relay.Record, slot int, first uint64) []byte {
	dst = binary.AppendUvarint(dst, uint64(slot))
	var flags byte
	if rec.Key == nil {
		flags |= recNoKey
	}
	if rec.Value == nil {
		flags |= recNoValue
	}
	if rec.Dead {
		flags |= recDead
	}
	dst = append(dst, flags)
	dst = appendBytes(dst, rec.Key)
	dst = appendBytes(dst, rec.Value)
	dst = binary.AppendUvarint(dst, uint64(len(rec.Headers)))
	for i := range rec.Headers {
		h := &rec.Headers[i]
		dst = binary.AppendUvarint(dst, uint64(len(h.Key)))
		dst = append(dst, h.Key...)
		if h.Value == nil {
			dst = append(dst, 0)
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(len(h.Value))+1)
		dst = append(dst, h.Value...)
	}
	dst = binary.AppendVarint(dst, rec.Time.UnixMilli())
	dst = binary.AppendVarint(dst, int64(rec.Seq-first))
	return binary.AppendVarint(dst, int64(rec.Row))
}

// journalRecord is a record as the journal keeps it: what goes to Kafka, and where it came from.
type journalRecord struct {
	slot    int
	key     []byte
	value   []byte
	headers []functions.Header
	ms      int64 // time stamp
	seq     uint64
	row     int32
	dead    bool
}

// journalRecord reads one record; its bytes point into the reader's.
func (r *reader) journalRecord(first uint64) (rec journalRecord) {
	rec.slot = int(r.uvarint())
	flags := r.byte()
	rec.key = r.bytes()
	rec.value = r.bytes()
	if flags&recNoKey != 0 {
		rec.key = nil
	}
	if flags&recNoValue != 0 {
		rec.value = nil
	}
	rec.dead = flags&recDead != 0
	if n := r.count(2); n > 0 {
		rec.headers = make([]functions.Header, n)
		for i := range rec.headers {
			rec.headers[i].Key = string(r.bytes())
			if n := r.uvarint(); n > 0 {
				rec.headers[i].Value = r.take(n - 1)
			}
		}
	}
	rec.ms = r.varint()
	rec.seq = first + uint64(r.varint())
	rec.row = int32(r.varint())
	return rec
}

func appendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// reader reads varints and byte strings; after the first mistake it gives zeros and keeps err.
type reader struct {
	b   []byte
	err error
}

var errShort = errors.New("the frame ends too early")

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail(errShort)
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail(errShort)
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) bytes() []byte { return r.take(r.uvarint()) }

// count reads a number of things of at least min bytes each: a damaged one cannot make us allocate.
func (r *reader) count(min int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/min) {
		r.fail(fmt.Errorf("%d items in %d bytes", n, len(r.b)))
		return 0
	}
	return int(n)
}
