package relaytest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"binrelay/relay"
)

// Sink is relay/kafka as a model: partitions are slices, the hand-over journal is memory that survives a
// Crash, records arrive exactly once and in order. Set the hooks before use; all are optional and must not
// call back. It starts no goroutines, so that it runs in testing/synctest. All methods are safe for
// concurrent use. It panics when the relay breaks the contract of relay.Sink.
type Sink struct {
	PartitionCount func(topic string) int // nil: 4
	AckDelay       func() time.Duration   // from the hand-over of a batch until it is acknowledged; nil: at once
	MaxInFlight    int                    // records above which Send blocks; 0: 1000
	StartErr       func() error           // error of Start, nil to let it pass
	BeforeSend     func(*relay.Batch) error
	AfterSend      func(*relay.Batch) error // after the hand-over; an error of either ends the session
	// Refuse says that Kafka refuses a record for good. Delivery halts there until it is nil for it.
	Refuse func(*relay.Record) *relay.Fault
	// Arrived says how many of the n records in flight had reached Kafka when the process crashed;
	// nil: none.
	Arrived func(n int) int

	mu      sync.Mutex
	change  chan struct{}
	kafka   *kafkaModel // shared with the sinks of earlier and later processes
	session bool
	fault   error         // ended the session
	broken  chan struct{} // closed with it
	dead    error         // the process crashed, or Close
	status  relay.SinkStatus
}

// kafkaModel is what outlives a process: the cluster, and the journal on the relay's disk.
type kafkaModel struct {
	topics  map[string][][]relay.Record
	journal []*handover // not acknowledged, oldest first
	covered uint64      // last entry handed over
	acked   uint64
}

// handover is one batch on its way.
type handover struct {
	last    uint64
	records []relay.Record
	arrived int // of records
}

var _ relay.Sink = (*Sink)(nil)

func (s *Sink) init() {
	if s.kafka == nil {
		s.kafka = &kafkaModel{topics: map[string][][]relay.Record{}}
	}
	if s.change == nil {
		s.change = make(chan struct{})
	}
}

func (s *Sink) changed() {
	close(s.change)
	s.change = make(chan struct{})
}

// await waits until ready, the end of ctx, of the session, or of the process.
func (s *Sink) await(ctx context.Context, ready func() bool) error {
	for {
		if s.dead != nil {
			return s.dead
		}
		if s.fault != nil {
			return s.fault
		}
		if ready() {
			return nil
		}
		change := s.change
		s.mu.Unlock()
		select {
		case <-change:
			s.mu.Lock()
		case <-ctx.Done():
			s.mu.Lock()
			return context.Cause(ctx)
		}
	}
}

// Start implements relay.Sink: what earlier sessions handed over arrives now.
func (s *Sink) Start(context.Context) (next uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.init()
	if s.dead != nil {
		return 0, s.dead
	}
	s.session, s.fault = false, nil
	if s.StartErr != nil {
		if err := s.StartErr(); err != nil {
			return 0, err
		}
	}
	s.status.Sessions++
	s.status.Resumed += uint64(s.inFlight())
	for len(s.kafka.journal) > 0 {
		if err := s.arrive(); err != nil {
			return 0, err
		}
	}
	s.session, s.broken = true, make(chan struct{})
	if s.kafka.covered == 0 {
		return 0, nil
	}
	return s.kafka.covered + 1, nil
}

// Send implements relay.Sink.
func (s *Sink) Send(ctx context.Context, b *relay.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.Release != nil {
		defer b.Release() // the records are copied, or Send fails
	}
	if !s.session && s.fault == nil && s.dead == nil {
		panic("relaytest: Send without Start")
	}
	room := func() bool {
		most := s.MaxInFlight
		if most <= 0 {
			most = 1000
		}
		n := s.inFlight()
		return n == 0 || n+len(b.Records) <= most
	}
	if err := s.await(ctx, room); err != nil {
		return err
	}
	if want := s.kafka.covered + 1; b.Last < b.First || s.kafka.covered > 0 && b.First != want {
		panic(fmt.Sprintf("relaytest: batch of entries %d to %d, but entry %d is next", b.First, b.Last, want))
	}
	if err := s.hook(s.BeforeSend, b); err != nil {
		return err
	}
	// The hand-over: from here on the records are the journal's.
	h := &handover{last: b.Last}
	for _, r := range b.Records {
		r.Key, r.Value, r.Hash, r.Headers = slices.Clone(r.Key), slices.Clone(r.Value), slices.Clone(r.Hash), slices.Clone(r.Headers)
		h.records = append(h.records, s.placed(r))
	}
	s.kafka.covered = b.Last
	s.kafka.journal = append(s.kafka.journal, h)
	if s.AckDelay == nil {
		if err := s.arrive(); err != nil {
			return err
		}
	} else {
		time.AfterFunc(s.AckDelay(), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.dead == nil && s.fault == nil && len(s.kafka.journal) > 0 {
				s.arrive()
			}
		})
	}
	return s.hook(s.AfterSend, b)
}

