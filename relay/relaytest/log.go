package relaytest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"binrelay/relay"
)

// Log is the durable log as a model: a slice that keeps what package wal promises, and a disk that a crash
// cuts back to what was synced. Set the exported fields before use. All methods are safe for concurrent use,
// and it starts no goroutines, so that it runs in testing/synctest.
type Log struct {
	// CommitDelay says how long until what was appended becomes durable (and readable) by itself; nil: at
	// once. Sync never waits for it. It is called once for each commit.
	CommitDelay func() time.Duration
	// MaxBytes makes Append wait while as many bytes are kept, an open transaction excepted; 0: no limit.
	MaxBytes int64

	mu      sync.Mutex
	change  chan struct{} // closed and replaced when something changes
	entries []relay.Entry // in order of seq; void ones are taken out
	next    uint64        // sequence number of the next entry
	open    uint64        // first part of the open transaction, 0: none
	trimmed uint64        // newest entry dropped by Trim
	durable uint64        // newest entry that is synced
	whole   uint64        // newest entry that is synced together with the end of its transaction
	pos     []byte        // of the newest whole transaction
	synced  []byte        // the same, as of the last commit
	pending bool          // a commit is due
	commits uint64
	err     error // the log has failed, was closed or has crashed
}

var _ relay.Log = (*Log)(nil)

// ErrCrashed is what the methods of a Log or Sink return after its Crash. It is permanent in the sense of
// relay.Permanent: nothing that is left of the dead process shall retry.
var ErrCrashed = relay.Permanent(errors.New("relaytest: the process has crashed"), "")

// ErrClosed is what the methods of a Log return after Close.
var ErrClosed = errors.New("relaytest: closed")

func (l *Log) init() {
	if l.change == nil {
		l.change, l.next = make(chan struct{}), max(1, l.next)
	}
}

// changed wakes everyone who waits; l.mu is held.
func (l *Log) changed() {
	close(l.change)
	l.change = make(chan struct{})
}

// await waits until ready, ctx's end or an error of the log; l.mu is held before and after.
func (l *Log) await(ctx context.Context, ready func() bool) error {
	for l.err == nil && !ready() {
		change := l.change
		l.mu.Unlock()
		select {
		case <-change:
			l.mu.Lock()
		case <-ctx.Done():
			l.mu.Lock()
			return context.Cause(ctx)
		}
	}
	return l.err
}

// Append implements relay.Log.
func (l *Log) Append(ctx context.Context, data, pos []byte, more bool) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	// An open transaction may go over the limit: Trim cannot make room before it ends.
	if err := l.await(ctx, func() bool { return l.MaxBytes == 0 || l.open != 0 || l.bytes() < l.MaxBytes }); err != nil {
		return 0, err
	}
	seq := l.next - 1
	if len(data) > 0 || more {
		seq = l.next
		l.next++
		l.entries = append(l.entries, relay.Entry{Seq: seq, Data: slices.Clone(data)})
		if l.open == 0 {
			l.open = seq
		}
	}
	if !more {
		l.open = 0
		if len(pos) > 0 {
			l.pos = slices.Clone(pos)
		}
	}
	l.schedule()
	return seq, nil
}

// schedule makes what was appended durable, now or when CommitDelay says.
func (l *Log) schedule() {
	if l.CommitDelay == nil {
		l.commit()
		return
	}
	if l.pending {
		return
	}
	l.pending = true
	time.AfterFunc(l.CommitDelay(), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.pending = false
		if l.err == nil {
			l.commit()
		}
	})
}

func (l *Log) commit() {
	l.durable, l.synced = l.next-1, l.pos
	if l.whole = l.durable; l.open != 0 {
		l.whole = l.open - 1
	}
	l.commits++
	l.changed()
}

// Abandon implements relay.Log.
func (l *Log) Abandon(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	if l.err == nil {
		l.abandon()
		l.schedule()
	}
	return l.err
}

// abandon takes the open parts out; their numbers are not given again.
func (l *Log) abandon() {
	if l.open != 0 {
		l.entries = slices.DeleteFunc(l.entries, func(e relay.Entry) bool { return e.Seq >= l.open })
		l.open = 0
	}
}

// Sync implements relay.Log.
func (l *Log) Sync(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	if l.err == nil {
		l.commit()
	}
	return l.err
}

// Read implements relay.Log.
func (l *Log) Read(ctx context.Context, seq uint64, maxBytes int) (out []relay.Entry, release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	err = l.await(ctx, func() bool {
		out = out[:0]
		size := 0
		for _, e := range l.entries {
			// Only what is durable and whole, invariants 1 and 2.
			if e.Seq > l.whole || len(out) > 0 && size+len(e.Data) > maxBytes {
				break
			}
			if e.Seq >= seq {
				out = append(out, relay.Entry{Seq: e.Seq, Data: slices.Clone(e.Data)})
				size += len(e.Data)
			}
		}
		return len(out) > 0
	})
	if err != nil {
		return nil, nil, err
	}
	lent := out
	return out, func() { // what is used after its release shows
		for i := range lent {
			clear(lent[i].Data)
		}
	}, nil
}

// Trim implements relay.Log.
func (l *Log) Trim(seq uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	if l.err != nil {
		return l.err
	}
	seq = min(seq, l.last())
	n := 0
	for n < len(l.entries) && l.entries[n].Seq <= seq {
		n++
	}
	l.entries = slices.Clone(l.entries[n:])
	l.trimmed = max(l.trimmed, seq)
	l.changed()
	return nil
}

// Position implements relay.Log.
func (l *Log) Position() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.pos)
}

// last is the newest readable entry.
func (l *Log) last() uint64 {
	last := l.trimmed
	for _, e := range l.entries {
		if e.Seq <= l.whole {
			last = e.Seq
		}
	}
	return last
}

func (l *Log) bytes() (n int64) {
	for _, e := range l.entries {
		n += int64(len(e.Data))
	}
	return n
}

// Status implements relay.Log.
func (l *Log) Status() relay.LogStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	st := relay.LogStatus{Dropped: l.trimmed, Last: l.last(), Durable: l.durable, Bytes: l.bytes(), Commits: l.commits, Segments: 1, FreeDisk: 1 << 40}
	st.First = st.Last + 1
	if len(l.entries) > 0 && l.entries[0].Seq <= st.Last {
		st.First = l.entries[0].Seq
	}
	if l.MaxBytes > 0 && st.Bytes >= l.MaxBytes {
		st.Full = "the model's MaxBytes is reached"
	}
	return st
}

// Close implements relay.Log: it makes durable what was appended.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	if l.err == nil {
		l.commit()
		l.err = ErrClosed
		l.changed()
	}
	return nil
}

// Fail makes every method return err from now on, as a broken disk does.
func (l *Log) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	l.err = err
	l.changed()
}

// Crash is kill -9 and a start anew: it returns the log as the next process opens it, with what was durable
// and without the parts of an open transaction. The old one answers ErrCrashed (ErrClosed after Close).
func (l *Log) Crash() *Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	n := &Log{CommitDelay: l.CommitDelay, MaxBytes: l.MaxBytes, next: l.durable + 1, trimmed: l.trimmed, durable: l.durable, whole: l.durable,
		pos: l.synced, synced: l.synced, commits: l.commits}
	for _, e := range l.entries {
		// A transaction is there whole or not at all: parts whose end was not synced are void.
		if e.Seq <= l.whole {
			n.entries = append(n.entries, e)
		}
	}
	if l.err == nil {
		l.err = ErrCrashed
		l.changed()
	}
	return n
}
