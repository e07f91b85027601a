package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"binrelay/functions"
	"binrelay/relay"
)

func TestStockPath(t *testing.T) {
	on := func(context.Context, string) (bool, error) { return true, nil }
	for name, tc := range map[string]struct {
		o       Options
		entries []string
		want    []string
	}{
		"by key": {
			Options{}, []string{"c 7\nu 7\nd 7", "n 1"},
			[]string{
				`1.0 shop.item/-1 {"id":7} c by {"id":7}`, `1.1 shop.item/-1 {"id":7} u by {"id":7}`, `1.2 shop.item/-1 {"id":7} d by {"id":7}`,
				`2.0 shop.log/-1 nil c by shop.log`,
			},
		},
		"by table":    {Options{PartitionBy: ByTable}, []string{"c 7\nn 1"}, []string{`1.0 shop.item/-1 {"id":7} c by shop.item`, `1.1 shop.log/-1 nil c by shop.log`}},
		"by database": {Options{PartitionBy: ByDatabase}, []string{"c 7\nn 1"}, []string{`1.0 shop.item/-1 {"id":7} c by shop`, `1.1 shop.log/-1 nil c by shop`}},
		"single":      {Options{PartitionBy: BySingle}, []string{"c 7\nn 1"}, []string{`1.0 shop.item/0 {"id":7} c`, `1.1 shop.log/0 nil c`}},
		"tombstones": {
			Options{Tombstones: on}, []string{"d 7\nc 8"},
			[]string{`1.0 shop.item/-1 {"id":7} d by {"id":7}`, `1.0 shop.item/-1 {"id":7} nil by {"id":7}`, `1.1 shop.item/-1 {"id":8} c by {"id":8}`},
		},
		"ddl goes nowhere": {Options{}, []string{"ddl CREATE TABLE t (a INT)\nc 1"}, []string{`1.1 shop.item/-1 {"id":1} c by {"id":1}`}},
		"ddl has a topic": {
			Options{DDLTopic: "ddl"}, []string{"ddl CREATE TABLE t (a INT)\nc 1"},
			[]string{`1.0 ddl/0 nil ddl`, `1.1 shop.item/-1 {"id":1} c by {"id":1}`},
		},
		"empty entry": {Options{}, []string{"", "c 1", ""}, []string{`2.0 shop.item/-1 {"id":1} c by {"id":1}`}},
	} {
		t.Run(name, func(t *testing.T) {
			j := run(newPool(t, tc.o), job(tc.entries...))
			wantRecords(t, j, tc.want...)
			if j.Fault != nil || j.Covered != len(tc.entries) || j.Out.First != 1 || j.Out.Last != uint64(len(tc.entries)) {
				t.Errorf("Fault %v, Covered %d, %d to %d", j.Fault, j.Covered, j.Out.First, j.Out.Last)
			}
			if !j.Out.Records[0].Time.Equal(commit) {
				t.Errorf("Time = %v, want the commit time", j.Out.Records[0].Time)
			}
			j.Out.Release()
		})
	}
}

func TestValuesAreTheFormats(t *testing.T) {
	j := run(newPool(t, Options{DDLTopic: "ddl"}), job("u 7\nddl DROP TABLE t"))
	want := []string{
		`{"op":"u","before":{"id":7},"after":{"id":7},"source":{"db":"shop","table":"item","gtid":"0-1-9","file":"b.1","pos":4,"row":0,"server_id":1,"ts_ms":1760000000123}}`,
		`{"op":"ddl","db":"shop","statement":"DROP TABLE t","source":{"db":"shop","table":null,"gtid":"0-1-9","file":"b.1","pos":4,"row":1,"server_id":1,"ts_ms":1760000000123}}`,
	}
	for i, r := range j.Out.Records {
		if string(r.Value) != want[i] {
			t.Errorf("value %d:\n%s, want\n%s", i, r.Value, want[i])
		}
	}
}

