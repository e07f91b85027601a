package wal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sort"

	"golang.org/x/sys/unix"
)

// cursor is the chunk that the last read from disk stopped in: reading on costs no search, no second
// decompression and no second checksum.
type cursor struct {
	ok  bool
	c   storedChunk // c.raw is the cursor's own memory
	at  records     // the first record not yet taken
	raw []byte
}

// holds reports whether reading from seq on may begin at the cursor.
func (c *cursor) holds(seq uint64) bool {
	from := c.c.first + uint64(c.at.i)
	if c.at.i == 0 && c.c.head {
		from++
	}
	return c.ok && seq >= from && seq <= c.c.last()+1
}

// Read returns readable entries from seq on: at least one, at most about maxBytes (one that is larger comes
// alone), and it waits for the first. Below First() it begins at First(). Void entries are left out, so
// numbers may have gaps. The caller releases the batch. Damage is a *CorruptError.
func (l *Log) Read(ctx context.Context, seq uint64, maxBytes int) (*Batch, error) {
	b := batches.Get().(*Batch)
	for {
		q, err := l.awaitEntry(ctx, seq, maxBytes)
		if err != nil {
			b.Release()
			return nil, err
		}
		ok, err := l.ring.read(b, q)
		if !ok && err == nil {
			err = l.readDisk(b, q)
		}
		switch {
		case errors.Is(err, errGone): // trimmed meanwhile: begin again at the new First
			b.ends, b.buf, b.partial = b.ends[:0], b.buf[:0], false
			continue
		case err == nil && (len(b.ends) == 0 || b.partial):
			err = fmt.Errorf("entry %d is missing", q.seq)
			fallthrough
		case err != nil:
			b.Release()
			if errors.Is(err, ErrKey) || errors.Is(err, ErrClosed) || errors.Is(err, errShort) {
				return nil, err
			}
			return nil, l.damage(nil, 0, q.seq, err)
		}
		return b.finish(), nil
	}
}

// awaitEntry waits until there is a readable entry at or above seq.
func (l *Log) awaitEntry(ctx context.Context, seq uint64, maxBytes int) (query, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if l.closed.Load() {
			return query{}, ErrClosed
		}
		from := skipVoid(l.voids, max(seq, l.first()))
		if from <= l.readLimit {
			return query{seq: from, limit: l.readLimit, max: maxBytes, voids: l.voids}, nil
		}
		if l.readOnly {
			return query{}, io.EOF
		}
		if l.err != nil {
			return query{}, l.err
		}
		if err := l.wait(ctx, &l.readable); err != nil {
			return query{}, err
		}
	}
}

// readDisk fills b from segments.
func (l *Log) readDisk(b *Batch, q query) error {
	l.readMu.Lock()
	defer l.readMu.Unlock()
	if l.closed.Load() {
		return ErrClosed
	}
	cur := &l.cursor
	if !cur.holds(q.seq) {
		n, err := l.locate(q.seq)
		if err != nil {
			return err
		}
		if err := l.loadChunk(n, q.seq, false); err != nil {
			return err
		}
	}
	for {
		done, err := b.add(&cur.at, q)
		if err != nil {
			cur.ok = false
			return l.damage(nil, cur.c.number, q.seq, err)
		}
		if done || !b.partial && cur.c.last() >= q.limit {
			return nil
		}
		if err := l.loadChunk(cur.c.number+1, cur.c.next(), true); err != nil {
			if len(b.ends) > 0 && !b.partial {
				return nil // what we have is good; the next read meets the damage
			}
			return err
		}
	}
}

// segmentOf returns the segment that holds chunk number, nil when it was trimmed or does not exist.
// Caller holds l.mu.
func (l *Log) segmentOf(number uint64) *segment {
	i := sort.Search(len(l.segs), func(i int) bool { return l.segs[i].sum.last.number >= number })
	if i == len(l.segs) || l.segs[i].sum.firstNum > number {
		return nil
	}
	return l.segs[i]
}

// fetch reads the header of a chunk into c and calls fn while the bytes are there. seq is the entry that
// is looked for, to be named with damage.
func (l *Log) fetch(number, seq uint64, c *storedChunk, fn func() error) error {
	l.mu.Lock()
	s := l.segmentOf(number)
	newest := l.number
	l.mu.Unlock()
	if s == nil {
		if number > newest {
			return fmt.Errorf("chunk %d is missing at the end of the log", number)
		}
		return errGone
	}
	err := l.view(s, number, func(v []byte) error {
		if err := c.decode(v); err != nil {
			return fmt.Errorf("chunk %d: %w", number, err)
		}
		if c.number != number {
			return fmt.Errorf("chunk %d is where chunk %d should be", c.number, number)
		}
		return fn()
	})
	c.pos, c.aad, c.body = nil, nil, nil // were pieces of v
	switch {
	case err == nil, errors.Is(err, errGone), errors.Is(err, ErrKey):
		return err
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: %w", errShort, err) // of something else than disk bytes
	}
	return l.damage(s, number, seq, err)
}

// loadChunk makes chunk number the cursor's; onward says that it has to follow the one that was.
func (l *Log) loadChunk(number, seq uint64, onward bool) error {
	cur := &l.cursor
	prev := cur.c.chunk
	cur.ok = false
	err := l.fetch(number, seq, &cur.c, func() (err error) {
		if onward {
			if err := cur.c.follows(&prev); err != nil {
				return err
			}
		}
		cur.raw, err = cur.c.payload(cur.raw, l.readKeys)
		return err
	})
	if err != nil {
		return err
	}
	cur.ok, cur.at = true, records{c: &cur.c.chunk}
	return nil
}

// locate finds the chunk in which entry seq begins: the first one that reaches beyond it.
func (l *Log) locate(seq uint64) (uint64, error) {
	l.mu.Lock()
	i := sort.Search(len(l.segs), func(i int) bool { return l.segs[i].sum.last.last() >= seq })
	if i == len(l.segs) {
		l.mu.Unlock()
		return 0, fmt.Errorf("entry %d is missing at the end of the log", seq)
	}
	lo, hi := l.segs[i].sum.firstNum, l.segs[i].sum.last.number
	l.mu.Unlock()
	var c storedChunk
	for lo < hi {
		mid := lo + (hi-lo)/2
		if err := l.fetch(mid, seq, &c, func() error { return nil }); err != nil {
			return 0, err
		}
		if c.last() >= seq {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo, nil
}

// damage makes the error that names the place.
func (l *Log) damage(s *segment, number, seq uint64, err error) error {
	var c *CorruptError
	if errors.As(err, &c) {
		return err
	}
	if s == nil {
		l.mu.Lock()
		s = l.segmentOf(number)
		l.mu.Unlock()
	}
	e := &CorruptError{Dir: l.dir, Seq: seq, Err: err}
	if s != nil {
		e.Segment = filepath.Base(s.dir)
	}
	return e
}
