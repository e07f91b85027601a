package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"binrelay/functions"
	"binrelay/relay"
)

const guilty = 500 // the id that misbehaves

// misdeeds are all the ways in which a function can go wrong on one change. They call ok for the others.
type misdeed struct {
	name   string
	do     func(ctx context.Context) error
	result string // part of the fault's text
	stack  string // part of its stack, "" where it has none
}

func misdeeds(release <-chan struct{}) []misdeed {
	return []misdeed{
		{"error", func(context.Context) error { return errors.New("no such customer") }, "no such customer", ""},
		{"panic", func(context.Context) error { panic("boom") }, "panic: boom", "misdeeds"},
		{"out of range", func(context.Context) error { return []error{}[len(release)] }, "index out of range", "misdeeds"},
		{"panic with an evil value", func(context.Context) error { panic(evil{}) }, "panic: ", "misdeeds"},
		{"goexit", func(context.Context) error { runtime.Goexit(); return nil }, "runtime.Goexit", "misdeeds"},
		{"slow, honours ctx", func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, "no answer within FUNCTION_TIMEOUT", ""},
		{"never returns", func(context.Context) error { <-release; return nil }, "did not return within FUNCTION_TIMEOUT", "misdeeds"},
		{"never returns, then panics", func(context.Context) error { <-release; panic("late") }, "did not return", "misdeeds"},
		{"never returns, then exits", func(context.Context) error { <-release; runtime.Goexit(); return nil }, "did not return", "misdeeds"},
	}
}

// evil panics when it is printed.
type evil struct{}

func (evil) Error() string { panic("again") }

// setFor makes a Set whose function f does m on the guilty change.
func setFor(f function, m misdeed) functions.Set {
	is := func(c *functions.Change) bool { return c.Get("id") == int64(guilty) }
	var s functions.Set
	switch f {
	case fnFilter:
		s.Filter = func(ctx context.Context, c *functions.Change) (bool, error) {
			if is(c) {
				return false, m.do(ctx)
			}
			return true, nil
		}
	case fnSerialize:
		s.Serialize = func(ctx context.Context, c *functions.Change) ([]*functions.Record, error) {
			if is(c) {
				if err := m.do(ctx); err != nil {
					return nil, err
				}
			}
			r, err := functions.NewRecord(functions.JSON{}, c)
			return []*functions.Record{r}, err
		}
	case fnPartition:
		// Two records a change, the second does harm: the first must not stay.
		s.Serialize = func(ctx context.Context, c *functions.Change) ([]*functions.Record, error) {
			r, err := functions.NewRecord(functions.JSON{}, c)
			if !is(c) {
				return []*functions.Record{r}, err
			}
			return []*functions.Record{{Value: []byte("first"), Partition: functions.At(0)}, r}, err
		}
		s.Partition = func(ctx context.Context, c *functions.Change, _ *functions.Record, _ int) (int, error) {
			if is(c) {
				return 0, m.do(ctx)
			}
			return 1, nil
		}
	}
	return s
}

// TestFaultsBlameExactlyOneChange runs 1000 changes in 100 entries on some workers, one of them guilty.
func TestFaultsBlameExactlyOneChange(t *testing.T) {
	const perEntry, entries, jobs = 10, 10, 10
	for _, f := range []function{fnFilter, fnSerialize, fnPartition} {
		for _, dead := range []string{"", "dead"} {
			release := make(chan struct{})
			var pools []*Pool
			for _, m := range misdeeds(release) {
				t.Run(fmt.Sprintf("%v/%s/dead=%q", f, m.name, dead), func(t *testing.T) {
					p := newPool(t, Options{Set: setFor(f, m), DeadLetterTopic: dead, Workers: 3, Timeout: 80 * time.Millisecond})
					pools = append(pools, p)
					var all []*relay.Job
					id := 0
					for range jobs {
						var text []string
						for range entries {
							var b strings.Builder
							for range perEntry {
								fmt.Fprintf(&b, "c %d\n", id)
								id++
							}
							text = append(text, b.String())
						}
						all = append(all, job(text...))
					}
					for _, j := range all {
						p.Go(j)
					}
					next := 0
					for i, j := range all {
						<-j.Done
						next = i * perEntry * entries
						for _, r := range j.Out.Records {
							want := fmt.Sprintf(`{"id":%d}`, next)
							if string(r.Key) != want || r.Dead != (next == guilty) {
								t.Fatalf("record %s dead=%v, want %s", r.Key, r.Dead, want)
							}
							if r.Dead {
								checkDeadLetter(t, &r, f, m)
							}
							next++
						}
						holdsGuilty := i == guilty/(perEntry*entries)
						if holdsGuilty && dead == "" {
							if j.Covered != 0 || next != guilty || j.Stats.Changes != 0 {
								t.Errorf("Covered %d, %d records, Stats %+v: the fault is in the first entry", j.Covered, len(j.Out.Records), j.Stats)
							}
							checkFault(t, j.Fault, f, m)
							continue
						}
						if j.Fault != nil || j.Covered != entries || next != (i+1)*perEntry*entries || j.Stats.Changes != perEntry*entries {
							t.Errorf("job %d: Fault %v, Covered %d, %d records, Stats %+v", i, j.Fault, j.Covered, len(j.Out.Records), j.Stats)
						}
						if holdsGuilty != (j.Stats.DeadLetters == 1) {
							t.Errorf("job %d: %d dead letters", i, j.Stats.DeadLetters)
						}
					}
					if hung := strings.HasPrefix(m.name, "never"); hung != (p.Abandoned() == 1) {
						t.Errorf("%d abandoned", p.Abandoned())
					}
				})
			}
			close(release)
			for _, p := range pools {
				for p.Abandoned() > 0 {
					runtime.Gosched()
				}
			}
		}
	}
}

