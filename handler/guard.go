package handler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"binrelay/functions"
	"binrelay/relay"
)

// A goroutine or a timer for each call of a function costs 1.7 µs; this costs some 20 ns. The worker
// writes the number of the call into its state, and takes it out again by compare-and-swap:
//
//	idle ──enter──▶ busy(n) ──leave──▶ idle
//	                  │ the watchdog saw the same n for FUNCTION_TIMEOUT: ctx is cancelled
//	                  ▼
//	                cancelled(n) ──leave──▶ idle, with a new ctx
//	                  │ a quarter of it later
//	                  ▼
//	                abandoned(n)
//
// Whoever swaps owns the task. A worker that comes back to "abandoned" touches nothing and ends; the
// watchdog has given the task to a new worker, which decodes the entry again, skips what is settled, and
// blames the change at which the old one stood.
const (
	phaseIdle = iota
	phaseBusy
	phaseCancelled
	phaseAbandoned
	phaseBits = 2
	phaseMask = 1<<phaseBits - 1
)

// The watchdog counts its own ticks, not the clock: a machine that was suspended blames nobody.
const (
	ticksToCancel  = 8
	ticksToAbandon = 10
)

// timedCalls is how many calls there are for one that is timed, beside the first of each job: reading
// the clock twice costs more than a small function.
const timedCalls = 64

// errTimeout is the cause of a function's ended ctx.
var errTimeout = errors.New("FUNCTION_TIMEOUT has passed")

// callContext is what a worker's functions get; renewed only after a timeout.
type callContext struct {
	context.Context
	cancel context.CancelCauseFunc
}

func (w *worker) renewContext() {
	ctx, cancel := context.WithCancelCause(w.p.ctx)
	w.ctx.Store(&callContext{ctx, cancel})
}

func (w *worker) filter(c *functions.Change) (keep bool, err error) {
	ctx := w.enter(fnFilter, c)
	defer w.leave(&err)
	keep, err = w.p.opt.Set.Filter(ctx, &w.view)
	w.returned = true
	return keep, err
}

func (w *worker) serialize(c *functions.Change) (records []*functions.Record, err error) {
	ctx := w.enter(fnSerialize, c)
	defer w.leave(&err)
	records, err = w.p.opt.Set.Serialize(ctx, &w.view)
	w.returned = true
	return records, err
}

func (w *worker) choose(c *functions.Change, r *functions.Record, partitions int) (n int, err error) {
	ctx := w.enter(fnPartition, c)
	defer w.leave(&err)
	n, err = w.p.opt.Set.Partition(ctx, &w.view, r, partitions)
	w.returned = true
	return n, err
}

// enter begins a call.
func (w *worker) enter(f function, c *functions.Change) context.Context {
	w.view = *c
	w.t.calls[f]++
	w.calling, w.returned = f, false
	w.call++
	if w.call%timedCalls == 0 || w.t.calls[f] == 1 {
		w.started = time.Now()
	}
	w.state.Store(w.call<<phaseBits | phaseBusy)
	return w.ctx.Load().Context
}

// leave ends a call, however the function ended it. It is deferred itself, so that recover works.
func (w *worker) leave(err *error) {
	var panicked any
	if !w.returned {
		panicked = recover()
	}
	if !w.started.IsZero() {
		w.p.opt.Metrics.called(w.calling, time.Since(w.started))
		w.started = time.Time{}
	}
	switch busy := w.call<<phaseBits | phaseBusy; {
	case w.state.CompareAndSwap(busy, phaseIdle):
	case w.state.CompareAndSwap(busy^phaseBusy|phaseCancelled, phaseIdle):
		w.renewContext()
		if *err != nil {
			*err = fmt.Errorf("no answer within FUNCTION_TIMEOUT (%v): %w", w.p.opt.Timeout, *err)
		}
	default: // abandoned: the task belongs to another worker
		w.lost = true
		*err = errLost
		return
	}
	if !w.returned {
		*err = w.broken(panicked)
	}
}

