package handler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"binrelay/functions"
	"binrelay/relay"
)

// TestEveryChangeHasOneOutcome lets functions go wrong in every way at once, with a seed, and compares
// what comes out with what each change alone says. (Invariant 5.)
func TestEveryChangeHasOneOutcome(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { chaos(t, seed) })
	}
}

func chaos(t *testing.T, seed uint64) {
	const changes = 3000
	random := rand.New(rand.NewPCG(seed, 1))
	const (
		fine = iota
		dropped
		twice
		fails
		panics
		exits
		hangs
	)
	fate := make([]int, changes)
	hanging := 0
	for i := range fate {
		switch n := random.IntN(100); {
		case n < 10:
			fate[i] = dropped
		case n < 20:
			fate[i] = twice
		case n < 30:
			fate[i] = fails + random.IntN(3)
		case n == 30 && hanging < 6:
			fate[i] = hangs
			hanging++
		}
	}
	release := make(chan struct{})
	misbehave := func(c *functions.Change, id int64) error {
		c.Op, c.Table = functions.Delete, nil // sets what is not its own: nobody may see it
		switch fate[id] {
		case fails:
			return errors.New("fails")
		case panics:
			panic(id)
		case exits:
			runtime.Goexit()
		case hangs:
			<-release
		}
		return nil
	}
	where := func(id int64) bool { return id%2 == 0 } // in which function a fate strikes
	set := functions.Set{
		Filter: func(_ context.Context, c *functions.Change) (bool, error) {
			id, err := c.Row().Int("id")
			if err != nil || !where(id) {
				return err == nil && fate[id] != dropped, err
			}
			return fate[id] != dropped, misbehave(c, id)
		},
		Serialize: func(_ context.Context, c *functions.Change) ([]*functions.Record, error) {
			id, err := c.Row().Int("id")
			if err != nil {
				return nil, err
			}
			r, err := functions.NewRecord(functions.JSON{}, c)
			if err == nil && !where(id) {
				err = misbehave(c, id)
			}
			if fate[id] == twice {
				return []*functions.Record{r, {Key: r.Key, Value: []byte("second")}}, err
			}
			return []*functions.Record{r}, err
		},
	}
	p := newPool(t, Options{Set: set, DeadLetterTopic: "dead", Workers: 4, Timeout: 40 * time.Millisecond})
	defer func() {
		close(release)
		for p.Abandoned() > 0 {
			runtime.Gosched()
		}
	}()

	var jobs []*relay.Job
	for id := 0; id < changes; {
		var entries []string
		for range 1 + random.IntN(8) {
			var b strings.Builder
			for range random.IntN(20) {
				if id < changes {
					fmt.Fprintf(&b, "c %d\n", id)
					id++
				}
			}
			entries = append(entries, b.String())
		}
		jobs = append(jobs, job(entries...))
	}
	go func() {
		for _, j := range jobs {
			p.Go(j)
		}
	}()
	var got, want []string
	var stats relay.JobStats
	for _, j := range jobs {
		<-j.Done
		if j.Fault != nil || j.Covered != len(j.Entries) {
			t.Fatalf("Fault %v, Covered %d", j.Fault, j.Covered)
		}
		stats.Changes += j.Stats.Changes
		stats.Filtered += j.Stats.Filtered
		stats.DeadLetters += j.Stats.DeadLetters
		for _, r := range j.Out.Records {
			value, _, _ := strings.Cut(string(r.Value), ",")
			if r.Dead {
				value = "dead"
			}
			got = append(got, string(r.Key)+" "+value)
		}
		j.Out.Release()
	}
	var wantStats relay.JobStats
	for id, f := range fate {
		wantStats.Changes++
		key := fmt.Sprintf(`{"id":%d} `, id)
		switch f {
		case dropped:
			wantStats.Filtered++
		case fine:
			want = append(want, key+`{"op":"c"`)
		case twice:
			want = append(want, key+`{"op":"c"`, key+"second")
		default:
			wantStats.DeadLetters++
			want = append(want, key+"dead")
		}
	}
	if stats != wantStats {
		t.Errorf("Stats %+v, want %+v", stats, wantStats)
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%d records, want %d; they differ at %d: %v, want %v", len(got), len(want), i, got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
		}
	}
}
