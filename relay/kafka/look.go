package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchBytes is how much of a partition one request of look reads. Only batch headers are used.
const fetchBytes = 1 << 20

// errNotSeen is why a partition is looked at again.
var errNotSeen = errors.New("could not see what the partition holds")

// view is a partition as look found it in the state, so that it can work without the lock.
type view struct {
	topic  string
	part   int32
	leader int32
	pid    int64
	epoch  int16
	n0     uint64
	acked  uint64
	n      uint64
	off    int64
	solo   bool // no other writer was ever seen
	again  bool // the topic was deleted and made again
}

// finding is what a partition holds.
type finding struct {
	next    uint64 // all records before are in
	off     int64  // where they end
	foreign bool   // others write here
	lost    uint64 // acknowledged records that are gone, the last ones before view.acked
	ahead   uint64 // records of our session that the journal does not know
	bumped  bool   // our session has another epoch here
	unknown uint64 // records that may be in or not: nothing can tell
}

// look settles a partition whose head may or may not be written: it asks what the partition holds, by
// the sequence numbers in the batch headers up to the high watermark, and lets the rest be sent again
// under the same numbers. The broker's own check refuses whatever a late request brings after that.
func (s *Sink) look(p *partition, wait time.Duration) {
	if s.pause(s.ctx, wait) != nil {
		return
	}
	s.mu.Lock()
	below := p.err == errBelow
	v := view{topic: p.t.name, part: p.num, leader: p.leader, pid: p.pid, epoch: p.epoch, n0: p.n0, acked: p.acked, n: p.n,
		off: p.off, solo: !p.foreign, again: p.t.id != [16]byte{} && p.id != [16]byte{} && p.t.id != p.id}
	s.mu.Unlock()
	if below && !v.again { // is it still the same topic?
		resp, err := s.metadata(s.ctx, []string{v.topic})
		if err == nil && len(resp.Topics) == 1 {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		s.mu.Lock()
		switch {
		case err != nil || len(resp.Topics) != 1:
			p.mode = failed // and again
		case resp.Topics[0].TopicID != p.id:
			p.t.id = resp.Topics[0].TopicID
			v.again = true
		default:
			s.below(p)
		}
		s.mu.Unlock()
		if !v.again {
			s.poke()
			return
		}
	}
	if v.again {
		v.off, v.solo = 0, true
	}
	f, err := s.inspect(&v)
	s.mu.Lock()
	defer s.poke()
	defer s.mu.Unlock()
	if err != nil {
		if s.ctx.Err() != nil {
			return
		}
		var ke *kerr.Error
		if !errors.As(err, &ke) || !ke.Retriable || p.tries > 3 {
			s.trouble(&p.why, s.explain(p.t.name, err))
		}
		s.wantLeaders()
		p.mode, p.err = failed, errNotSeen
		return
	}
	s.take(p, &v, f)
}

// take acts on a finding. The caller holds s.mu.
func (s *Sink) take(p *partition, v *view, f *finding) {
	p.foreign = p.foreign || f.foreign
	again := session{p: p, n0: f.next, off: f.off, id: p.id}
	switch {
	case v.again:
		s.log.Warn("kafka: the topic was deleted and made again; the records it had are gone", "partition", p.String(), "acknowledged", p.acked)
		p.foreign = false
		again.id = p.t.id
	case f.bumped:
		s.mayRepeat.Add(p.n - f.next)
		s.log.Error("kafka: the producer session has another epoch in Kafka than in the journal: is a second relay at work on a copy of WAL_DIR? Records may be repeated",
			"partition", p.String(), "up_to", p.n-f.next)
	case f.ahead > 0:
		s.mayRepeat.Add(f.ahead)
		s.log.Error("kafka: the partition holds records of this session that the journal does not know: WAL_DIR is an older copy. Records may be repeated",
			"partition", p.String(), "up_to", f.ahead)
		again.n0 = p.n
	case f.lost > 0:
		if !s.bringBack(p, f) {
			return
		}
		p.off = f.off
		p.mode, p.tries, p.until = streaming, 0, time.Time{}
		return
	default:
		if f.unknown > 0 {
			s.mayRepeat.Add(f.unknown)
			s.log.Warn("kafka: records were deleted before they could be seen, and the partition has other writers: records may be repeated",
				"partition", p.String(), "up_to", f.unknown)
		}
		if f.next > p.acked {
			s.resumed.Add(f.next - p.acked)
			s.ackTo(p, f.next, f.off)
			p.tries = 1
		}
		p.off = max(p.off, f.off)
		p.mode, p.err, p.until = streaming, nil, time.Time{}
		return
	}
	s.ackTo(p, again.n0, f.off)
	s.wg.Go(func() { s.renew(p, again) })
}

// below is a partition whose head was written below what was acknowledged before: a leader without our
// state took it, the acknowledged records between are gone. They are sent again in a fresh session, and
// once more what was written out of their order.
func (s *Sink) below(p *partition) {
	head := p.queue[0]
	f := &finding{off: head.offset, lost: min(uint64(p.off-head.offset), p.acked)}
	again := uint64(head.count)
	if p.foreign {
		again += f.lost // or fewer: offsets do not count our records here
	}
	s.mayRepeat.Add(again)
	s.log.Warn("kafka: records may be repeated", "partition", p.String(), "up_to", again)
	from := p.acked - f.lost
	if !s.bringBack(p, f) {
		return // in a fresh session already
	}
	x := session{p: p, n0: from, off: head.offset, id: p.id}
	s.wg.Go(func() { s.renew(p, x) })
}

// bringBack queues acknowledged records again that an unclean leader election took away.
func (s *Sink) bringBack(p *partition, f *finding) bool {
	from := p.acked - f.lost
	s.log.Error("kafka: LOST: the partition has lost records that were acknowledged (unclean leader election?)",
		"partition", p.String(), "records", f.lost, "from_record", from, "to_record", p.acked-1, "log_ends_at", f.off)
	batches, have, err := s.reload(p, from, p.acked)
	if err != nil || have > from {
		s.log.Error("kafka: LOST: records that are no longer in the hand-over journal stay lost", "partition", p.String(), "from_record", from, "to_record", have-1, "err", err)
		again := session{p: p, n0: max(have, from), off: f.off, id: p.id}
		s.requeue(p, batches, max(have, from))
		s.wg.Go(func() { s.renew(p, again) })
		return false
	}
	s.log.Warn("kafka: sending the lost records again, from the hand-over journal", "partition", p.String(), "records", f.lost)
	s.requeue(p, batches, from)
	if from < p.n0 { // the loss reaches into an earlier session
		again := session{p: p, n0: from, off: f.off, id: p.id}
		s.wg.Go(func() { s.renew(p, again) })
		return false
	}
	return true
}

func (s *Sink) requeue(p *partition, batches []*batch, from uint64) {
	for _, b := range batches {
		s.inFlight += int(b.count)
		s.inBytes += len(b.raw)
	}
	p.queue = append(batches, p.queue...)
	p.acked = from
	if !p.dirty {
		p.dirty = true
		s.dirty = append(s.dirty, p)
	}
	s.activate(p)
}

// reload reads records [from, to) of p from the journal; have is the first one that is still there.
func (s *Sink) reload(p *partition, from, to uint64) (batches []*batch, have uint64, err error) {
	q := &partition{t: p.t, num: p.num}
	have = to
	err = s.j.scan(func(h batchHead, start []uint64) error {
		hit := false
		for i, c := range h.index {
			if c.topic == p.t.place && c.part == p.num {
				hit = start[i]+uint64(c.count) > from && start[i] < to
			}
		}
		if !hit {
			return nil
		}
		return h.records(start, func(c partCount, n uint64, rec *journalRecord) error {
			if c.topic == p.t.place && c.part == p.num && n >= from && n < to {
				have = min(have, n)
				pd := &pending{left: 1 << 30} // nobody waits for it a second time
				q.push(n, pd, rec.key, rec.value, rec.headers, rec.ms, time.Now())
			}
			return nil
		})
	})
	for _, b := range q.queue {
		b.p, b.open = p, false
	}
	return q.queue, have, err
}

// renew moves a partition to a fresh session.
func (s *Sink) renew(p *partition, x session) {
	var err error
	if x.pid, x.epoch, err = s.newProducer(s.ctx); err == nil {
		err = s.moveTo(s.ctx, []session{x}, nil, nil)
	}
	if err != nil && s.ctx.Err() == nil {
		s.retryLater(p)
	}
}

// retryLater looks at p again after what could not be done.
func (s *Sink) retryLater(p *partition) {
	s.mu.Lock()
	if p.mode != streaming {
		p.mode, p.err = failed, errNotSeen
	}
	s.mu.Unlock()
	s.poke()
}

// inspect reads what the partition holds of the session.
func (s *Sink) inspect(v *view) (*finding, error) {
	if v.leader < 0 {
		return nil, kerr.LeaderNotAvailable
	}
	f := &finding{next: v.acked, off: v.off, foreign: !v.solo}
	sure := !v.again // the next sequence is known; not so after records were deleted
	for try := 0; ; try++ {
		err := s.eachBatch(v, &f.off, func(b batchInfo) {
			if b.pid != v.pid {
				f.foreign = true
				return
			}
			if b.epoch != v.epoch {
				f.bumped = f.bumped || b.epoch > v.epoch
				return
			}
			first := v.n0 + uint64(b.seq)
			end := first + uint64(b.last-b.base) + 1
			if sure && first > f.next {
				s.log.Warn("kafka: records are missing between two batches of ours; compacted or deleted", "partition", fmt.Sprintf("%s/%d", v.topic, v.part), "records", first-f.next)
			}
			f.next, sure = max(f.next, end), true
		})
		if !errors.Is(err, kerr.OffsetOutOfRange) {
			if err != nil {
				return nil, err
			}
			break
		}
		start, end, err := s.bounds(v)
		switch {
		case err != nil:
			return nil, err
		case start > f.off: // deleted: so it was committed, and without other writers each offset was a record of ours
			gone := uint64(start - f.off)
			if f.foreign {
				f.unknown += min(gone, v.n-f.next)
			} else {
				f.next = min(f.next+gone, v.n)
			}
			f.off, sure = start, false
		case end < f.off && try < 5: // the log ends before; a new leader may not know better yet
			s.wantLeaders()
			if err := s.pause(s.ctx, 200*time.Millisecond); err != nil {
				return nil, err
			}
		case end < f.off:
			return s.truncated(v, f, end)
		}
	}
	if f.next > v.n {
		f.ahead = f.next - v.n
		return f, nil
	}
	if v.again {
		return f, nil
	}
	last, epoch, ok, err := s.describe(v)
	if err != nil {
		return nil, err
	}
	if !ok {
		return f, nil
	}
	next := v.n0 + uint64(last) + 1
	switch {
	case epoch != v.epoch:
		f.bumped = true
	case next > v.n:
		f.ahead = next - v.n
	case next < v.acked:
		f.lost = v.acked - next
		f.next = next
	case f.unknown > 0: // some were deleted unseen; the broker remembers how far we were
		f.next, f.unknown = max(f.next, next), 0
	}
	return f, nil
}

// truncated is a log that ends before what was acknowledged.
func (s *Sink) truncated(v *view, f *finding, end int64) (*finding, error) {
	gone := uint64(f.off - end)
	last, epoch, ok, err := s.describe(v)
	if err != nil {
		return nil, err
	}
	f.off = end
	switch next := v.n0 + uint64(last) + 1; {
	case ok && epoch == v.epoch && next < v.acked:
		f.lost = v.acked - next
	case ok:
		f.lost = 0
	default:
		// Nothing of the session is left here. Each offset was a record of ours, or at most so.
		f.lost = min(gone, v.acked)
	}
	f.next = v.acked - f.lost
	if f.lost == 0 { // what is gone was not ours
		f.foreign = true
	}
	return f, nil
}

// eachBatch reads batch headers from *off to the high watermark; *off ends behind the last one.
func (s *Sink) eachBatch(v *view, off *int64, fn func(batchInfo)) error {
	for {
		req := kmsg.NewPtrFetchRequest()
		req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.ReplicaID = 0, 0, fetchBytes, -1
		ft, fp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
		ft.Topic, fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes = v.topic, v.part, *off, fetchBytes
		ft.Partitions = append(ft.Partitions, fp)
		req.Topics = append(req.Topics, ft)
		kresp, err := s.ask(v, req)
		if err != nil {
			return err
		}
		resp := kresp.(*kmsg.FetchResponse)
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return errNotSeen
		}
		sp := &resp.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(sp.ErrorCode); err != nil {
			return err
		}
		raw, before := sp.RecordBatches, *off
		for {
			b, ok := parseBatchInfo(raw)
			if !ok || b.last >= sp.HighWatermark {
				break
			}
			if b.last >= *off {
				fn(b)
				*off = b.last + 1
			}
			if b.length > len(raw) {
				break
			}
			raw = raw[b.length:]
		}
		if *off >= sp.HighWatermark {
			return nil
		}
		if *off == before {
			return errNotSeen
		}
	}
}

