package wal

import (
	"fmt"
	"sort"
	"sync"
)

// Entry is one entry as it was appended.
type Entry struct {
	Seq  uint64
	Data []byte // valid until the batch is released
}

// Batch is a run of readable entries in order.
type Batch struct {
	Entries []Entry

	buf     []byte
	ends    []batchEnd
	partial bool // the last entry of ends goes on in the next chunk
}

type batchEnd struct {
	seq uint64
	end int // in buf
}

var batches = sync.Pool{New: func() any { return new(Batch) }}

// keepBatchBytes is the largest buffer that goes back to the pool: a batch that held one giant entry
// must not keep its memory for ever.
const keepBatchBytes = 4 << 20

// Release gives the batch's memory back. Its entries must not be used any more; it may be called once.
func (b *Batch) Release() {
	clear(b.Entries)
	*b = Batch{Entries: b.Entries[:0], buf: b.buf[:0], ends: b.ends[:0]}
	if cap(b.buf) <= keepBatchBytes {
		batches.Put(b)
	}
}

// query is what a Read wants.
type query struct {
	seq   uint64 // from here
	limit uint64 // newest readable entry
	max   int    // bytes, about
	voids []span // sorted
}

// add takes entries out of the records of one chunk; done means that the batch is full or at the limit,
// and then it stands before the first record not taken.
func (b *Batch) add(it *records, q query) (done bool, err error) {
	for it.i < it.c.count {
		at := *it
		r, err := it.next()
		if err != nil {
			return false, err
		}
		switch {
		case b.partial:
			e := &b.ends[len(b.ends)-1]
			if r.begin || r.seq != e.seq {
				return false, fmt.Errorf("entry %d is cut short by entry %d", e.seq, r.seq)
			}
		case r.seq > q.limit:
			*it = at
			return true, nil
		case r.seq < q.seq, !r.begin, isVoid(q.voids, r.seq):
			continue
		default:
			if len(b.ends) > 0 && len(b.buf)+r.total > q.max {
				*it = at
				return true, nil
			}
			if !r.end {
				b.grow(r.total)
			}
			b.ends = append(b.ends, batchEnd{seq: r.seq})
		}
		b.buf = append(b.buf, r.data...)
		b.ends[len(b.ends)-1].end = len(b.buf)
		b.partial = !r.end
		if !b.partial && len(b.buf) >= q.max {
			return true, nil
		}
	}
	return false, nil
}

func (b *Batch) grow(n int) {
	if cap(b.buf)-len(b.buf) < n {
		b.buf = append(make([]byte, 0, len(b.buf)+n), b.buf...)
	}
}

// finish makes Entries.
func (b *Batch) finish() *Batch {
	at := 0
	for _, e := range b.ends {
		b.Entries = append(b.Entries, Entry{e.seq, b.buf[at:e.end:e.end]})
		at = e.end
	}
	return b
}

// isVoid tells whether seq lies in one of the sorted ranges.
func isVoid(voids []span, seq uint64) bool {
	i := sort.Search(len(voids), func(i int) bool { return voids[i].To >= seq })
	return i < len(voids) && voids[i].From <= seq
}

// skipVoid returns the first number from seq on that is not void.
func skipVoid(voids []span, seq uint64) uint64 {
	for i := sort.Search(len(voids), func(i int) bool { return voids[i].To >= seq }); i < len(voids) && voids[i].From <= seq; i++ {
		seq = voids[i].To + 1
	}
	return seq
}

// lastLive returns the last number up to seq that is not void.
func lastLive(voids []span, seq uint64) uint64 {
	for i := sort.Search(len(voids), func(i int) bool { return voids[i].To >= seq }); i >= 0; i-- {
		if i < len(voids) && voids[i].From <= seq && seq <= voids[i].To {
			seq = voids[i].From - 1
		}
	}
	return seq
}
