package binlog

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"binrelay/relay"
)

// An XA transaction's rows are in the binlog at its PREPARE; whether they happened is said later, by a
// group without rows. They are parked in a file until then: durable before the position passes the
// PREPARE, removed after the position behind the end is durable. A PREPARE that is sent again writes the
// same file again.

// xaStart notes that the open transaction is an XA transaction.
func (a *assembler) xaStart(xid string) error {
	t := &a.trx
	if xid == "" {
		return fmt.Errorf("XA START at %s without a transaction id", a.place())
	}
	if t.muted || t.xa {
		return nil
	}
	if a.park == nil {
		return relay.Permanent(fmt.Errorf("XA transaction at %s, and no directory to keep it in", a.place()), "set ParkDir")
	}
	t.xa, t.xid = true, xid
	return a.park.begin(xid)
}

// xaPrepare takes an XA_PREPARE event: one phase u8, format u32, two lengths u32, data. In one phase it is
// the commit.
func (a *assembler) xaPrepare(h eventHeader, body []byte) error {
	c := cursor{b: body}
	onePhase := c.u8() != 0
	format := c.u32()
	g, b := c.u32(), c.u32()
	if uint64(g)+uint64(b) > uint64(len(c.b)) {
		c.bad = true
	}
	if c.bad {
		return fmt.Errorf("XA PREPARE event at %s: %w", a.place(), errShort)
	}
	xid := xidKey(format, c.bytes(int(g)), c.bytes(int(b)))
	a.open(h)
	t := &a.trx
	if t.muted {
		return a.commit()
	}
	if !t.xa {
		if err := a.xaStart(xid); err != nil {
			return err
		}
	}
	if t.xid != xid {
		return fmt.Errorf("XA PREPARE of %s at %s ends the transaction of %s", xid, a.place(), t.xid)
	}
	if onePhase && t.cuts == 0 { // all its rows are in memory: a transaction like any other
		a.park.abort()
		t.xa = false
		return a.commit()
	}
	if len(a.buf) > 0 {
		if err := a.park.add(a.buf); err != nil {
			return err
		}
		a.buf = a.buf[:0]
	}
	if err := a.park.prepared(); err != nil {
		return err
	}
	t.xa, t.emitted = false, false
	if onePhase {
		return a.xaCommit(xid)
	}
	return a.commit()
}

// xaCommit publishes what was parked, as the transaction that is open now.
func (a *assembler) xaCommit(xid string) error {
	t := &a.trx
	if t.muted {
		return a.commit()
	}
	if t.xid != "" {
		xid = t.xid // MariaDB's GTID event says it too
	}
	p, err := a.park.open(xid)
	if errors.Is(err, fs.ErrNotExist) || a.park == nil {
		return relay.Permanent(fmt.Errorf("XA COMMIT of %s at %s%s: its PREPARE was before the place where reading began, so its rows are not known", xid, a.place(), a.gtidNote()),
			"begin before its PREPARE with MYSQL_START, or copy its rows and begin behind this place")
	}
	if err != nil {
		return err
	}
	defer p.close()
	var hold []byte // one part back: only the last one has the position
	for {
		part, err := p.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if len(hold) > 0 {
			if err := a.emit(relay.Part{Data: hold, First: !t.emitted, More: true}); err != nil {
				return err
			}
			t.emitted = true
		}
		if hold, err = a.republish(hold[:0], part, !t.emitted); err != nil {
			return err
		}
	}
	first := !t.emitted
	t.open, t.emitted = false, false
	a.countGTID()
	a.stats.transactions.Add(1)
	a.stats.commit.Store(int64(t.micros))
	if len(hold) > 0 {
		hold[1] |= partLast
	}
	a.quiet.clear()
	// Urgent: the file may go only when the position behind this place is durable.
	if err := a.emit(relay.Part{Data: hold, Pos: a.live.bytes(), First: first || len(hold) == 0, Urgent: true}); err != nil {
		return err
	}
	return a.park.remove(xid)
}

// republish gives a parked part the header of the transaction that commits it.
func (a *assembler) republish(dst, part []byte, first bool) ([]byte, error) {
	h, _, _, events, err := parsePart(part)
	if err != nil {
		return dst, fmt.Errorf("parked XA transaction: %w", err)
	}
	t := &a.trx
	n := partHeader{Flags: h.Flags &^ (partFirst | partLast), ServerID: t.serverID, CommitMicros: t.micros,
		RowBase: h.RowBase, Pos: t.start, File: a.live.p.File, GTID: string(a.gtid)}
	if first {
		n.Flags |= partFirst
	}
	return append(n.append(dst), events...), nil
}

