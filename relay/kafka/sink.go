package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"binrelay/relay"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What may be in flight: handed over and not acknowledged. The bytes are held once, encoded; requests
// under way hold them once or twice more, compressed, up to maxRequestBytes each.
const (
	maxInFlightBytes   = 16 << 20
	maxInFlightRecords = 400_000
	maxRequestBytes    = 2 << 20
	// renewAfter is when a partition goes on in another session: sequence numbers end at 2^31.
	renewAfter = 1 << 30
	noteEvery  = 200 * time.Millisecond
)

// Sink hands records to Kafka; see the package's documentation. It implements relay.Sink.
type Sink struct {
	cfg  Config
	log  *slog.Logger
	comp kgo.Compressor
	solo kgo.Compressor // for records that are too large without compression

	idempotent bool // sequence numbers
	resume     bool // and what a session left open is settled by them
	renewAfter uint64
	maxBytes   int
	patience   time.Duration

	startMu sync.Mutex // Start and Close
	running bool
	cl      *kgo.Client
	adm     *kadm.Client
	ctx     context.Context // of everything that runs between Start and Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	j       *journal
	jq      chan *item
	wake    chan struct{} // dispatch has work
	refresh chan struct{} // the leaders may have moved

	packed sync.Pool // *item
	gen    uint64    // of Send: partition.slotGen
	next   uint64    // of Send: the entry that must come next; 0: any

	mu           sync.Mutex
	cond         *sync.Cond
	st           *state
	byName       map[string]*topic
	brokers      map[int32]*broker
	active       []*partition // with a queue
	readyBrokers []*broker    // scratch of dispatch
	turn         int          // where dispatch begins, so that all get their turn
	dirty        []*partition // acknowledged counts to note
	pend         []*pending   // in the order of their first entry
	hold         bool         // nothing is sent: it is not known whether this is the journal's cluster
	inBytes      int
	inFlight     int
	hurry        int   // somebody waits: do not linger
	err          error // why Send cannot go on until Start is called
	broken       chan struct{}
	jerr         error      // the journal failed
	why          waiting    // for Kafka as a whole
	said         string     // the wait that was logged last
	worn         bool       // see barrier
	topicMu      sync.Mutex // one look-up of a topic at a time
	policies     policies

	acked     atomic.Uint64
	records   atomic.Uint64
	bytes     atomic.Uint64
	retries   atomic.Uint64
	sessions  atomic.Uint64
	resumed   atomic.Uint64
	mayRepeat atomic.Uint64
	used      atomic.Int64 // partitions written to
}

var _ relay.Sink = (*Sink)(nil)

// New validates the configuration; it connects to nothing.
func New(cfg Config) (*Sink, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Sink{cfg: cfg, log: cfg.Logger, renewAfter: renewAfter, maxBytes: maxInFlightBytes, patience: patience}
	s.comp, _ = compressor(cfg.Compression)
	if s.solo = s.comp; s.solo == nil {
		s.solo, _ = compressor("snappy")
	}
	s.idempotent = cfg.InFlight == 5
	s.resume = cfg.Delivery == ExactlyOnce
	s.cond = sync.NewCond(&s.mu)
	cl, err := kgo.NewClient(cfg.options()...)
	if err != nil {
		return nil, fmt.Errorf("KAFKA settings: %w", err)
	}
	cl.Close()
	return s, nil
}

