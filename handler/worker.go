package handler

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"binrelay/functions"
	"binrelay/relay"
)

// task is a job on its way through a worker. When a function hangs, the watchdog takes the task from
// its worker and another one goes on where it stood.
type task struct {
	job   *relay.Job
	arena *arena

	entry   int // index in job.Entries
	mark    int // records before this entry
	done    int // changes of this entry that are settled
	settled int // records of settled changes
	stats   relay.JobStats
	blame   *relay.Fault // what change number done of this entry is guilty of, as another worker found
	calls   [numFunctions]uint64
}

// worker runs tasks, one at a time, on its own goroutine.
type worker struct {
	p       *Pool
	dec     relay.Decoder
	onEntry func(*functions.Change) error // w.change, bound once

	t    *task
	seen int // changes of this entry that the decoder gave so far
	cur  *functions.Change
	view functions.Change // what functions get: a copy, so that nothing they set reaches the next
	data []byte           // private copy of the entry when there are functions

	tables map[*functions.Table]*tableInfo
	last   *functions.Table
	info   *tableInfo
	record functions.Record // what Set.Partition sees of a built-in record

	// The guard's; see guard.go.
	state    atomic.Uint64
	call     uint64
	calling  function
	returned bool
	started  time.Time    // of a call that is timed
	lost     bool         // the watchdog took the task: touch nothing
	exited   *relay.Fault // the function ended the goroutine
	ctx      atomic.Pointer[callContext]
	id       []byte // "goroutine 12 "
	ticks    int    // the watchdog's
	watched  uint64 // the watchdog's
}

// tableInfo is what follows from a table's name.
type tableInfo struct {
	topic    string
	table    []byte // "db.table"
	database []byte
}

const (
	// maxTables bounds a worker's map: shapes come and go with ALTER TABLE, and filling it again is cheap.
	maxTables = 512
	// keepData bounds the buffer for entries that a worker holds on to.
	keepData = 1 << 20
)

var errLost = errors.New("another worker has this task")

func newWorker(p *Pool) *worker {
	w := &worker{p: p, dec: p.opt.Decoder(), tables: map[*functions.Table]*tableInfo{}}
	w.onEntry = w.change
	w.renewContext()
	return w
}

// loop runs t, then what comes in the queue, until the queue is closed or a function ruins the goroutine.
func (w *worker) loop(t *task) {
	if w.p.guarded {
		w.id = goroutineID()
	}
	defer w.end()
	if t != nil {
		w.run(t)
	}
	for !w.lost {
		t, ok := <-w.p.queue
		if !ok {
			return
		}
		w.run(t)
	}
}

// end is the last thing a worker does, also when runtime.Goexit unwinds it.
func (w *worker) end() {
	w.ctx.Load().cancel(context.Canceled)
	if w.lost {
		w.p.stuck.Add(-1) // it came back after all
		return
	}
	w.p.mu.Lock()
	delete(w.p.workers, w)
	w.p.mu.Unlock()
	if w.exited != nil {
		w.t.blame = w.exited
		w.p.start(w.t)
	}
	w.p.running.Done()
}

// run handles the entries of t from where it stands and answers the job, unless the task is lost.
func (w *worker) run(t *task) {
	w.t = t
	var fault *relay.Fault
	for t.entry < len(t.job.Entries) {
		err := w.decode(&t.job.Entries[t.entry])
		if w.lost {
			return
		}
		if err != nil {
			fault = w.fault(fnDecode, err)
			break
		}
		// Invariant 5: an entry counts when all its changes are settled.
		t.entry++
		t.mark, t.done = len(t.arena.records), 0
		t.job.Stats.Changes += t.stats.Changes
		t.job.Stats.Filtered += t.stats.Filtered
		t.job.Stats.DeadLetters += t.stats.DeadLetters
		t.stats = relay.JobStats{}
	}
	w.t = nil
	w.finish(t, fault)
}

// finish answers the job with the records of whole entries.
func (w *worker) finish(t *task, fault *relay.Fault) {
	job, a := t.job, t.arena
	a.truncate(t.mark)
	job.Covered, job.Fault = t.entry, fault
	if t.entry == 0 {
		a.free()
	} else {
		job.Out = relay.Batch{
			First: job.Entries[0].Seq, Last: job.Entries[t.entry-1].Seq,
			Records: a.records, Release: a.release,
		}
	}
	w.p.opt.Metrics.done(t, fault)
	job.Done <- struct{}{}
}

