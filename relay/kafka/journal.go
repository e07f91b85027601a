package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"binrelay/relay"
)

const (
	journalVersion = 1
	// fileBytes is when a new file is begun. Recovery reads all files that are kept.
	fileBytes = 16 << 20
	// keepFiles is how many files stay although all their records are acknowledged: they heal an
	// unclean leader election that lost acknowledged records.
	keepFiles = 3
)

// journal is the run of files hand-over-N.log in a directory. Each begins with a snapshot, so that the
// ones before can go. Its writer is one goroutine; scan may run beside it.
type journal struct {
	dir string

	f      *os.File
	size   int64 // written
	synced int64 // durable

	rotateAt int64 // size at which a new file is due

	mu    sync.RWMutex // the list of files, and their removal
	files []journalFile
}

type journalFile struct {
	num  uint64
	ends map[*partition]uint64 // records of each partition up to the end of the file, where it has some
}

func (j *journal) path(num uint64) string {
	return filepath.Join(j.dir, fmt.Sprintf("hand-over-%d.log", num))
}

// HasJournal reports whether dir, a Config.StateDir, holds a hand-over journal. A sink makes it as soon as it
// starts, before it sends anything.
func HasJournal(dir string) bool {
	files, _ := os.ReadDir(dir)
	return slices.ContainsFunc(files, func(f os.DirEntry) bool {
		return strings.HasPrefix(f.Name(), "hand-over-") && strings.HasSuffix(f.Name(), ".log")
	})
}

// openJournal reads the journal in dir. It writes nothing; begin must be called before append.
func openJournal(dir string) (*journal, *state, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	des, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	j := &journal{dir: dir}
	for _, de := range des {
		var num uint64
		if _, err := fmt.Sscanf(de.Name(), "hand-over-%d.log", &num); err != nil {
			continue
		}
		if strings.HasSuffix(de.Name(), ".tmp") { // never came to count
			os.Remove(filepath.Join(dir, de.Name()))
			continue
		}
		j.files = append(j.files, journalFile{num: num, ends: map[*partition]uint64{}})
	}
	slices.SortFunc(j.files, func(a, b journalFile) int { return int(int64(a.num - b.num)) })
	// Files are removed oldest first, without a sync of the directory: after a power cut some may be back.
	// What is before a missing one was dropped.
	for i := len(j.files) - 1; i > 0; i-- {
		if j.files[i-1].num+1 != j.files[i].num {
			j.files = j.files[i:]
			break
		}
	}
	st := &state{pid: -1}
	if len(j.files) == 0 {
		return j, st, nil
	}
	first := true
	err = j.frames(func(i int, kind frameKind, body []byte) error {
		r := &reader{b: body}
		switch kind {
		case kindSnapshot:
			if err := readPreamble(r); err != nil {
				return err
			}
			if first {
				first = false
				return st.readSnapshot(r)
			}
			return st.sameAs(r)
		case kindTopic:
			return st.applyTopic(r)
		case kindNotes:
			return st.applyNotes(r)
		case kindSession:
			if err := st.applySessions(r); err != nil || len(r.b) == 0 {
				return err
			}
			fallthrough
		case kindBatch:
			h := r.batchHead()
			if r.err != nil {
				return r.err
			}
			if err := st.applyBatch(h); err != nil {
				return err
			}
			for _, c := range h.index {
				p, _ := st.partition(c.topic, c.part)
				j.files[i].ends[p] = p.n
			}
			return nil
		}
		return fmt.Errorf("frames of kind %d are not known to this version", kind)
	})
	if err != nil {
		return nil, nil, relay.Permanent(fmt.Errorf("hand-over journal %s: %w", dir, err),
			"the disk or a hand has damaged it; restore WAL_DIR whole, or remove this directory: then up to a few thousand records are sent again")
	}
	for _, t := range st.topics {
		if t == nil {
			return nil, nil, relay.Permanent(fmt.Errorf("hand-over journal %s: a topic is missing", dir), "restore WAL_DIR whole")
		}
	}
	return j, st, nil
}

