package relay

import (
	"context"
	"errors"
	"fmt"
)

// jobBytes is how much entry data one job takes at most: enough to make its bookkeeping vanish, small
// enough that two cores share a backlog evenly. Short rows become records ten times as large, and a job for
// each worker waits beside what the sink holds: with 256 KiB the live heap stood at the memory limit, and
// the collector took more than half of the processor time (215 k rows a CPU-second against 530 k).
const jobBytes = 64 << 10

// deliver moves entries from the log to the sink until ctx ends (nil) or something permanent fails.
// A *Fault halts it until Resume; Pause stops it until Resume; anything else is retried.
func (r *Relay) deliver(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		if err := r.awaitResume(ctx, func() bool { return r.paused }); err != nil {
			return nil // ctx ended
		}
		runCtx, cancel := context.WithCancel(ctx)
		r.mu.Lock()
		r.pauseCancel = cancel
		r.mu.Unlock()
		sent, err := r.deliverOnce(runCtx)
		cancel()
		r.mu.Lock()
		r.delivering, r.pauseCancel = false, nil
		paused := r.paused
		r.mu.Unlock()
		if sent {
			attempt = 0
		}
		var fault *Fault
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &fault):
			r.halt(fault)
			if r.awaitResume(ctx, func() bool { return r.fault != nil }) != nil {
				return nil
			}
		case paused:
			r.Logger.Info("delivery paused; capture goes on")
		case IsPermanent(err):
			return err
		default:
			r.mu.Lock()
			r.deliverWait = err.Error()
			r.mu.Unlock()
			r.Logger.Warn("delivery: "+err.Error(), "attempt", attempt+1)
			if !sent { // a session that got going and broke is taken up again at once: Start waits where it must
				sleep(ctx, r.Backoff(attempt))
			}
		}
	}
}

// halt notes the fault that stopped delivery.
func (r *Relay) halt(f *Fault) {
	if f.Table == "" && f.Seq != 0 && r.Locate != nil { // the sink knows records, not where they came from
		r.Locate(f)
	}
	r.faults.Add(1)
	r.mu.Lock()
	r.fault = f
	select { // a Resume from before this fault is not meant for it
	case <-r.resume:
	default:
	}
	r.mu.Unlock()
	r.Logger.Error("delivery halted: "+f.Error(), "function", f.Function, "table", f.Table, "gtid", f.GTID, "row", f.Row, "seq", f.Seq)
}

// awaitResume blocks while cond (read under the lock) holds and Resume has not been called.
func (r *Relay) awaitResume(ctx context.Context, cond func() bool) error {
	for {
		r.mu.Lock()
		wait := cond()
		r.mu.Unlock()
		if !wait {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.resume:
			r.mu.Lock()
			r.fault = nil
			r.mu.Unlock()
		}
	}
}

// deliverOnce begins a session and sends until something ends it. sent reports whether it got that far.
func (r *Relay) deliverOnce(ctx context.Context) (sent bool, err error) {
	next, err := r.Sink.Start(ctx)
	if err != nil {
		return false, err
	}
	st := r.Log.Status()
	switch {
	case next == 0:
		next = st.First
	case next <= st.Dropped:
		return false, Permanent(fmt.Errorf("the log begins at entry %d, but entries from %d on were never handed to Kafka", st.First, next),
			"WAL_DIR holds a session and a log that do not belong together; restore both from the same copy, or start anew with an empty WAL_DIR and MYSQL_START")
	case next > st.Last+1 && next > st.Durable+1:
		return false, Permanent(fmt.Errorf("the log ends at entry %d, but entries up to %d were handed to Kafka", st.Last, next-1),
			"WAL_DIR was restored from an older copy; start anew with an empty WAL_DIR and MYSQL_START")
	}
	r.mu.Lock()
	r.delivering, r.deliverWait = true, ""
	r.mu.Unlock()

	// The reader keeps Workers jobs in work; jobs come back in order because the channel keeps it.
	ctx, cancel := context.WithCancel(ctx)
	jobs := make(chan *Job, r.Workers)
	var readErr error
	go func() {
		defer close(jobs)
		readErr = r.read(ctx, next, jobs)
	}()
	defer func() { // the reader and every job it started have ended before the next attempt begins
		cancel()
		for j := range jobs {
			<-j.Done
			j.finish()
		}
	}()

	cursor := next
	for {
		var j *Job
		select {
		case j = <-jobs:
		case <-r.Sink.Broken(): // an idle relay's last record was refused
			if err := r.Sink.Flush(ctx); err != nil {
				return true, err
			}
			return true, errors.New("the producer session ended")
		}
		if j == nil {
			return true, readErr
		}
		<-j.Done // a worker always answers: the handler's watchdog sees to it
		r.handled.Add(uint64(j.Stats.Changes))
		r.filtered.Add(uint64(j.Stats.Filtered))
		r.deadLetters.Add(uint64(j.Stats.DeadLetters))
		fault := j.Fault
		if j.Covered > 0 {
			// Invariant 5: whole entries only. Entries between First and Last that are not in the job are
			// void parts of abandoned transactions: they hold no change.
			b := j.Out
			b.First, b.Last = cursor, j.Entries[j.Covered-1].Seq
			cursor = b.Last + 1
			j.finish()
			// Invariant 4: one goroutine, in log order.
			if err := r.Sink.Send(ctx, &b); err != nil {
				return true, err
			}
		} else {
			j.finish()
		}
		if ctx.Err() != nil { // a fault may only say that the attempt was called off
			return true, ctx.Err()
		}
		if fault != nil {
			// What came before the fault is delivered first: the halt is exactly at the change.
			if err := r.Sink.Flush(ctx); err != nil {
				return true, err
			}
			return true, fault
		}
	}
}

// read turns the log from seq on into jobs, in order, until ctx ends.
func (r *Relay) read(ctx context.Context, seq uint64, jobs chan<- *Job) error {
	for {
		// Invariants 1 and 2: Read returns only what is durable and whole.
		entries, release, err := r.Log.Read(ctx, seq, jobBytes)
		if err != nil {
			if ctx.Err() == nil {
				err = Permanent(fmt.Errorf("read the log: %w", err), `see "relay wal verify"`)
			}
			return err
		}
		seq = entries[len(entries)-1].Seq + 1
		j := &Job{Ctx: ctx, Entries: entries, Done: make(chan struct{}, 1), release: release}
		r.Handler.Go(j)
		select {
		case jobs <- j:
		case <-ctx.Done():
			<-j.Done
			j.finish()
			return ctx.Err()
		}
	}
}
