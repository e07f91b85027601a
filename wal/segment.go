package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// segment is one Badger directory. Its life: made empty by the keeper (a spare), written by the committer,
// retired at rotation, sealed by the keeper, read, trimmed.
type segment struct {
	id  uint64
	dir string

	// Committer only, while the segment is active.
	used    int64 // bytes of the value log
	kept    int64 // used when the written part was last taken out of resident memory
	commits int
	sealer  *sealer

	// Under Log.mu.
	sum     summary
	bytes   int64 // allocated on disk
	retired bool  // no more writes
	sealed  bool
	asFound bool // not sealed, and will not be by this process; it is read from its value log

	// mu guards store: readers hold it shared while they use the handle.
	mu      sync.RWMutex
	store   *store // read-write while active, read-only or nil once closed
	raw     *rawSegment
	closed  bool // by Badger, cleanly
	removed bool
}

// empty reports whether the segment has no chunks. Caller holds Log.mu or owns s.
func (s *segment) empty() bool { return s.sum.firstNum == 0 }

func segmentName(id uint64) string { return fmt.Sprintf("%s%012d", segPrefix, id) }

// valueLogBytes is how much of a segment's value log is given blocks: a segment's worth, or one chunk of
// the largest size where that is more.
func (l *Log) valueLogBytes() int64 {
	return max(l.o.SegmentBytes, int64(encodedMax(l.o.fillMax()))) + 64<<10
}

const (
	// memtableRoom is what maxCommits keys and pointers take of the memtable's file.
	memtableRoom = memtableBytes + memtableBytes/4
	// headroom is what closing or recovering a segment may need: a table, a manifest, a fresh memtable.
	headroom = 4 << 20
)

// segmentCost is what a new segment takes from the disk.
func (l *Log) segmentCost() int64 { return l.valueLogBytes() + memtableRoom + 256<<10 }

// create makes an empty segment whose files have all the blocks they will ever need.
func (l *Log) create(id uint64) (s *segment, err error) {
	s = &segment{id: id, dir: filepath.Join(l.dir, segmentName(id))}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			if s.store != nil {
				s.store.close()
			}
			os.RemoveAll(s.dir)
			s = nil
		}
	}()
	if s.sealer, err = l.keys.sealer(); err != nil {
		return s, err
	}
	if s.store, err = openStore(s.dir, l.valueLogBytes(), false, newPoisonLogger(s.dir, l.o.Logger)); err != nil {
		return s, err
	}
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return s, err
	}
	for _, e := range files {
		path := filepath.Join(s.dir, e.Name())
		if err := os.Chmod(path, 0o600); err != nil {
			return s, err
		}
		size := int64(0)
		switch filepath.Ext(path) {
		case vlogExt:
			size = l.valueLogBytes()
		case ".mem":
			size = memtableRoom
		default:
			continue
		}
		if err := preallocate(path, size); err != nil {
			return s, fmt.Errorf("reserve %d bytes: %w", size, err)
		}
		adviseRandom(path)
	}
	// Badger does not sync the directory after it made the files.
	for _, d := range []string{s.dir, l.dir} {
		if err := syncDir(d); err != nil {
			return s, err
		}
	}
	s.bytes = allocated(s.dir)
	// From now on an error concerns the log, not only the making of a segment.
	poison := l.poison
	s.store.logger.onFault.Store(&poison)
	return s, s.store.logger.err()
}

func preallocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return fallocate(f, size)
}

// load learns what a segment left by an earlier process holds. One that was not sealed is recovered.
func (l *Log) load(s *segment) error {
	s.retired, s.sealed, s.closed = true, true, true
	sum, err := readSealed(s.dir)
	switch {
	case err == nil:
		s.sum = *sum
	case errors.Is(err, fs.ErrNotExist):
		err := l.recoverSegment(s)
		if errors.Is(err, errNoHeadroom) {
			// Reading and trimming it is what makes room, and both can be done without a write.
			l.o.Logger.Warn("wal: the disk is too full to recover a segment; it is used as it was found",
				"segment", filepath.Base(s.dir))
			s.sealed, s.closed, s.asFound = false, false, true
		} else if err != nil {
			return err
		}
	default:
		return l.corrupt(s, 0, err)
	}
	if s.empty() {
		return nil
	}
	s.bytes = allocated(s.dir)
	if err := l.keys.check(s.sum.keyID); err != nil {
		return fmt.Errorf("%s: %w", s.dir, err)
	}
	return nil
}