func TestFunctionsShapeRecords(t *testing.T) {
	rec := func(r functions.Record) *functions.Record { return &r }
	set := functions.Set{
		Filter: func(_ context.Context, c *functions.Change) (bool, error) { return c.Get("id") != int64(1), nil },
		Serialize: func(_ context.Context, c *functions.Change) ([]*functions.Record, error) {
			id, err := c.Row().Int("id")
			if err != nil {
				return nil, err
			}
			key := []byte(fmt.Sprintf(`{"id":%d}`, id))
			switch id {
			case 2:
				return nil, nil
			case 3:
				return []*functions.Record{rec(functions.Record{Value: []byte("no key")}), rec(functions.Record{Topic: "other", Key: []byte("k"), Value: []byte("v")})}, nil
			case 4:
				return []*functions.Record{rec(functions.Record{Key: key, Partition: functions.At(5)})}, nil // a tombstone of the user's
			case 5:
				return []*functions.Record{rec(functions.Record{Key: key, Value: []byte("v")}), rec(functions.Record{Key: key})}, nil
			}
			return []*functions.Record{rec(functions.Record{Key: key, Value: []byte("v")})}, nil
		},
	}
	p := newPool(t, Options{Set: set, Tombstones: func(context.Context, string) (bool, error) { return true, nil }})
	j := run(p, job("c 1\nc 2\nd 3\nd 4\nd 5\nd 6", "ddl X"))
	wantRecords(t, j,
		`1.2 shop.item/-1 nil no key by shop.item`, `1.2 other/-1 k v by k`, // a key that is not the row's: no tombstone
		`1.3 shop.item/5 {"id":4} nil`,
		`1.4 shop.item/-1 {"id":5} v by {"id":5}`, `1.4 shop.item/-1 {"id":5} nil by {"id":5}`, // the user's tombstone, not two
		`1.5 shop.item/-1 {"id":6} v by {"id":6}`, `1.5 shop.item/-1 {"id":6} nil by {"id":6}`)
	if want := (relay.JobStats{Changes: 6, Filtered: 2}); j.Stats != want || j.Fault != nil || j.Covered != 2 {
		t.Errorf("Stats %+v, want %+v; Fault %v, Covered %d", j.Stats, want, j.Fault, j.Covered)
	}
}

func TestPartitionFunction(t *testing.T) {
	set := functions.Set{Partition: func(_ context.Context, c *functions.Change, r *functions.Record, n int) (int, error) {
		if r.Topic != "shop.item" || !strings.HasPrefix(string(r.Key), `{"id":`) || len(r.Value) == 0 {
			return 0, fmt.Errorf("record %+v", r)
		}
		id, err := c.Row().Int("id")
		return int(id) % n, err
	}}
	j := run(newPool(t, Options{Set: set, Tombstones: func(context.Context, string) (bool, error) { return true, nil }}), job("c 14\nd 15"))
	wantRecords(t, j, `1.0 shop.item/2 {"id":14} c`, `1.1 shop.item/3 {"id":15} d`, `1.1 shop.item/3 {"id":15} nil`)
	for _, r := range j.Out.Records {
		if r.Of != 12 {
			t.Errorf("Of = %d, want 12", r.Of)
		}
	}
}

func TestPartitionsWaitEndsWithTheJob(t *testing.T) {
	waiting := make(chan struct{})
	p := newPool(t, Options{
		Set: functions.Set{Partition: func(context.Context, *functions.Change, *functions.Record, int) (int, error) { return 0, nil }},
		Partitions: func(ctx context.Context, _ string) (int, error) {
			close(waiting)
			<-ctx.Done()
			return 0, ctx.Err()
		},
		DeadLetterTopic: "dead", // not for this: nobody's change is wrong
	})
	j := job("c 1")
	ctx, cancel := context.WithCancel(context.Background())
	j.Ctx = ctx
	p.Go(j)
	<-waiting
	cancel()
	<-j.Done
	if j.Fault == nil || j.Fault.Function != "kafka" || j.Covered != 0 {
		t.Errorf("Fault %+v, Covered %d", j.Fault, j.Covered)
	}
}

func TestDecodeFaultsHaltAtTheEntry(t *testing.T) {
	for name, tc := range map[string]struct {
		entry, err string
		row        int
	}{
		"undecodable":    {"c 1\nundecodable", "type 99", 1},
		"decoder panics": {"c 1\nwhat", "panic: decoder bug", 0},
		"damaged value":  {"c 1\nx 2", "damaged value", 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, Options{DeadLetterTopic: "dead"})
			j := run(p, job("c 1", "c 2\nc 3", tc.entry, "c 9"))
			wantRecords(t, j, `1.0 shop.item/-1 {"id":1} c by {"id":1}`, `2.0 shop.item/-1 {"id":2} c by {"id":2}`, `2.1 shop.item/-1 {"id":3} c by {"id":3}`)
			f := j.Fault
			if f == nil || f.Function != "decode" || f.Seq != 3 || f.Row != tc.row || !strings.Contains(f.Err, tc.err) || f.Hint == "" {
				t.Errorf("Fault %+v", f)
			}
			if j.Covered != 2 || j.Out.Last != 2 || j.Stats.Changes != 3 {
				t.Errorf("Covered %d, Last %d, Stats %+v", j.Covered, j.Out.Last, j.Stats)
			}
		})
	}
}