func (s *Sink) hook(fn func(*relay.Batch) error, b *relay.Batch) error {
	if fn == nil {
		return nil
	}
	if err := fn(b); err != nil {
		s.fail(err)
		return err
	}
	return nil
}

// fail ends the session.
func (s *Sink) fail(err error) {
	if s.session {
		close(s.broken)
	}
	s.session, s.fault = false, err
	s.changed()
}

// Broken implements relay.Sink.
func (s *Sink) Broken() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// placed decides the record's partition.
func (s *Sink) placed(r relay.Record) relay.Record {
	n := s.partitions(r.Topic)
	if r.Partition < 0 {
		h := fnv.New32a()
		h.Write(r.Hash)
		r.Partition = int32(h.Sum32() % uint32(n))
	}
	if int(r.Partition) >= n {
		panic(fmt.Sprintf("relaytest: partition %d of topic %s, which has %d", r.Partition, r.Topic, n))
	}
	return r
}

// arrive lets the rest of the oldest batch into its partitions and acknowledges it.
func (s *Sink) arrive() error {
	k := s.kafka
	h := k.journal[0]
	if err := s.apply(h, len(h.records)); err != nil {
		s.fail(err)
		return err
	}
	k.journal = k.journal[1:]
	k.acked = h.last
	s.status.Records += uint64(len(h.records))
	s.changed()
	return nil
}

// apply lets records of h arrive until n of them are there.
func (s *Sink) apply(h *handover, n int) error {
	for ; h.arrived < n; h.arrived++ {
		r := &h.records[h.arrived]
		if s.Refuse != nil {
			if f := s.Refuse(r); f != nil {
				return f
			}
		}
		parts := s.kafka.topics[r.Topic]
		parts[r.Partition] = append(parts[r.Partition], *r)
	}
	return nil
}

// partitions returns a topic's count, and makes the topic.
func (s *Sink) partitions(topic string) int {
	parts, ok := s.kafka.topics[topic]
	if !ok {
		n := 4
		if s.PartitionCount != nil {
			n = s.PartitionCount(topic)
		}
		parts = make([][]relay.Record, n)
		s.kafka.topics[topic] = parts
	}
	return len(parts)
}

// Partitions implements relay.Sink.
func (s *Sink) Partitions(_ context.Context, topic string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.init()
	if s.dead != nil {
		return 0, s.dead
	}
	return s.partitions(topic), nil
}

// Flush implements relay.Sink.
func (s *Sink) Flush(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.init()
	return s.await(ctx, func() bool { return len(s.kafka.journal) == 0 })
}

// Acked implements relay.Sink.
func (s *Sink) Acked() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.init()
	return s.kafka.acked
}

func (s *Sink) inFlight() (n int) {
	for _, h := range s.kafka.journal {
		n += len(h.records) - h.arrived
	}
	return n
}

// Status implements relay.Sink.
func (s *Sink) Status() relay.SinkStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.init()
	st := s.status
	st.Acked, st.InFlight = s.kafka.acked, s.inFlight()
	for _, parts := range s.kafka.topics {
		for _, p := range parts {
			if len(p) > 0 {
				st.Partitions++
			}
		}
	}
	return st
}

// Close implements relay.Sink.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.init()
	var err error
	if s.session && s.dead == nil {
		err = s.await(ctx, func() bool { return len(s.kafka.journal) == 0 })
	}
	if s.dead == nil {
		s.dead = errors.New("relaytest: sink is closed")
		s.changed()
	}
	return err
}

// Crash is kill -9 and a start anew: it returns the sink of the next process, with the journal and the
// partitions as they are. The old one answers ErrCrashed.
func (s *Sink) Crash() *Sink {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.init()
	if s.Arrived != nil && s.dead == nil {
		left := s.Arrived(s.inFlight())
		for _, h := range s.kafka.journal {
			n := min(left, len(h.records)-h.arrived)
			if s.apply(h, h.arrived+n) != nil {
				break
			}
			left -= n
		}
	}
	kafka := s.kafka
	s.dead, s.kafka = ErrCrashed, &kafkaModel{acked: kafka.acked, covered: kafka.covered} // it sees no more of the world
	s.changed()
	return &Sink{PartitionCount: s.PartitionCount, AckDelay: s.AckDelay, MaxInFlight: s.MaxInFlight, StartErr: s.StartErr,
		BeforeSend: s.BeforeSend, AfterSend: s.AfterSend, Refuse: s.Refuse, Arrived: s.Arrived, kafka: kafka}
}

// Records returns the partitions of a topic as they are now.
func (s *Sink) Records(topic string) [][]relay.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.init()
	var out [][]relay.Record
	for _, p := range s.kafka.topics[topic] {
		out = append(out, slices.Clone(p))
	}
	return out
}
