package wal

import (
	"context"
	"fmt"
	"time"
)

// recordHead is what a record needs beside its bytes: two uvarints below 2³⁵.
const recordHead = 10

// idleSync is how long a position without entries may stay in memory only.
const idleSync = time.Second

// Append adds one entry and returns its sequence number. It copies data and pos. The entry becomes durable
// and readable with the next commit, a few milliseconds later; Sync waits for that.
//
// more says that other parts of the same transaction follow: the entry stays unreadable until one with
// more false comes, and pos, the source position after the transaction, counts only then (empty: it stays
// what it was). Without data and more no entry is made: the open transaction, if there is one, is whole,
// and the position moves on; it is durable with the next commit, at the latest after about a second.
//
// Append waits while two chunks are full, and while the log or the disk is full. When ctx ends first, the
// entry is not in the log.
func (l *Log) Append(ctx context.Context, data, pos []byte, more bool) (seq uint64, err error) {
	if len(data) > maxEntryBytes || len(pos) > maxPosBytes {
		return 0, fmt.Errorf("wal: entry of %d bytes with a position of %d bytes: the limits are %d and %d",
			len(data), len(pos), maxEntryBytes, maxPosBytes)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.takeTurn(ctx); err != nil {
		return 0, err
	}
	if len(data) == 0 && !more {
		l.finish(l.live, pos)
		l.touch(l.live != 0)
		l.live = 0
		return l.next - 1, nil
	}
	if need := len(data) + recordHead; !l.fits(need) {
		if err := l.appendSlow(ctx, data, need); err != nil {
			return 0, err
		}
	} else {
		l.put(data)
	}
	seq = l.next
	l.next++
	if more {
		l.live = seq
	} else {
		l.finish(seq, pos)
		l.live = 0
	}
	return seq, nil
}

// finish makes all up to seq one whole transaction that ends at pos.
func (l *Log) finish(seq uint64, pos []byte) {
	l.visible = max(l.visible, seq)
	if len(pos) > 0 {
		l.pos = append(l.pos[:0], pos...)
	}
}

// touch marks cur for a commit although it may have no records: at once, or within idleSync.
func (l *Log) touch(now bool) {
	if now {
		l.urgent = true
	} else if !l.idle {
		l.idle, l.idleAt = true, time.Now()
	}
	poke(l.work)
}

// takeTurn waits for an append that goes over several chunks: its parts must not be mixed with others.
func (l *Log) takeTurn(ctx context.Context) error {
	for l.busy && l.err == nil {
		if err := l.wait(ctx, &l.turn); err != nil {
			return err
		}
	}
	if l.readOnly {
		return ErrReadOnly
	}
	return l.err
}

// fits reports whether a record of so many bytes may go into cur.
func (l *Log) fits(need int) bool {
	return !l.cur.tail && len(l.cur.voids) < maxVoids-4 && len(l.cur.raw)+need <= l.fill
}

func (l *Log) put(data []byte) {
	l.cur.addEntry(l.next, data)
	if l.cur.count == 1 {
		poke(l.work)
	}
}

// appendSlow appends an entry for which there is no room at once, or never in one chunk.
func (l *Log) appendSlow(ctx context.Context, data []byte, need int) error {
	l.busy = true
	defer func() {
		l.busy, l.split = false, false
		l.turn.open()
	}()
	whole := need <= l.o.ChunkBytes // fill may shrink while we wait, but not below
	for off := 0; ; {
		if whole {
			need = len(data) + recordHead
		} else {
			need = min(len(data)-off, l.o.ChunkBytes/8) + recordHead // no crumbs
		}
		for !l.fits(need) {
			l.waited, l.urgent = true, true
			poke(l.work)
			poke(l.hurry)
			err := l.wait(ctx, &l.room)
			if err == nil {
				err = l.err
			}
			if err != nil {
				l.giveUp(off)
				return err
			}
		}
		if whole {
			l.put(data)
			return nil
		}
		n := min(len(data)-off, l.fill-len(l.cur.raw)-recordHead)
		l.cur.addFragment(l.next, data[off:off+n], off, len(data))
		l.split = l.cur.tail
		poke(l.work)
		if off += n; off == len(data) {
			return nil
		}
	}
}

// giveUp voids the entry of which off bytes are already on their way.
func (l *Log) giveUp(off int) {
	if off == 0 {
		return
	}
	l.voidRange(span{l.next, l.next})
	l.next++
}

// Abandon drops the parts of the open transaction: they are never readable, also after a crash. Their
// sequence numbers are not used again.
func (l *Log) Abandon(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.takeTurn(ctx); err != nil {
		return err
	}
	l.abandon()
	return nil
}

func (l *Log) abandon() {
	l.live = 0
	if l.next-1 > l.visible {
		l.voidRange(span{l.visible + 1, l.next - 1})
	}
}

// voidRange declares s, which reaches up to the newest number given, void in cur and here.
func (l *Log) voidRange(s span) {
	l.cur.voids = addVoid(l.cur.voids, s)
	l.voids = addVoid(l.voids, s)
	l.touch(false)
}

// addVoid appends s, which ends behind all ranges of v and may swallow some of them. Readers may hold v.
func addVoid(v []span, s span) []span {
	n := len(v)
	for n > 0 && v[n-1].From >= s.From {
		n--
	}
	if n < len(v) {
		v = v[:n:n]
	}
	return append(v, s)
}

// Sync waits until all that was appended, and the position, is durable.
func (l *Log) Sync(ctx context.Context) error {
	if l.readOnly {
		return ErrReadOnly
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	target := l.curGen - 1
	if l.cur.count > 0 || l.idle || l.urgent {
		target++
		l.urgent = true
		poke(l.work)
		poke(l.hurry)
	}
	for l.done < target {
		if l.err != nil {
			return l.err
		}
		if err := l.wait(ctx, &l.synced); err != nil {
			return err
		}
	}
	return nil
}
