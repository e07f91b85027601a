//go:build linux

package wal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rows are entries as a binlog has them: half text, half noise.
func rows(n, size int) [][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([][]byte, n)
	for i := range out {
		b := fmt.Appendf(nil, `{"id":%d,"tenant":%d,"status":"active","email":"user%d@example.com","note":"`,
			r.IntN(1e9), r.IntN(5000), r.IntN(1e7))
		for len(b) < size {
			if r.IntN(2) == 0 {
				b = strconv.AppendUint(b, r.Uint64(), 36)
			} else {
				b = append(b, " customer updated the shipping address "...)
			}
		}
		out[i] = b[:size:size]
	}
	return out
}

// BenchmarkAppend is one writer flat out, with a reader at the tail that trims behind itself; b.N entries
// are durable at the end. BenchmarkFloor is the same bytes by the same group commit into preallocated files
// with pwrite and fdatasync: what a log without Badger, checksums, compression and a reader would do.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{200, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchAppend(b, size, Options{}) })
	}
	b.Run("200-encrypted", func(b *testing.B) { benchAppend(b, 200, Options{Key: make([]byte, 32)}) })
}

func benchAppend(b *testing.B, size int, o Options) {
	var commits int
	var worst time.Duration
	o.OnCommit = func(d time.Duration, _, _ int) { commits++; worst = max(worst, d) }
	l := mustOpen(b, diskDir(b), o)
	data := rows(4096, size)
	ctx, cancel := context.WithCancel(context.Background())
	var end sync.WaitGroup
	end.Go(func() {
		for seq, trim := uint64(1), uint64(0); ; {
			batch, err := l.Read(ctx, seq, 1<<20)
			if err != nil {
				return
			}
			seq = batch.Entries[len(batch.Entries)-1].Seq + 1
			batch.Release()
			if (seq-trim)*uint64(size) > 64<<20 {
				trim = seq
				if err := l.Trim(seq - 1); err != nil {
					b.Error(err)
				}
			}
		}
	})
	b.SetBytes(int64(size))
	pos := make([]byte, 60)
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	cpu := cpuTime()
	b.ResetTimer()
	for i := range b.N {
		if _, err := l.Append(ctx, data[i%len(data)], pos, false); err != nil {
			b.Fatal(err)
		}
	}
	mustSync(b, l)
	b.StopTimer()
	runtime.ReadMemStats(&m1)
	b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(m1.Mallocs-m0.Mallocs)/float64(b.N), "mallocs/op")
	b.ReportMetric(float64(b.N)/float64(max(commits, 1)), "entries/commit")
	b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
	b.ReportMetric(float64(residentKB("RssAnon"))/1024, "anon-MB")
	b.ReportMetric(float64(residentKB("RssFile"))/1024, "file-MB")
	cancel()
	end.Wait()
	l.Close()
}

func BenchmarkFloor(b *testing.B) {
	for _, size := range []int{200, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchFloor(b, size) })
	}
}

func benchFloor(b *testing.B, size int) {
	const chunkMax, fileMax = 256 << 10, 64 << 20
	dir := diskDir(b)
	data := rows(4096, size)
	full := make(chan []byte, 1)
	empty := make(chan []byte, 2)
	for range 2 {
		empty <- make([]byte, 0, chunkMax)
	}
	var end sync.WaitGroup
	end.Go(func() {
		var f *os.File
		off, files := int64(fileMax), 0
		for c := range full {
			if off+int64(len(c)) > fileMax {
				if f != nil {
					f.Close()
					os.Remove(f.Name())
				}
				var err error
				if f, err = os.Create(filepath.Join(dir, fmt.Sprint(files))); err != nil {
					b.Error(err)
					return
				}
				if err := fallocate(f, fileMax); err != nil {
					b.Error(err)
				}
				files++
				off = 0
			}
			if _, err := f.WriteAt(c, off); err != nil {
				b.Error(err)
			}
			off += int64(len(c))
			if err := unix.Fdatasync(int(f.Fd())); err != nil {
				b.Error(err)
			}
			empty <- c[:0]
		}
		if f != nil {
			f.Close()
		}
	})
	b.SetBytes(int64(size))
	cpu := cpuTime()
	b.ResetTimer()
	cur := <-empty
	for i := range b.N {
		d := data[i%len(data)]
		if len(cur)+len(d)+4 > chunkMax {
			full <- cur
			cur = <-empty
		}
		cur = append(append(cur, byte(len(d)), byte(len(d)>>8), 0, 0), d...)
	}
	full <- cur
	close(full)
	end.Wait()
	b.StopTimer()
	b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
}

// BenchmarkCatchUp reads a log from the beginning, from disk.
func BenchmarkCatchUp(b *testing.B) {
	const size, n = 500, 200_000
	l := mustOpen(b, diskDir(b), Options{RingBytes: 1})
	data := rows(4096, size)
	for i := range n {
		mustAppend(b, l, data[i%len(data)], nil, false)
	}
	mustSync(b, l)
	b.SetBytes(size)
	b.ReportAllocs()
	b.ResetTimer()
	seq := uint64(1)
	for i := 0; i < b.N; {
		batch, err := l.Read(context.Background(), seq, 256<<10)
		if err != nil {
			b.Fatal(err)
		}
		i += len(batch.Entries)
		seq = batch.Entries[len(batch.Entries)-1].Seq + 1
		if seq > n {
			seq = 1
		}
		batch.Release()
	}
	b.StopTimer()
	b.ReportMetric(float64(residentKB("RssFile"))/1024, "file-MB")
}

// BenchmarkSync is the latency of one durable entry at a time.
func BenchmarkSync(b *testing.B) {
	l := mustOpen(b, diskDir(b), Options{})
	data := rows(1, 200)[0]
	b.ResetTimer()
	for range b.N {
		mustAppend(b, l, data, nil, false)
		mustSync(b, l)
	}
}

func cpuTime() time.Duration {
	var ru syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// residentKB is a line of /proc/self/status, 0 where there is none.
func residentKB(field string) int {
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			n, _ := strconv.Atoi(strings.Fields(v)[0])
			return n
		}
	}
	return 0
}
