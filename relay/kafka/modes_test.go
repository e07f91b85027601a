package kafka

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"binrelay/relay/relaytest/faultnet"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// inFlight counts the Produce requests under way.
type inFlight struct{ now, most int }

func (f *inFlight) watch(n *faultnet.Net) {
	n.OnRequest = func(fr faultnet.Frame) faultnet.Action {
		if fr.Key == 0 {
			f.now++
			f.most = max(f.most, f.now)
		}
		return faultnet.Pass
	}
	n.OnResponse = func(fr faultnet.Frame) faultnet.Action {
		if fr.Key == 0 {
			f.now--
		}
		return faultnet.Pass
	}
}

// TestSecondOfFiveFails is the classic: request 2 of 5 is refused, 3 to 5 arrive, 2 is sent again. A producer
// without sequence numbers and five in flight reorders; the relay does in neither of its modes.
func TestSecondOfFiveFails(t *testing.T) {
	fail := func(c *kfake.Cluster) {
		first := true
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: 1, When: func(r kmsg.Request) bool {
			b := r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records
			if first && strings.Contains(string(b), "second") {
				first = false
				return true
			}
			return false
		}})
	}
	t.Run("kgo, five without idempotence", func(t *testing.T) {
		n := faultnet.New()
		n.RTT = 20 * time.Millisecond
		c := cluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"), kfake.ListenFn(n.ListenFn))
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(5),
			kgo.ProducerBatchMaxBytes(800), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MetadataMinAge(20*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if err := cl.ProduceSync(ctxFor(t), &kgo.Record{Topic: "a", Value: num("a", 0).Value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		fail(c)
		for i := uint64(1); i <= 5; i++ {
			cl.Produce(ctxFor(t), &kgo.Record{Topic: "a", Value: append(num("a", i).Value, padding(i)...)}, nil)
		}
		if err := cl.Flush(ctxFor(t)); err != nil {
			t.Fatal(err)
		}
		last, reordered := uint64(0), false
		for _, r := range logs(t, c.ListenAddrs(), "a")[0] {
			i := binary.BigEndian.Uint64(r.Value)
			reordered = reordered || i < last
			last = i
		}
		if !reordered {
			t.Error("the producer kept the order: this test shows nothing")
		}
	})
	for _, five := range []bool{true, false} {
		name := map[bool]string{true: "relay, KAFKA_IN_FLIGHT=5", false: "relay, KAFKA_IN_FLIGHT=1"}[five]
		t.Run(name, func(t *testing.T) {
			n := faultnet.New()
			n.RTT = 20 * time.Millisecond
			var f inFlight
			f.watch(n)
			c := cluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"), kfake.ListenFn(n.ListenFn))
			cfg := testConfig(t, c.ListenAddrs())
			cfg.Compression, cfg.BatchMaxBytes = "none", 1<<10
			if !five {
				cfg.InFlight, cfg.Delivery = 1, AtLeastOnce
			}
			s, _ := start(t, cfg)
			ctx := ctxFor(t)
			if err := s.Send(ctx, run("a", 1, 1)); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			fail(c)
			b := run("a", 2, 11)
			for i := range b.Records {
				b.Records[i].Value = append(b.Records[i].Value, padding(uint64(i+1))...)
			}
			if err := s.Send(ctx, b); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			once(t, c.ListenAddrs(), "a", 1, 11)
			n.Lock(func() {
				if want := map[bool]int{true: 5, false: 1}[five]; f.most != want {
					t.Errorf("%d requests in flight, want %d", f.most, want)
				}
			})
		})
	}
}

// padding makes a record fill a batch of its own and tells the second one.
func padding(i uint64) string {
	if i == 2 {
		return strings.Repeat("second ", 80)
	}
	return strings.Repeat("another ", 70)
}

// TestAtLeastOnce: without sequence numbers nothing is lost either; what may be repeated is counted.
func TestAtLeastOnce(t *testing.T) {
	for _, in := range []int{1, 5} {
		n := faultnet.New()
		c := cluster(t, kfake.NumBrokers(2), kfake.SeedTopics(3, "a"), kfake.ListenFn(n.ListenFn))
		cfg := testConfig(t, c.ListenAddrs())
		cfg.InFlight, cfg.Delivery = in, AtLeastOnce
		may := uint64(0)
		next := uint64(1)
		for range 6 {
			s, from := start(t, cfg)
			if from > next || from == 0 && next > 1 {
				t.Fatalf("Start = %d where %d is next", from, next)
			}
			next = max(from, 1) // what Send had queued and the journal not yet is the relay's to send again
			n.Lock(func() {
				lost := 0
				n.OnResponse = func(f faultnet.Frame) faultnet.Action {
					if f.Key == 0 && rand.IntN(6) == 0 && lost < 5 {
						lost++
						return faultnet.Cut
					}
					return faultnet.Pass
				}
			})
			for range 20 {
				if err := s.Send(ctxFor(t), run("a", next, next+9)); err != nil {
					t.Fatal(err)
				}
				next += 10
			}
			closeSink(t, s)
			may += s.Status().MayRepeat
			n.Lock(func() { n.OnResponse = nil })
		}
		s, from := start(t, cfg)
		if err := s.Flush(ctxFor(t)); err != nil {
			t.Fatal(err)
		}
		may += s.Status().MayRepeat
		seen, repeated := map[uint64]bool{}, uint64(0)
		for _, l := range logs(t, c.ListenAddrs(), "a") {
			for _, r := range l {
				if seen[be(r.Value)] {
					repeated++
				}
				seen[be(r.Value)] = true
			}
		}
		for i := uint64(1); i < from; i++ {
			if !seen[i] {
				t.Fatalf("in flight %d: record %d is lost", in, i)
			}
		}
		if repeated > may {
			t.Errorf("in flight %d: %d records repeated, %d counted as possible", in, repeated, may)
		}
		t.Logf("in flight %d: %d records, %d repeated, %d counted as possible", in, from-1, repeated, may)
	}
}

// TestChaos: one process, faults of all kinds all the time.
func TestChaos(t *testing.T) {
	n := faultnet.New()
	n.RTT = 2 * time.Millisecond
	c := cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(12, killTopic), kfake.ListenFn(n.ListenFn))
	cfg := testConfig(t, c.ListenAddrs())
	cfg.BatchMaxBytes = 4 << 10
	s, _ := start(t, cfg)
	stop, done := make(chan struct{}), make(chan map[string]int)
	go func() { done <- trouble(c, n, stop) }()
	next := uint64(1)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); next += 40 {
		if err := s.Send(ctxFor(t), run(killTopic, next, next+39)); err != nil {
			t.Fatal(err)
		}
		if next%11 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	counts := <-done
	if err := s.Flush(ctxFor(t)); err != nil {
		t.Fatal(err)
	}
	once(t, c.ListenAddrs(), killTopic, 1, next-1)
	t.Logf("%d records, %v, %d settled by looking", next-1, counts, s.Status().Resumed)
}

// TestBackpressure: what is in flight is bounded while Kafka takes nothing.
func TestBackpressure(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "a"))
	s, _ := start(t, testConfig(t, c.ListenAddrs()))
	s.maxBytes = 2 << 20
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
	sent := make(chan uint64)
	const batches = 120
	go func() {
		for i := range uint64(batches) {
			b := run("a", 1+10*i, 10+10*i)
			for k := range b.Records {
				b.Records[k] = big("a", 1+10*i+uint64(k), noise(5_000))
			}
			if err := s.Send(ctxFor(t), b); err != nil {
				t.Error(err)
				break
			}
		}
		close(sent)
	}()
	for s.Status().InFlight < 350 {
		time.Sleep(time.Millisecond)
	}
	for range 50 {
		s.mu.Lock()
		in := s.inBytes
		s.mu.Unlock()
		if in > s.maxBytes+100<<10 {
			t.Fatalf("%d bytes in flight, limit %d", in, s.maxBytes)
		}
		time.Sleep(time.Millisecond)
	}
	select {
	case <-sent:
		t.Error("6 MB were taken while nothing is acknowledged")
	default:
	}
	h.Remove()
	<-sent
	if err := s.Flush(ctxFor(t)); err != nil {
		t.Fatal(err)
	}
	once(t, c.ListenAddrs(), "a", 1, 10*batches)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inBytes != 0 || s.inFlight != 0 {
		t.Errorf("%d bytes, %d records in flight at rest", s.inBytes, s.inFlight)
	}
}

