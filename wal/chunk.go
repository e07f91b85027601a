package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/s2"
)

// A chunk is the unit of commit and the value of one Badger key (its number). Layout, little endian:
//
//	 0 magic u32 | 4 crc32c u32 of all that follows | 8 version u8 | 9 flags u8 | 10 zero u16 | 12 records u32
//	16 number u64 | 24 first seq u64 | 32 visible u64 | 40 unix µs u64
//	48 raw payload u32 | 52 position u32 | 56 voids u32 | 60 stored payload u32
//	64 position | voids: (from u64, to u64)* | encrypted: key id u64, salt [16]byte | stored payload
//
// The payload is records back to back: length uvarint, for a fragment the entry's whole length uvarint,
// bytes. The first record is a fragment when flagHead is set, the last one when flagTail is; an entry
// larger than a chunk is one record in each of several chunks, all with its sequence number.
const (
	chunkMagic   = 0x4b435242 // "BRCK"
	chunkVersion = 1
	chunkHeader  = 64
	cryptHeader  = 8 + 16

	flagS2        = 1 << 0
	flagEncrypted = 1 << 1
	flagHead      = 1 << 2 // the first record goes on with an entry begun in the chunk before
	flagTail      = 1 << 3 // the last record goes on in the next chunk
	flagPos       = 1 << 4 // there is a position
	flagsKnown    = 1<<5 - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// span is a range of sequence numbers, both ends included.
type span struct{ From, To uint64 }

// chunk is a chunk in memory, filling or decoded.
type chunk struct {
	number  uint64
	first   uint64 // sequence number of the first record; without records, of the next entry
	count   uint32
	head    bool
	tail    bool
	visible uint64 // newest entry that is readable once this chunk is durable
	micros  uint64 // wall clock of the commit
	pos     []byte // position after the newest whole transaction; nil: none yet
	voids   []span // ranges that became void with this chunk
	raw     []byte // records
}

// last is the newest sequence number in c, first-1 when it has no records.
func (c *chunk) last() uint64 { return c.first + uint64(c.count) - 1 }

// next is the sequence number that the next chunk begins with.
func (c *chunk) next() uint64 {
	if c.tail {
		return c.last()
	}
	return c.last() + 1
}

func (c *chunk) reset() {
	*c = chunk{pos: c.pos[:0], voids: c.voids[:0], raw: c.raw[:0]}
}

// addEntry appends a whole entry.
func (c *chunk) addEntry(seq uint64, data []byte) {
	if c.count == 0 {
		c.first = seq
	}
	c.raw = binary.AppendUvarint(c.raw, uint64(len(data)))
	c.raw = append(c.raw, data...)
	c.count++
}

// addFragment appends a part of an entry of total bytes, beginning at its byte off.
func (c *chunk) addFragment(seq uint64, part []byte, off, total int) {
	if len(part) == total {
		c.addEntry(seq, part)
		return
	}
	if c.count == 0 {
		c.first, c.head = seq, off > 0
	}
	c.raw = binary.AppendUvarint(c.raw, uint64(len(part)))
	c.raw = binary.AppendUvarint(c.raw, uint64(total))
	c.raw = append(c.raw, part...)
	c.count++
	c.tail = off+len(part) < total
}

// follows checks that c is the chunk right behind p.
func (c *chunk) follows(p *chunk) error {
	switch {
	case c.number != p.number+1:
		return fmt.Errorf("chunk %d is followed by chunk %d", p.number, c.number)
	case p.tail && !c.head: // the entry was given up; its number is void
		if c.first != p.last()+1 {
			return fmt.Errorf("chunk %d begins with entry %d, not %d", c.number, c.first, p.last()+1)
		}
	case c.head != p.tail, c.first != p.next():
		return fmt.Errorf("chunk %d begins with entry %d (continued: %v), not %d (%v)",
			c.number, c.first, c.head, p.next(), p.tail)
	}
	return nil
}

// encodedMax bounds the encoded size of a chunk with raw bytes of records.
func encodedMax(raw int) int {
	return chunkHeader + maxPosBytes + 16*maxVoids + cryptHeader + s2.MaxEncodedLen(raw) + 16
}

// encode appends the stored form of c to dst.
func (c *chunk) encode(dst []byte, s *sealer) []byte {
	start := len(dst)
	var h [chunkHeader]byte
	dst = append(dst, h[:]...)
	dst = append(dst, c.pos...)
	for _, v := range c.voids {
		dst = binary.LittleEndian.AppendUint64(dst, v.From)
		dst = binary.LittleEndian.AppendUint64(dst, v.To)
	}
	var flags byte
	if s != nil {
		flags |= flagEncrypted
		dst = binary.LittleEndian.AppendUint64(dst, s.keyID)
		dst = append(dst, s.salt[:]...)
	}
	body := len(dst)
	if n := s2.MaxEncodedLen(len(c.raw)) + 16; cap(dst)-body < n {
		dst = append(dst, make([]byte, n)...)[:body]
	}
	// s2 does 1.2 GB/s and halves what Badger has to fault in and sync, so it pays even on fast disks.
	if z := s2.Encode(dst[body:body+s2.MaxEncodedLen(len(c.raw))], c.raw); len(z) < len(c.raw) {
		flags |= flagS2
		dst = dst[:body+len(z)]
	} else {
		dst = append(dst[:body], c.raw...)
	}
	if c.head {
		flags |= flagHead
	}
	if c.tail {
		flags |= flagTail
	}
	if c.pos != nil {
		flags |= flagPos
	}
	stored := len(dst) - body
	if s != nil {
		stored += s.aead.Overhead()
	}
	b := dst[start:]
	binary.LittleEndian.PutUint32(b[0:], chunkMagic)
	b[8], b[9] = chunkVersion, flags
	binary.LittleEndian.PutUint32(b[12:], c.count)
	binary.LittleEndian.PutUint64(b[16:], c.number)
	binary.LittleEndian.PutUint64(b[24:], c.first)
	binary.LittleEndian.PutUint64(b[32:], c.visible)
	binary.LittleEndian.PutUint64(b[40:], c.micros)
	binary.LittleEndian.PutUint32(b[48:], uint32(len(c.raw)))
	binary.LittleEndian.PutUint32(b[52:], uint32(len(c.pos)))
	binary.LittleEndian.PutUint32(b[56:], uint32(len(c.voids)))
	binary.LittleEndian.PutUint32(b[60:], uint32(stored))
	if s != nil {
		plain := dst[body:]
		dst = s.aead.Seal(dst[:body], s.nonce(c.number), plain, dst[start+8:body])
		b = dst[start:]
	}
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return dst
}

var (
	errChunkMagic = errors.New("no chunk here")
	errChunkCRC   = errors.New("checksum mismatch")
	errChunkForm  = errors.New("checksum is right but the content makes no sense")
)

// storedChunk is a checked chunk whose payload is still as stored. It aliases the bytes it was read from.
type storedChunk struct {
	chunk
	flags  byte
	rawLen int
	keyID  uint64
	salt   [16]byte
	aad    []byte
	body   []byte
}

// decode checks b, exactly one stored chunk, and reads its header into c. c keeps parts of b.
func (c *storedChunk) decode(b []byte) error {
	if len(b) < chunkHeader || binary.LittleEndian.Uint32(b) != chunkMagic {
		return errChunkMagic
	}
	if crc32.Checksum(b[8:], castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return errChunkCRC
	}
	if b[8] != chunkVersion {
		return fmt.Errorf("chunk version %d, this program knows %d", b[8], chunkVersion)
	}
	c.flags = b[9]
	c.count = binary.LittleEndian.Uint32(b[12:])
	c.number = binary.LittleEndian.Uint64(b[16:])
	c.first = binary.LittleEndian.Uint64(b[24:])
	c.visible = binary.LittleEndian.Uint64(b[32:])
	c.micros = binary.LittleEndian.Uint64(b[40:])
	rawLen := binary.LittleEndian.Uint32(b[48:])
	posLen := binary.LittleEndian.Uint32(b[52:])
	voids := binary.LittleEndian.Uint32(b[56:])
	stored := binary.LittleEndian.Uint32(b[60:])
	if c.flags&^flagsKnown != 0 || rawLen > 2*maxChunkBytes || posLen > maxPosBytes || voids > maxVoids ||
		c.count > rawLen || c.first == 0 || c.first+uint64(c.count) < c.first {
		return errChunkForm
	}
	head := chunkHeader + int(posLen) + 16*int(voids)
	crypt := 0
	if c.flags&flagEncrypted != 0 {
		crypt = cryptHeader
	}
	if uint64(len(b)) != uint64(head)+uint64(crypt)+uint64(stored) {
		return errChunkForm
	}
	c.head, c.tail = c.flags&flagHead != 0, c.flags&flagTail != 0
	if c.count == 0 && (c.head || c.tail || rawLen != 0) {
		return errChunkForm
	}
	c.pos = nil
	if c.flags&flagPos != 0 {
		c.pos = b[chunkHeader : chunkHeader+int(posLen) : chunkHeader+int(posLen)]
	} else if posLen != 0 {
		return errChunkForm
	}
	c.voids = c.voids[:0]
	for v := b[chunkHeader+int(posLen) : head]; len(v) > 0; v = v[16:] {
		s := span{binary.LittleEndian.Uint64(v), binary.LittleEndian.Uint64(v[8:])}
		if s.From == 0 || s.To < s.From {
			return errChunkForm
		}
		c.voids = append(c.voids, s)
	}
	c.keyID = 0
	if crypt != 0 {
		c.keyID = binary.LittleEndian.Uint64(b[head:])
		copy(c.salt[:], b[head+8:])
	}
	c.rawLen, c.aad, c.body = int(rawLen), b[8:head+crypt], b[head+crypt:]
	return nil
}

// payload returns the records of c in buf, which grows to at most 2 MiB and is returned as c.raw.
func (c *storedChunk) payload(buf []byte, k *keyring) ([]byte, error) {
	body := c.body
	if c.flags&flagEncrypted != 0 {
		var err error
		if body, err = k.open(c); err != nil {
			return buf, err
		}
	}
	if c.flags&flagS2 == 0 {
		if len(body) != c.rawLen {
			return buf, errChunkForm
		}
		c.raw = append(buf[:0], body...)
		return c.raw, nil
	}
	if n, err := s2.DecodedLen(body); err != nil || n != c.rawLen {
		return buf, errChunkForm
	}
	if cap(buf) < c.rawLen {
		buf = make([]byte, c.rawLen)
	}
	raw, err := s2.Decode(buf[:cap(buf)], body)
	if err != nil {
		return buf, fmt.Errorf("%w: %w", errChunkForm, err)
	}
	c.raw = raw
	return raw, nil
}

// records walks the records of a chunk.
type records struct {
	c   *chunk
	i   uint32 // records given so far
	off int
}

// record is one entry, or one fragment of an entry.
type record struct {
	seq   uint64
	data  []byte
	begin bool // data is the beginning of the entry
	end   bool // data is its end
	total int  // size of the entry
}

func (r *records) next() (rec record, err error) {
	c := r.c
	rec.seq = c.first + uint64(r.i)
	rec.begin = !(r.i == 0 && c.head)
	rec.end = !(r.i == c.count-1 && c.tail)
	n, k := binary.Uvarint(c.raw[r.off:])
	if k <= 0 {
		return rec, errChunkForm
	}
	off, total := r.off+k, n
	if !rec.begin || !rec.end {
		if total, k = binary.Uvarint(c.raw[off:]); k <= 0 {
			return rec, errChunkForm
		}
		off += k
	}
	if n > uint64(len(c.raw)-off) || total > maxEntryBytes || n > total {
		return rec, errChunkForm
	}
	r.off = off + int(n)
	r.i++
	if r.i == c.count && r.off != len(c.raw) {
		return rec, errChunkForm
	}
	rec.data, rec.total = c.raw[off:r.off], int(total)
	return rec, nil
}
