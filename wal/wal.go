package wal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Log is an open log. All methods are safe for concurrent use.
type Log struct {
	dir      string // absolute, without symbolic links
	o        Options
	keys     *keyring // of the writing side; see readKeys
	lock     *os.File
	readOnly bool
	ring     *ring

	mu       sync.Mutex
	err      error  // why nothing is appended any more: *FailedError or ErrClosed
	cur      *chunk // filling
	other    *chunk // the second buffer while it is not being committed
	curGen   uint64 // generation of cur; a chunk is durable when done has reached its generation
	done     uint64
	urgent   bool // cur must be committed even without records, and at once
	idle     bool // cur has a position or void ranges only, since idleAt
	idleAt   time.Time
	fill     int    // bytes at which cur is full
	waited   bool   // an append waited for room in cur
	next     uint64 // sequence number of the next entry
	visible  uint64 // newest entry of a whole transaction, durable or not
	live     uint64 // newest part of the open transaction, 0 without one
	busy     bool   // one append has the turn over several chunks
	split    bool   // and it is inside an entry
	pos      []byte // position after the newest whole transaction, durable or not
	turn     gate   // busy fell
	room     gate   // cur was swapped
	synced   gate   // done rose, or err was set
	readable gate   // readLimit rose, or err was set

	number    uint64 // of the newest durable chunk
	durable   uint64 // newest durable record
	readLimit uint64 // newest entry that may be read
	voids     []span // sorted
	segs      []*segment
	active    *segment // also the last of segs once it has a chunk; nil before there is one
	trimmed   uint64
	full      string // why appends wait
	reserve   int64  // bytes of RESERVE
	commits   uint64
	small     bool // committer only: the last chunk was small
	lastTake  time.Time
	wanted    bool // the committer waits for a segment
	overdraw  bool // and may pass MaxBytes for it

	work       chan struct{} // cap 1: cur has something
	hurry      chan struct{} // cap 1: do not linger
	kick       chan struct{} // cap 1: the keeper has something to do
	spare      chan *segment // cap 1: the next segment, made ahead
	lastID     uint64        // keeper only
	quit       chan struct{}
	quitKeeper chan struct{}
	broken     chan struct{} // closed by fail
	committer  sync.WaitGroup
	keeper     sync.WaitGroup

	readMu      sync.Mutex // one reader on disk at a time
	cursor      cursor
	readKeys    *keyring
	reading     *segment // has a handle of its own for reading
	unforgotten int64    // bytes read through mappings since they were last taken out of resident memory

	metaMu sync.Mutex

	closed    atomic.Bool
	closeOnce sync.Once
	closeErr  error
}

// gate wakes all who wait for a change. It is used under Log.mu.
type gate struct{ ch chan struct{} }

func (g *gate) wait() <-chan struct{} {
	if g.ch == nil {
		g.ch = make(chan struct{})
	}
	return g.ch
}

func (g *gate) open() {
	if g.ch != nil {
		close(g.ch)
		g.ch = nil
	}
}

// wait gives l.mu up until g opens or ctx ends.
func (l *Log) wait(ctx context.Context, g *gate) error {
	ch := g.wait()
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Open opens the log in dir, making it where there is none. It recovers what a crash left, and it fails
// rather than pass over damage. One process at a time: a second one gets ErrLocked.
func Open(dir string, o Options) (*Log, error) { return open(dir, o, false) }

// OpenReadOnly opens the log in dir to look at it: nothing is changed, recovered or repaired. It fails with
// ErrLocked while a writer has the log. Read returns io.EOF behind the last entry.
func OpenReadOnly(dir string, o Options) (*Log, error) { return open(dir, o, true) }

func open(dir string, o Options, readOnly bool) (_ *Log, err error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	l, err := newLog(dir, o, readOnly)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.lock.Close()
		}
	}()
	if err := l.loadAll(); err != nil {
		return nil, err
	}
	if readOnly {
		o.RingBytes = 0
	}
	if l.ring, err = newRing(o.RingBytes); err != nil {
		return nil, err
	}
	if readOnly {
		return l, nil
	}
	l.makeReserve()
	if err := l.firstSpare(); err != nil {
		l.ring.close()
		return nil, err
	}
	l.committer.Go(l.commitLoop)
	l.keeper.Go(l.keep)
	return l, nil
}