// sameAs checks a later snapshot against what the frames before it add up to. What a snapshot knows
// better are acknowledgements, whose notes are not synced.
func (s *state) sameAs(r *reader) error {
	next := &state{}
	if err := next.readSnapshot(r); err != nil {
		return err
	}
	if next.covered != s.covered || len(next.topics) < len(s.topics) {
		return fmt.Errorf("a snapshot at log entry %d with %d topics follows frames up to %d with %d", next.covered, len(next.topics), s.covered, len(s.topics))
	}
	s.cluster, s.pid, s.epoch = next.cluster, next.pid, next.epoch
	for i, nt := range next.topics {
		if i >= len(s.topics) {
			s.topics = append(s.topics, nt)
			continue
		}
		t := s.topics[i]
		if t == nil {
			s.topics[i] = nt
			continue
		}
		if t.name != nt.name || len(nt.parts) < len(t.parts) {
			return fmt.Errorf("a snapshot has topic %q with %d partitions where the frames have %q with %d", nt.name, len(nt.parts), t.name, len(t.parts))
		}
		for k, np := range nt.parts {
			if k >= len(t.parts) {
				np.t = t
				t.parts = append(t.parts, np)
				continue
			}
			p := t.parts[k]
			if p.n != np.n {
				return fmt.Errorf("%s: a snapshot has %d records where the frames have %d", p, np.n, p.n)
			}
			p.acked, p.n0, p.pid, p.epoch, p.foreign, p.off, p.id = np.acked, np.n0, np.pid, np.epoch, np.foreign, np.off, np.id
		}
	}
	return nil
}

// preamble goes before a snapshot: the format, and how much of the file before counts.
func preamble(dst []byte, before uint64, length int64) []byte {
	dst = binary.AppendUvarint(dst, journalVersion)
	dst = binary.AppendUvarint(dst, before)
	return binary.AppendUvarint(dst, uint64(length))
}

func readPreamble(r *reader) error {
	if v := r.uvarint(); r.err == nil && v != journalVersion {
		return fmt.Errorf("format %d is not known to this version of the relay (it writes %d)", v, journalVersion)
	}
	r.uvarint()
	r.uvarint()
	return r.err
}

// frames calls fn for every frame that counts, in order; i is the place of its file in j.files.
func (j *journal) frames(fn func(i int, kind frameKind, body []byte) error) error {
	for i := range j.files {
		b, err := os.ReadFile(j.path(j.files[i].num))
		if err != nil {
			return err
		}
		limit := int64(-1) // how much of it counts, as the file after it says
		if i+1 < len(j.files) {
			if limit, err = j.lengthBefore(i + 1); err != nil {
				return err
			}
			if limit > int64(len(b)) {
				return fmt.Errorf("%s: %d bytes where %d were written", j.path(j.files[i].num), len(b), limit)
			}
			b = b[:limit]
		}
		rest := b
		for len(rest) > 0 {
			at := len(b) - len(rest)
			kind, _, body, after, ok := parseFrame(rest)
			if !ok {
				if limit < 0 && at > 0 && !syncedBeyond(rest, int64(at)) {
					break // a torn tail: the process or the machine died before its sync, nothing of it was sent
				}
				return fmt.Errorf("%s: damage at byte %d", j.path(j.files[i].num), at)
			}
			if at == 0 && kind != kindSnapshot {
				return fmt.Errorf("%s: begins with a frame of kind %d", j.path(j.files[i].num), kind)
			}
			if err := fn(i, kind, body); err != nil {
				return fmt.Errorf("%s: byte %d: %w", j.path(j.files[i].num), at, err)
			}
			rest = after
		}
		if len(b) == 0 {
			return fmt.Errorf("%s is empty", j.path(j.files[i].num))
		}
	}
	return nil
}

// lengthBefore is what file i says about the length of the one before it.
func (j *journal) lengthBefore(i int) (int64, error) {
	f, err := os.Open(j.path(j.files[i].num))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b := make([]byte, frameHeader+30)
	if _, err := f.ReadAt(b, 0); err != nil && len(b) == 0 {
		return 0, err
	}
	if binary.LittleEndian.Uint32(b) != frameMagic || frameKind(b[12]) != kindSnapshot {
		return 0, fmt.Errorf("%s: damage at byte 0", f.Name())
	}
	r := &reader{b: b[frameHeader:]}
	r.uvarint()
	num, n := r.uvarint(), r.uvarint()
	if num != j.files[i-1].num {
		return 0, fmt.Errorf("%s follows file %d, which is not there", f.Name(), num)
	}
	return int64(n), r.err
}

// syncedBeyond reports whether something in b was written after a sync that covered position at.
func syncedBeyond(b []byte, at int64) bool {
	magic := binary.LittleEndian.AppendUint32(nil, frameMagic)
	for {
		i := bytes.Index(b, magic)
		if i < 0 {
			return false
		}
		b = b[i:]
		if _, synced, _, _, ok := parseFrame(b); ok && synced > at {
			return true
		}
		b = b[1:]
	}
}

