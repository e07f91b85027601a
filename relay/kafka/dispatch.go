package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// broker is one leader. Guarded by Sink.mu.
type broker struct {
	id       int32
	inflight int  // requests without answer
	writing  bool // one of them is not on its connection yet: the next would overtake it

	ready []*partition // of dispatch: those with a batch that may go, and whether one must
	due   bool
}

// rested is when a broker may have forgotten our producer (producer.id.expiration.ms): then it takes any
// sequence number, so only one batch may be under way until one succeeds.
const rested = 10 * time.Minute

// dispatcher gives batches to brokers as they come due.
func (s *Sink) dispatcher() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.mu.Lock()
		next := s.dispatch(time.Now())
		s.mu.Unlock()
		timer.Reset(next)
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// dispatch starts all requests that may start now and says when it should be called again.
func (s *Sink) dispatch(now time.Time) time.Duration {
	next := time.Minute
	if s.hold {
		return next
	}
	soon := func(d time.Duration) { next = min(next, max(d, 100*time.Microsecond)) }
	brokers := s.readyBrokers[:0]
	kept := s.active[:0]
	for _, p := range s.active {
		if len(p.queue) == 0 && p.inflight == 0 {
			p.active = false
			continue
		}
		kept = append(kept, p)
		if p.mode == failed && p.inflight == 0 {
			s.recover(p, now)
		}
		if p.mode != streaming || p.sent == len(p.queue) {
			continue
		}
		if d := p.until.Sub(now); d > 0 {
			soon(d)
			continue
		}
		if p.leader < 0 {
			s.wantLeaders()
			continue
		}
		if p.inflight > 0 && (p.sentTo != p.leader || !p.proven || p.inflight >= s.cfg.InFlight) {
			continue
		}
		if p.inflight == 0 && now.Sub(p.used) > rested {
			p.proven = false
		}
		br := s.brokers[p.leader]
		if br == nil {
			br = &broker{id: p.leader}
			s.brokers[p.leader] = br
		}
		if len(br.ready) == 0 {
			brokers = append(brokers, br)
		}
		br.ready = append(br.ready, p)
		if b := p.queue[p.sent]; !b.open || s.hurry > 0 || s.cfg.Linger == 0 {
			br.due = true
		} else if d := b.since.Add(s.cfg.Linger).Sub(now); d > 0 {
			soon(d)
		} else {
			br.due = true
		}
	}
	clear(s.active[len(kept):])
	s.active = kept
	for _, br := range brokers {
		// One that is due takes all others of its broker along. A broker that is busy calls us again, with
		// its answer or at the end of its write.
		if br.due && !br.writing && br.inflight < s.cfg.InFlight {
			s.turn++
			s.request(br, br.ready, now)
		}
		br.ready, br.due = br.ready[:0], false
	}
	s.readyBrokers = brokers[:0]
	return next
}

// request sends one batch of each of ps, as far as a request should hold them.
func (s *Sink) request(br *broker, ps []*partition, now time.Time) {
	var batches []*batch
	bytes := 0
	for i := range ps {
		p := ps[(i+s.turn)%len(ps)]
		b := p.queue[p.sent]
		if bytes > 0 && bytes+len(b.raw) > maxRequestBytes {
			continue
		}
		bytes += len(b.raw)
		b.open, b.answered, b.err = false, false, nil
		p.sent++
		p.inflight++
		p.sentTo = br.id
		p.used = now
		batches = append(batches, b)
	}
	br.inflight++
	br.writing = true
	s.wg.Go(func() { s.roundTrip(br, batches) })
}

// produceRequest tells when it is being written: from then on the next request cannot overtake it.
type produceRequest struct {
	*kmsg.ProduceRequest
	once    sync.Once
	written func()
}

func (r *produceRequest) AppendTo(dst []byte) []byte {
	dst = r.ProduceRequest.AppendTo(dst)
	r.once.Do(r.written)
	return dst
}

type wireScratch struct{ buf bytes.Buffer }

var wirePool = sync.Pool{New: func() any { return new([]byte) }}

var scratchPool = sync.Pool{New: func() any { return &wireScratch{} }}