func checkFault(t *testing.T, f *relay.Fault, by function, m misdeed) {
	t.Helper()
	if f == nil {
		t.Fatal("no fault")
	}
	if f.Function != by.String() || f.Table != "shop.item" || f.GTID != "0-1-9" || f.File != "b.1" || f.Pos != 4 || f.Row != 0 || f.Seq != 1 ||
		!strings.Contains(f.Err, m.result) || f.Hint == "" {
		t.Errorf("Fault %+v", f)
	}
	if (f.Stack != "") != (m.stack != "") || !strings.Contains(f.Stack, m.stack) {
		t.Errorf("stack %q, want one with %q", f.Stack, m.stack)
	}
}

func checkDeadLetter(t *testing.T, r *relay.Record, f function, m misdeed) {
	t.Helper()
	var e struct {
		Fault  *relay.Fault
		Change json.RawMessage
	}
	if err := json.Unmarshal(r.Value, &e); err != nil {
		t.Fatalf("%v in %s", err, r.Value)
	}
	checkFault(t, e.Fault, f, m)
	if want := fmt.Sprintf(`{"op":"c","before":null,"after":{"id":%d},"source":{`, guilty); !strings.HasPrefix(string(e.Change), want) {
		t.Errorf("change %s", e.Change)
	}
	if r.Topic != "dead" || r.Partition != -1 || string(r.Hash) != string(r.Key) || len(r.Headers) == 0 || string(r.Headers[1].Value) != "shop.item" {
		t.Errorf("record %+v", r)
	}
}

func TestBadRecordsAreFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		r    *functions.Record
		want string
	}{
		"nil record":            {nil, "record 2 of 2: the record is nil"},
		"bad topic":             {&functions.Record{Topic: "a b", Value: []byte("v")}, `"a b"`},
		"topic ..":              {&functions.Record{Topic: "..", Value: []byte("v")}, `".."`},
		"long topic":            {&functions.Record{Topic: strings.Repeat("x", 250), Value: []byte("v")}, "249"},
		"negative partition":    {&functions.Record{Value: []byte("v"), Partition: functions.At(-3)}, "partition -3 is negative"},
		"tombstone without key": {&functions.Record{}, "needs a key"},
	} {
		t.Run(name, func(t *testing.T) {
			set := functions.Set{Serialize: func(context.Context, *functions.Change) ([]*functions.Record, error) {
				return []*functions.Record{{Key: []byte("k"), Value: []byte("v")}, tc.r}, nil
			}}
			j := run(newPool(t, Options{Set: set}), job("c 1"))
			if j.Fault == nil || j.Fault.Function != "serialize" || !strings.Contains(j.Fault.Err, tc.want) || len(j.Out.Records) != 0 {
				t.Errorf("Fault %+v, %d records", j.Fault, len(j.Out.Records))
			}
			j = run(newPool(t, Options{Set: set, DeadLetterTopic: "dead"}), job("c 1"))
			if j.Fault != nil || len(j.Out.Records) != 1 || !j.Out.Records[0].Dead {
				t.Errorf("Fault %+v, records %v", j.Fault, show(j))
			}
		})
	}
}

