package relay

import (
	"sync"
	"time"
)

// State is what the relay is doing, in one word.
type State string

const (
	Starting  State = "starting"  // not yet connected to both ends
	Streaming State = "streaming" // reading and delivering
	Paused    State = "paused"    // delivery stopped on purpose; capture goes on
	Waiting   State = "waiting"   // for something an operator mends outside, or for room in the log
	Halted    State = "halted"    // by a fault that a retry cannot pass
)

// Ready reports whether /readyz answers 200 in this state.
func (s State) Ready() bool { return s == Streaming || s == Paused }

// Status is a snapshot of the relay: the one struct that people (the page, /status) and machines
// (/metrics, /readyz) read.
type Status struct {
	State  State        `json:"state"`
	Reason string       `json:"reason,omitempty"`
	Source SourceStatus `json:"source"`
	WAL    LogStatus    `json:"wal"`
	Sink   SinkStatus   `json:"sink"`
	Fault  *Fault       `json:"fault"`
	Since  time.Time    `json:"since"` // when State was entered
	// Rows are counts of changes since the process started.
	Rows Rows `json:"rows"`
	// BacklogSeconds is the age of the oldest entry that is not acknowledged; 0 when all are.
	BacklogSeconds float64 `json:"backlog_seconds"`
	Faults         uint64  `json:"-"` // halts of delivery since the process started
}

// Rows counts changes that delivery has handled.
type Rows struct {
	Handled     uint64 `json:"handled"`
	Filtered    uint64 `json:"filtered"`
	DeadLetters uint64 `json:"dead_letters"`
}

// Status returns a snapshot. It is safe to call from any goroutine, before, during and after Run.
func (r *Relay) Status() Status {
	s := Status{Source: r.Source.Status(), WAL: r.Log.Status(), Sink: r.Sink.Status()}
	s.Sink.Acked = r.Sink.Acked()
	if s.WAL.Last > s.Sink.Acked {
		s.WAL.Backlog = s.WAL.Last - s.Sink.Acked
	}
	s.Rows = Rows{r.handled.Load(), r.filtered.Load(), r.deadLetters.Load()}
	s.BacklogSeconds = r.ages.oldest(s.Sink.Acked, time.Now()).Seconds()
	s.Faults = r.faults.Load()

	r.mu.Lock()
	defer r.mu.Unlock()
	s.Fault = r.fault
	s.State, s.Reason = r.stateLocked(&s)
	if s.State != r.state {
		r.state, r.since = s.State, time.Now()
	}
	s.Since = r.since
	return s
}

// stateLocked sums the two halves up. The worst news wins.
func (r *Relay) stateLocked(s *Status) (State, string) {
	switch {
	case r.captureErr != nil:
		return Halted, "capture: " + r.captureErr.Error()
	case r.fault != nil:
		return Halted, "delivery: " + r.fault.Error()
	case r.paused:
		return Paused, "paused; POST /resume goes on"
	case r.captureWait != "" && !s.Source.Connected:
		return Waiting, "source: " + r.captureWait
	case s.Sink.Waiting != "":
		return Waiting, "kafka: " + s.Sink.Waiting
	case r.deliverWait != "":
		return Waiting, "delivery: " + r.deliverWait
	case s.WAL.Full != "":
		return Waiting, "log: " + s.WAL.Full
	case !s.Source.Connected || !r.positioned.Load():
		return Starting, "connecting to the source"
	case !r.delivering:
		return Starting, "connecting to Kafka"
	}
	return Streaming, ""
}

// maxAges bounds the samples of ages: an hour of seconds, thinned out beyond that.
const maxAges = 3600

// ages remembers when log entries became readable, a sample a second, to tell how old the backlog is.
type ages struct {
	mu      sync.Mutex
	samples []age
}

type age struct {
	last uint64 // newest readable entry at that time
	at   time.Time
}

// note takes a sample and forgets those that are wholly acknowledged.
func (a *ages) note(last, acked uint64, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := 0
	for i < len(a.samples) && a.samples[i].last <= acked {
		i++
	}
	a.samples = append(a.samples[:0], a.samples[i:]...)
	if last > acked && (len(a.samples) == 0 || a.samples[len(a.samples)-1].last < last) {
		a.samples = append(a.samples, age{last, now})
	}
	if len(a.samples) > maxAges { // a long outage: half the resolution is enough
		kept := a.samples[:0]
		for j := 0; j < len(a.samples); j += 2 {
			kept = append(kept, a.samples[j])
		}
		a.samples = kept
	}
}

// oldest is the age of the oldest entry above acked, to within a second.
func (a *ages) oldest(acked uint64, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.samples {
		if s.last > acked {
			return now.Sub(s.at)
		}
	}
	return 0
}
