package wal

import (
	"path/filepath"
	"time"
)

const (
	// lingerMax is how long the committer waits for company when commits are small and frequent: it costs a
	// millisecond and saves more than half of the CPU and of the bytes written at 20,000 entries a second.
	lingerMax  = time.Millisecond
	lingerRate = 5 * time.Millisecond // commits closer together than this are frequent
	// forgetBytes is how much of the value log is written before it is taken out of resident memory.
	forgetBytes = 4 << 20
)

// commitLoop is the committer: it takes the filling chunk, makes it durable, and while it does the next one
// fills. The size of a commit so follows from how long the one before it took.
func (l *Log) commitLoop() {
	var out []byte
	for {
		c, gen, closing := l.take()
		if c == nil {
			return
		}
		start := time.Now()
		err := l.commit(c, &out)
		entries, bytes := int(c.count), len(c.raw)
		if err == nil {
			err = l.publish(c, gen)
		}
		if err != nil {
			l.fail(err)
			return
		}
		if l.o.OnCommit != nil {
			l.o.OnCommit(time.Since(start), entries, bytes)
		}
		if closing {
			return
		}
	}
}

// take waits until cur is worth a commit and swaps it with the other buffer. nil: the log closes and there
// is nothing left.
func (l *Log) take() (c *chunk, gen uint64, closing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		select {
		case <-l.broken:
			return nil, 0, closing
		case <-l.quit:
			closing = true
			if l.err == nil {
				l.err = ErrClosed
			}
		default:
		}
		ready, wait := l.ready(closing)
		if ready {
			break
		}
		if closing {
			return nil, 0, true
		}
		l.sleep(wait)
	}
	if l.small && !closing && !l.urgent && time.Since(l.lastTake) < lingerRate && len(l.cur.raw) < l.fill/2 {
		l.linger()
	}
	c, gen = l.cur, l.curGen
	l.small, l.lastTake = len(c.raw) < l.o.ChunkBytes/4, time.Now()
	l.cur, l.other = l.other, nil
	l.cur.reset()
	l.curGen++
	switch {
	case l.waited:
		l.fill = min(2*l.fill, l.o.fillMax())
	case len(c.raw) < l.o.ChunkBytes/2:
		l.fill = l.o.ChunkBytes
	}
	l.waited, l.urgent, l.idle = false, false, false
	c.number, c.visible, c.micros = l.number+1, l.visible, uint64(l.lastTake.UnixMicro())
	if c.count == 0 {
		c.first = l.next
	}
	c.pos = c.pos[:0]
	if l.pos == nil {
		c.pos = nil
	} else if c.pos = append(c.pos, l.pos...); c.pos == nil {
		c.pos = []byte{}
	}
	l.room.open()
	return c, gen, closing
}

// ready reports whether cur must be committed now, or else how long that can wait (0: until told).
func (l *Log) ready(closing bool) (bool, time.Duration) {
	switch {
	case l.cur.count > 0:
		return true, 0
	case l.split: // an empty chunk inside an entry would say nothing; the rest of the entry is coming
		return false, 0
	case l.urgent || closing && l.idle:
		return true, 0
	case l.idle:
		wait := idleSync - time.Since(l.idleAt)
		return wait <= 0, wait
	}
	return false, 0
}

// sleep gives l.mu up until there is work, the log closes, or d passed.
func (l *Log) sleep(d time.Duration) {
	l.mu.Unlock()
	defer l.mu.Lock()
	var timeout <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-l.work:
	case <-timeout:
	case <-l.quit:
	case <-l.broken:
	}
}

func (l *Log) linger() {
	l.mu.Unlock()
	defer l.mu.Lock()
	t := time.NewTimer(lingerMax)
	defer t.Stop()
	select {
	case <-l.hurry:
	case <-t.C:
	case <-l.quit:
	}
}

// commit makes c durable in the active segment, or in the next one. buf is kept for the encoded chunk.
func (l *Log) commit(c *chunk, buf *[]byte) (err error) {
	s := l.active
	if s != nil {
		*buf = c.encode((*buf)[:0], s.sealer)
	}
	if s == nil || s.used > 0 && s.used+int64(len(*buf))+vlogEntry > l.o.SegmentBytes || s.commits >= maxCommits {
		if s, err = l.rotate(c); err != nil {
			return err
		}
		*buf = c.encode((*buf)[:0], s.sealer) // each segment has a key of its own
	}
	if err := s.store.put(c.number, *buf); err != nil {
		return &FailedError{Dir: l.dir, Err: err}
	}
	s.used += int64(len(*buf)) + vlogEntry
	s.commits++
	if s.used-s.kept > forgetBytes {
		forget(filepath.Join(s.dir, "000001"+vlogExt), s.used)
		s.kept = s.used
	}
	return nil
}

// rotate makes the next segment the active one, waiting until there may be one.
func (l *Log) rotate(c *chunk) (*segment, error) {
	var s *segment
	select {
	case s = <-l.spare:
	default:
		l.mu.Lock()
		l.wanted = true
		// A transaction that is open before or after this chunk must not wait for Trim, which cannot pass it.
		l.overdraw = c.last() > c.visible || l.durable > l.readLimit
		l.mu.Unlock()
		poke(l.kick)
		select {
		case s = <-l.spare: // the keeper makes it as soon as there is room
		case <-l.broken:
			return nil, ErrClosed
		}
	}
	if s == nil { // closing, and no room; nobody was told that the chunk is durable
		return nil, ErrClosed
	}
	l.mu.Lock()
	l.wanted, l.full = false, ""
	if l.active != nil {
		l.active.retired = true
	}
	l.active = s
	l.mu.Unlock()
	poke(l.kick) // seal the old one, make another spare
	return s, nil
}

// publish makes c's entries known to readers and gives its buffer back.
func (l *Log) publish(c *chunk, gen uint64) error {
	s := l.active
	var keyID uint64
	if s.sealer != nil {
		keyID = s.sealer.keyID
	}
	l.ring.put(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	empty := s.empty()
	if err := s.sum.add(c, keyID); err != nil {
		return &FailedError{Dir: l.dir, Err: err} // our own numbering is wrong
	}
	if empty {
		l.segs = append(l.segs, s)
	}
	l.number, l.durable = c.number, c.last()
	l.done, l.commits = gen, l.commits+1
	l.other = c
	l.synced.open()
	if c.visible > l.readLimit {
		l.readLimit = c.visible
		l.readable.open()
	}
	return nil
}

// poison is told of errors that Badger only logs, by any segment that is or was written.
func (l *Log) poison(err error) { l.fail(&FailedError{Dir: l.dir, Err: err}) }

// fail stops the log for appends; what is durable stays readable. The first failure counts.
func (l *Log) fail(err error) {
	if err != ErrClosed {
		if gone := stillLocked(l.dir, l.lock); gone != nil { // the reason of whatever failed
			err = gone
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil || l.err == ErrClosed && err != ErrClosed {
		l.err = err
		if err != ErrClosed {
			l.o.Logger.Error("wal: no more entries are taken", "dir", l.dir, "err", err)
			close(l.broken)
		}
	}
	l.turn.open()
	l.room.open()
	l.synced.open()
	l.readable.open()
}