// decode gives the changes of an entry to change. A panic of the decoder or a format is a fault of the entry.
func (w *worker) decode(e *relay.Entry) (err error) {
	defer func() {
		if w.exited != nil || w.lost {
			return // runtime.Goexit is on its way
		}
		if r := recover(); r != nil {
			f := w.fault(fnDecode, fmt.Errorf("panic: %v", r))
			f.Seq, f.Stack = e.Seq, trimStack(debug.Stack())
			err = f
		}
	}()
	w.seen, w.cur = 0, nil
	data := e.Data
	if w.p.guarded {
		// A function that hangs may look at its row long after the log has taken the entry's memory back.
		if cap(w.data) > keepData && len(data) <= keepData {
			w.data = nil
		}
		w.data = append(w.data[:0], data...)
		data = w.data
	}
	err = w.dec.Decode(e.Seq, data, w.onEntry)
	w.cur = nil
	return err
}

// change settles one change: filtered, records appended, or a fault.
func (w *worker) change(c *functions.Change) error {
	t := w.t
	if w.seen++; w.seen <= t.done {
		return nil // settled by the worker before
	}
	w.cur = c
	var err error
	switch {
	case t.blame != nil:
		err, t.blame = w.place(t.blame), nil
	case c.Op == functions.DDL:
		err = w.ddl(c)
	default:
		err = w.row(c)
	}
	if err != nil {
		if w.lost {
			return errLost
		}
		t.arena.truncate(t.settled)
		if err = w.deadLetter(c, err); err != nil {
			return err
		}
	}
	if c.Op != functions.DDL {
		t.stats.Changes++
	}
	t.done++
	t.settled = len(t.arena.records)
	w.cur = nil
	return nil
}

// row runs the functions, or what stands in for them, on the change of a row.
func (w *worker) row(c *functions.Change) error {
	set := &w.p.opt.Set
	if set.Filter != nil {
		keep, err := w.filter(c)
		if err != nil {
			return w.fault(fnFilter, err)
		}
		if !keep {
			w.t.stats.Filtered++
			return nil
		}
	}
	info := w.tableInfo(c.Table)
	if set.Serialize != nil {
		return w.custom(c, info)
	}
	return w.builtin(c, info)
}

// builtin makes the record of FORMAT.
func (w *worker) builtin(c *functions.Change, info *tableInfo) error {
	r, err := w.formatted(c)
	if err != nil {
		return err
	}
	r.Topic = info.topic
	if w.p.headers != nil {
		if r.Headers, err = w.p.headers.AppendHeaders(nil, c); err != nil {
			return w.fault(fnDecode, err)
		}
	}
	keyed, headers := r.Key != nil, r.Headers
	if err := w.partition(c, info, r, nil); err != nil {
		return err
	}
	if c.Op != functions.Delete || !keyed {
		return nil
	}
	wanted, err := w.tombstones(info.topic)
	if wanted {
		w.tombstone(headers)
	}
	return err
}

// formatted begins a record with the key and value of FORMAT.
func (w *worker) formatted(c *functions.Change) (*relay.Record, error) {
	a, format := w.t.arena, w.p.opt.Format
	b, has, err := format.AppendKey(a.open(), c)
	if err != nil {
		return nil, w.fault(fnDecode, err)
	}
	var key []byte
	if has {
		key = a.seal(b)
	}
	if b, err = format.AppendValue(a.open(), c); err != nil {
		return nil, w.fault(fnDecode, err)
	}
	r := w.newRecord(c)
	r.Key, r.Value = key, a.seal(b)
	return r, nil
}

// custom makes the records that the user's Serialize returns.
func (w *worker) custom(c *functions.Change, info *tableInfo) error {
	records, err := w.serialize(c)
	if err != nil {
		return w.fault(fnSerialize, err)
	}
	if len(records) == 0 {
		w.t.stats.Filtered++
		return nil
	}
	for i, u := range records {
		if err := checkRecord(u); err != nil {
			return w.fault(fnSerialize, fmt.Errorf("record %d of %d: %w", i+1, len(records), err))
		}
	}
	var rowKey []byte
	for i, u := range records {
		r := w.newRecord(c)
		r.Topic, r.Key, r.Value, r.Headers = u.Topic, u.Key, u.Value, u.Headers
		if r.Topic == "" {
			r.Topic = info.topic
		}
		if err := w.partition(c, info, r, u); err != nil {
			return err
		}
		if c.Op != functions.Delete || u.Key == nil || u.Value == nil {
			continue
		}
		if wanted, err := w.tombstones(r.Topic); err != nil {
			return err
		} else if !wanted {
			continue
		}
		if rowKey == nil {
			a := w.t.arena
			b, has, err := w.p.opt.Format.AppendKey(a.open(), c)
			if err != nil {
				return w.fault(fnDecode, err)
			}
			if rowKey = a.seal(b); !has {
				rowKey = []byte{}
			}
		}
		// Only a record with the row's own key says that this key is gone.
		if len(rowKey) > 0 && string(rowKey) == string(u.Key) && !hasTombstone(records[i+1:], u) {
			w.tombstone(nil)
		}
	}
	return nil
}