// Start is relay.Sink's. The first one opens the journal, settles what it holds and begins new sessions.
func (s *Sink) Start(ctx context.Context) (uint64, error) {
	s.startMu.Lock()
	defer s.startMu.Unlock()
	first := !s.running
	if first {
		if err := s.open(); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	s.err, s.broken = nil, make(chan struct{})
	for _, p := range s.active {
		if p.mode == refused { // the operator may have mended it
			p.mode, p.until, p.sent = streaming, time.Time{}, 0
		}
	}
	settling := s.headMarks()
	s.mu.Unlock()
	s.poke()

	err := s.begin(ctx, first, settling)
	if err != nil && first {
		// Begin anew with the next Start, from what the journal says.
		s.stop()
	}
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = 0
	if s.st.covered > 0 {
		s.next = s.st.covered + 1
	}
	return s.next, nil
}

// begin brings the sink to where Send may be called.
func (s *Sink) begin(ctx context.Context, first bool, settling map[*partition]uint64) error {
	// A journal that failed goes on in a new file. What was queued for it was never sent.
	if err := s.control(ctx, func() error {
		s.mu.Lock()
		broken := s.jerr != nil
		snap := s.st.appendSnapshot(nil)
		s.mu.Unlock()
		if !broken {
			return nil
		}
		if err := s.j.begin(snap); err != nil {
			return err
		}
		s.mu.Lock()
		s.jerr = nil
		s.mu.Unlock()
		return nil
	}); err != nil {
		return s.journalError(err)
	}
	if first {
		if err := s.knowCluster(ctx); err != nil {
			return err
		}
	}
	err := s.wait(ctx, func() bool {
		for p, n := range settling {
			if p.acked < n {
				return s.err != nil
			}
		}
		return true
	})
	if err == nil {
		s.mu.Lock()
		err = s.err
		s.mu.Unlock()
	}
	if err != nil || !first {
		return err
	}
	return s.freshSession(ctx)
}

// freshSession moves all partitions, in which nothing is open, to a new producer session. It costs one
// request a start, and a journal that was restored from an older copy then repeats records instead of
// mistaking its new ones for those that Kafka has.
func (s *Sink) freshSession(ctx context.Context) error {
	pid, epoch, err := s.newProducer(ctx)
	if err != nil {
		return err
	}
	return s.journalError(s.control(ctx, func() error {
		s.mu.Lock()
		s.st.pid, s.st.epoch = pid, epoch
		for _, t := range s.st.topics {
			for _, p := range t.parts {
				p.pid, p.epoch, p.n0 = pid, epoch, p.n
				p.proven = false
			}
		}
		snap := s.st.appendSnapshot(nil)
		s.mu.Unlock()
		return s.j.begin(snap)
	}))
}

// open reads the journal and starts what runs until Close.
func (s *Sink) open() error {
	j, st, err := openJournal(s.cfg.StateDir)
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(s.cfg.options()...)
	if err != nil {
		return fmt.Errorf("KAFKA settings: %w", err)
	}
	s.mu.Lock()
	s.j, s.st, s.cl, s.adm = j, st, cl, kadm.NewClient(cl)
	s.adm.SetTimeoutMillis(int32(produceTimeout.Milliseconds()))
	s.jq, s.wake, s.refresh = make(chan *item, 2), make(chan struct{}, 1), make(chan struct{}, 1)
	s.byName, s.brokers = map[string]*topic{}, map[int32]*broker{}
	s.active, s.dirty, s.pend, s.inBytes, s.inFlight, s.jerr, s.why = nil, nil, nil, 0, 0, nil, waiting{}
	for _, t := range st.topics {
		t.noted, t.maxBytes = true, s.cfg.BatchMaxBytes
		s.byName[t.name] = t
		for _, p := range t.parts {
			p.leader = -1
		}
	}
	err = s.restore()
	snap := st.appendSnapshot(nil)
	s.mu.Unlock()
	if err == nil {
		err = s.journalError(j.begin(snap))
	}
	if err != nil {
		j.close()
		cl.Close()
		return err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.running, s.hold = true, true
	s.wg.Go(s.journaler)
	s.wg.Go(s.dispatcher)
	s.wg.Go(s.leaders)
	return nil
}

// restore queues the records of the journal that are not acknowledged.
func (s *Sink) restore() error {
	now := time.Now()
	left := false
	for _, t := range s.st.topics {
		for _, p := range t.parts {
			left = left || p.acked < p.n
		}
	}
	if left {
		err := s.j.scan(func(h batchHead, start []uint64) error {
			open := 0
			for i, c := range h.index {
				p, err := s.st.partition(c.topic, c.part)
				if err != nil {
					return err
				}
				if end := start[i] + uint64(c.count); end > p.acked {
					open += int(end - max(start[i], p.acked))
				}
			}
			if open == 0 {
				return nil
			}
			pd := &pending{first: math.MaxUint64, last: h.last, left: open, since: now}
			err := h.records(start, func(c partCount, n uint64, rec *journalRecord) error {
				p, err := s.st.partition(c.topic, c.part)
				if err != nil || n < p.acked {
					return err
				}
				pd.first = min(pd.first, rec.seq) // entries before it are acknowledged
				s.inBytes += p.push(n, pd, rec.key, rec.value, rec.headers, rec.ms, now)
				s.inFlight++
				s.activate(p)
				return nil
			})
			s.insert(pd)
			return err
		})
		if err != nil {
			return relay.Permanent(fmt.Errorf("hand-over journal %s: %w", s.cfg.StateDir, err), "restore WAL_DIR whole")
		}
	}
	for _, t := range s.st.topics {
		for _, p := range t.parts {
			if p.acked < p.n && (len(p.queue) == 0 || p.queue[0].base != p.acked) {
				return relay.Permanent(fmt.Errorf("hand-over journal %s: %s: records from %d on are not there", s.cfg.StateDir, p, p.acked), "restore WAL_DIR whole")
			}
		}
	}
	for _, p := range s.active {
		p.queue[len(p.queue)-1].open = false
		// What the dead process sent of these, and what of that is still on its way, the partition must say.
		switch {
		case s.resume && p.pid >= 0:
			p.mode, p.err = failed, errRestored
		default:
			s.mayRepeat.Add(p.n - p.acked)
			s.log.Warn("records may be repeated: DELIVERY=at-least-once does not settle what was in flight", "partition", p.String(), "up_to", p.n-p.acked)
			if p.pid >= 0 {
				p.pid = -1 // sent without sequence numbers, so that the broker takes them
			}
		}
	}
	s.advance()
	return nil
}

// errRestored is why a partition is looked at after a start.
var errRestored = errors.New("left open by an earlier process")

// headMarks are the partitions with something open, and where that ends.
func (s *Sink) headMarks() map[*partition]uint64 {
	m := make(map[*partition]uint64, len(s.active))
	for _, p := range s.active {
		m[p] = p.n
	}
	return m
}

// Close is relay.Sink's.
func (s *Sink) Close(ctx context.Context) error {
	s.startMu.Lock()
	defer s.startMu.Unlock()
	if !s.running {
		return nil
	}
	err := s.Flush(ctx)
	s.stop()
	return err
}

// stop ends everything that runs; what is not acknowledged stays in the journal.
func (s *Sink) stop() {
	s.mu.Lock()
	s.failLocked(errors.New("kafka: the sink is closed"))
	s.mu.Unlock()
	s.cancel()
	s.cl.Close()
	s.wg.Wait()
	s.j.close()
	s.running = false
}

// Flush is relay.Sink's.
func (s *Sink) Flush(ctx context.Context) error {
	s.mu.Lock()
	s.hurry++
	s.mu.Unlock()
	s.poke()
	defer func() {
		s.mu.Lock()
		s.hurry--
		s.mu.Unlock()
	}()
	if err := s.wait(ctx, func() bool { return s.inFlight == 0 && len(s.pend) == 0 || s.err != nil }); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight > 0 || len(s.pend) > 0 {
		return s.err
	}
	return nil
}

// Broken is relay.Sink's.
func (s *Sink) Broken() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// Acked is relay.Sink's.
func (s *Sink) Acked() uint64 { return s.acked.Load() }

// Status is relay.Sink's.
func (s *Sink) Status() relay.SinkStatus {
	st := relay.SinkStatus{
		Acked: s.acked.Load(), Partitions: int(s.used.Load()),
		Records: s.records.Load(), Bytes: s.bytes.Load(), Retries: s.retries.Load(),
		Sessions: s.sessions.Load(), Resumed: s.resumed.Load(), MayRepeat: s.mayRepeat.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.InFlight = s.inFlight
	now := time.Now()
	if len(s.pend) > 0 {
		st.OldestSecs = now.Sub(s.pend[0].since).Seconds()
	}
	st.Waiting = s.waitingLocked(now)
	return st
}

// wait blocks until cond, read under the lock, holds.
func (s *Sink) wait(ctx context.Context, cond func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		s.cond.Broadcast()
		s.mu.Unlock()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !cond() {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.cond.Wait()
	}
	return nil
}

// failLocked makes Send fail until Start is called.
func (s *Sink) failLocked(err error) {
	if s.err == nil {
		s.err = err
		close(s.broken)
	}
	s.cond.Broadcast()
}

func (s *Sink) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// activate puts a partition with a queue on the dispatcher's list.
func (s *Sink) activate(p *partition) {
	if !p.active {
		p.active = true
		s.active = append(s.active, p)
	}
}

// insert adds a pending in the order of first entries; nearly always that is the end.
func (s *Sink) insert(pd *pending) {
	i := len(s.pend)
	for i > 0 && s.pend[i-1].first > pd.first {
		i--
	}
	s.pend = append(s.pend, nil)
	copy(s.pend[i+1:], s.pend[i:])
	s.pend[i] = pd
}

// advance moves the low watermark over what is wholly acknowledged.
func (s *Sink) advance() {
	// Invariant 3: an entry counts when it and all before it are acknowledged.
	i := 0
	for i < len(s.pend) && s.pend[i].left == 0 {
		i++
	}
	if i > 0 {
		s.pend = append(s.pend[:0], s.pend[i:]...)
	}
	to := s.st.covered
	if len(s.pend) > 0 {
		to = s.pend[0].first - 1
	}
	if to > s.acked.Load() {
		s.acked.Store(to)
	}
	s.cond.Broadcast()
}