func TestConfigMistakes(t *testing.T) {
	_, err := New(Config{Brokers: []string{"nohost"}, SASLMechanism: "GSSAPI", Compression: "brotli", InFlight: 3, BatchMaxBytes: 1,
		Linger: -1, TopicPartitions: -1, TopicReplication: -1})
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range []string{"KAFKA_BROKERS", "KAFKA_SASL_MECHANISM", "KAFKA_COMPRESSION", "KAFKA_IN_FLIGHT", "KAFKA_BATCH_MAX_BYTES", "KAFKA_LINGER",
		"TOPIC_PARTITIONS", "TOPIC_REPLICATION", "WAL_DIR"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in: %v", name, err)
		}
	}
	_, err = New(Config{Brokers: []string{"k.example:9092"}, StateDir: "x", InFlight: 1, SASLMechanism: "PLAIN", SASLUsername: "u",
		SASLPassword: func() (string, error) { return "secret", nil }})
	if err == nil || !strings.Contains(err.Error(), "DELIVERY=at-least-once") || !strings.Contains(err.Error(), "KAFKA_TLS") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestCheck(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "there"))
	cfg := testConfig(t, c.ListenAddrs())
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	fs := s.Check(ctxFor(t), []string{"there", "new", "not legal"})
	for _, want := range []string{"Kafka answers", "topic there has one replica", "topic new will be created", `topic "not legal"`} {
		if !fs.has(want) {
			t.Errorf("no %q in %v", want, fs)
		}
	}
	cfg.TopicCreate = false
	if s, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	if fs := s.Check(ctxFor(t), []string{"new"}); !fs.has("set TOPIC_CREATE=true") {
		t.Errorf("Check = %v", fs)
	}
	cfg.Brokers = []string{"127.0.0.1:1"}
	if s, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	if fs := s.Check(ctxFor(t), nil); len(fs) != 1 || fs[0].Grade != Stop || !fs.has("127.0.0.1:1") {
		t.Errorf("Check = %v", fs)
	}
}
