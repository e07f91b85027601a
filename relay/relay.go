package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Relay joins a source to a sink through a log. Set the exported fields, then call Run once.
type Relay struct {
	Source  Source
	Log     Log
	Handler Handler
	Sink    Sink
	Logger  *slog.Logger

	// ShutdownTimeout bounds how long Run delivers on after its context has ended.
	ShutdownTimeout time.Duration
	// Workers is how many jobs may be in work at once; Handler runs them. Default 2 a core is the
	// caller's business: 0 means 4.
	Workers int
	// Locate fills in the table and the place of a fault that names only a log entry and a row; nil: it
	// stays as it is.
	Locate func(*Fault)
	// Backoff makes the wait before attempt n (from 0) of a retry; nil: 250 ms doubling to 30 s, jittered.
	Backoff func(attempt int) time.Duration

	handled, filtered, deadLetters, faults atomic.Uint64

	positioned atomic.Bool // the log has a source position: what is committed from now on will be read
	streamed   atomic.Bool // the source has delivered something in this run
	ages       ages
	resume     chan struct{} // capacity 1: Resume was called

	mu          sync.Mutex
	state       State
	since       time.Time
	captureErr  error  // permanent: capture has halted
	captureWait string // why capture waits to be retried
	deliverWait string // why delivery waits to be retried
	delivering  bool   // the sink has a session
	fault       *Fault // delivery has halted
	paused      bool
	pauseCancel context.CancelFunc // ends the delivery attempt under way
}

// Run reads and delivers until ctx ends or capture halts. When ctx ends it stops reading, delivers what
// the log holds for up to ShutdownTimeout, and returns nil: what is left is delivered by the next run.
// Any other return is the reason for a halt.
func (r *Relay) Run(ctx context.Context) error {
	r.mu.Lock()
	r.resume = make(chan struct{}, 1)
	r.state, r.since = Starting, time.Now()
	r.mu.Unlock()
	if r.Backoff == nil {
		r.Backoff = expBackoff
	}
	if r.Workers == 0 {
		r.Workers = 4
	}

	// Two lives: reading ends with ctx, delivering goes on until the log is drained.
	ingestCtx, stopIngest := context.WithCancel(ctx)
	deliverCtx, stopDeliver := context.WithCancel(context.WithoutCancel(ctx))
	defer stopIngest()
	defer stopDeliver()

	ingestDone := make(chan error, 1)
	deliverDone := make(chan error, 1)
	trimDone := make(chan struct{})
	go func() { ingestDone <- r.ingest(ingestCtx) }()
	go func() { deliverDone <- r.deliver(deliverCtx) }()
	go func() { r.trimmer(deliverCtx); close(trimDone) }()

	var err error
	ingestEnded, deliverEnded := false, false
	select {
	case err = <-ingestDone: // capture halted, or ctx ended
		ingestEnded = true
	case err = <-deliverDone: // only a permanent error of the sink or the log ends delivery
		deliverEnded = true
	}
	if !ingestEnded {
		stopIngest()
		if e := <-ingestDone; err == nil {
			err = e
		}
	}
	if !deliverEnded {
		// What was read last is to be delivered too, and can be once it is durable.
		syncCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSync)
		_ = r.Log.Sync(syncCtx) // a full disk or a failed log: what is durable is drained all the same
		cancel()
		r.drain(ctx, deliverDone, &deliverEnded, &err)
	}
	stopDeliver()
	if !deliverEnded {
		if e := <-deliverDone; e != nil && err == nil {
			err = e
		}
	}
	<-trimDone
	wait := closeTimeout
	if r.Sink.Acked() < r.Log.Status().Last {
		wait = 0 // drain has given up already; the next Start settles what is in flight
	}
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	var halt *Fault // delivery had halted and said so: no fault of a stop that was asked for
	if e := r.Sink.Close(closeCtx); e != nil && err == nil && !errors.Is(e, context.DeadlineExceeded) && !errors.As(e, &halt) {
		err = fmt.Errorf("closing the Kafka session: %w", e)
	}
	r.trim() // what was acknowledged last
	return err
}

const (
	// closeTimeout bounds the end of a session that has been drained already.
	closeTimeout = 5 * time.Second
	// lastSync bounds the wait for the last group commit; it takes milliseconds.
	lastSync = time.Second
)

// drain lets delivery go on until the log is empty. After a stop (ctx has ended) it gives up at
// ShutdownTimeout; after a halt of capture it goes on for as long as it may help, and a stop ends it.
func (r *Relay) drain(ctx context.Context, deliverDone <-chan error, ended *bool, err *error) {
	// A halt that came before anything was read in this run is a mistake at start: then only a delivery
	// that makes progress keeps the process up.
	impatient := *err != nil && !r.streamed.Load()
	deadline := time.Now().Add(r.ShutdownTimeout)
	acked := r.Sink.Acked()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	stopping := ctx.Done()
	for {
		last := r.Log.Status().Last
		now := r.Sink.Acked()
		if now >= last {
			return
		}
		if now != acked {
			acked = now
			if impatient {
				deadline = time.Now().Add(r.ShutdownTimeout)
			}
		}
		if (ctx.Err() != nil || impatient) && (time.Now().After(deadline) || r.stuck()) {
			return
		}
		if *err != nil && r.stuck() { // capture and delivery have both halted: nothing is left to wait for
			return
		}
		select {
		case e := <-deliverDone:
			*ended = true
			if *err == nil {
				*err = e
			}
			return
		case <-stopping: // a stop during the drain after a halt
			stopping = nil
			deadline = time.Now().Add(r.ShutdownTimeout)
		case <-tick.C:
		}
	}
}

// stuck reports whether delivery waits for a person.
func (r *Relay) stuck() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault != nil || r.paused
}

// Pause stops delivery; capture goes on into the log. What is in flight is settled.
func (r *Relay) Pause() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = true
	if r.pauseCancel != nil {
		r.pauseCancel()
	}
}

// Resume ends a pause, and tries a halted delivery again.
func (r *Relay) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = false
	select {
	case r.resume <- struct{}{}:
	default:
	}
}

// trimmer drops acknowledged entries once a second.
func (r *Relay) trimmer(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			r.ages.note(r.Log.Status().Last, r.Sink.Acked(), now)
			r.trim()
		}
	}
}

func (r *Relay) trim() {
	// Invariant 3: never past what Kafka has acknowledged together with all before it.
	if acked := r.Sink.Acked(); acked > 0 {
		if err := r.Log.Trim(acked); err != nil {
			r.Logger.Warn("the log cannot drop what is delivered; it grows until that is mended", "seq", acked, "err", err)
		}
	}
}

// sleep waits d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// expBackoff doubles from 250 ms to 30 s, with a random part so that many relays do not come back at once.
func expBackoff(attempt int) time.Duration {
	const base, most = 250 * time.Millisecond, 30 * time.Second
	d := base << min(attempt, 7)
	d = min(d, most)
	return d/2 + rand.N(d/2)
}