// newLog takes the directory's lock and checks that it holds a log, or may.
func newLog(dir string, o Options, readOnly bool) (_ *Log, err error) {
	if dir == "" {
		return nil, errors.New("wal: no directory is given")
	}
	if !readOnly {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, dirError(dir, err)
		}
	}
	// Without links: /proc/self/maps has real names.
	real, err := filepath.Abs(dir)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return nil, dirError(dir, err)
	}
	l := &Log{dir: real, o: o, readOnly: readOnly, fill: o.ChunkBytes,
		cur: new(chunk), other: new(chunk), curGen: 1, next: 1,
		work: make(chan struct{}, 1), hurry: make(chan struct{}, 1), kick: make(chan struct{}, 1),
		spare: make(chan *segment, 1), quit: make(chan struct{}), quitKeeper: make(chan struct{}), broken: make(chan struct{})}
	if l.lock, err = lockDir(real, !readOnly); err != nil {
		return nil, err
	}
	if err = checkFormat(real, !readOnly); err == nil {
		if l.keys, err = newKeyring(o.Key); err == nil {
			l.readKeys, err = newKeyring(o.Key)
		}
	}
	if err != nil {
		l.lock.Close()
		return nil, err
	}
	return l, nil
}

// list returns the segments in order, and removes what an earlier process was about to remove.
func (l *Log) list() (segs []*segment, err error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, dirError(l.dir, err)
	}
	for _, e := range entries {
		name := e.Name()
		if !l.readOnly && (strings.HasPrefix(name, trashPrefix) || strings.HasSuffix(name, tmpExt)) {
			if err := os.RemoveAll(filepath.Join(l.dir, name)); err != nil {
				return nil, dirError(l.dir, err)
			}
			continue
		}
		var id uint64
		if n, _ := fmt.Sscanf(name, segPrefix+"%d", &id); n != 1 || name != segmentName(id) {
			continue
		}
		segs = append(segs, &segment{id: id, dir: filepath.Join(l.dir, name)})
	}
	sort.Slice(segs, func(i, j int) bool { return segs[i].id < segs[j].id })
	return segs, nil
}

// loadAll learns what the directory holds and checks that it is one run of chunks without a gap.
func (l *Log) loadAll() error {
	segs, err := l.list()
	if err != nil {
		return err
	}
	var kept []*segment
	for _, s := range segs {
		l.lastID = s.id
		load := l.load
		if l.readOnly {
			load = l.peek
		}
		if err := load(s); err != nil {
			return err
		}
		if s.empty() {
			if !l.readOnly {
				if err := os.RemoveAll(s.dir); err != nil {
					return dirError(l.dir, err)
				}
			}
			continue
		}
		if n := len(kept); n > 0 {
			c := chunk{number: s.sum.firstNum, first: s.sum.first, head: s.sum.head}
			if err := c.follows(&kept[n-1].sum.last); err != nil {
				return l.corrupt(s, kept[n-1].sum.last.next(),
					fmt.Errorf("it does not follow %s: %w", filepath.Base(kept[n-1].dir), err))
			}
		}
		kept = append(kept, s)
		for _, v := range s.sum.voids {
			l.voids = addVoid(l.voids, v)
		}
	}
	l.segs = kept
	if len(kept) == 0 {
		return nil
	}
	last := &kept[len(kept)-1].sum.last
	l.number, l.durable, l.visible, l.readLimit = last.number, last.last(), last.visible, last.visible
	l.next = last.last() + 1
	if last.pos != nil {
		l.pos = append([]byte{}, last.pos...)
	}
	// What came after the newest whole transaction is void; the next chunk says so on disk.
	l.abandon()
	return nil
}

// peek is load for a log that must not be changed.
func (l *Log) peek(s *segment) error {
	s.retired, s.sealed, s.closed = true, true, true
	sum, err := readSealed(s.dir)
	if err == nil {
		s.sum = *sum
	} else if errors.Is(err, os.ErrNotExist) {
		raw, err := scanSegment(s.dir, false)
		if err != nil {
			return l.corrupt(s, raw.sum.last.next(), err)
		}
		raw.close()
		s.sum, s.sealed, s.closed = raw.sum, false, false
	} else {
		return l.corrupt(s, 0, err)
	}
	s.bytes = allocated(s.dir)
	return l.keys.check(s.sum.keyID)
}

// Trim drops whole segments whose last entry is not above seq; what it dropped is gone for good when it
// returns. The segment with the newest position always stays. A segment that is still being written
// goes by itself later.
func (l *Log) Trim(seq uint64) error {
	if l.readOnly {
		return ErrReadOnly
	}
	if l.closed.Load() {
		return ErrClosed
	}
	l.mu.Lock()
	// Entries beyond the readable ones cannot have been seen by anyone.
	l.trimmed = max(l.trimmed, min(seq, l.readLimit))
	l.mu.Unlock()
	err := l.dropTrimmed()
	poke(l.kick) // removes the bytes; perhaps there is room now
	return err
}

