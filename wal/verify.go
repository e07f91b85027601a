package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// SegmentInfo is one segment as it lies on disk.
type SegmentInfo struct {
	Name    string    `json:"name"`
	Sealed  bool      `json:"sealed"` // closed cleanly; otherwise the next Open recovers it
	First   uint64    `json:"first"`  // entries that begin here
	Last    uint64    `json:"last"`
	Chunks  uint64    `json:"chunks"`
	Bytes   int64     `json:"bytes"`             // allocated on disk
	Torn    int64     `json:"torn,omitempty"`    // bytes of a write that a crash cut; no loss
	Newest  time.Time `json:"newest"`            // when its last chunk was committed
	Damage  string    `json:"damage,omitempty"`  // "" when all was read and is right (Verify), or when nobody looked (Stat)
	Entries uint64    `json:"entries,omitempty"` // counted by Verify, void ones included
}

// Report is what Stat and Verify found.
type Report struct {
	Dir       string        `json:"dir"`
	First     uint64        `json:"first"`
	Last      uint64        `json:"last"`
	Bytes     int64         `json:"bytes"`
	Free      int64         `json:"free_disk"`
	Position  []byte        `json:"-"`
	Encrypted bool          `json:"encrypted"`
	Segments  []SegmentInfo `json:"segments"`
}

// Stat describes the log in dir without reading its entries and without its key. Like Verify it changes
// nothing, and it fails with ErrLocked while a writer has the log.
func Stat(dir string) (Report, error) { return inspect(dir, Options{}, false, nil) }

// Verify reads every byte of the log in dir and compares it with its checksums, also what no reader would
// notice. It goes on behind damage, so that the report says what is readable; the error is the first
// damage. progress, which may be nil, is called after each segment.
func Verify(dir string, o Options, progress func(SegmentInfo)) (Report, error) {
	return inspect(dir, o, true, progress)
}

func inspect(dir string, o Options, all bool, progress func(SegmentInfo)) (r Report, err error) {
	if err := o.setDefaults(); err != nil {
		return r, err
	}
	l, err := newLog(dir, o, true)
	if err != nil {
		return r, err
	}
	defer l.lock.Close()
	segs, err := l.list()
	if err != nil {
		return r, err
	}
	r.Dir, r.Free, r.Bytes = l.dir, free(l.dir), allocated(l.dir)
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	var prev *summary
	for _, s := range segs {
		info := SegmentInfo{Name: filepath.Base(s.dir), Bytes: allocated(s.dir)}
		e := l.inspectSegment(s, &info, all)
		if e == nil && s.empty() {
			continue // made ahead, never used
		}
		if e == nil && prev != nil {
			c := chunk{number: s.sum.firstNum, first: s.sum.first, head: s.sum.head}
			if e = c.follows(&prev.last); e != nil {
				e = fmt.Errorf("does not follow the segment before it: %w", e)
			}
		}
		if e != nil {
			info.Damage = e.Error()
			keep(l.corrupt(s, s.sum.last.next(), e))
			prev = nil
		} else {
			for _, v := range s.sum.voids {
				l.voids = addVoid(l.voids, v)
			}
			r.Encrypted = r.Encrypted || s.sum.keyID != 0
			if r.First == 0 {
				r.First = s.sum.begins()
			}
			r.Last, r.Position = s.sum.last.visible, s.sum.last.pos
			prev = &s.sum
		}
		r.Segments = append(r.Segments, info)
		if progress != nil {
			progress(info)
		}
	}
	r.First = min(skipVoid(l.voids, max(r.First, 1)), r.Last+1)
	return r, err
}

// inspectSegment fills info, and s.sum.
func (l *Log) inspectSegment(s *segment, info *SegmentInfo, all bool) error {
	sum, err := readSealed(s.dir)
	sealed := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var raw *rawSegment
	if sealed {
		s.sum = *sum
	}
	if all || !sealed {
		if raw, err = scanSegment(s.dir, false); err != nil {
			s.sum = raw.sum
			return err
		}
		defer raw.close()
		if sealed && (raw.sum.firstNum != sum.firstNum || raw.sum.last.number != sum.last.number || raw.torn != 0) {
			return fmt.Errorf("holds chunks %d to %d, %d to %d were written", raw.sum.firstNum, raw.sum.last.number,
				sum.firstNum, sum.last.number)
		}
		s.sum, info.Torn = raw.sum, raw.torn
	}
	info.Sealed = sealed
	if s.empty() {
		return nil
	}
	info.First, info.Last = s.sum.begins(), s.sum.last.last()
	info.Chunks = s.sum.last.number - s.sum.firstNum + 1
	info.Newest = time.UnixMicro(int64(s.sum.last.micros)).UTC()
	if !all {
		return nil
	}
	if sealed {
		if err := sum.checkFiles(s.dir, true); err != nil {
			return err
		}
	}
	if err := l.keys.check(s.sum.keyID); err != nil {
		return err
	}
	var c storedChunk
	var buf []byte
	for n := s.sum.firstNum; n <= s.sum.last.number; n++ {
		err := raw.view(n, func(v []byte) (err error) {
			if err = c.decode(v); err != nil {
				return err
			}
			if buf, err = c.payload(buf, l.keys); err != nil {
				return err
			}
			for it := (records{c: &c.chunk}); it.i < c.count; {
				r, err := it.next()
				if err != nil {
					return err
				}
				if r.begin {
					info.Entries++
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("chunk %d: %w", n, err)
		}
	}
	return nil
}