// roundTrip is one Produce request and its answer.
func (s *Sink) roundTrip(br *broker, batches []*batch) {
	w := scratchPool.Get().(*wireScratch)
	req := &produceRequest{ProduceRequest: kmsg.NewPtrProduceRequest()}
	req.written = func() {
		s.mu.Lock()
		br.writing = false
		s.mu.Unlock()
		s.poke()
	}
	req.Acks, req.TimeoutMillis = -1, int32(produceTimeout.Milliseconds())
	at := map[string]int{}
	for _, b := range batches {
		i, ok := at[b.p.t.name]
		if !ok {
			i = len(req.Topics)
			at[b.p.t.name] = i
			rt := kmsg.NewProduceRequestTopic()
			rt.Topic = b.p.t.name
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition = b.p.num
		comp := s.comp
		if b.alone {
			comp = s.solo
		}
		buf := wirePool.Get().(*[]byte)
		rp.Records = b.wire((*buf)[:0], comp, w)
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	if w.buf.Cap() <= 4<<20 {
		scratchPool.Put(w)
	}

	resp, err := s.cl.Broker(int(br.id)).Request(s.ctx, req)
	for i := range req.Topics { // kgo is done with the request
		for k := range req.Topics[i].Partitions {
			if buf := req.Topics[i].Partitions[k].Records; cap(buf) <= 2<<20 {
				wirePool.Put(&buf)
			}
		}
	}
	type place struct {
		topic string
		part  int32
	}
	got := map[place]*kmsg.ProduceResponseTopicPartition{}
	if err == nil {
		for i := range resp.(*kmsg.ProduceResponse).Topics {
			rt := &resp.(*kmsg.ProduceResponse).Topics[i]
			for k := range rt.Partitions {
				got[place{rt.Topic, rt.Partitions[k].Partition}] = &rt.Partitions[k]
			}
		}
	}
	now := time.Now()
	s.mu.Lock()
	br.inflight--
	req.once.Do(func() { br.writing = false })
	for _, b := range batches {
		b.answered, b.err = true, err
		if rp := got[place{b.p.t.name, b.p.num}]; rp != nil {
			b.offset = rp.BaseOffset
			if b.err = kerr.ErrorForCode(rp.ErrorCode); b.err != nil && rp.ErrorMessage != nil {
				b.err = fmt.Errorf("%w: %s", b.err, *rp.ErrorMessage)
			}
		} else if err == nil {
			b.err = fmt.Errorf("broker %d did not answer for it", br.id)
		}
		b.p.inflight--
		s.answered(b.p, now)
	}
	s.mu.Unlock()
	s.poke()
}

// answered takes the answers at the head of a partition's queue, in order.
func (s *Sink) answered(p *partition, now time.Time) {
	for p.mode == streaming && p.sent > 0 && p.queue[0].answered {
		b := p.queue[0]
		switch {
		case b.err != nil:
			// Only the first failure counts: what follows it met a sequence that was not due.
			s.retries.Add(1)
			p.mode, p.err, p.proven = failed, b.err, false
		case b.offset < p.off && p.pid >= 0:
			// A leader without state takes any sequence: the offset is the only sign that what was
			// acknowledged below is gone.
			p.mode, p.err, p.proven = failed, errBelow, false
		default:
			if b.offset > p.off {
				p.foreign = true
			}
			s.ackTo(p, b.base+uint64(b.count), b.offset+int64(b.count))
			p.err, p.tries, p.proven = nil, 0, true
		}
	}
	if p.mode == failed && p.inflight == 0 {
		s.recover(p, now)
	}
}

var errBelow = fmt.Errorf("acknowledged at an offset below one acknowledged before")

// recover decides how a partition goes on whose head failed. Nothing of it is in flight.
func (s *Sink) recover(p *partition, now time.Time) {
	p.tries++
	p.sent = 0
	for _, b := range p.queue {
		b.answered = false
	}
	if s.ctx.Err() != nil {
		return
	}
	backoff := min(10*time.Millisecond<<min(p.tries, 7), time.Second)
	switch answerTo(p.err) {
	case again:
		s.trouble(&p.why, s.explain(p.t.name, p.err))
	case refuse:
		if b := p.queue[0]; b.count > 1 {
			s.split(p)
			p.mode, p.until = streaming, time.Time{}
			return
		}
		s.log.Warn("kafka: a record is refused", "partition", p.String(), "err", p.err)
		p.mode = refused
		s.wg.Go(func() { s.refuse(p) })
		return
	case mend:
		s.trouble(&p.why, s.explain(p.t.name, p.err))
		backoff = min(100*time.Millisecond<<min(p.tries, 6), 5*time.Second)
	case unsure:
		if p.tries > 1 && p.err != errNotSeen && p.err != errBelow {
			s.trouble(&p.why, s.explain(p.t.name, p.err))
		}
		if s.resume && p.pid >= 0 {
			s.wantLeaders()
			p.mode = looking
			wait := time.Duration(0)
			if p.tries > 1 {
				wait = min(10*time.Millisecond<<min(p.tries, 6), 500*time.Millisecond)
			}
			s.wg.Go(func() { s.look(p, wait) })
			return
		}
		if p.pid < 0 && p.err != errRestored {
			s.mayRepeat.Add(uint64(p.queue[0].count))
		} else if s.sequenceBroken(p) {
			return
		}
	}
	s.wantLeaders()
	p.mode, p.until = streaming, now.Add(backoff)
}

// sequenceBroken begins another session where DELIVERY=at-least-once met a sequence error: it does not settle.
func (s *Sink) sequenceBroken(p *partition) bool {
	if !isSequence(p.err) {
		return false
	}
	s.mayRepeat.Add(p.n - p.acked)
	s.log.Warn("kafka: records may be repeated", "partition", p.String(), "up_to", p.n-p.acked, "err", p.err)
	p.mode = looking
	again := session{p: p, n0: p.acked, off: p.off, id: p.id}
	s.wg.Go(func() { s.renew(p, again) })
	return true
}

// split turns the first batch into batches of one record: the broker judges each alone.
func (s *Sink) split(p *partition) {
	b := p.queue[0]
	pieces := b.cut(0, 1)
	s.inBytes += refBytes(pieces) - refBytes(p.queue[:1])
	b.free()
	p.queue = append(pieces, p.queue[1:]...)
}

// ackTo notes that all records before n are in Kafka, below offset off.
func (s *Sink) ackTo(p *partition, n uint64, off int64) {
	s.well(&p.why)
	s.settleTo(p, n, true)
	p.off = max(p.off, off)
}

// settleTo takes the records before n off the queue.
func (s *Sink) settleTo(p *partition, n uint64, delivered bool) {
	if n <= p.acked {
		return
	}
	took, bytes := 0, 0
	moved := false
	take := func(b *batch, k int) {
		for i := range b.refs {
			r := &b.refs[i]
			if k == 0 {
				break
			}
			m := min(k, r.n)
			part := r.bytes * m / max(r.n, 1)
			r.n -= m
			r.bytes -= part
			r.of.left -= m
			moved = moved || r.of.left == 0
			if r.of.left == 0 && m > 0 && delivered && s.cfg.OnAcked != nil {
				s.cfg.OnAcked(time.Since(r.of.since))
			}
			took += m
			bytes += part
			k -= m
		}
	}
	i := 0
	for ; i < len(p.queue); i++ {
		b := p.queue[i]
		end := b.base + uint64(b.count)
		if end > n {
			break
		}
		take(b, int(b.count))
		b.free()
		p.queue[i] = nil
	}
	if i > 0 {
		p.queue = append(p.queue[:0], p.queue[i:]...)
		p.sent = max(p.sent-i, 0)
	}
	if len(p.queue) > 0 && p.queue[0].base < n { // in the middle of a batch: only after looking
		b := p.queue[0]
		take(b, int(n-b.base))
		pieces := b.cutLeft(int32(n - b.base))
		b.free()
		p.queue = append(pieces, p.queue[1:]...)
	}
	p.acked = n
	if !p.dirty {
		p.dirty = true
		s.dirty = append(s.dirty, p)
	}
	s.inFlight -= took
	s.inBytes -= bytes
	if delivered {
		s.records.Add(uint64(took))
		s.bytes.Add(uint64(bytes))
	}
	if moved {
		s.advance()
	} else {
		s.cond.Broadcast()
	}
}

// cutLeft is cut after the references of the first drop records were taken.
func (b *batch) cutLeft(drop int32) []*batch {
	refs := b.refs
	b.refs = nil
	out := b.cut(drop, b.count)
	for _, o := range out {
		for _, r := range refs {
			if r.n > 0 {
				o.refs = append(o.refs, r)
			}
		}
	}
	return out
}

// enter moves a partition to another session; records before its first one are given up.
func (s *Sink) enter(x *session) {
	p := x.p
	p.sent = 0
	before := p.acked
	s.settleTo(p, x.n0, false)
	acked := max(before, p.acked)
	x.apply()
	p.acked = max(acked, x.n0)
	p.mode, p.err, p.tries, p.proven, p.until = streaming, nil, 0, false, time.Time{}
	s.sessions.Add(1)
	if len(p.queue) > 0 {
		s.activate(p)
	}
}

// wantLeaders asks for fresh metadata.
func (s *Sink) wantLeaders() {
	select {
	case s.refresh <- struct{}{}:
	default:
	}
}

func isSequence(err error) bool {
	for _, e := range []error{kerr.OutOfOrderSequenceNumber, kerr.DuplicateSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.ProducerFenced} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

var _ kmsg.Request = (*produceRequest)(nil)
