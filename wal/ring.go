package wal

import (
	"fmt"
	"sort"
	"sync"

	"golang.org/x/sys/unix"
)

// ring keeps the newest chunks, uncompressed, so that readers at the live tail never touch a file. It is
// one fixed piece of memory used round and round; what is read from it is copied out under its lock.
type ring struct {
	mu     sync.Mutex
	buf    []byte
	at     int // where the next chunk goes
	chunks []ringChunk
	old    int // chunks[:old] are dropped
}

type ringChunk struct {
	first  uint64
	off, n int
	count  uint32
	head   bool
	tail   bool
}

// ringChunks bounds the bookkeeping when chunks are tiny: some seconds of single-entry commits.
const ringChunks = 4096

// newRing maps the memory rather than taking it from the heap: what lives there for ever makes the garbage
// collector let the heap grow by as much again.
func newRing(size int) (*ring, error) {
	r := &ring{chunks: make([]ringChunk, 0, 256)}
	if size == 0 {
		return r, nil
	}
	buf, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("wal: map %d bytes for the newest entries: %w", size, err)
	}
	r.buf = buf
	return r, nil
}

// close gives the memory back; the ring is empty then.
func (r *ring) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf != nil {
		unix.Munmap(r.buf)
	}
	r.buf, r.chunks, r.old, r.at = nil, nil, 0, 0
}

// put copies c in and drops the oldest chunks that are in its way.
func (r *ring) put(c *chunk) {
	if c.count == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(c.raw)
	if n > len(r.buf) {
		r.chunks, r.old, r.at = r.chunks[:0], 0, 0
		return
	}
	if r.at+n > len(r.buf) {
		r.drop(r.at, len(r.buf)) // unused in this round
		r.at = 0
	}
	r.drop(r.at, r.at+n)
	if len(r.chunks)-r.old >= ringChunks {
		r.old++
	}
	if r.old > ringChunks {
		r.chunks = r.chunks[:copy(r.chunks, r.chunks[r.old:])]
		r.old = 0
	}
	copy(r.buf[r.at:], c.raw)
	r.chunks = append(r.chunks, ringChunk{c.first, r.at, n, c.count, c.head, c.tail})
	r.at += n
}

// drop removes the oldest chunks for as long as they reach into [from, to).
func (r *ring) drop(from, to int) {
	for ; r.old < len(r.chunks); r.old++ {
		if c := &r.chunks[r.old]; c.off >= to || c.off+c.n <= from {
			return
		}
	}
	r.chunks, r.old = r.chunks[:0], 0
}

// read fills b from the chunk in which entry q.seq begins; false when that is not in the ring.
func (r *ring) read(b *Batch, q query) (ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	live := r.chunks[r.old:]
	i := sort.Search(len(live), func(i int) bool { return live[i].first+uint64(live[i].count) > q.seq })
	if i == len(live) || q.seq < live[i].first || q.seq == live[i].first && live[i].head {
		return false, nil
	}
	for ; i < len(live); i++ {
		m := &live[i]
		c := chunk{first: m.first, count: m.count, head: m.head, tail: m.tail, raw: r.buf[m.off : m.off+m.n]}
		it := records{c: &c}
		if done, err := b.add(&it, q); done || err != nil {
			return true, err
		}
	}
	return true, nil
}
