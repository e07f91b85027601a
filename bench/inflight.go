package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"binrelay/bench/internal/delayline"
	"binrelay/bench/services"
	"binrelay/relay"
	"binrelay/relay/kafka"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	benchPartitions = 12
	valueBytes      = 200
	sendRecords     = 256 // records of one Send, as a job of the relay has them
)

// broker is what records go to.
type broker struct {
	name  string
	seeds []string
}

// inflight measures KAFKA_IN_FLIGHT 5 against 1 over round trips and batch limits: relay/kafka's sink (with its
// hand-over journal on disk) beside a bare kgo client with the same settings and records.
func (s *suite) inflight(ctx context.Context) error {
	embedded, stop, err := embeddedBroker(ctx)
	if err != nil {
		return err
	}
	defer stop()
	brokers := []broker{embedded}
	if s.real {
		k, err := services.StartKafka(ctx, services.KafkaOptions{})
		if err != nil {
			return err
		}
		defer k.Wipe()
		brokers = append(brokers, broker{"kafka", k.Seeds()})
	}
	for _, b := range brokers {
		if err := warmUp(ctx, b); err != nil {
			return err
		}
		for _, batch := range []int{16 << 10, 1_000_000} {
			for _, rtt := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
				if err := s.inflightCell(ctx, b, batch, rtt); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// inflightCell measures the four combinations of {ours, bare kgo} × {1, 5} in turns.
func (s *suite) inflightCell(ctx context.Context, b broker, batch int, rtt time.Duration) error {
	var ours, floor [2][]float64 // rows/s by in-flight 1 and 5
	var gain, floorGain []float64
	for range s.runs {
		for i, inFlight := range []int{1, 5} {
			set := settings{b, batch, rtt, inFlight}
			f, err := set.measure(ctx, s.length, set.bare)
			if err != nil {
				return fmt.Errorf("kgo, %s: %w", set, err)
			}
			o, err := set.measure(ctx, s.length, set.sink)
			if err != nil {
				return fmt.Errorf("sink, %s: %w", set, err)
			}
			floor[i], ours[i] = append(floor[i], f), append(ours[i], o)
		}
		n := len(ours[0]) - 1
		gain = append(gain, ours[1][n]/ours[0][n])
		floorGain = append(floorGain, floor[1][n]/floor[0][n])
	}
	where := fmt.Sprintf("%s, %s batches, RTT %v", b.name, size(batch), rtt)
	s.emit(measured("inflight", where+": in flight 1", "rows/s", ours[0]).over(floor[0]))
	s.emit(measured("inflight", where+": in flight 5", "rows/s", ours[1]).over(floor[1]))
	r := measured("inflight", where+": 5 over 1", "×", gain).over(floorGain)
	if rtt == 5*time.Millisecond && batch < 100_000 {
		r = r.want("≥ 4 ×, within 10 % of kgo's own", r.Value >= 4 && *r.Ratio >= 0.9)
	}
	s.emit(r)
	return nil
}

func size(n int) string {
	if n < 100_000 {
		return fmt.Sprintf("%d KB", n>>10)
	}
	return fmt.Sprintf("%d MB", n/1_000_000)
}

// settings is one way to produce.
type settings struct {
	broker
	batch    int
	rtt      time.Duration
	inFlight int
}

func (set settings) String() string {
	return fmt.Sprintf("%s, batch %d, RTT %v, in flight %d", set.name, set.batch, set.rtt, set.inFlight)
}

var topicNumber atomic.Int64

// measure makes a topic, lets produce fill it and returns the rows that arrived a second.
func (set settings) measure(ctx context.Context, d time.Duration, produce func(context.Context, string, time.Duration) (time.Duration, error)) (float64, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(set.seeds...))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	topic := fmt.Sprintf("inflight-%d", topicNumber.Add(1))
	if err := makeTopic(ctx, adm, topic, benchPartitions); err != nil {
		return 0, err
	}
	defer adm.DeleteTopics(context.WithoutCancel(ctx), topic)
	took, err := produce(ctx, topic, d)
	if err != nil {
		return 0, err
	}
	n, err := arrived(ctx, adm, topic)
	return float64(n) / took.Seconds(), err
}

// makeTopic makes a topic and waits until its partitions answer: a broker says "unknown" for up to some seconds more.
func makeTopic(ctx context.Context, adm *kadm.Client, topic string, partitions int32) error {
	if _, err := adm.CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for {
		_, err := arrived(ctx, adm, topic)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// arrived counts the records that Kafka holds.
func arrived(ctx context.Context, adm *kadm.Client, topics ...string) (int64, error) {
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return 0, err
	}
	var n int64
	ends.Each(func(o kadm.ListedOffset) { n += max(o.Offset, 0) })
	return n, ends.Error()
}

// bare is the floor: a kgo client and nothing else. It returns how long it took from the first record to the
// last acknowledgement; making the client and the first look at the topic are left out, as in sink.
func (set settings) bare(ctx context.Context, topic string, d time.Duration) (time.Duration, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(set.seeds...), kgo.Dialer(delayline.Dialer(set.rtt)), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(int32(set.batch)), kgo.ProducerLinger(5 * time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(100_000), kgo.DefaultProduceTopic(topic)}
	if set.inFlight == 1 { // an idempotent client has five, and nothing else
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	if err := cl.ProduceSync(ctx, &kgo.Record{Value: []byte("first")}).FirstErr(); err != nil {
		return 0, err
	}
	var failed atomic.Pointer[error]
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.CompareAndSwap(nil, &err)
		}
	}
	start := time.Now()
	var seq uint64
	for ctx.Err() == nil && time.Since(start) < d {
		for range sendRecords {
			key, value := row(seq)
			cl.Produce(ctx, &kgo.Record{Key: key, Value: value, Partition: int32(seq % benchPartitions)}, promise)
			seq++
		}
	}
	if err := cl.Flush(ctx); err != nil {
		return 0, err
	}
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return time.Since(start), nil
}

// sink produces through relay/kafka, as the relay does.
func (set settings) sink(ctx context.Context, topic string, d time.Duration) (time.Duration, error) {
	dir, err := os.MkdirTemp("", "binrelay-bench")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	delivery := kafka.ExactlyOnce
	if set.inFlight == 1 {
		delivery = kafka.AtLeastOnce
	}
	k, err := kafka.New(kafka.Config{Brokers: set.seeds, Compression: "none", Linger: 5 * time.Millisecond, BatchMaxBytes: set.batch,
		InFlight: set.inFlight, Delivery: delivery, StateDir: dir, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		KgoOpts: []kgo.Opt{kgo.Dialer(delayline.Dialer(set.rtt))}})
	if err != nil {
		return 0, err
	}
	if _, err := k.Start(ctx); err != nil {
		return 0, err
	}
	defer k.Close(ctx)
	if n, err := k.Partitions(ctx, topic); err != nil || n != benchPartitions {
		return 0, errors.Join(err, fmt.Errorf("topic %s has %d partitions", topic, n))
	}
	var seq uint64
	send := func(n int) error {
		b := &relay.Batch{First: seq + 1, Last: seq + uint64(n), Records: make([]relay.Record, n)}
		for i := range b.Records {
			key, value := row(seq)
			b.Records[i] = relay.Record{Topic: topic, Key: key, Value: value, Partition: int32(seq % benchPartitions), Seq: seq + 1}
			seq++
		}
		return k.Send(ctx, b)
	}
	if err := send(1); err != nil {
		return 0, err
	}
	if err := k.Flush(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	for ctx.Err() == nil && time.Since(start) < d {
		if err := send(sendRecords); err != nil {
			return 0, err
		}
	}
	if err := k.Flush(ctx); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}

var filler = slices.Repeat([]byte("0123456789abcdefghijklmnopqrstuvwxyz "), valueBytes/37+1)[:valueBytes]

func row(seq uint64) (key, value []byte) {
	b := make([]byte, 8+valueBytes)
	binary.BigEndian.PutUint64(b, seq)
	copy(b[8:], filler)
	return b[:8:8], b[8:]
}

// warmUp produces for two seconds: a JVM measured cold would be measured wrong.
func warmUp(ctx context.Context, b broker) error {
	set := settings{b, 1_000_000, 0, 5}
	_, err := set.measure(ctx, 2*time.Second, set.bare)
	return err
}