// recoverSegment brings a segment that a crash left open into the sealed state. What it holds is decided by the
// value log alone; Badger's index is then made to agree, and is filled in where a damaged memtable made
// Badger forget chunks that are there.
func (l *Log) recoverSegment(s *segment) error {
	raw, err := scanSegment(s.dir, true)
	s.sum = raw.sum
	if err != nil {
		return l.corrupt(s, s.sum.last.next(), err)
	}
	defer raw.close()
	if tables, _ := filepath.Glob(filepath.Join(s.dir, "*.sst")); s.empty() && raw.torn == 0 && len(tables) == 0 {
		return nil // a spare, or one that never acknowledged anything; the caller removes it
	}
	if raw.torn > 0 {
		l.o.Logger.Info("wal: left out an unfinished write", "segment", filepath.Base(s.dir), "bytes", raw.torn)
	}
	if err := sweepEmpty(s.dir); err != nil {
		return err
	}
	if err := l.needHeadroom(); err != nil {
		return err
	}
	st, err := openStore(s.dir, l.valueLogBytes(), false, newPoisonLogger(s.dir, l.o.Logger))
	if err != nil {
		return l.corrupt(s, raw.sum.first, err)
	}
	refilled := 0
	for n := raw.sum.firstNum; !s.empty() && n <= raw.sum.last.number && err == nil; n++ {
		err = raw.view(n, func(want []byte) error {
			if st.holds(n, want) {
				return nil
			}
			refilled++
			return st.put(n, want)
		})
	}
	newest := st.newest()
	if e := st.close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("wal: recover %s: %w", s.dir, err)
	}
	// Badger writes and syncs a value before the key that points to it, so a key without its chunk is no
	// torn write: the chunk was whole once.
	if newest > s.sum.last.number {
		return l.corrupt(s, s.sum.last.next(), fmt.Errorf("chunk %d was written and is not readable", newest))
	}
	if s.empty() {
		return nil
	}
	if refilled > 0 {
		l.o.Logger.Warn("wal: badger had lost chunks that are in its value log; its index was damaged and is mended",
			"segment", filepath.Base(s.dir), "chunks", refilled)
	}
	return l.writeSeal(s)
}

// writeSeal makes SEALED. The segment must be closed.
func (l *Log) writeSeal(s *segment) error {
	files, err := sumFiles(s.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Chmod(filepath.Join(s.dir, f.name), 0o600); err != nil {
			return err
		}
	}
	s.sum.files = files
	return writeFile(s.dir, sealedFile, s.sum.marshal())
}

// view calls fn with the stored bytes of a chunk. Log.readMu is held, so at most one segment besides those
// being written has an open handle.
func (l *Log) view(s *segment, number uint64, fn func([]byte) error) error {
	s.mu.RLock()
	if s.store == nil && s.raw == nil && !s.removed {
		s.mu.RUnlock()
		if err := l.openRead(s); err != nil {
			return err
		}
		s.mu.RLock()
	}
	defer s.mu.RUnlock()
	switch {
	case s.removed:
		return errGone
	case s.store != nil:
		return s.store.view(number, func(v []byte) error {
			if l.unforgotten += int64(len(v)); l.unforgotten > forgetBytes {
				l.unforgotten = 0
				defer forget(filepath.Join(s.dir, "000001"+vlogExt), 1<<40)
			}
			return fn(v)
		})
	case s.raw != nil:
		return s.raw.view(number, fn)
	}
	return errGone // sealed between the two locks; the caller looks again
}

// openRead opens a closed segment for reading, and closes the one that was read before it.
func (l *Log) openRead(s *segment) error {
	if p := l.reading; p != nil && p != s {
		l.reading = nil
		p.mu.Lock()
		err := p.closeStore()
		p.mu.Unlock()
		if err != nil {
			return fmt.Errorf("wal: close %s: %w", p.dir, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store != nil || s.raw != nil || s.removed {
		return nil
	}
	var err error
	if l.readOnly || !s.closed {
		s.raw, err = scanSegment(s.dir, false)
	} else {
		// A read-only open does not look at the value log, and Badger trusts what its small files say.
		var sum *summary
		if sum, err = readSealed(s.dir); err == nil {
			err = sum.checkFiles(s.dir, false)
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) && sum == nil { // closed a moment ago, not sealed yet
			s.store, err = openStore(s.dir, l.valueLogBytes(), true, newPoisonLogger(s.dir, l.o.Logger))
		}
	}
	if err != nil {
		return err
	}
	l.reading = s
	return nil
}

// closeStore closes whatever handle there is. Caller holds s.mu.
func (s *segment) closeStore() (err error) {
	if s.store != nil {
		err = s.store.close()
		s.store = nil
	}
	if s.raw != nil {
		s.raw.close()
		s.raw = nil
	}
	return err
}

// trash takes a closed segment out of the log, durably; its bytes are removed later by the keeper.
func (l *Log) trash(s *segment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.closeStore(); err != nil {
		l.o.Logger.Warn("wal: close a trimmed segment", "segment", filepath.Base(s.dir), "err", err)
	}
	// One rename and one sync at a time, oldest first: a power cut then cannot leave a gap.
	to := filepath.Join(l.dir, trashPrefix+filepath.Base(s.dir))
	if err := os.Rename(s.dir, to); err != nil {
		return fmt.Errorf("wal: trim %s: %w", s.dir, err)
	}
	s.removed = true
	return syncDir(l.dir)
}

// corrupt wraps damage of a segment with its place.
func (l *Log) corrupt(s *segment, seq uint64, err error) error {
	return &CorruptError{Dir: l.dir, Segment: filepath.Base(s.dir), Seq: max(seq, s.sum.first), Err: err}
}
