package binlog

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"binrelay/relay"
)

// eventInflater undoes the compressions of binlogs. Its decoders are made once: a new one for each small
// transaction would cost more than the transaction.
type eventInflater struct {
	zstd *zstd.Decoder
	zlib io.ReadCloser
	in   bytes.Reader
	out  []byte
	ev   []byte
}

// maxEvent bounds one event, as servers do (max_allowed_packet is at most 1 GiB); a wrong length must not
// make us allocate more.
const maxEvent = 1<<30 + 64<<20

// payload takes a TRANSACTION_PAYLOAD event: a whole transaction, compressed. Its events are read one by
// one, so that memory is bounded as it is without compression.
func (a *assembler) payload(h eventHeader, body []byte) error {
	data, kind, err := parsePayload(body)
	if err != nil {
		return fmt.Errorf("transaction payload at %s: %w", a.place(), err)
	}
	if a.trx.open && a.trx.muted {
		return a.commit()
	}
	z := &a.z
	z.in.Reset(data)
	var r io.Reader = &z.in
	switch kind {
	case payloadNone:
	case payloadZstd:
		if z.zstd == nil {
			z.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(1<<27))
			if err != nil {
				return err
			}
		}
		if err := z.zstd.Reset(&z.in); err != nil {
			return fmt.Errorf("transaction payload at %s: %w", a.place(), err)
		}
		r = z.zstd
	default:
		return relay.Permanent(fmt.Errorf("transaction payload at %s with compression %d, unknown to this version", a.place(), kind), "SET GLOBAL binlog_transaction_compression=OFF on the source does not mend what is written: a newer relay may read it")
	}
	for {
		var head [eventHeaderLen]byte
		if _, err := io.ReadFull(r, head[:]); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("transaction payload at %s: %w", a.place(), err)
		}
		ih, _ := parseEventHeader(head[:])
		if ih.Size < eventHeaderLen || ih.Size > maxEvent {
			return fmt.Errorf("transaction payload at %s: event of %d bytes", a.place(), ih.Size)
		}
		if z.ev, err = readInto(z.ev, r, head[:], int(ih.Size)); err != nil {
			return fmt.Errorf("transaction payload at %s: %w", a.place(), err)
		}
		switch ih.Type {
		case evPayload, evFormat, evRotate, evGTID, evAnonymousGTID, evGTIDTagged, evPreviousGTIDs, evHeartbeat, evHeartbeat2:
			return fmt.Errorf("transaction payload at %s holds an event of type %d", a.place(), ih.Type)
		}
		if err := a.logged(ih, z.ev); err != nil {
			return err
		}
	}
	if cap(z.ev) > 16<<20 {
		z.ev = nil
	}
	if a.trx.open { // the payload is all of it, whatever its last event was
		return a.commit()
	}
	return nil
}

// readInto reads an event of size bytes whose header is read already. Memory grows with what arrives, not
// with what is announced.
func readInto(buf []byte, r io.Reader, head []byte, size int) ([]byte, error) {
	buf = append(buf[:0], head...)
	for len(buf) < size {
		n := min(size-len(buf), 1<<20)
		at := len(buf)
		buf = append(buf, make([]byte, n)...)
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return buf[:0], err
		}
	}
	return buf, nil
}

const (
	payloadZstd = 0
	payloadNone = 255
)

// parsePayload reads the fields in front of the payload: number, length and value, all length-encoded; 0
// ends them. 1 is the payload's size, 2 the compression, 3 the size without it.
func parsePayload(body []byte) (data []byte, kind uint64, err error) {
	c := cursor{b: body}
	size, sized := uint64(0), false
	for {
		field := c.lenenc()
		if field == 0 {
			break
		}
		v := cursor{b: c.lenencBytes()}
		switch field {
		case 1:
			size, sized = v.lenenc(), true
		case 2:
			kind = v.lenenc()
		}
		if c.bad || v.bad {
			return nil, 0, errShort
		}
	}
	if c.bad || sized && size != uint64(len(c.b)) {
		return nil, 0, errShort
	}
	return c.b, kind, nil
}

