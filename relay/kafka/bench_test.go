package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"binrelay/relay"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// benchBatch is n records of about size bytes of JSON-like text.
func benchBatch(n, size int) []relay.Record {
	r := rand.New(rand.NewPCG(1, 2))
	recs := make([]relay.Record, n)
	for i := range recs {
		v := fmt.Appendf(nil, `{"op":"u","before":{"id":%d,"qty":%d},"after":{"id":%d,"qty":%d,"note":"`, r.IntN(1e6), r.IntN(100), r.IntN(1e6), r.IntN(100))
		for len(v) < size-60 {
			v = append(v, "abcdefghijklmnopqrstuvwxyz "[r.IntN(27)])
		}
		v = fmt.Appendf(v, `"},"source":{"db":"shop","ts_ms":%d}}`, 1_760_000_000_000+r.IntN(1e9))
		k := fmt.Appendf(nil, `{"id":%d}`, r.IntN(1e6))
		recs[i] = relay.Record{Topic: "bench", Key: k, Value: v, Partition: -1, Hash: k, Time: time.UnixMilli(1_760_000_000_000 + int64(i))}
	}
	return recs
}

func cpu() time.Duration {
	var ru syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// BenchmarkSend beside its floor, raw kgo with the same records, codec and batches. kfake runs in the same
// process and takes its part of the CPU of both.
func BenchmarkSend(b *testing.B) {
	for _, codec := range []string{"none", "snappy", "lz4"} {
		for _, size := range []int{200, 1000} {
			recs := benchBatch(1000, size)
			b.Run(fmt.Sprintf("kgo/%s/%d", codec, size), func(b *testing.B) { benchKgo(b, codec, recs) })
			b.Run(fmt.Sprintf("sink/%s/%d", codec, size), func(b *testing.B) { benchSink(b, codec, recs) })
		}
	}
}

func report(b *testing.B, n int, used time.Duration) {
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rec/s")
	b.ReportMetric(float64(used.Nanoseconds())/float64(n), "cpu-ns/rec")
	b.ReportMetric(0, "ns/op")
}

func benchSink(b *testing.B, codec string, recs []relay.Record) {
	c := cluster(b, kfake.NumBrokers(1), kfake.SeedTopics(12, "bench"), kfake.BlackholeProduce())
	cfg := testConfig(b, c.ListenAddrs())
	cfg.Compression, cfg.Linger = codec, 5*time.Millisecond
	s, _ := start(b, cfg)
	ctx := context.Background()
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu()
	next := uint64(1)
	for range b.N {
		for i := range recs {
			recs[i].Seq = next
		}
		if err := s.Send(ctx, &relay.Batch{First: next, Last: next, Records: recs}); err != nil {
			b.Fatal(err)
		}
		next++
	}
	if err := s.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	report(b, b.N*len(recs), cpu()-before)
}

func benchKgo(b *testing.B, codec string, recs []relay.Record) {
	c := cluster(b, kfake.NumBrokers(1), kfake.SeedTopics(12, "bench"), kfake.BlackholeProduce())
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression()}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5*time.Millisecond), kgo.ProducerBatchCompression(codecs[codec]))
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close()
	ctx := context.Background()
	var failed atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu()
	for range b.N {
		slab := make([]kgo.Record, len(recs))
		for i := range recs {
			r := &recs[i]
			slab[i] = kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Partition: partitionFor(r.Hash, 12), Timestamp: r.Time}
			cl.Produce(ctx, &slab[i], func(_ *kgo.Record, err error) {
				if err != nil {
					failed.Add(1)
				}
			})
		}
	}
	if err := cl.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if failed.Load() > 0 {
		b.Fatal(failed.Load(), " failed")
	}
	report(b, b.N*len(recs), cpu()-before)
}
