package relay

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// logError is an error of the log, as opposed to one of the source: no reconnect mends it.
type logError struct{ err error }

func (e *logError) Error() string { return e.err.Error() }
func (e *logError) Unwrap() error { return e.err }

// steadyAfter is how long a connection must have lived for the next failure to start the backoff anew.
const steadyAfter = 30 * time.Second

// ingest moves transactions from the source into the log until ctx ends (nil) or capture halts.
func (r *Relay) ingest(ctx context.Context) error {
	open := false // the log holds parts of a transaction whose end has not come
	emit := func(p Part) error { return r.store(ctx, p, &open) }
	for attempt := 0; ; attempt++ {
		// What was appended before the last connection broke has to be durable before its position is
		// used again, or the source would send it a second time.
		if err := r.Log.Sync(ctx); err != nil {
			return r.endCapture(ctx, &logError{fmt.Errorf("sync the log: %w", err)})
		}
		pos := r.Log.Position()
		r.positioned.Store(pos != nil)
		began := time.Now()
		err := r.Source.Stream(ctx, pos, emit)
		var le *logError
		if ctx.Err() != nil || errors.As(err, &le) || IsPermanent(err) {
			return r.endCapture(ctx, err)
		}
		if err == nil {
			err = errors.New("the source ended the stream")
		}
		if time.Since(began) > steadyAfter {
			attempt = 0
		}
		wait := r.Backoff(attempt)
		r.mu.Lock()
		first := r.captureWait == ""
		r.captureWait = err.Error()
		r.mu.Unlock()
		level := r.Logger.Debug
		if first || attempt%10 == 0 { // say it once, then now and then: the state shows it all the time
			level = r.Logger.Warn
		}
		level("source: "+err.Error(), "retry_in", wait.Round(time.Millisecond).String(), "attempt", attempt+1)
		sleep(ctx, wait)
	}
}

// store appends one part to the log. It blocks while the log is full: that is the backpressure to the source.
func (r *Relay) store(ctx context.Context, p Part, open *bool) error {
	if !r.streamed.Load() || r.captureWaiting() {
		defer r.captureWorks()
	}
	if p.First && *open {
		// Invariant 2: the source sends the transaction again from its start; its first half must never be read.
		if err := r.Log.Abandon(ctx); err != nil {
			return &logError{fmt.Errorf("drop a half-received transaction: %w", err)}
		}
		*open = false
	}
	if _, err := r.Log.Append(ctx, p.Data, p.Pos, p.More); err != nil {
		return &logError{fmt.Errorf("append to the log: %w", err)}
	}
	*open = p.More
	if p.Urgent {
		if err := r.Log.Sync(ctx); err != nil {
			return &logError{fmt.Errorf("sync the log: %w", err)}
		}
	}
	return nil
}

func (r *Relay) captureWaiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.captureWait != ""
}

// captureWorks notes that the source has delivered: there is a position, and nothing to wait for.
func (r *Relay) captureWorks() {
	r.positioned.Store(true)
	r.streamed.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.captureWait != "" {
		r.Logger.Info("source: reading again")
		r.captureWait = ""
	}
}

// endCapture notes why capture ended; nil when it was asked to.
func (r *Relay) endCapture(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	r.mu.Lock()
	r.captureErr = err
	r.mu.Unlock()
	r.Logger.Error("capture halted: "+err.Error(), "hint", "what the log holds is delivered, then the relay exits with status 1")
	return err
}