// xaRollback forgets what was parked.
func (a *assembler) xaRollback(xid string) error {
	t := &a.trx
	if t.xid != "" {
		xid = t.xid
	}
	muted := t.muted
	if err := a.commit(); err != nil || muted || a.park == nil {
		return err
	}
	if !a.park.has(xid) {
		return nil
	}
	a.quiet.clear()
	if err := a.emit(relay.Part{Pos: a.live.bytes(), First: true, Urgent: true}); err != nil {
		return err
	}
	return a.park.remove(xid)
}

// parking keeps prepared XA transactions, one file each: magic, xid, then parts as length u32, CRC u32, bytes.
type parking struct {
	dir string
	f   *os.File // being written
	w   *bufio.Writer
	xid string
}

const parkMagic = "binrelay-xa-1\n"

func (p *parking) path(xid string) string {
	sum := sha256.Sum256([]byte(xid))
	return filepath.Join(p.dir, hex.EncodeToString(sum[:16])+".xa")
}

func (p *parking) begin(xid string) error {
	p.abort()
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return fmt.Errorf("park an XA transaction: %w", err)
	}
	f, err := os.OpenFile(p.path(xid)+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("park an XA transaction: %w", err)
	}
	p.f, p.xid = f, xid
	p.w = bufio.NewWriter(f)
	p.w.WriteString(parkMagic)
	p.record([]byte(xid))
	return nil
}

func (p *parking) record(b []byte) {
	var h [8]byte
	binary.LittleEndian.PutUint32(h[:], uint32(len(b)))
	binary.LittleEndian.PutUint32(h[4:], crc32.ChecksumIEEE(b))
	p.w.Write(h[:])
	p.w.Write(b)
}

// add appends a part. Errors of the writer stay with it until prepared.
func (p *parking) add(part []byte) error {
	if p.f == nil {
		return errors.New("parked part without an XA transaction")
	}
	p.record(part)
	return nil
}

// prepared makes what was added durable under its name.
func (p *parking) prepared() error {
	defer p.abort()
	p.record(nil) // the end: a file without it is damaged
	err := p.w.Flush()
	if err == nil {
		err = p.f.Sync()
	}
	if err == nil {
		err = os.Rename(p.f.Name(), p.path(p.xid))
	}
	if err == nil {
		err = p.syncDir()
	}
	if err != nil {
		return fmt.Errorf("park XA transaction %s: %w", p.xid, err)
	}
	return nil
}

// abort gives up what is being written; after prepared it only closes.
func (p *parking) abort() {
	if p == nil || p.f == nil {
		return
	}
	p.f.Close()
	os.Remove(p.f.Name())
	p.f, p.w = nil, nil
}

func (p *parking) syncDir() error {
	d, err := os.Open(p.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (p *parking) has(xid string) bool {
	_, err := os.Stat(p.path(xid))
	return err == nil
}

func (p *parking) remove(xid string) error {
	if err := os.Remove(p.path(xid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget XA transaction %s: %w", xid, err)
	}
	return nil
}

// parkedReader reads the parts of one parked transaction.
type parkedReader struct {
	f    *os.File
	r    *bufio.Reader
	path string
	buf  []byte
}

func (p *parking) open(xid string) (*parkedReader, error) {
	if p == nil {
		return nil, fs.ErrNotExist
	}
	f, err := os.Open(p.path(xid))
	if err != nil {
		return nil, err
	}
	r := &parkedReader{f: f, r: bufio.NewReader(f), path: f.Name()}
	magic := make([]byte, len(parkMagic))
	if _, err := io.ReadFull(r.r, magic); err != nil || string(magic) != parkMagic {
		f.Close()
		return nil, r.damaged()
	}
	if name, err := r.next(); err != nil || string(name) != xid {
		f.Close()
		return nil, r.damaged()
	}
	return r, nil
}

func (r *parkedReader) damaged() error {
	return relay.Permanent(fmt.Errorf("%s, a parked XA transaction, is damaged", r.path), "its rows have to be copied; then begin behind its XA COMMIT with MYSQL_START")
}

// next returns the next part, valid until the next call; io.EOF at the end.
func (r *parkedReader) next() ([]byte, error) {
	var h [8]byte
	if _, err := io.ReadFull(r.r, h[:]); err != nil {
		return nil, r.damaged()
	}
	n := int(binary.LittleEndian.Uint32(h[:]))
	if n == 0 {
		return nil, io.EOF
	}
	if info, err := r.f.Stat(); err != nil || int64(n) > info.Size() {
		return nil, r.damaged()
	}
	if cap(r.buf) < n {
		r.buf = make([]byte, n)
	}
	r.buf = r.buf[:n]
	if _, err := io.ReadFull(r.r, r.buf); err != nil || crc32.ChecksumIEEE(r.buf) != binary.LittleEndian.Uint32(h[4:]) {
		return nil, r.damaged()
	}
	return r.buf, nil
}

func (r *parkedReader) close() { r.f.Close() }
