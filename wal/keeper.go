package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// keeperTick is how often a full log looks whether there is room again.
const keeperTick = time.Second

// keep is the keeper: it makes the next segment before it is needed, seals retired ones and removes the
// bytes of trimmed ones, each in turn so that none of them starves.
func (l *Log) keep() {
	tick := time.NewTicker(keeperTick)
	defer tick.Stop()
	for {
		select {
		case <-l.quitKeeper:
			return
		default:
		}
		made := l.makeSpare()
		sealed := l.sealOne()
		if err := l.dropTrimmed(); err != nil {
			l.o.Logger.Warn("wal: trim", "err", err)
		}
		removed := l.removeTrash()
		if made || sealed || removed {
			continue
		}
		select {
		case <-l.quitKeeper:
			return
		case <-l.kick:
		case <-tick.C:
			if err := stillLocked(l.dir, l.lock); err != nil {
				l.fail(err)
			}
			l.makeReserve()
		}
	}
}

// makeSpare makes the next segment if there is none and there is room for one.
func (l *Log) makeSpare() bool {
	if len(l.spare) > 0 {
		return false
	}
	l.mu.Lock()
	full := l.noRoom()
	wanted := l.wanted
	l.mu.Unlock()
	var s *segment
	if full == "" {
		var err error
		if s, err = l.create(l.lastID + 1); err != nil {
			full = fmt.Sprintf("cannot make a segment: %v", err)
			if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
				full = "the disk is full"
			}
		}
	}
	if s != nil {
		l.lastID++
		l.spare <- s
		if wanted {
			l.setFull("")
		}
		return true
	}
	if wanted {
		l.setFull(full)
		if l.closed.Load() {
			l.spare <- nil // the last commit does not wait for room
		}
	}
	return false
}

// noRoom says why no segment may be made now, "" when one may. Caller holds l.mu.
func (l *Log) noRoom() string {
	cost := l.segmentCost()
	if f := free(l.dir); f-cost < l.o.MinFree {
		return fmt.Sprintf("the disk has %s free, of which %s must stay free and a segment takes %s",
			size(f), size(l.o.MinFree), size(cost))
	}
	if l.wanted && l.overdraw {
		return ""
	}
	// A segment that nobody needs goes as soon as the next one is there.
	kept := l.bytes(l.needed)
	if kept+cost > l.o.MaxBytes && kept > l.reserve {
		return fmt.Sprintf("the log has %s of the %s it may have", size(kept), size(l.o.MaxBytes))
	}
	return ""
}

// bytes is what the log takes on disk for the segments that count. Caller holds l.mu.
func (l *Log) bytes(count func(*segment) bool) int64 {
	sum := l.reserve
	for _, s := range l.segs {
		if count(s) {
			sum += s.bytes
		}
	}
	if l.active != nil && l.active.empty() {
		sum += l.active.bytes
	}
	if len(l.spare) > 0 {
		sum += l.segmentCost()
	}
	return sum
}

func (l *Log) setFull(why string) {
	l.mu.Lock()
	was := l.full
	l.full = why
	l.mu.Unlock()
	switch {
	case why != "" && was == "":
		l.o.Logger.Warn("wal: full, appends wait", "dir", l.dir, "why", why)
	case why == "" && was != "":
		l.o.Logger.Info("wal: there is room again", "dir", l.dir)
	}
}

// sealOne closes and seals the oldest segment that waits for it.
func (l *Log) sealOne() bool {
	l.mu.Lock()
	var s *segment
	for _, x := range l.segs {
		if x.retired && !x.sealed && !x.asFound {
			s = x
			break
		}
	}
	dead := s != nil && !l.needed(s)
	l.mu.Unlock()
	if s == nil {
		return false
	}
	if err := l.seal(s, dead); err != nil {
		if !errors.Is(err, errNoHeadroom) {
			l.mu.Lock()
			s.asFound = true
			l.mu.Unlock()
			l.o.Logger.Error("wal: cannot seal a segment; it is recovered at the next start",
				"segment", filepath.Base(s.dir), "err", err)
		}
		return false
	}
	return true
}