// droppable is the oldest segment when nobody needs it, nil otherwise. The newest one stays: it has the
// position and the numbers to go on with. Caller holds l.mu.
func (l *Log) droppable() *segment {
	if len(l.segs) < 2 || !l.segs[0].sealed && !l.segs[0].asFound || l.needed(l.segs[0]) {
		return nil
	}
	return l.segs[0]
}

// needed reports whether s has an entry that is not trimmed yet. Void ones are not counted: an abandoned
// transaction that filled the disk must not wait for entries behind it. Caller holds l.mu.
func (l *Log) needed(s *segment) bool { return lastLive(l.voids, s.sum.last.last()) > l.trimmed }

// dropTrimmed trashes the segments that may go, oldest first.
func (l *Log) dropTrimmed() error {
	l.mu.Lock()
	none := l.droppable() == nil
	l.mu.Unlock()
	if none {
		return nil // and no waiting for a reader
	}
	l.readMu.Lock() // no reader is inside a segment
	defer l.readMu.Unlock()
	for {
		l.mu.Lock()
		s := l.droppable()
		if s == nil {
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
		if err := l.trash(s); err != nil {
			return err
		}
		if l.reading == s {
			l.reading = nil
		}
		l.mu.Lock()
		l.segs = l.segs[1:]
		first := l.segs[0].sum.begins()
		i := sort.Search(len(l.voids), func(i int) bool { return l.voids[i].To >= first })
		l.voids = l.voids[i:]
		l.mu.Unlock()
	}
}

// First is the oldest entry that can be read, Last()+1 while there is none.
func (l *Log) First() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first()
}

func (l *Log) first() uint64 {
	if len(l.segs) == 0 {
		return l.readLimit + 1
	}
	return min(skipVoid(l.voids, l.segs[0].sum.begins()), l.readLimit+1)
}

// Last is the newest entry that can be read, 0 before the first.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readLimit
}

// Durable is the newest entry on disk, parts of an open transaction included.
func (l *Log) Durable() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable
}

// Position is the position that came with the newest whole transaction, nil before the first. It is where
// a source goes on within this process; it is durable once Sync returned.
func (l *Log) Position() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pos == nil {
		return nil
	}
	return append([]byte{}, l.pos...)
}

// Stats is the state of a log at one moment.
type Stats struct {
	First    uint64 // oldest entry that can be read
	Last     uint64 // newest entry that can be read
	Durable  uint64 // newest entry on disk, parts of an open transaction included
	Trimmed  uint64 // newest entry given to Trim by this process
	Dropped  uint64 // every entry up to it is gone from disk, void ones included
	Bytes    int64  // allocated on disk
	Free     int64  // of the disk
	Segments int
	Commits  uint64 // by this process
	Full     string // why appends wait for space, "" when they do not
	Err      error  // why no more entries are taken, nil while they are
}

// Stats may be called at any time.
func (l *Log) Stats() Stats {
	f := free(l.dir)
	l.mu.Lock()
	defer l.mu.Unlock()
	var dropped uint64
	if len(l.segs) > 0 {
		dropped = l.segs[0].sum.begins() - 1
	}
	return Stats{First: l.first(), Last: l.readLimit, Durable: l.durable, Trimmed: l.trimmed, Dropped: dropped,
		Bytes: l.bytes(func(*segment) bool { return true }), Free: f, Segments: len(l.segs), Commits: l.commits, Full: l.full, Err: l.err}
}

// Close makes durable what was appended, unless that would have to wait for space, and closes the log.
// Calls after the first wait for it and return what it returned.
func (l *Log) Close() error {
	l.closeOnce.Do(func() { l.closeErr = l.close() })
	return l.closeErr
}

func (l *Log) close() error {
	l.halt()
	return l.shut()
}

// halt ends the goroutines: the committer after the last commit, then the keeper, which may have to make a
// segment for that commit.
func (l *Log) halt() {
	l.closed.Store(true)
	close(l.quit)
	poke(l.kick)
	l.committer.Wait()
	close(l.quitKeeper)
	l.keeper.Wait()
}

// shut closes and seals the segments and lets go of the directory.
func (l *Log) shut() error {
	l.mu.Lock()
	failed := l.err
	if l.err == nil {
		l.err = ErrClosed
	}
	l.turn.open()
	l.room.open()
	l.synced.open()
	l.readable.open()
	l.mu.Unlock()
	l.ring.close()
	l.readMu.Lock()
	defer l.readMu.Unlock()
	var err error
	if !l.readOnly {
		err = l.sealAll(failed == nil || errors.Is(failed, ErrClosed))
	} else if l.reading != nil {
		err = l.reading.closeStore()
	}
	if e := l.lock.Close(); err == nil {
		err = e
	}
	if err == nil && failed != nil && !errors.Is(failed, ErrClosed) {
		err = failed
	}
	return err
}
