package kafka

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"binrelay/relay"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func admin(t testing.TB, brokers []string) *kadm.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}

func makeTopic(t testing.TB, brokers []string, name string, parts int32, configs ...string) {
	t.Helper()
	cfg := map[string]*string{}
	for i := 0; i < len(configs); i += 2 {
		cfg[configs[i]] = &configs[i+1]
	}
	r, err := admin(t, brokers).CreateTopic(context.Background(), parts, 1, cfg, name)
	if err == nil {
		err = r.Err
	}
	if err != nil {
		t.Fatal(err)
	}
}

// noise does not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(b)
	return b
}

func big(topic string, i uint64, tail []byte) relay.Record {
	r := num(topic, i)
	r.Value = append(r.Value[:8:8], tail...)
	return r
}

// TestTooLargeIsJudgedCompressed: the limit is on the batch as it is sent; a record of repeated text far
// above it passes, among others and in order.
func TestTooLargeIsJudgedCompressed(t *testing.T) {
	c := cluster(t)
	makeTopic(t, c.ListenAddrs(), "big", 1, "max.message.bytes", "20000")
	for _, codec := range []string{"none", "snappy", "zstd"} {
		cfg := testConfig(t, c.ListenAddrs())
		cfg.Compression = codec
		s, _ := start(t, cfg)
		b := run("big", 1, 100)
		b.Records[49] = big("big", 50, bytes.Repeat([]byte("text "), 40_000))
		if err := s.Send(ctxFor(t), b); err != nil {
			t.Fatal(codec, err)
		}
		if err := s.Flush(ctxFor(t)); err != nil {
			t.Fatal(codec, err)
		}
		closeSink(t, s)
		if l := logs(t, c.ListenAddrs(), "big")[0]; len(l) != 100 {
			t.Errorf("%s: %d records, want 100", codec, len(l))
		}
		once(t, c.ListenAddrs(), "big", 1, 100)
		if _, err := admin(t, c.ListenAddrs()).DeleteTopic(context.Background(), "big"); err != nil {
			t.Fatal(err)
		}
		makeTopic(t, c.ListenAddrs(), "big", 1, "max.message.bytes", "20000")
	}
}

// TestRefusedGoesToDeadLetters: the dead letter arrives once, all others in order, and the watermark
// passes the entry only with it.
func TestRefusedGoesToDeadLetters(t *testing.T) {
	c := cluster(t)
	makeTopic(t, c.ListenAddrs(), "a", 1, "max.message.bytes", "2000")
	cfg := testConfig(t, c.ListenAddrs())
	cfg.DeadLetter = func(r *relay.Record, reason error) (*relay.Record, bool) {
		if !errors.Is(reason, kerr.MessageTooLarge) {
			t.Errorf("reason = %v", reason)
		}
		return &relay.Record{Topic: "dead", Key: r.Key, Value: append(r.Value[:8:8], 'x'), Partition: -1, Hash: r.Key, Time: r.Time}, true
	}
	s, _ := start(t, cfg)
	ctx := ctxFor(t)
	for from := uint64(1); from < 500; from += 50 {
		b := run("a", from, from+49)
		for _, k := range []int{7, 8, 30} {
			b.Records[k] = big("a", from+uint64(k), noise(5000))
		}
		if err := s.Send(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if got := s.Acked(); got != 500 {
		t.Errorf("Acked = %d, want 500", got)
	}
	if n := len(logs(t, c.ListenAddrs(), "a")[0]); n != 470 {
		t.Errorf("%d records delivered, want 470", n)
	}
	dead := 0
	for _, l := range logs(t, c.ListenAddrs(), "dead") {
		dead += len(l)
	}
	if dead != 30 {
		t.Errorf("%d dead letters, want 30", dead)
	}
	last := uint64(0)
	for _, r := range logs(t, c.ListenAddrs(), "a")[0] {
		if i := be(r.Value); i <= last {
			t.Errorf("record %d after %d", i, last)
		} else {
			last = i
		}
	}
}

func be(b []byte) (n uint64) {
	for _, c := range b[:8] {
		n = n<<8 | uint64(c)
	}
	return n
}

// TestRefusedHalts: without a place for dead letters delivery halts at the record, again after every try and
// in the next process; nothing behind it is skipped, and it goes on when the topic is mended.
func TestRefusedHalts(t *testing.T) {
	c := cluster(t)
	makeTopic(t, c.ListenAddrs(), "a", 1, "max.message.bytes", "2000")
	cfg := testConfig(t, c.ListenAddrs())
	s, _ := start(t, cfg)
	ctx := ctxFor(t)
	b := run("a", 1, 60)
	b.Records[29] = big("a", 30, noise(5000))
	if err := s.Send(ctx, b); err != nil {
		t.Fatal(err)
	}
	var f *relay.Fault
	if err := s.Flush(ctx); !errors.As(err, &f) || f.Function != "kafka" || f.Seq != 30 || !strings.Contains(f.Error(), "max.message.bytes") {
		t.Fatalf("Flush = %v, want a fault at entry 30", err)
	}
	if !strings.Contains(s.Status().Waiting, "halted") {
		t.Errorf("Status = %+v", s.Status())
	}
	if err := s.Send(ctx, run("a", 61, 61)); !errors.As(err, &f) {
		t.Errorf("Send after the halt = %v, want the fault", err)
	}
	if _, err := s.Start(ctx); !errors.As(err, &f) || f.Seq != 30 {
		t.Errorf("Start = %v, want the fault", err)
	}
	closeSink(t, s)
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSink(t, s) })
	if _, err := s.Start(ctx); !errors.As(err, &f) || f.Seq != 30 {
		t.Fatalf("Start of the next process = %v, want the fault", err)
	}
	if got := s.Acked(); got != 29 {
		t.Errorf("Acked = %d, want 29", got)
	}
	if n := len(logs(t, c.ListenAddrs(), "a")[0]); n != 29 {
		t.Errorf("%d records, want 29", n)
	}
	if _, err := admin(t, c.ListenAddrs()).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "max.message.bytes", Value: kadm.StringPtr("9000")}}, "a"); err != nil {
		t.Fatal(err)
	}
	if next, err := s.Start(ctx); err != nil || next != 61 {
		t.Fatalf("Start after the limit was raised = %d, %v", next, err)
	}
	if err := s.Send(ctx, run("a", 61, 70)); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	once(t, c.ListenAddrs(), "a", 1, 70)
}