func TestOrderIsKeptAcrossWorkers(t *testing.T) {
	set := functions.Set{Filter: func(_ context.Context, c *functions.Change) (bool, error) {
		if rand.N(50) == 0 { // so that workers overtake each other
			for range rand.N(100) {
				_ = make([]byte, 1024)
			}
		}
		return true, nil
	}}
	p := newPool(t, Options{Set: set, Workers: 8})
	var jobs []*relay.Job
	id := 0
	for range 200 {
		var entries []string
		for range 5 {
			entries = append(entries, fmt.Sprintf("c %d\nu %d", id, id))
			id++
		}
		jobs = append(jobs, job(entries...))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, j := range jobs {
			p.Go(j)
		}
	})
	next := 0
	for _, j := range jobs {
		<-j.Done
		for i := 0; i < len(j.Out.Records); i += 2 {
			want := fmt.Sprintf(`{"id":%d}`, next)
			if string(j.Out.Records[i].Key) != want || string(j.Out.Records[i+1].Key) != want {
				t.Fatalf("records %s, %s, want %s twice", j.Out.Records[i].Key, j.Out.Records[i+1].Key, want)
			}
			next++
		}
		j.Out.Release()
	}
	wg.Wait()
	if next != id {
		t.Errorf("%d changes, want %d", next, id)
	}
}

func TestBytesStayUntilRelease(t *testing.T) {
	p := newPool(t, Options{Workers: 2})
	// Values from a byte to far over a chunk, batches held while others are made.
	p.opt.Format = bigFormat{}
	var held []*relay.Job
	check := func(j *relay.Job) {
		for _, r := range j.Out.Records {
			if want := big(string(r.Key)); string(r.Value) != want {
				t.Fatalf("value of %s is %d bytes of %.20q, want %d", r.Key, len(r.Value), r.Value, len(want))
			}
		}
	}
	for i := range 60 {
		var b strings.Builder
		for k := range 40 {
			fmt.Fprintf(&b, "c %d\n", (i*40+k)*997%100000)
		}
		held = append(held, run(p, job(b.String())))
		if len(held) > 5 {
			check(held[0])
			held[0].Out.Release()
			held = held[1:]
		}
	}
	for _, j := range held {
		check(j)
	}
}

// bigFormat makes values of as many bytes as the id says, of its last digit.
type bigFormat struct{ functions.JSON }

func (bigFormat) AppendValue(dst []byte, c *functions.Change) ([]byte, error) {
	key, _, err := functions.JSON{}.AppendKey(nil, c)
	return append(dst, big(string(key))...), err
}

func big(key string) string {
	var id int
	fmt.Sscanf(key, `{"id":%d}`, &id)
	return strings.Repeat(string(rune('0'+id%10)), id)
}

func TestReleasingTwicePanics(t *testing.T) {
	j := run(newPool(t, Options{}), job("c 1"))
	j.Out.Release()
	defer func() {
		if recover() == nil {
			t.Error("a second Release went unnoticed")
		}
	}()
	j.Out.Release()
}

func TestDeadLetterRecord(t *testing.T) {
	p := newPool(t, Options{DeadLetterTopic: "dead"})
	r := relay.Record{Topic: "shop.item", Key: []byte("k\xff"), Value: []byte(strings.Repeat("x", 3<<20)), Partition: -1, Hash: []byte("k\xff"),
		Headers: []functions.Header{{Key: "h", Value: []byte{0}}}, Seq: 7, Row: 3, Time: commit}
	d := p.DeadLetterRecord(r, errors.New("MESSAGE_TOO_LARGE"))
	if d == nil || d.Topic != "dead" || !d.Dead || string(d.Key) != "k\xff" || d.Seq != 7 || d.Row != 3 || !d.Time.Equal(commit) || string(d.Hash) != "k\xff" {
		t.Fatalf("dead letter %+v", d)
	}
	var e struct {
		Fault  relay.Fault
		Record struct {
			Topic      string
			Partition  int
			Key, Value []byte
			Headers    []struct {
				Key   string
				Value []byte
			}
		}
	}
	if err := json.Unmarshal(d.Value, &e); err != nil {
		t.Fatal(err)
	}
	if e.Fault.Function != "kafka" || e.Fault.Err != "MESSAGE_TOO_LARGE" || e.Fault.Seq != 7 || e.Record.Topic != "shop.item" || e.Record.Partition != -1 ||
		string(e.Record.Key) != "k\xff" || len(e.Record.Value) != 3<<20 || len(e.Record.Headers) != 1 {
		t.Errorf("envelope %+v %.100v", e.Fault, e.Record)
	}
	if p.DeadLetterRecord(*d, errors.New("again")) != nil {
		t.Error("a dead letter of a dead letter")
	}
	if newPool(t, Options{}).DeadLetterRecord(r, errors.New("x")) != nil {
		t.Error("a dead letter without a topic for it")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := NewPool(Options{PartitionBy: "random", DDLTopic: "a b", DeadLetterTopic: "ok",
		Set: functions.Set{Partition: func(context.Context, *functions.Change, *functions.Record, int) (int, error) { return 0, nil }}})
	for _, want := range []string{"Decoder", "Topic is not set", "Partitions", "PARTITION_BY", "DDL_TOPIC"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}
