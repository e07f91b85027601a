package relaytest

import (
	"encoding/binary"
	"fmt"
)

// eventLog is the bounded in-memory binlog: files of blocks. Guarded by Source.mu; a block does not
// change once it was appended, so dumps read blocks without the lock.
type eventLog struct {
	files  []*logFile
	number int   // of the newest file
	bytes  int64 // memory held by all files
	wake   chan struct{}
	purged gtidSet // executed before the oldest file
}

// logFile is one binlog file.
type logFile struct {
	name   string
	blocks []block
	bytes  int64 // memory
	size   uint32
	before gtidSet // executed before this file
	done   bool    // a newer file exists
}

// block is a run of whole events: what opens a file, one transaction, or transactions that are repeated
// under new GTIDs without being stored again.
type block struct {
	data   []byte
	start  uint32 // position in the file
	first  gtid   // of the first transaction; seq 0: none
	ends   []int  // where each transaction ends in data
	copies int    // how often data follows itself
}

func (b *block) end() uint32 { return b.start + uint32(len(b.data)*b.copies) }

// transactions counts them, copies included; 0 for a block without a transaction.
func (b *block) transactions() uint64 {
	return uint64(len(b.ends)) * uint64(b.copies)
}

// transaction returns the bytes of transaction k and its position in the file.
func (b *block) transaction(k uint64) (data []byte, pos uint32) {
	n := uint64(len(b.ends))
	i := k % n
	from := 0
	if i > 0 {
		from = b.ends[i-1]
	}
	return b.data[from:b.ends[i]], b.start + uint32(len(b.data))*uint32(k/n) + uint32(from)
}

// stateAt is MariaDB's executed set at a place in the log; nil where there is no such place.
func (s *Source) stateAt(name string, pos int64) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.log.find(name)
	if f == nil || pos < 4 || pos > int64(f.size) {
		return nil
	}
	set := f.before.clone()
	for i := range f.blocks {
		b := &f.blocks[i]
		for k := uint64(0); k < b.transactions(); k++ {
			data, at := b.transaction(k)
			if int64(at)+int64(len(data)) > pos {
				return set.String()
			}
			g := b.first
			g.seq += k
			set.add(g, 1)
		}
	}
	return set.String()
}

func (l *eventLog) current() *logFile { return l.files[len(l.files)-1] }

func (l *eventLog) append(b block) {
	f := l.current()
	f.blocks = append(f.blocks, b)
	f.bytes += int64(len(b.data))
	f.size = b.end()
	l.bytes += int64(len(b.data))
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

// wait returns a channel that is closed by the next append.
func (l *eventLog) wait() <-chan struct{} {
	if l.wake == nil {
		l.wake = make(chan struct{})
	}
	return l.wake
}

func (l *eventLog) find(name string) *logFile {
	for _, f := range l.files {
		if f.name == name {
			return f
		}
	}
	return nil
}

// after returns the file that follows f; nil when f is the newest or was purged and its successor too.
func (l *eventLog) after(f *logFile) *logFile {
	for i, g := range l.files {
		if g == f && i+1 < len(l.files) {
			return l.files[i+1]
		}
	}
	if len(l.files) > 0 && l.files[0].name > f.name && l.files[0].name == fileName(fileNumber(f.name)+1) {
		return l.files[0] // f was purged while it was being read
	}
	return nil
}

// drop removes the n oldest files, never the newest.
func (l *eventLog) drop(n int) {
	for ; n > 0 && len(l.files) > 1; n-- {
		l.bytes -= l.files[0].bytes
		l.files = l.files[1:]
		l.purged = l.files[0].before.clone()
	}
}

func fileName(n int) string { return fmt.Sprintf("binlog.%06d", n) }

func fileNumber(name string) (n int) {
	fmt.Sscanf(name, "binlog.%d", &n)
	return n
}

// eachEvent calls fn for each event of data.
func eachEvent(data []byte, fn func(ev []byte) error) error {
	for len(data) >= eventHeader {
		n := binary.LittleEndian.Uint32(data[9:])
		if err := fn(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