// TestDeadLetterRefusedHalts: what stands for a refused record is never refused into a circle.
func TestDeadLetterRefusedHalts(t *testing.T) {
	c := cluster(t)
	makeTopic(t, c.ListenAddrs(), "a", 1, "max.message.bytes", "2000")
	makeTopic(t, c.ListenAddrs(), "dead", 1, "max.message.bytes", "2000")
	cfg := testConfig(t, c.ListenAddrs())
	calls := 0
	cfg.DeadLetter = func(r *relay.Record, _ error) (*relay.Record, bool) {
		calls++
		return &relay.Record{Topic: "dead", Value: noise(6000), Partition: 0}, true
	}
	s, _ := start(t, cfg)
	b := run("a", 1, 3)
	b.Records[1] = big("a", 2, noise(5000))
	if err := s.Send(ctxFor(t), b); err != nil {
		t.Fatal(err)
	}
	var f *relay.Fault
	if err := s.Flush(ctxFor(t)); !errors.As(err, &f) || !strings.Contains(f.Err, "dead letter") {
		t.Fatalf("Flush = %v, want a fault of the dead letter", err)
	}
	if strings.Contains(f.Hint, "DEAD_LETTER_TOPIC") {
		t.Errorf("hint %q names what is set already", f.Hint)
	}
	if calls != 1 || s.Acked() > 1 {
		t.Errorf("%d calls of DeadLetter, Acked = %d, want 1 and at most 1", calls, s.Acked())
	}
}

// TestKgoOvertakesRefused shows why records do not go through kgo's producer: after a refusal it fails what
// is buffered for the partition, takes the next epoch, and what is produced before the first failed promise
// has told anybody is written in front of it.
func TestKgoOvertakesRefused(t *testing.T) {
	c := cluster(t)
	makeTopic(t, c.ListenAddrs(), "k", 1, "max.message.bytes", "2000")
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.StopProducerOnDataLossDetected(), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx := ctxFor(t)
	rec := func(i uint64, tail []byte) *kgo.Record {
		r := big("k", i, tail)
		return &kgo.Record{Topic: "k", Value: r.Value}
	}
	if err := cl.ProduceSync(ctx, rec(1, nil)).FirstErr(); err != nil {
		t.Fatal(err)
	}
	hold, refused := make(chan struct{}), make(chan struct{})
	cl.Produce(ctx, rec(2, noise(5000)), func(*kgo.Record, error) { close(refused); <-hold })
	<-refused
	cl.Produce(ctx, rec(3, nil), nil) // the program does not know yet that 2 is refused
	for {
		if l := logs(t, c.ListenAddrs(), "k")[0]; len(l) == 2 {
			if got := be(l[1].Value); got != 3 || l[1].ProducerEpoch != l[0].ProducerEpoch+1 {
				t.Errorf("record %d in epoch %d", got, l[1].ProducerEpoch)
			}
			break
		}
		if ctx.Err() != nil {
			t.Fatal("kgo no longer does this: look at doc.go again")
		}
	}
	close(hold)
}

// TestSplitFindsTheOne: a batch refused as a whole is judged record by record.
func TestSplitFindsTheOne(t *testing.T) {
	c := cluster(t)
	makeTopic(t, c.ListenAddrs(), "a", 1)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord, Count: 1})
	s, _ := start(t, testConfig(t, c.ListenAddrs()))
	if err := s.Send(ctxFor(t), run("a", 1, 40)); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(ctxFor(t)); err != nil {
		t.Fatal(err)
	}
	once(t, c.ListenAddrs(), "a", 1, 40)
}