// begin starts a new file with a snapshot (state.appendSnapshot). Without an error the file counts.
func (j *journal) begin(snapshot []byte) (err error) {
	num, before, length := uint64(1), uint64(0), int64(0)
	if k := len(j.files); k > 0 {
		before = j.files[k-1].num
		num = before + 1
		if length = j.synced; j.f == nil {
			if length, err = j.soundLength(); err != nil {
				return err
			}
		}
	}
	frame := appendFrame(nil, kindSnapshot, 0, append(preamble(nil, before, length), snapshot...))
	tmp := j.path(num) + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	fail := func(err error) error {
		f.Close()
		os.Remove(tmp)
		return err
	}
	if _, err := f.Write(frame); err != nil {
		return fail(err)
	}
	if err := f.Sync(); err != nil {
		return fail(err)
	}
	if err := os.Rename(tmp, j.path(num)); err != nil {
		return fail(err)
	}
	if err := syncDir(j.dir); err != nil {
		// The name may or may not be there after a power cut. Both files then say the same, as long as
		// nothing is appended to either: take the new one back.
		f.Close()
		os.Remove(j.path(num))
		return err
	}
	if j.f != nil {
		j.f.Close()
	}
	j.f, j.size, j.synced, j.rotateAt = f, int64(len(frame)), int64(len(frame)), int64(len(frame))+fileBytes
	j.mu.Lock()
	j.files = append(j.files, journalFile{num: num, ends: map[*partition]uint64{}})
	j.mu.Unlock()
	return nil
}

// soundLength is how much of the last file counts after openJournal.
func (j *journal) soundLength() (int64, error) {
	b, err := os.ReadFile(j.path(j.files[len(j.files)-1].num))
	if err != nil {
		return 0, err
	}
	rest := b
	for {
		_, _, _, after, ok := parseFrame(rest)
		if !ok {
			return int64(len(b) - len(rest)), nil
		}
		rest = after
	}
}

// write appends frames that were made with j.synced; sync makes them durable.
func (j *journal) write(frames []byte) error {
	_, err := j.f.Write(frames)
	if err == nil {
		j.size += int64(len(frames))
	}
	return err
}

func (j *journal) sync() error {
	if err := fdatasync(j.f); err != nil {
		return err
	}
	j.synced = j.size
	return nil
}

// grew notes that partitions have records in the file being written.
func (j *journal) grew(p *partition, n uint64) { j.files[len(j.files)-1].ends[p] = n }

// drop removes the oldest files whose records are all acknowledged. The caller holds what guards the partitions.
func (j *journal) drop() (gone []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.files) > keepFiles {
		for p, n := range j.files[0].ends {
			if p.acked < n {
				return gone
			}
		}
		gone = append(gone, j.path(j.files[0].num))
		j.files = j.files[1:]
	}
	return gone
}

func (j *journal) close() error {
	if j.f == nil {
		return nil
	}
	err := j.f.Close()
	j.f = nil
	return err
}

var errStop = errors.New("stop")

// scan calls fn for each frame with records; start gives the number of a partition's first record in it.
// It reads what is on disk now and ends at a tail that is being written.
func (j *journal) scan(fn func(h batchHead, start []uint64) error) error {
	j.mu.RLock()
	defer j.mu.RUnlock()
	st := &state{pid: -1}
	first := true
	var start []uint64
	err := j.frames(func(i int, kind frameKind, body []byte) error {
		r := &reader{b: body}
		switch kind {
		case kindSnapshot:
			if err := readPreamble(r); err != nil {
				return err
			}
			if first {
				first = false
				return st.readSnapshot(r)
			}
			return st.sameAs(r)
		case kindTopic:
			return st.applyTopic(r)
		case kindSession:
			if err := st.applySessions(r); err != nil || len(r.b) == 0 {
				return err
			}
			fallthrough
		case kindBatch:
			h := r.batchHead()
			if r.err != nil {
				return r.err
			}
			start = start[:0]
			for _, c := range h.index {
				p, err := st.partition(c.topic, c.part)
				if err != nil {
					return err
				}
				start = append(start, p.n)
			}
			if err := st.applyBatch(h); err != nil {
				return err
			}
			return fn(h, start)
		}
		return nil
	})
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// records unpacks a frame's records and calls fn with each and its number in its partition.
func (h *batchHead) records(start []uint64, fn func(c partCount, n uint64, rec *journalRecord) error) error {
	raw, err := unpack(h.packed)
	if err != nil {
		return err
	}
	next := slices.Clone(start)
	r := &reader{b: raw}
	for len(r.b) > 0 {
		rec := r.journalRecord(h.first)
		if r.err != nil {
			return r.err
		}
		if rec.slot >= len(h.index) {
			return fmt.Errorf("a record of partition %d of %d", rec.slot, len(h.index))
		}
		if err := fn(h.index[rec.slot], next[rec.slot], &rec); err != nil {
			return err
		}
		next[rec.slot]++
	}
	return r.err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