// broken makes a fault of a panic, or of runtime.Goexit, which goes on to end this goroutine.
func (w *worker) broken(panicked any) error {
	if ce, ok := panicked.(*functions.ColumnError); ok { // Row.Get on a value that cannot be decoded
		return w.fault(fnDecode, ce)
	}
	f := &relay.Fault{Function: w.calling.String(), Stack: trimStack(debug.Stack())}
	if panicked == nil {
		f.Err = "the function called runtime.Goexit (as testing.T.FailNow does)"
		w.exited = f
		return f
	}
	f.Err = clip(describe(panicked), maxMessage)
	return f
}

// describe is the text of a panic value, whose own Error or String method may panic again.
func describe(r any) (s string) {
	defer func() {
		if recover() != nil {
			s = fmt.Sprintf("panic: a %T that cannot be printed", r)
		}
	}()
	return fmt.Sprintf("panic: %v", r)
}

// watch is the watchdog. It ends when Close has seen the last worker end.
func (p *Pool) watch() {
	tick := time.NewTicker(max(p.opt.Timeout/ticksToCancel, time.Millisecond))
	defer tick.Stop()
	var busy []*worker
	for {
		select {
		case <-p.ended:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		busy = busy[:0]
		for w := range p.workers {
			busy = append(busy, w)
		}
		p.mu.Unlock()
		for _, w := range busy {
			p.look(w)
		}
	}
}

// look does what is due for a worker whose call stands still.
func (p *Pool) look(w *worker) {
	cc := w.ctx.Load() // before the swap: after it the worker may have a new one
	s := w.state.Load()
	if s&phaseMask == phaseIdle || s>>phaseBits != w.watched {
		w.watched, w.ticks = s>>phaseBits, 0
		return
	}
	w.ticks++
	switch call := s &^ phaseMask; {
	case s&phaseMask == phaseBusy && w.ticks >= ticksToCancel:
		if w.state.CompareAndSwap(s, call|phaseCancelled) {
			cc.cancel(errTimeout)
		}
	case s&phaseMask == phaseCancelled && w.ticks >= ticksToAbandon:
		if w.state.CompareAndSwap(s, call|phaseAbandoned) {
			p.abandon(w)
		}
	}
}

// abandon leaves w behind and gives its task to a new worker. The swap made it the watchdog's.
func (p *Pool) abandon(w *worker) {
	t := w.t
	t.blame = &relay.Fault{
		Function: w.calling.String(),
		Err:      fmt.Sprintf("the function did not return within FUNCTION_TIMEOUT (%v), nor after its ctx ended", p.opt.Timeout),
		Stack:    stackOf(w.id),
	}
	t.arena.tainted = true // the function may hold a built-in record's bytes
	n := p.stuck.Add(1)
	p.opt.Metrics.abandoned.Add(1)
	p.mu.Lock()
	delete(p.workers, w)
	p.mu.Unlock()
	p.start(t)
	p.running.Done() // for w
	if n > maxAbandoned && p.opt.OnFatal != nil {
		p.fatal.Do(func() {
			p.opt.OnFatal(fmt.Errorf("%d calls of %s hang and cannot be ended; only a restart frees them", n, w.calling))
		})
	}
}

// goroutineID is the start of the calling goroutine's stack dump, "goroutine 12 ".
func goroutineID() []byte {
	b := make([]byte, 64)
	b = b[:runtime.Stack(b, false)]
	if i := bytes.IndexByte(b, '['); i > 0 {
		b = b[:i]
	}
	return b
}

// stackOf is where another goroutine stands: rare and dear, and worth it to see what a function waits for.
func stackOf(id []byte) string {
	b := make([]byte, 1<<20)
	b = b[:runtime.Stack(b, true)]
	i := bytes.Index(b, id)
	if len(id) == 0 || i < 0 {
		return ""
	}
	b = b[i:]
	if end := bytes.Index(b, []byte("\n\n")); end >= 0 {
		b = b[:end]
	}
	return trimStack(b)
}
