package kafka

import (
	"context"
	"fmt"
	"time"

	"binrelay/relay"
)

// item is one thing for the journal: a batch, another session of some partitions, or a piece of work
// that must not run beside its writer.
type item struct {
	kind     frameKind
	body     []byte
	batch    *relay.Batch // kindBatch
	parts    []*partition // of its records
	index    []partCount
	bytes    int
	raw      []byte // scratch
	sessions []session
	letters  []relay.Record // kindSession: dead letters, in place of what is given up
	fn       func() error
	done     chan error // not nil: receives one value
}

func (s *Sink) newItem() *item {
	if it, _ := s.packed.Get().(*item); it != nil {
		*it = item{body: it.body[:0], parts: it.parts[:0], index: it.index[:0], raw: it.raw[:0]}
		return it
	}
	return &item{}
}

func (s *Sink) recycle(it *item) {
	if cap(it.body)+cap(it.raw) <= 8<<20 {
		clear(it.parts)
		s.packed.Put(it)
	}
}

// Send is relay.Sink's. It returns when the batch is queued for the journal: the sync of one batch
// overlaps with the preparation of the next.
func (s *Sink) Send(ctx context.Context, b *relay.Batch) error {
	if s.next != 0 && b.First != s.next || b.Last < b.First {
		release(b)
		return fmt.Errorf("kafka: log entries %d to %d do not follow %d", b.First, b.Last, s.next-1)
	}
	it := s.newItem()
	it.kind, it.batch = kindBatch, b
	err := s.resolve(ctx, it, b.Records)
	if err == nil {
		s.pack(it, b.First, b.Last, b.Records)
		err = s.room(ctx, len(b.Records), it.bytes)
	}
	if err != nil {
		release(b)
		return err
	}
	s.mu.Lock()
	broken := s.broken
	s.mu.Unlock()
	last := b.Last // b is not ours any more once it is queued
	select {
	case s.jq <- it:
		s.next = last + 1
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-broken:
		s.mu.Lock()
		err = s.err
		s.mu.Unlock()
	}
	s.mu.Lock()
	s.inFlight -= len(b.Records)
	s.inBytes -= it.bytes
	s.mu.Unlock()
	release(b)
	return err
}

func release(b *relay.Batch) {
	if b.Release != nil {
		b.Release()
	}
}

// resolve finds the partition of each record.
func (s *Sink) resolve(ctx context.Context, it *item, recs []relay.Record) error {
	if err := s.barrier(ctx); err != nil {
		return err
	}
	s.gen++
	var t *topic
	for i := range recs {
		rec := &recs[i]
		if t == nil || t.name != rec.Topic {
			var err error
			if t, err = s.topic(ctx, rec.Topic); err != nil {
				return faultOf(rec, err)
			}
		}
		n := int32(len(t.parts))
		num := rec.Partition
		if num == -1 {
			num = partitionFor(rec.Hash, n)
		}
		if num < 0 || num >= n {
			return &relay.Fault{Function: "partition", Row: int(rec.Row), Seq: rec.Seq,
				Err:  fmt.Sprintf("partition %d of topic %s, which has %d", num, rec.Topic, n),
				Hint: "correct the function, or add partitions to the topic"}
		}
		p := t.parts[num]
		it.parts = append(it.parts, p)
		if p.slotGen != s.gen {
			p.slotGen, p.slot = s.gen, len(it.index)
			it.index = append(it.index, partCount{t.place, num, 0})
		}
		it.index[p.slot].count++
	}
	return nil
}

// pack encodes the frame.
func (s *Sink) pack(it *item, first, last uint64, recs []relay.Record) {
	for i := range recs {
		it.raw = appendJournalRecord(it.raw, &recs[i], it.parts[i].slot, first)
	}
	it.bytes = len(it.raw) + 16*len(recs)
	it.body = appendBatchHead(it.body, first, last, it.index)
	it.body = appendPacked(it.body, it.raw)
}

// room waits until the batch may be in flight too, and counts it.
func (s *Sink) room(ctx context.Context, records, bytes int) error {
	full := func() bool {
		return s.inFlight > 0 && (s.inFlight+records > maxInFlightRecords || s.inBytes+bytes > s.maxBytes)
	}
	s.mu.Lock()
	if s.err == nil && !full() {
		s.inFlight += records
		s.inBytes += bytes
		s.mu.Unlock()
		return nil
	}
	s.hurry++
	s.mu.Unlock()
	s.poke()
	err := s.wait(ctx, func() bool { return s.err != nil || !full() })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurry--
	if err == nil {
		err = s.err
	}
	if err != nil {
		return err
	}
	s.inFlight += records
	s.inBytes += bytes
	return nil
}