// checkRecord says what is wrong with a record that a user returned.
func checkRecord(u *functions.Record) error {
	if u == nil {
		return errors.New("the record is nil")
	}
	if u.Topic != "" {
		if err := functions.CheckTopic(u.Topic); err != nil {
			return err
		}
	}
	if u.Value == nil && u.Key == nil {
		return errors.New("a record without a value is a tombstone and needs a key")
	}
	if n, ok := u.Partition.Get(); ok && n < 0 {
		return fmt.Errorf("partition %d is negative", n)
	}
	return nil
}

// hasTombstone reports whether rest holds the user's own tombstone for the key of u.
func hasTombstone(rest []*functions.Record, u *functions.Record) bool {
	for _, r := range rest {
		if r.Value == nil && r.Topic == u.Topic && string(r.Key) == string(u.Key) {
			return true
		}
	}
	return false
}

// newRecord appends a record with the change's place. The pointer is good until the next one.
func (w *worker) newRecord(c *functions.Change) *relay.Record {
	a := w.t.arena
	a.records = append(a.records, relay.Record{
		Partition: -1, Time: c.Source.Time, Seq: c.Source.Seq, Row: int32(c.Source.Row),
	})
	return &a.records[len(a.records)-1]
}

// tombstone appends one for the record before it.
func (w *worker) tombstone(headers []functions.Header) {
	a := w.t.arena
	r := a.records[len(a.records)-1]
	r.Value, r.Headers = nil, headers
	a.records = append(a.records, r)
}

// tombstones reports whether deletes in topic are followed by one.
func (w *worker) tombstones(topic string) (bool, error) {
	if w.p.opt.Tombstones == nil {
		return false, nil
	}
	wanted, err := w.p.opt.Tombstones(w.waitContext(), topic)
	if err != nil {
		return false, w.fault(fnKafka, fmt.Errorf("cleanup.policy of topic %s: %w", topic, err))
	}
	return wanted, nil
}

// waitContext bounds what may wait for Kafka.
func (w *worker) waitContext() context.Context {
	if ctx := w.t.job.Ctx; ctx != nil {
		return ctx
	}
	return w.p.ctx
}

// partition places r: by the user's record u, the user's function, or the rule.
func (w *worker) partition(c *functions.Change, info *tableInfo, r *relay.Record, u *functions.Record) error {
	if u != nil {
		if n, ok := u.Partition.Get(); ok {
			r.Partition = int32(n)
			return nil
		}
	}
	if w.p.opt.Set.Partition != nil {
		return w.ask(c, r, u)
	}
	switch w.p.opt.PartitionBy {
	case BySingle:
		r.Partition = 0
	case ByDatabase:
		r.Hash = info.database
	case ByTable:
		r.Hash = info.table
	default:
		if r.Hash = r.Key; r.Key == nil {
			r.Hash = info.table
		}
	}
	return nil
}

// ask lets the user's Partition place r.
func (w *worker) ask(c *functions.Change, r *relay.Record, u *functions.Record) error {
	n, err := w.p.opt.Partitions(w.waitContext(), r.Topic)
	if err != nil {
		return w.fault(fnKafka, fmt.Errorf("partition count of topic %s: %w", r.Topic, err))
	}
	if u == nil {
		w.record = functions.Record{Topic: r.Topic, Key: r.Key, Value: r.Value}
		u = &w.record
	}
	got, err := w.choose(c, u, n)
	if err == nil && (got < 0 || got >= n) {
		err = fmt.Errorf("partition %d of topic %s is outside [0, %d)", got, r.Topic, n)
	}
	if err != nil {
		return w.fault(fnPartition, err)
	}
	r.Partition, r.Of = int32(got), int32(n)
	return nil
}

// ddl makes the record of a schema statement. No function sees it.
func (w *worker) ddl(c *functions.Change) error {
	if w.p.opt.DDLTopic == "" {
		return nil
	}
	r, err := w.formatted(c)
	if err != nil {
		return err
	}
	r.Topic, r.Partition = w.p.opt.DDLTopic, 0
	return nil
}

func (w *worker) tableInfo(t *functions.Table) *tableInfo {
	if t == w.last {
		return w.info
	}
	info := w.tables[t]
	if info == nil {
		if len(w.tables) >= maxTables {
			clear(w.tables)
		}
		info = &tableInfo{
			topic:    string(w.p.opt.Topic.Append(nil, t.Database, t.Name)),
			table:    []byte(t.Database + "." + t.Name),
			database: []byte(t.Database),
		}
		w.tables[t] = info
	}
	w.last, w.info = t, info
	return info
}
