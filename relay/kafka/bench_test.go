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
func benchBatch(seed uint64, n, size int) []relay.Record {
	r := rand.New(rand.NewPCG(seed, 2))
	recs := make([]relay.Record, n)
	row := func(v []byte) []byte {
		v = fmt.Appendf(v, `{"id":%d,"customer":%d,"status":"%s","qty":%d,"price":"%d.%02d","created":"2026-11-%02d %02d:%02d:%02d"`,
			r.IntN(1e6), r.IntN(1e5), []string{"new", "paid", "sent"}[r.IntN(3)], r.IntN(100), r.IntN(900), r.IntN(100), 1+r.IntN(30), r.IntN(24), r.IntN(60), r.IntN(60))
		for c := 0; len(v) < size/2-80; c++ {
			v = fmt.Appendf(v, `,"column_%d":"%x"`, c, r.Uint64())
		}
		return append(v, '}')
	}
	for i := range recs {
		v := append([]byte(`{"op":"u","before":`), row(nil)...)
		v = append(row(append(v, `,"after":`...)), fmt.Sprintf(`,"source":{"db":"shop","table":"orders","gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:%d","ts_ms":%d}}`, i, 1_760_000_000_000+r.IntN(1e9))...)
		k := fmt.Appendf(nil, `{"id":%d}`, r.IntN(1e6))
		recs[i] = relay.Record{Topic: "bench", Key: k, Value: v, Partition: -1, Hash: k, Time: time.UnixMilli(1_760_000_000_000 + int64(i))}
	}
	return recs
}

// cpu is what the process has used, and how much of it in the kernel.
func cpu() (all, kernel time.Duration) {
	var ru syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), time.Duration(ru.Stime.Nano())
}

// BenchmarkSend beside its floor, raw kgo with the same records, codec and batches. kfake runs in the same
// process and takes its part of the CPU of both.
func BenchmarkSend(b *testing.B) {
	for _, codec := range []string{"none", "snappy", "lz4"} {
		for _, size := range []int{200, 1000} {
			// As many different batches as keep them out of the processor's caches, as rows are that were just decoded.
			recs := make([][]relay.Record, (40<<20)/(1000*size))
			for i := range recs {
				recs[i] = benchBatch(uint64(i), 1000, size)
			}
			b.Run(fmt.Sprintf("kgo/%s/%d", codec, size), func(b *testing.B) { benchKgo(b, codec, recs) })
			b.Run(fmt.Sprintf("sink/%s/%d", codec, size), func(b *testing.B) { benchSink(b, codec, recs) })
		}
	}
}

func report(b *testing.B, n int, before, kernel time.Duration) {
	used, k := cpu()
	used -= before
	b.ReportMetric(float64((k-kernel).Nanoseconds())/float64(n), "kernel-ns/rec")
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rec/s")
	b.ReportMetric(float64(used.Nanoseconds())/float64(n), "cpu-ns/rec")
	b.ReportMetric(0, "ns/op")
}

func benchSink(b *testing.B, codec string, all [][]relay.Record) {
	c := cluster(b, kfake.NumBrokers(1), kfake.SeedTopics(12, "bench"), kfake.BlackholeProduce())
	cfg := testConfig(b, c.ListenAddrs())
	cfg.Compression, cfg.Linger = codec, 5*time.Millisecond
	s, _ := start(b, cfg)
	ctx := context.Background()
	b.ReportAllocs()
	b.ResetTimer()
	before, kernel := cpu()
	next := uint64(1)
	for range b.N {
		recs := all[int(next)%len(all)]
		if err := s.Send(ctx, &relay.Batch{First: next, Last: next, Records: recs}); err != nil {
			b.Fatal(err)
		}
		next++
	}
	if err := s.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	report(b, b.N*1000, before, kernel)
}

func benchKgo(b *testing.B, codec string, all [][]relay.Record) {
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
	before, kernel := cpu()
	for n := range b.N {
		recs := all[n%len(all)]
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
	report(b, b.N*1000, before, kernel)
}
