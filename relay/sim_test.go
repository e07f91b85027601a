package relay_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"binrelay/relay"
	"binrelay/relay/relaytest"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run this seed of the simulation only")
	seedsFlag = flag.Int("seeds", 0, "how many seeds of the simulation to run (0: 2000, or 300 with -short)")
)

// TestSimulation runs the relay over model parts in virtual time, one seed a run: connections break inside
// transactions, acknowledgements are slow, sessions break, functions fault, people pause and resume, and
// the process is killed and started again at random moments. Whatever happens, each partition must hold
// exactly the history's rows for it, in order, once.
func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		simulate(t, *seedFlag, true)
		return
	}
	n := *seedsFlag
	if n == 0 {
		n = 2000
		if testing.Short() {
			n = 300
		}
	}
	for seed := uint64(1); seed <= uint64(n); seed++ {
		simulate(t, seed, false)
		if t.Failed() {
			t.Fatalf("seed %d fails; again: go test ./relay -run TestSimulation -seed %d -v", seed, seed)
		}
	}
}

func simulate(t *testing.T, seed uint64, verbose bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, seed)
		if verbose {
			s.logger = slog.New(slog.NewTextHandler(t.Output(), nil))
		}
		s.run()
	})
}

// sim is one run: a history, a log and a sink that outlive processes, and processes.
type sim struct {
	t       *testing.T
	seed    uint64
	logger  *slog.Logger
	mu      sync.Mutex // of rng: hooks draw from several goroutines
	rng     *rand.Rand
	history int // transactions
	rows    map[int]int
	source  *relaytest.ScriptedSource
	log     *relaytest.Log
	sink    *relaytest.Sink
	faulty  atomic.Int64 // functions fault while it is above 0, once less each time
}

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{t: t, seed: seed, logger: slog.New(slog.NewTextHandler(io.Discard, nil)), rng: rand.New(rand.NewPCG(seed, 1))}
	s.history = 20 + s.n(80)
	s.rows = map[int]int{}
	for n := 1; n <= s.history; n++ {
		switch s.n(10) {
		case 0: // nothing of it is selected
			s.rows[n] = 0
		case 1, 2:
			s.rows[n] = 2 + s.n(30)
		default:
			s.rows[n] = 1
		}
	}
	s.source = &relaytest.ScriptedSource{
		Seed: seed, Rows: func(n int) int { return s.rows[n] }, PartRows: 1 + s.n(8),
		Break: func(int) error {
			if s.n(40) == 0 {
				return relaytest.ErrBroken
			}
			return nil
		},
	}
	s.log = &relaytest.Log{CommitDelay: func() time.Duration { return s.delay(5 * time.Millisecond) }}
	if s.n(3) == 0 {
		s.log.MaxBytes = 200
	}
	s.sink = &relaytest.Sink{
		AckDelay:    func() time.Duration { return s.delay(50 * time.Millisecond) },
		MaxInFlight: 1 + s.n(40),
		StartErr:    func() error { return s.sometimes(10, "no broker") },
		BeforeSend:  func(*relay.Batch) error { return s.sometimes(30, "refused before the hand-over") },
		AfterSend:   func(*relay.Batch) error { return s.sometimes(30, "the session broke") },
		Refuse: func(r *relay.Record) *relay.Fault {
			if s.n(80) != 0 {
				return nil
			}
			return &relay.Fault{Function: "kafka", Seq: r.Seq, Row: int(r.Row), Err: "refused"}
		},
		Arrived: func(n int) int { return s.n(n + 1) },
	}
	return s
}

func (s *sim) n(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *sim) delay(most time.Duration) time.Duration { return time.Duration(s.n(int(most))) }

func (s *sim) sometimes(one int, why string) error {
	if s.n(one) == 0 {
		return errors.New(why)
	}
	return nil
}

// run starts processes and kills them until the history has been delivered, then compares.
func (s *sim) run() {
	kills := s.n(8)
	for k := 0; ; k++ {
		last := k >= kills
		if last {
			s.source.Extend(s.history)
			s.source.Break = nil // the last process may finish
		} else {
			s.source.Extend(s.n(s.history + 1))
		}
		if s.process(last) && last {
			break
		}
		s.log, s.sink = s.log.Crash(), s.sink.Crash()
	}
	s.check()
}