// seal closes a retired segment's Badger and writes SEALED. Readers of the segment wait meanwhile. dead
// says that nobody needs its chunks any more.
func (l *Log) seal(s *segment, dead bool) error {
	if !s.closed {
		s.mu.Lock()
		err := l.needHeadroom()
		if err != nil && dead {
			// Closing writes a table through a mapping: on a full disk that is a SIGBUS. Its own blocks do.
			if err = punchHole(filepath.Join(s.dir, "000001"+vlogExt)); err == nil {
				err = l.needHeadroom()
			}
		}
		if err == nil {
			s.closed = true
			if err = s.store.close(); err != nil {
				s.closed = false // read it from the value log, which is whole
			}
			s.store = nil
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	if err := l.writeSeal(s); err != nil {
		return err
	}
	bytes := allocated(s.dir)
	l.mu.Lock()
	s.sealed, s.bytes = true, bytes
	l.mu.Unlock()
	return nil
}

// sealAll closes everything at the end. clean: the last commit is known to be durable.
func (l *Log) sealAll(clean bool) error {
	select {
	case s := <-l.spare:
		if s != nil {
			l.discard(s)
		}
	default:
	}
	if l.active != nil && l.active.empty() {
		l.discard(l.active)
	}
	var first error
	for _, s := range l.segs {
		var err error
		switch {
		case s.sealed || s.asFound:
			s.mu.Lock()
			err = s.closeStore()
			s.mu.Unlock()
		case !clean && s == l.active:
			// A seal would vouch for a chunk whose sync failed. The next Open reads what is really there.
			s.mu.Lock()
			err = s.store.close()
			s.store = nil
			s.mu.Unlock()
			if err != nil {
				l.o.Logger.Warn("wal: close a failed segment", "segment", filepath.Base(s.dir), "err", err)
				err = nil
			}
		default:
			err = l.seal(s, false)
			if errors.Is(err, errNoHeadroom) {
				l.o.Logger.Warn("wal: the disk is too full to seal a segment; it is recovered at the next start",
					"segment", filepath.Base(s.dir))
				err = nil
			}
		}
		if err != nil && first == nil {
			first = fmt.Errorf("wal: close %s: %w", s.dir, err)
		}
	}
	return first
}

// discard removes a segment without chunks.
func (l *Log) discard(s *segment) {
	if err := s.store.close(); err != nil {
		l.o.Logger.Warn("wal: close an empty segment", "segment", filepath.Base(s.dir), "err", err)
	}
	os.RemoveAll(s.dir)
}

// removeTrash deletes one trimmed segment.
func (l *Log) removeTrash() bool {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), trashPrefix) {
			if err := os.RemoveAll(filepath.Join(l.dir, e.Name())); err != nil {
				l.o.Logger.Warn("wal: remove a trimmed segment", "err", err)
				return false
			}
			return true
		}
	}
	return false
}

var errNoHeadroom = errors.New("wal: the disk is too full to close or recover a segment; free a few MiB")

// needHeadroom makes sure that Badger may write a few blocks through a mapping. Others may take the last
// blocks while it does, so on a nearly full disk RESERVE is given up just before.
func (l *Log) needHeadroom() error {
	if free(l.dir) < 4*headroom {
		os.Remove(filepath.Join(l.dir, reserveFile))
		l.mu.Lock()
		l.reserve = 0
		l.mu.Unlock()
	}
	if free(l.dir) < headroom {
		return errNoHeadroom
	}
	return nil
}

// makeReserve sets a few MiB aside for the day when the disk is full and a segment must be closed.
func (l *Log) makeReserve() {
	if l.reserve > 0 {
		return
	}
	path := filepath.Join(l.dir, reserveFile)
	want := int64(2 * headroom)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if want > l.o.MaxBytes/8 || free(l.dir) < l.o.MinFree+want+4*headroom+2*l.segmentCost() {
			return
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return
		}
		err = fallocate(f, want)
		f.Close()
		if err != nil {
			os.Remove(path)
			return
		}
	}
	bytes := allocated(path)
	l.mu.Lock()
	l.reserve = bytes
	l.mu.Unlock()
}

// firstSpare makes the first segment, so that a new log that has no room at all is an error at once. A log
// with entries opens all the same: reading and trimming it is what makes room.
func (l *Log) firstSpare() error {
	if !l.makeSpare() && len(l.segs) == 0 {
		why := l.noRoom()
		if why == "" {
			_, err := l.create(l.lastID + 1)
			return dirError(l.dir, err)
		}
		return fmt.Errorf("wal: %s: no room for a new log: %s", l.dir, why)
	}
	return nil
}

// size prints bytes for people.
func size(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
