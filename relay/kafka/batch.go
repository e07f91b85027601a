package kafka

import (
	"sync"
	"time"

	"binrelay/functions"

	"github.com/twmb/franz-go/pkg/kgo"
)

// live is what goes on in a partition right now. Guarded by Sink.mu.
type live struct {
	queue    []*batch // not acknowledged, in order; the last one may be open for more
	sent     int      // queue[:sent] were given to a broker
	inflight int      // of those, how many have no answer yet
	leader   int32
	sentTo   int32 // where those in flight are
	proven   bool  // a batch succeeded since the last failure or long rest: several may be under way
	used     time.Time
	mode     mode
	err      error     // what the head of the queue met; nil after a success
	tries    int       // failures since the last success
	until    time.Time // not to be sent before
	why      waiting
	active   bool // in Sink.active
	dirty    bool // in Sink.dirty

	// Of the batch that Send is packing.
	slot    int
	slotGen uint64
}

type mode uint8

const (
	streaming mode = iota
	failed         // waits until nothing is in flight, then for what the error asks
	looking        // reads what the partition holds
	refused        // its first record is refused for good
)

// pending is a run of log entries whose records are not all acknowledged.
type pending struct {
	first, last uint64
	left        int
	since       time.Time
}

// ref says how many records of a batch belong to a pending, in order.
type ref struct {
	of    *pending
	n     int
	bytes int
}

// batch is records of one partition that go to Kafka together. Once sent it keeps its borders, so that
// a repetition is recognised by the broker.
type batch struct {
	p       *partition
	base    uint64 // number of its first record
	count   int32
	raw     []byte // encoded records
	firstMS int64
	maxMS   int64
	refs    []ref
	open    bool
	alone   bool // of one record that is larger than the limit before compression
	since   time.Time

	answered bool // since it was sent
	err      error
	offset   int64
}

// buffers is the memory of batches: unlike a sync.Pool it survives a garbage collection, and it is bounded.
type buffers struct {
	mu    sync.Mutex
	free  [][]byte
	bytes int
}

// maxFreeBytes of buffers are kept for the next batches.
const maxFreeBytes = 8 << 20

var rawBuffers buffers

func (p *buffers) get() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := len(p.free); k > 0 {
		b := p.free[k-1]
		p.free = p.free[:k-1]
		p.bytes -= cap(b)
		return b
	}
	return make([]byte, 0, 32<<10)
}

func (p *buffers) put(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes+cap(b) <= maxFreeBytes {
		p.free = append(p.free, b[:0])
		p.bytes += cap(b)
	}
}

func newBatch(p *partition, base uint64, now time.Time) *batch {
	return &batch{p: p, base: base, raw: rawBuffers.get(), open: true, since: now}
}

func (b *batch) free() {
	rawBuffers.put(b.raw)
	b.raw = nil
}

// fits reports whether one more record of n bytes keeps the batch within limit.
func (b *batch) fits(n, limit int) bool {
	return batchHeader+len(b.raw)+n+5 <= limit
}

func (b *batch) add(of *pending, key, value []byte, headers []functions.Header, ms int64) {
	if b.count == 0 {
		b.firstMS, b.maxMS = ms, ms
	}
	b.maxMS = max(b.maxMS, ms)
	before := len(b.raw)
	b.raw = appendWireRecord(b.raw, key, value, headers, ms-b.firstMS, int64(b.count))
	b.count++
	b.credit(of, 1, len(b.raw)-before)
}

func (b *batch) credit(of *pending, n, bytes int) {
	if of == nil {
		return
	}
	if k := len(b.refs); k > 0 && b.refs[k-1].of == of {
		b.refs[k-1].n += n
		b.refs[k-1].bytes += bytes
		return
	}
	b.refs = append(b.refs, ref{of, n, bytes})
}

// recordOverhead is more than the lengths and deltas of a record take.
const recordOverhead = 36

// push adds one record at the end of the partition's queue.
func (p *partition) push(n uint64, of *pending, key, value []byte, headers []functions.Header, ms int64, now time.Time) (bytes int) {
	size := len(key) + len(value) + recordOverhead
	for i := range headers {
		size += len(headers[i].Key) + len(headers[i].Value) + 10
	}
	if k := len(p.queue); k > 0 && p.queue[k-1].open {
		if b := p.queue[k-1]; b.fits(size, p.t.maxBytes) {
			before := len(b.raw)
			b.add(of, key, value, headers, ms)
			return len(b.raw) - before
		}
		p.queue[k-1].open = false
	}
	b := newBatch(p, n, now)
	b.alone = !b.fits(size, p.t.maxBytes)
	p.queue = append(p.queue, b)
	b.add(of, key, value, headers, ms)
	if b.alone {
		b.open = false
	}
	return len(b.raw)
}

// cut rebuilds a batch without its first drop records, in batches of at most each records.
// The new borders are safe only when nothing of it is in flight and the broker was asked what it has.
func (b *batch) cut(drop, each int32) []*batch {
	var out []*batch
	var cur *batch
	refs := append([]ref(nil), b.refs...)
	refAt := 0
	var i int32
	eachWireRecord(b.raw, func(ts int64, tail []byte) {
		var of *pending
		for refAt < len(refs) && refs[refAt].n == 0 {
			refAt++
		}
		if refAt < len(refs) {
			of = refs[refAt].of
			refs[refAt].n--
		}
		i++
		if i <= drop {
			return
		}
		if cur == nil || cur.count == each {
			cur = newBatch(b.p, b.base+uint64(i-1), b.since)
			cur.open, cur.alone = false, b.alone
			out = append(out, cur)
			cur.firstMS = b.firstMS + ts
			cur.maxMS = cur.firstMS
		}
		ms := b.firstMS + ts
		cur.maxMS = max(cur.maxMS, ms)
		before := len(cur.raw)
		cur.raw = appendWireTail(cur.raw, tail, ms-cur.firstMS, int64(cur.count))
		cur.count++
		cur.credit(of, 1, len(cur.raw)-before)
	})
	return out
}

// sizes of the pieces differ by some bytes from what the batch was accounted with; refBytes evens it out.
func refBytes(bs []*batch) (n int) {
	for _, b := range bs {
		for i := range b.refs {
			n += b.refs[i].bytes
		}
	}
	return n
}

// wire encodes the batch for a request.
func (b *batch) wire(dst []byte, comp kgo.Compressor, w *wireScratch) []byte {
	p := b.p
	pid, epoch, seq := p.pid, p.epoch, int32(-1)
	if pid >= 0 {
		seq = p.seq(b.base)
	} else {
		epoch = -1
	}
	return appendWireBatch(dst, comp, &w.buf, b.raw, b.count, b.firstMS, b.maxMS, pid, epoch, seq)
}