func TestPartitionOutOfRangeIsAFault(t *testing.T) {
	for _, n := range []int{-1, 12, 1 << 40} {
		set := functions.Set{Partition: func(context.Context, *functions.Change, *functions.Record, int) (int, error) { return n, nil }}
		j := run(newPool(t, Options{Set: set}), job("c 1"))
		if j.Fault == nil || j.Fault.Function != "partition" || !strings.Contains(j.Fault.Err, fmt.Sprint(n)) {
			t.Errorf("partition %d: Fault %+v", n, j.Fault)
		}
	}
}

// A value that cannot be decoded is no fault of the function that met it, and no dead letter helps.
func TestDamagedValueInAFunction(t *testing.T) {
	get := functions.Set{Filter: func(_ context.Context, c *functions.Change) (bool, error) { return c.Get("id") == int64(1), nil }}
	record := functions.Set{Serialize: func(_ context.Context, c *functions.Change) ([]*functions.Record, error) {
		r, err := functions.NewRecord(functions.JSON{}, c)
		return []*functions.Record{r}, err
	}}
	for _, set := range []functions.Set{get, record} {
		j := run(newPool(t, Options{Set: set, DeadLetterTopic: "dead"}), job("c 1\nx 2"))
		if j.Fault == nil || j.Fault.Function != "decode" || j.Fault.Row != 1 || !strings.Contains(j.Fault.Err, "damaged") {
			t.Errorf("Fault %+v", j.Fault)
		}
	}
}

// A function slower than the timeout that answers before it is given up keeps its answer.
func TestLateAnswerCounts(t *testing.T) {
	var ended atomic.Int32
	set := functions.Set{Filter: func(ctx context.Context, _ *functions.Change) (bool, error) {
		<-ctx.Done()
		ended.Add(1)
		return true, nil
	}}
	p := newPool(t, Options{Set: set, Workers: 1, Timeout: 40 * time.Millisecond})
	j := run(p, job("c 1\nc 2\nc 3")) // each gets a ctx that is alive
	if j.Fault != nil || len(j.Out.Records) != 3 || ended.Load() != 3 || p.Abandoned() != 0 {
		t.Errorf("Fault %v, %d records, %d ended", j.Fault, len(j.Out.Records), ended.Load())
	}
}

func TestTooManyHangingFunctionsAreFatal(t *testing.T) {
	release := make(chan struct{})
	set := functions.Set{Filter: func(context.Context, *functions.Change) (bool, error) { <-release; return true, nil }}
	var mu sync.Mutex
	var fatal []error
	p := newPool(t, Options{Set: set, Workers: 2, Timeout: 8 * time.Millisecond, DeadLetterTopic: "dead", OnFatal: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		fatal = append(fatal, err)
	}})
	j := run(p, job("c 1\nc 2\nc 3\nc 4\nc 5\nc 6\nc 7\nc 8\nc 9\nc 10\nc 11"))
	if len(j.Out.Records) != 11 || j.Stats.DeadLetters != 11 || p.Abandoned() != 11 {
		t.Errorf("records %v, %d abandoned", show(j), p.Abandoned())
	}
	mu.Lock()
	if len(fatal) != 1 || !strings.Contains(fatal[0].Error(), "9 calls of filter hang") {
		t.Errorf("fatal %v", fatal)
	}
	mu.Unlock()
	close(release)
	for p.Abandoned() > 0 {
		runtime.Gosched()
	}
}

// The row that a hanging function looks at stays as it was, whatever becomes of the log's memory.
func TestHangingFunctionKeepsItsRow(t *testing.T) {
	release, saw := make(chan struct{}), make(chan string, 1)
	set := functions.Set{Partition: func(_ context.Context, c *functions.Change, r *functions.Record, _ int) (int, error) {
		if string(r.Key) != `{"id":2}` {
			return 0, nil
		}
		<-release
		saw <- string(r.Key) + string(r.Value[:9])
		return 0, nil
	}}
	p := newPool(t, Options{Set: set, Workers: 1, Timeout: 8 * time.Millisecond, DeadLetterTopic: "dead"})
	j := job("c 1\nc 2\nc 3")
	run(p, j)
	wantRecords(t, j, `1.0 shop.item/0 {"id":1} c`, `1.1 dead/-1 {"id":2} dead by {"id":2}`, `1.2 shop.item/0 {"id":3} c`)
	for i := range j.Entries[0].Data {
		j.Entries[0].Data[i] = '!'
	}
	j.Out.Release()
	run(p, job("c 77777\nc 88888")).Out.Release()
	close(release)
	if got := <-saw; got != `{"id":2}{"op":"c"` {
		t.Errorf("the function saw %s", got)
	}
	for p.Abandoned() > 0 {
		runtime.Gosched()
	}
}