func (s *Sink) ask(v *view, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(s.ctx, 2*replyTimeout)
	defer cancel()
	return s.cl.Broker(int(v.leader)).Request(ctx, req)
}

// bounds are a partition's log start and high watermark.
func (s *Sink) bounds(v *view) (start, end int64, err error) {
	for i, to := range []*int64{&start, &end} {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		rt, rp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
		rt.Topic, rp.Partition, rp.Timestamp = v.topic, v.part, int64(i-2)
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		kresp, err := s.ask(v, req)
		if err != nil {
			return 0, 0, err
		}
		resp := kresp.(*kmsg.ListOffsetsResponse)
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return 0, 0, errNotSeen
		}
		if err := kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode); err != nil {
			return 0, 0, err
		}
		*to = resp.Topics[0].Partitions[0].Offset
	}
	return start, end, nil
}

// describe asks the leader for the last sequence number it has of our session.
func (s *Sink) describe(v *view) (last int32, epoch int16, ok bool, err error) {
	req := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = v.topic, []int32{v.part}
	req.Topics = append(req.Topics, rt)
	kresp, err := s.ask(v, req)
	if err != nil {
		if strings.Contains(err.Error(), "too old") { // Kafka below 2.8: the batch headers must do
			err = nil
		}
		return 0, 0, false, err
	}
	resp := kresp.(*kmsg.DescribeProducersResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, 0, false, errNotSeen
	}
	sp := &resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(sp.ErrorCode); err != nil {
		return 0, 0, false, err
	}
	for _, a := range sp.ActiveProducers {
		if a.ProducerID == v.pid {
			return a.LastSequence, int16(a.ProducerEpoch), true, nil
		}
	}
	return 0, 0, false, nil
}
