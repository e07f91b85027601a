package handler

import (
	"sync"
	"sync/atomic"

	"binrelay/relay"
)

const (
	smallChunk = 16 << 10  // the first one: a job of a quiet time is a row or two
	chunkSize  = 256 << 10 // the others
	// keepChunks and keepRecords bound what a pooled arena holds on to: a job of 256 KiB of entries
	// becomes about 1–2 MiB of JSON.
	keepChunks  = 12
	keepRecords = 16 << 10
	maxReserve  = chunkSize / 4
)

// arena is the memory of one batch: its records and their bytes. It comes from a pool and goes back
// when the sink releases the batch, so that a row costs no allocation.
type arena struct {
	home    *sync.Pool
	records []relay.Record
	chunks  [][]byte // chunks[:at] are full, chunks[at] is being filled
	at      int
	reserve int  // the longest key or value so far, up to maxReserve: less room than that is left alone
	tainted bool // an abandoned function may still look into it: never used again

	inUse   atomic.Bool
	release func() // a.free, made once
}

func newArena(home *sync.Pool) *arena {
	a := &arena{home: home, reserve: 512, chunks: [][]byte{make([]byte, 0, smallChunk)}}
	a.release = a.free
	return a
}

// open gives an empty slice to append to; seal takes it back.
func (a *arena) open() []byte {
	cur := a.chunks[a.at]
	if cap(cur)-len(cur) < a.reserve {
		a.at++
		if a.at == len(a.chunks) {
			a.chunks = append(a.chunks, make([]byte, 0, chunkSize))
		}
		cur = a.chunks[a.at][:0]
		a.chunks[a.at] = cur
	}
	return cur[len(cur):len(cur):cap(cur)]
}

// seal keeps b, which grew out of what open gave, and clips it so that nobody appends into the next.
// One that outgrew its chunk is memory of its own and left to the garbage collector.
func (a *arena) seal(b []byte) []byte {
	if len(b) == 0 {
		return b[:0:0]
	}
	if len(b) > a.reserve {
		a.reserve = min(len(b), maxReserve)
	}
	cur := a.chunks[a.at]
	if n := len(cur); n < cap(cur) && &b[0] == &cur[:n+1][n] {
		a.chunks[a.at] = cur[:n+len(b)]
	}
	return b[:len(b):len(b)]
}

// truncate drops the records from n on.
func (a *arena) truncate(n int) {
	clear(a.records[n:])
	a.records = a.records[:n]
}

// free puts the arena back into its pool.
func (a *arena) free() {
	if !a.inUse.CompareAndSwap(true, false) {
		panic("handler: a batch was released twice")
	}
	if a.tainted {
		return
	}
	clear(a.records) // what users returned is theirs: do not hold on to it
	a.records = a.records[:0]
	if cap(a.records) > keepRecords {
		a.records = nil
	}
	if len(a.chunks) > keepChunks {
		clear(a.chunks[keepChunks:])
		a.chunks = a.chunks[:keepChunks]
	}
	for i := range a.chunks {
		a.chunks[i] = a.chunks[i][:0]
	}
	a.at = 0
	a.home.Put(a)
}
