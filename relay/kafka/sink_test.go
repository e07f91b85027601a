package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"binrelay/relay"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("SINK_CHILD") != "" {
		child()
	}
	goleak.VerifyTestMain(m)
}

func cluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func testConfig(t testing.TB, brokers []string) Config {
	return Config{Brokers: brokers, StateDir: t.TempDir(), Linger: time.Millisecond, TopicCreate: true, TopicPartitions: 3,
		Compression: "snappy", Logger: quiet()}
}

func start(t testing.TB, cfg Config) (*Sink, uint64) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	next, err := s.Start(ctxFor(t))
	if err != nil {
		t.Fatal("Start: ", err)
	}
	t.Cleanup(func() { closeSink(t, s) })
	return s, next
}

func closeSink(t testing.TB, s *Sink) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	s.Close(ctx)
}

func ctxFor(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// num is the record of entry i in test batches: its value begins with the number.
func num(topic string, i uint64) relay.Record {
	v := make([]byte, 60)
	binary.BigEndian.PutUint64(v, i)
	k := fmt.Appendf(nil, "key-%d", i%97)
	return relay.Record{Topic: topic, Key: k, Value: v, Partition: -1, Hash: k, Time: time.UnixMilli(1_700_000_000_000 + int64(i)), Seq: i}
}

// run is a batch of the entries [from, to] with one record each.
func run(topic string, from, to uint64) *relay.Batch {
	b := &relay.Batch{First: from, Last: to}
	for i := from; i <= to; i++ {
		b.Records = append(b.Records, num(topic, i))
	}
	return b
}

// logs reads each partition of a topic to its end.
func logs(t testing.TB, brokers []string, topic string) map[int32][]*kgo.Record {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(20*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.UnknownTopicRetries(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ends := endOffsets(t, cl, topic)
	out := map[int32][]*kgo.Record{}
	left := func() bool {
		for p, end := range ends {
			if l := out[p]; end > 0 && (len(l) == 0 || l[len(l)-1].Offset < end-1) {
				return true
			}
		}
		return false
	}
	for left() {
		fs := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("reading %s back took too long", topic)
		}
		fs.EachRecord(func(r *kgo.Record) { out[r.Partition] = append(out[r.Partition], r) })
	}
	return out
}

// once checks that the entries [from, to] are in the topic once each, in order in each partition.
func once(t testing.TB, brokers []string, topic string, from, to uint64) {
	t.Helper()
	seen := map[uint64]int{}
	parts := logs(t, brokers, topic)
	for p, l := range parts {
		last := uint64(0)
		for _, r := range l {
			i := binary.BigEndian.Uint64(r.Value)
			seen[i]++
			if seen[i] > 1 {
				t.Errorf("partition %d: record %d again at offset %d", p, i, r.Offset)
			}
			if i < last {
				t.Errorf("partition %d: record %d after %d", p, i, last)
			}
			last = i
		}
	}
	for i := from; i <= to; i++ {
		if seen[i] == 0 {
			t.Errorf("record %d is missing", i)
		}
	}
	if want := int(to - from + 1); len(seen) != want {
		t.Errorf("%d different records, want %d", len(seen), want)
	}
}

func TestSendsOnceInOrder(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(3))
	cfg := testConfig(t, c.ListenAddrs())
	var told atomic.Int64
	cfg.OnAcked = func(time.Duration) { told.Add(1) }
	s, next := start(t, cfg)
	if next != 0 {
		t.Errorf("Start of an empty journal = %d, want 0", next)
	}
	released := make(chan struct{}, 1000)
	ctx := ctxFor(t)
	for i := uint64(5); i < 2005; i += 20 {
		b := run("a", i, i+19)
		b.Release = func() { released <- struct{}{} }
		if err := s.Send(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if got := s.Acked(); got != 2004 {
		t.Errorf("Acked = %d, want 2004", got)
	}
	if len(released) != 100 {
		t.Errorf("%d batches released, want 100", len(released))
	}
	if n := told.Load(); n != 100 {
		t.Errorf("OnAcked was told of %d batches, want 100", n)
	}
	if n, err := s.Partitions(ctx, "a"); n != 3 || err != nil {
		t.Errorf("Partitions = %d, %v, want 3", n, err)
	}
	once(t, c.ListenAddrs(), "a", 5, 2004)
	if st := s.Status(); st.InFlight != 0 || st.Records != 2000 || st.Waiting != "" || st.Partitions != 3 {
		t.Errorf("Status = %+v", st)
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	s2, next := start(t, cfg)
	if next != 2005 || s2.Acked() != 2004 {
		t.Errorf("after Close: Start = %d, Acked = %d, want 2005 and 2004", next, s2.Acked())
	}
	if err := s2.Send(ctx, run("a", 2005, 2010)); err != nil {
		t.Fatal(err)
	}
	if err := s2.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	once(t, c.ListenAddrs(), "a", 5, 2010)
}

func TestRecordIsAsGiven(t *testing.T) {
	c := cluster(t)
	s, _ := start(t, testConfig(t, c.ListenAddrs()))
	ctx := ctxFor(t)
	recs := []relay.Record{
		{Topic: "r", Key: []byte("k"), Value: nil, Partition: 2, Time: time.UnixMilli(1_700_000_000_123), Seq: 1},
		{Topic: "r", Key: nil, Value: []byte{}, Partition: 1, Time: time.UnixMilli(5), Seq: 1, Row: 1},
		{Topic: "r", Key: []byte{}, Value: bytes.Repeat([]byte("v"), 5000), Partition: 1, Time: time.UnixMilli(1), Seq: 1, Row: 2,
			Headers: headers("a", "1", "b", "")},
	}
	if err := s.Send(ctx, &relay.Batch{First: 1, Last: 1, Records: recs}); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	got := logs(t, c.ListenAddrs(), "r")
	for i, want := range recs {
		l := got[want.Partition]
		if len(l) == 0 {
			t.Fatalf("record %d is not in partition %d", i, want.Partition)
		}
		r := l[0]
		got[want.Partition] = l[1:]
		if !bytes.Equal(r.Key, want.Key) || (r.Key == nil) != (want.Key == nil) || !bytes.Equal(r.Value, want.Value) || (r.Value == nil) != (want.Value == nil) || !r.Timestamp.Equal(want.Time) {
			t.Errorf("record %d: key %q value %d bytes time %v", i, r.Key, len(r.Value), r.Timestamp)
		}
		if len(r.Headers) != len(want.Headers) {
			t.Errorf("record %d: headers %v", i, r.Headers)
		}
	}
}

func TestCompactedAsksTheTopic(t *testing.T) {
	brokers := cluster(t).ListenAddrs()
	makeTopic(t, brokers, "compacted", 1, "cleanup.policy", "compact,delete")
	makeTopic(t, brokers, "plain", 1)
	s, _ := start(t, testConfig(t, brokers))
	for topic, want := range map[string]bool{"compacted": true, "plain": false, "made": false} {
		for range 2 { // asked, then remembered
			if got, err := s.Compacted(ctxFor(t), topic); err != nil || got != want {
				t.Errorf("Compacted(%s) = %v, %v; want %v", topic, got, err, want)
			}
		}
	}
}