// barrier lets nothing pass while a topic has grown or a session is nearly used up: all before is
// acknowledged first.
func (s *Sink) barrier(ctx context.Context) (err error) {
	s.mu.Lock()
	if !s.worn {
		s.mu.Unlock()
		return nil
	}
	s.worn = false
	var grown []*topic
	var worn []*partition
	for _, t := range s.st.topics {
		if t.grown > len(t.parts) {
			grown = append(grown, t)
		}
		for _, p := range t.parts {
			if p.pid >= 0 && p.n-p.n0 > s.renewAfter {
				worn = append(worn, p)
			}
		}
	}
	s.mu.Unlock()
	if len(grown)+len(worn) == 0 {
		return nil
	}
	defer func() {
		if err != nil { // the next Send tries again
			s.mu.Lock()
			s.worn = true
			s.mu.Unlock()
		}
	}()
	if err := s.Flush(ctx); err != nil {
		return err
	}
	for _, t := range grown {
		if err := s.grow(ctx, t); err != nil {
			return err
		}
	}
	if len(worn) == 0 {
		return nil
	}
	pid, epoch, err := s.newProducer(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	ss := make([]session, len(worn))
	for i, p := range worn {
		ss[i] = session{p: p, pid: pid, epoch: epoch, n0: p.n, off: p.off, id: p.id}
	}
	s.mu.Unlock()
	return s.moveTo(ctx, ss, nil, nil)
}

// moveTo writes down that partitions go on in other sessions, and makes it so. letter, if any, is
// delivered in place of the record that is given up with it.
func (s *Sink) moveTo(ctx context.Context, ss []session, letter *relay.Record, to *partition) error {
	it := s.newItem()
	it.kind, it.sessions, it.done = kindSession, ss, make(chan error, 1)
	it.body = appendSessions(it.body, ss)
	if letter != nil {
		it.letters, it.parts = []relay.Record{*letter}, append(it.parts, to)
		it.index = append(it.index, partCount{to.t.place, to.num, 1})
		it.body = appendBatchHead(it.body, 0, 0, it.index)
		it.body = appendPacked(it.body, appendJournalRecord(nil, letter, 0, 0))
	}
	return s.journalError(s.submit(ctx, it))
}

// control runs fn between two writes of the journal.
func (s *Sink) control(ctx context.Context, fn func() error) error {
	it := s.newItem()
	it.fn, it.done = fn, make(chan error, 1)
	return s.submit(ctx, it)
}

func (s *Sink) submit(ctx context.Context, it *item) error {
	done := it.done
	select {
	case s.jq <- it:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// journaler is the only writer of the journal.
func (s *Sink) journaler() {
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	var group []*item
	var buf []byte
	for {
		group = group[:0]
		select {
		case <-s.ctx.Done():
			s.lastNotes(buf)
			return
		case <-tick.C:
		case it := <-s.jq:
			group = append(group, it)
		}
		for more := len(group) > 0; more && group[len(group)-1].kind != 0; {
			select {
			case it := <-s.jq:
				group = append(group, it)
			default:
				more = false
			}
		}
		buf = s.journalGroup(buf[:0], group)
		if cap(buf) > 8<<20 {
			buf = nil
		}
		clear(group)
	}
}

// journalGroup makes a group durable with one sync, then hands it over.
func (s *Sink) journalGroup(buf []byte, group []*item) []byte {
	var last *item
	if k := len(group); k > 0 && group[k-1].kind == 0 {
		last, group = group[k-1], group[:k-1]
	}
	s.mu.Lock()
	err := s.jerr
	var topics []*topic
	if err == nil {
		buf, topics = s.appendNotes(buf)
	}
	s.mu.Unlock()
	if err == nil {
		for _, it := range group {
			buf = appendFrame(buf, it.kind, s.j.synced, it.body)
		}
		if len(buf) > 0 {
			err = s.j.write(buf)
		}
		if err == nil && (len(group) > 0 || len(topics) > 0) {
			err = s.j.sync()
		}
	}
	s.mu.Lock()
	if err != nil && s.jerr == nil {
		s.jerr = err
		s.failLocked(s.journalError(err))
	}
	if err == nil {
		for _, t := range topics {
			t.noted = true
		}
	}
	rotate := err == nil && s.j.size > s.j.rotateAt
	for _, it := range group {
		if err != nil {
			s.dropLocked(it)
			continue
		}
		// Invariant 1: only what is durable here goes on to Kafka.
		s.handOver(it)
	}
	s.mu.Unlock()
	s.poke()
	for _, it := range group {
		if it.done != nil {
			if err == nil && it.fn != nil {
				it.fn()
			}
			it.done <- err
		}
		if it.batch != nil {
			release(it.batch)
		}
		s.recycle(it)
	}
	if rotate {
		s.rotate()
	}
	if last != nil {
		last.done <- last.fn()
		s.recycle(last)
	}
	return buf
}

// appendNotes adds what changed since the last time: new topics, then acknowledged counts.
func (s *Sink) appendNotes(buf []byte) ([]byte, []*topic) {
	var topics []*topic
	for _, t := range s.st.topics {
		if !t.noted {
			buf = appendFrame(buf, kindTopic, s.j.synced, s.st.appendTopic(nil, t, 0))
			topics = append(topics, t)
		}
	}
	if len(s.dirty) > 0 {
		var body []byte
		for _, p := range s.dirty {
			body = p.appendNote(body)
			p.dirty = false
		}
		s.dirty = s.dirty[:0]
		buf = appendFrame(buf, kindNotes, s.j.synced, body)
	}
	return buf, topics
}

// lastNotes leaves a journal behind that needs no settling, if all is acknowledged.
func (s *Sink) lastNotes(buf []byte) {
	s.mu.Lock()
	err := s.jerr
	if err == nil {
		buf, _ = s.appendNotes(buf[:0])
	}
	s.mu.Unlock()
	if err == nil && len(buf) > 0 && s.j.write(buf) == nil {
		s.j.sync()
	}
	for {
		select {
		case it := <-s.jq:
			s.mu.Lock()
			s.dropLocked(it)
			s.mu.Unlock()
			if it.done != nil {
				it.done <- s.ctx.Err()
			}
			if it.batch != nil {
				release(it.batch)
			}
		default:
			return
		}
	}
}

func (s *Sink) rotate() {
	s.mu.Lock()
	snap := s.st.appendSnapshot(nil)
	for _, t := range s.st.topics {
		t.noted = true
	}
	s.mu.Unlock()
	if err := s.j.begin(snap); err != nil {
		// The file at hand goes on growing for a while.
		s.j.rotateAt = s.j.size + fileBytes/4
		s.log.Warn("hand-over journal: no new file: "+err.Error(), "err", err)
		return
	}
	s.mu.Lock()
	gone := s.j.drop()
	s.mu.Unlock()
	removeAll(gone)
}

// dropLocked forgets an item that did not reach the journal.
func (s *Sink) dropLocked(it *item) {
	n := len(it.letters)
	if it.batch != nil {
		n = len(it.batch.Records)
	}
	if it.kind == kindBatch {
		s.inFlight -= n
		s.inBytes -= it.bytes
	}
	s.cond.Broadcast()
}

// handOver queues the records of a durable item.
func (s *Sink) handOver(it *item) {
	now := time.Now()
	recs, first, last := it.letters, uint64(0), uint64(0)
	if it.batch != nil {
		recs, first, last = it.batch.Records, it.batch.First, it.batch.Last
		s.st.covered = last
		s.inBytes -= it.bytes // counted anew, as encoded
	} else if len(recs) > 0 {
		s.inFlight += len(recs)
		first, last = recs[0].Seq, recs[0].Seq
	}
	pd := &pending{first: first, last: last, left: len(recs), since: now}
	if it.batch != nil || len(recs) > 0 {
		s.insert(pd) // Invariant 3: a dead letter holds its entry before what it stands for is given up
	}
	for i := range it.sessions {
		s.enter(&it.sessions[i])
	}
	for i := range recs {
		rec, p := &recs[i], it.parts[i]
		s.inBytes += p.push(p.n, pd, rec.Key, rec.Value, rec.Headers, rec.Time.UnixMilli(), now)
		if p.n == 0 {
			s.used.Add(1)
		}
		p.n++
		s.worn = s.worn || p.n-p.n0 > s.renewAfter
		if !p.active {
			s.activate(p)
		}
	}
	for _, c := range it.index {
		p := s.st.topics[c.topic].parts[c.part]
		s.j.grew(p, p.n)
	}
	s.advance()
}