// compressed takes one of MariaDB's compressed events and goes on with the plain one.
func (a *assembler) compressed(h eventHeader, ev []byte) error {
	plain, err := a.z.inflate(h.Type, ev)
	if err != nil {
		return fmt.Errorf("compressed event at %s: %w", a.place(), err)
	}
	h, _ = parseEventHeader(plain)
	if err := a.logged(h, plain); err != nil {
		return err
	}
	if cap(a.z.out) > 16<<20 {
		a.z.out = nil
	}
	return nil
}

// inflate returns the plain form of a compressed event, valid until the next call.
func (z *eventInflater) inflate(typ byte, ev []byte) ([]byte, error) {
	c := cursor{b: ev[eventHeaderLen:]}
	switch typ {
	case evMariaQueryZ:
		c.skip(8)
		n := int(c.u8())
		c.skip(2)
		c.skip(int(c.u16()) + n + 1)
		typ = evQuery
	default:
		c.skip(6 + 2)
		images := 1
		switch typ {
		case evMariaWriteZV1, evMariaUpdateZV1, evMariaDeleteZV1:
			typ = typ - evMariaWriteZV1 + evWriteRowsV1
		default:
			typ = typ - evMariaWriteZ + evWriteRows
			c.skip(int(c.u16()) - 2)
		}
		if typ == evUpdateRowsV1 || typ == evUpdateRows {
			images = 2
		}
		n := c.lenenc()
		if n > 1<<16 {
			return nil, errShort
		}
		c.skip(images * int((n+7)/8))
	}
	plain := len(ev) - len(c.b)
	// Then: length bytes of the size u8 (low three bits; the others are the algorithm, always zlib), the
	// size big endian, zlib data.
	k := c.u8()
	size := beUint(c.bytes(int(k & 7)))
	if c.bad || k>>4&7 != 0 || size > maxEvent || k&7 == 0 || k&7 > 4 {
		return nil, errors.New("its compression is unknown or damaged")
	}
	z.in.Reset(c.b)
	if z.zlib == nil {
		r, err := zlib.NewReader(&z.in)
		if err != nil {
			return nil, err
		}
		z.zlib = r
	} else if err := z.zlib.(zlib.Resetter).Reset(&z.in, nil); err != nil {
		return nil, err
	}
	var err error
	if z.out, err = readInto(z.out, z.zlib, ev[:plain], plain+int(size)); err != nil {
		return nil, err
	}
	z.out[4] = typ
	binary.LittleEndian.PutUint32(z.out[9:], uint32(len(z.out)))
	return z.out, nil
}

// fragments collects the pieces of a rows event that MariaDB 12.3 cut up.
type fragments struct {
	total, next uint32
	buf         []byte
}

func (f *fragments) reset() {
	f.total, f.next = 0, 0
	if cap(f.buf) > 16<<20 {
		f.buf = nil
	}
	f.buf = f.buf[:0]
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

// add takes one fragment and returns the whole event after the last. The pieces together are an event with
// its header: anything else is refused rather than guessed at.
func (f *fragments) add(body []byte) ([]byte, error) {
	c := cursor{b: body}
	total, n, flags := c.u32(), c.u32(), c.u8()
	if flags&1 != 0 {
		c.u64()
	}
	if c.bad {
		return nil, errShort
	}
	if n != f.next+1 || total < n || n > 1 && total != f.total {
		return nil, fmt.Errorf("fragment %d of %d after %d of %d", n, total, f.next, f.total)
	}
	if len(f.buf)+len(c.b) > maxEvent {
		return nil, fmt.Errorf("rows event of more than %d bytes", maxEvent)
	}
	f.total, f.next = total, n
	f.buf = append(f.buf, c.b...)
	if n < total {
		return nil, nil
	}
	h, ok := parseEventHeader(f.buf)
	if !ok || int64(h.Size) < int64(len(f.buf)) || int64(h.Size) > int64(len(f.buf))+4 {
		return nil, errors.New("the pieces are no event")
	}
	switch h.Type {
	case evMariaWriteZV1, evMariaUpdateZV1, evMariaDeleteZV1, evMariaWriteZ, evMariaUpdateZ, evMariaDeleteZ:
	default:
		if !isRowsEvent(h.Type) {
			return nil, fmt.Errorf("the pieces are an event of type %d", h.Type)
		}
	}
	return f.buf, nil
}