// process runs one process. It is killed at a random moment, stopped by a signal, or, when last, stopped
// once all is delivered. It reports whether everything it was shown was delivered.
func (s *sim) process(last bool) bool {
	h := newHandler(s)
	r := &relay.Relay{
		Source: s.source, Log: s.log, Sink: s.sink, Handler: h, Logger: s.logger,
		ShutdownTimeout: time.Second, Workers: 1 + s.n(4),
		Backoff: func(int) time.Duration { return time.Duration(1+s.n(20)) * time.Millisecond },
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()

	if s.n(4) == 0 {
		s.faulty.Store(int64(1 + s.n(3)))
	}
	deadline := time.Now().Add(time.Duration(s.n(400)) * time.Millisecond)
	if last {
		deadline = time.Now().Add(10 * time.Minute)
	}
	for time.Now().Before(deadline) {
		select {
		case err := <-done:
			s.t.Errorf("seed %d: Run ended by itself: %v", s.seed, err)
			stop()
			h.wait()
			return last
		default:
		}
		time.Sleep(time.Duration(1+s.n(10)) * time.Millisecond)
		switch st := r.Status(); {
		case st.Fault != nil || st.State == relay.Paused:
			r.Resume()
		case s.n(60) == 0:
			r.Pause()
		}
		st := r.Status()
		if last && st.Source.Transactions == uint64(s.history) && st.Sink.Acked == st.WAL.Last && st.WAL.Durable == st.WAL.Last {
			break
		}
	}
	s.faulty.Store(0)
	if last || s.n(3) == 0 { // SIGTERM
		stop()
		if err := <-done; err != nil {
			s.t.Errorf("seed %d: Run = %v after a stop", s.seed, err)
		}
		h.wait()
		st := r.Status()
		return st.Sink.Acked == st.WAL.Last
	}
	// kill -9: what the next process gets is cut off now; this one meets ErrCrashed everywhere.
	log, sink := s.log.Crash(), s.sink.Crash()
	stop()
	<-done
	h.wait()
	s.log, s.sink = log, sink
	return false
}

// check compares the partitions with the history.
func (s *sim) check() {
	want := map[int32][]string{}
	for n := 1; n <= s.history; n++ {
		for row := range s.rows[n] {
			p := place(n, row)
			want[p] = append(want[p], fmt.Sprintf("%d %d", n, row))
		}
	}
	for p, got := range s.sink.Records("t") {
		w := want[int32(p)]
		for i := range max(len(got), len(w)) {
			switch {
			case i >= len(got):
				s.t.Errorf("seed %d: partition %d: %q is lost", s.seed, p, w[i])
			case i >= len(w):
				s.t.Errorf("seed %d: partition %d: %q is one too many", s.seed, p, got[i].Value)
			case string(got[i].Value) != w[i]:
				s.t.Errorf("seed %d: partition %d, record %d: %q, want %q", s.seed, p, i, got[i].Value, w[i])
			default:
				continue
			}
			return
		}
		delete(want, int32(p))
	}
	for p, w := range want {
		if len(w) > 0 {
			s.t.Errorf("seed %d: partition %d is missing with %d records", s.seed, p, len(w))
		}
	}
}

// place spreads rows over the model's four partitions.
func place(n, row int) int32 { return int32((n*7 + row*3) % 4) }

// simHandler makes a record of each row, with goroutines that finish in any order.
type simHandler struct {
	s  *sim
	wg sync.WaitGroup
}

func newHandler(s *sim) *simHandler { return &simHandler{s: s} }

func (h *simHandler) wait() { h.wg.Wait() }

// Go implements relay.Handler.
func (h *simHandler) Go(j *relay.Job) {
	h.wg.Go(func() {
		time.Sleep(h.s.delay(3 * time.Millisecond))
		h.handle(j)
		j.Done <- struct{}{}
	})
}

func (h *simHandler) handle(j *relay.Job) {
	for i, e := range j.Entries {
		rows, err := relaytest.ScriptedRows(e.Data)
		if err == nil && h.s.faulty.Load() > 0 && h.s.n(10) == 0 {
			h.s.faulty.Add(-1)
			err = errors.New("the function does not like this row")
		}
		if err != nil {
			j.Fault = &relay.Fault{Function: "filter", Seq: e.Seq, Err: err.Error()}
			return
		}
		for _, r := range rows {
			j.Out.Records = append(j.Out.Records, relay.Record{
				Topic: "t", Partition: place(r.Transaction, r.Row), Seq: e.Seq, Row: int32(r.Row),
				Value: fmt.Appendf(nil, "%d %d", r.Transaction, r.Row),
			})
			j.Stats.Changes++
		}
		j.Covered = i + 1
	}
}
