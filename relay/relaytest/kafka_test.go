package relaytest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func startKafka(t testing.TB, cfg KafkaConfig) *Kafka {
	t.Helper()
	k, err := StartKafka(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return k
}

func producer(t testing.TB, k *Kafka, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(k.Addrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond })}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func TestKafkaRecordsAreReadInOrder(t *testing.T) {
	k := startKafka(t, KafkaConfig{Brokers: 2})
	if err := k.CreateTopic("b", 3, nil); err != nil {
		t.Fatal(err)
	}
	if err := k.CreateTopic("a", 1, nil); err != nil {
		t.Fatal(err)
	}
	cl := producer(t, k)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for i := range 100 {
		r := &kgo.Record{Topic: "b", Partition: int32(i % 3), Key: []byte("k"), Value: fmt.Append(nil, i), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	cl.ProduceSync(ctx, &kgo.Record{Topic: "a", Key: []byte("gone")})
	recs, err := k.Records(ctx)
	if err != nil || len(recs) != 101 {
		t.Fatalf("%d records, %v", len(recs), err)
	}
	if recs[0].Topic != "a" || recs[0].Value != nil {
		t.Errorf("first record %+v, want the tombstone of topic a", recs[0])
	}
	for i, r := range recs[1:] {
		part, off := 0, i
		if i >= 34 {
			part, off = 1+(i-34)/33, (i-34)%33
		}
		if int(r.Partition) != part || int(r.Offset) != off || string(r.Value) != fmt.Sprint(off*3+part) || r.Headers[0].Key != "h" {
			t.Fatalf("record %d: %+v", i, r)
		}
	}
}

func TestKafkaLosesResponsesButKeepsRecords(t *testing.T) {
	k := startKafka(t, KafkaConfig{})
	if err := k.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cl := producer(t, k, kgo.RecordRetries(0), kgo.DisableIdempotentWrite())
	k.LoseResponses(1)
	err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("answer lost")}).FirstErr()
	if err == nil {
		t.Error("the producer learnt of the record")
	}
	recs, err := k.Records(ctx, "t")
	if err != nil || len(recs) != 1 || string(recs[0].Value) != "answer lost" {
		t.Errorf("%v, %v; the record must be there", recs, err)
	}
}

func TestKafkaStopsAndComesBack(t *testing.T) {
	k := startKafka(t, KafkaConfig{})
	if err := k.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cl := producer(t, k)
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("1")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	k.Stop()
	down, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	if err := cl.Ping(down); err == nil {
		t.Error("ping of a stopped Kafka worked")
	}
	stop()
	done := make(chan error, 1)
	cl.Produce(ctx, &kgo.Record{Topic: "t", Value: []byte("2")}, func(_ *kgo.Record, err error) { done <- err })
	if err := k.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	stopFailing := k.FailProduce(-1, "t", kerr.TopicAuthorizationFailed)
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("3")}).FirstErr(); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("produce = %v, want TOPIC_AUTHORIZATION_FAILED", err)
	}
	stopFailing()
	if recs, err := k.Records(ctx, "t"); err != nil || len(recs) != 2 {
		t.Errorf("%v, %v", recs, err)
	}
}

func TestKafkaTailSeesNewTopics(t *testing.T) {
	k := startKafka(t, KafkaConfig{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	enough := errors.New("enough")
	got := make(chan error, 1)
	n := 0
	go func() {
		got <- k.Tail(ctx, func(KafkaRecord) error {
			if n++; n == 2 {
				return enough
			}
			return nil
		})
	}()
	cl := producer(t, k)
	for _, topic := range []string{"one", "two"} {
		if err := k.CreateTopic(topic, 1, nil); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-got; err != enough {
		t.Errorf("Tail = %v", err)
	}
}
