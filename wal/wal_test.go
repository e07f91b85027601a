package wal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if job := os.Getenv("WAL_TEST_CHILD"); job != "" {
		os.Exit(childMain(job))
	}
	// Most tests ask what is in the files, not whether the disk is quick. A test that is about the disk takes
	// diskDir instead.
	onDisk = os.TempDir()
	if fi, err := os.Stat("/dev/shm"); err == nil && fi.IsDir() && free("/dev/shm") > 1<<30 {
		os.Setenv("TMPDIR", "/dev/shm")
	}
	if os.Getenv("WAL_TEST_ALONE") != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m,
		// Badger leaves these two behind when Open fails, as it does for one kind of damage. A handle that we
		// forgot to close has eight more.
		goleak.IgnoreTopFunction("github.com/dgraph-io/badger/v4.(*DB).monitorCache"),
		goleak.IgnoreTopFunction("github.com/dgraph-io/ristretto/v2/z.(*AllocatorPool).freeupAllocators"))
}

// alone runs a test in a process of its own, where goroutines may be left behind. It is true in that process,
// which finds arg in WAL_TEST_ALONE.
func alone(t *testing.T, arg string) bool {
	t.Helper()
	if os.Getenv("WAL_TEST_ALONE") != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), "WAL_TEST_ALONE="+cmp.Or(arg, "yes"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%.4000s", err, out)
	}
	t.Logf("%s", out)
	return false
}

var onDisk string

// diskDir is a temporary directory on a real disk.
func diskDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(onDisk, "binrelay-wal-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// tiny makes everything happen after a few entries: chunks of 4 to 16 KiB, segments of 64 KiB.
func tiny() Options {
	return Options{MaxBytes: 64 << 20, MinFree: -1, SegmentBytes: 64 << 10, ChunkBytes: 4 << 10, RingBytes: 32 << 10}
}

// content is the data of entry i: a function of i alone, so that any reader can check it.
func content(i uint64, n int) []byte {
	b := make([]byte, 0, n+8)
	for x := i*0x9E3779B97F4A7C15 + 1; len(b) < n; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		if i%3 != 0 { // two of three compress
			x &= 0x0f0f0f0f0f0f0f0f
		}
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b[:n]
}

func mustOpen(t testing.TB, dir string, o Options) *Log {
	t.Helper()
	l, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func mustAppend(t testing.TB, l *Log, data, pos []byte, more bool) uint64 {
	t.Helper()
	seq, err := l.Append(context.Background(), data, pos, more)
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	return seq
}

func mustSync(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Sync(context.Background()); err != nil {
		t.Fatalf("Sync: %v", err)
	}
}

// fillLog appends n entries of size bytes, the position after entry i being "p<i>".
func fillLog(t testing.TB, l *Log, n, size int) {
	t.Helper()
	for range n {
		l.mu.Lock()
		i := l.next
		l.mu.Unlock()
		if got := mustAppend(t, l, content(i, size), fmt.Appendf(nil, "p%d", i), false); got != i {
			t.Fatalf("Append gave %d, want %d", got, i)
		}
	}
	mustSync(t, l)
}

// readFrom returns all readable entries from seq on, copied.
func readFrom(t testing.TB, l *Log, seq uint64, maxBytes int) (out []Entry) {
	t.Helper()
	out, err := tryReadFrom(l, seq, maxBytes)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	return out
}

func tryReadFrom(l *Log, seq uint64, maxBytes int) (out []Entry, err error) {
	for seq = max(seq, 1); seq <= l.Last(); {
		b, err := l.Read(context.Background(), seq, maxBytes)
		if err != nil {
			return out, err
		}
		for _, e := range b.Entries {
			out = append(out, Entry{e.Seq, bytes.Clone(e.Data)})
		}
		seq = b.Entries[len(b.Entries)-1].Seq + 1
		b.Release()
	}
	return out, nil
}

// checkRun checks that got is first..last without a gap, each with its content.
func checkRun(t testing.TB, got []Entry, first, last uint64, size int) {
	t.Helper()
	if uint64(len(got)) != last-first+1 {
		t.Fatalf("read %d entries, want %d..%d", len(got), first, last)
	}
	for i, e := range got {
		if e.Seq != first+uint64(i) || !bytes.Equal(e.Data, content(e.Seq, size)) {
			t.Fatalf("entry %d of %d..%d is wrong (seq %d, %d bytes)", i, first, last, e.Seq, len(e.Data))
		}
	}
}

func TestAppendReadReopen(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, tiny())
	if l.First() != 1 || l.Last() != 0 || l.Position() != nil {
		t.Fatalf("new log: first %d, last %d, position %q", l.First(), l.Last(), l.Position())
	}
	fillLog(t, l, 2000, 300)
	if n := l.Stats().Segments; n < 4 {
		t.Fatalf("%d segments, expected rotation", n)
	}
	checkRun(t, readFrom(t, l, 0, 64<<10), 1, 2000, 300)
	checkRun(t, readFrom(t, l, 1234, 1), 1234, 2000, 300)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, tiny())
	if got := string(l.Position()); got != "p2000" {
		t.Errorf("Position = %q, want p2000", got)
	}
	checkRun(t, readFrom(t, l, 1, 64<<10), 1, 2000, 300)
	fillLog(t, l, 100, 300)
	checkRun(t, readFrom(t, l, 1990, 5000), 1990, 2100, 300)
}

func TestPartsBecomeReadableTogether(t *testing.T) {
	l := mustOpen(t, t.TempDir(), tiny())
	mustAppend(t, l, []byte("a"), []byte("1"), false)
	for range 500 {
		mustAppend(t, l, make([]byte, 1000), []byte("never"), true)
	}
	mustSync(t, l)
	if l.Last() != 1 || string(l.Position()) != "1" || l.Durable() != 501 {
		t.Fatalf("open transaction: last %d, durable %d, position %q", l.Last(), l.Durable(), l.Position())
	}
	mustAppend(t, l, []byte("z"), []byte("2"), false)
	mustSync(t, l)
	if got := readFrom(t, l, 1, 1<<20); len(got) != 502 || l.Last() != 502 || string(l.Position()) != "2" {
		t.Fatalf("whole transaction: %d entries, last %d, position %q", len(got), l.Last(), l.Position())
	}
}

func TestTrim(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, tiny())
	fillLog(t, l, 2000, 300)
	if err := l.Trim(1000); err != nil {
		t.Fatal(err)
	}
	first := l.First()
	if first == 1 || first > 1001 {
		t.Fatalf("First = %d after Trim(1000)", first)
	}
	checkRun(t, readFrom(t, l, 0, 64<<10), first, 2000, 300)
	if err := l.Trim(1 << 60); err != nil {
		t.Fatal(err)
	}
	l.Close()
	l = mustOpen(t, dir, tiny())
	if string(l.Position()) != "p2000" || l.Last() != 2000 {
		t.Fatalf("position %q, last %d after everything was trimmed", l.Position(), l.Last())
	}
	fillLog(t, l, 10, 300)
	checkRun(t, readFrom(t, l, 2001, 1<<20), 2001, 2010, 300)
}

func TestReadWaitsForTheNextEntry(t *testing.T) {
	l := mustOpen(t, t.TempDir(), tiny())
	got := make(chan uint64)
	go func() {
		b, err := l.Read(context.Background(), 1, 1000)
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		defer b.Release()
		got <- b.Entries[0].Seq
	}()
	mustAppend(t, l, []byte("x"), nil, false)
	if seq := <-got; seq != 1 {
		t.Fatalf("read %d", seq)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(io.ErrNoProgress)
	if _, err := l.Read(ctx, 2, 1000); !errors.Is(err, io.ErrNoProgress) {
		t.Fatalf("Read under an ended context: %v", err)
	}
	go l.Close()
	if _, err := l.Read(context.Background(), 2, 1000); !errors.Is(err, ErrClosed) {
		t.Fatalf("Read on a closing log: %v", err)
	}
}

// TestConcurrentUse has several writers, readers at the tail and from the beginning, and a trimmer at once;
// it is here for the race detector as much as for its own checks.
func TestConcurrentUse(t *testing.T) {
	l := mustOpen(t, t.TempDir(), tiny())
	const writers, each = 4, 500
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				size := 200
				if i%100 == 0 {
					size = 40 << 10
				}
				data := binary.BigEndian.AppendUint64(nil, uint64(w*each+i))
				if _, err := l.Append(context.Background(), append(data, content(uint64(w*each+i), size)...), []byte("p"), false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var at [3]atomic.Uint64 // what each reader is through with
	for r := range at {
		wg.Go(func() {
			next := [writers]int{}
			for seq := uint64(1); seq <= writers*each; {
				b, err := l.Read(context.Background(), seq, 1<<(10+4*r))
				if err != nil {
					t.Error(err)
					return
				}
				for _, e := range b.Entries {
					if e.Seq != seq {
						t.Errorf("reader %d: entry %d, want %d", r, e.Seq, seq)
						return
					}
					id := binary.BigEndian.Uint64(e.Data)
					if w := id / each; int(id%each) != next[w] || !bytes.Equal(e.Data[8:], content(id, len(e.Data)-8)) {
						t.Errorf("reader %d: entry %d holds %d of writer %d, want %d", r, seq, id%each, w, next[w])
						return
					}
					next[id/each]++
					seq++
				}
				b.Release()
				at[r].Store(seq - 1)
			}
		})
	}
	trim := make(chan struct{})
	go func() {
		defer close(trim)
		for slowest := uint64(0); slowest < writers*each && !t.Failed(); {
			slowest = min(at[0].Load(), at[1].Load(), at[2].Load())
			if err := l.Trim(slowest); err != nil {
				t.Error(err)
			}
			l.Stats()
			l.Position()
			runtime.Gosched()
		}
	}()
	wg.Wait()
	<-trim
}

func TestPositionAloneBecomesDurable(t *testing.T) {
	l := mustOpen(t, t.TempDir(), tiny())
	if seq := mustAppend(t, l, nil, []byte("start"), false); seq != 0 {
		t.Fatalf("a position alone made entry %d", seq)
	}
	// Nobody calls Sync: it must go to disk by itself.
	eventually(t, "a commit", func() bool { return l.Stats().Commits > 0 })
	l2 := mustOpen(t, crash(t, l), tiny())
	if string(l2.Position()) != "start" || l2.Last() != 0 {
		t.Fatalf("position %q, last %d", l2.Position(), l2.Last())
	}
	if seq := mustAppend(t, l2, []byte("x"), nil, false); seq != 1 {
		t.Fatalf("first entry got %d", seq)
	}
	mustSync(t, l2)
	if string(l2.Position()) != "start" {
		t.Fatalf("position %q: an entry without one must leave it", l2.Position())
	}
}

// crash returns a directory as a kill -9 of l's process would leave it: nothing is closed or sealed in it.
func crash(t testing.TB, l *Log) (dir string) {
	t.Helper()
	dir = t.TempDir()
	l.closeOnce.Do(func() {
		l.halt() // so that nothing moves while we copy
		if err := os.CopyFS(dir, os.DirFS(l.dir)); err != nil {
			t.Fatal(err)
		}
		l.closeErr = l.shut()
	})
	return dir
}

func TestEntriesLargerThanAChunk(t *testing.T) {
	dir := t.TempDir()
	o := tiny()
	l := mustOpen(t, dir, o)
	sizes := []int{0, 1, 4000, 4096, 5000, 16 << 10, 100 << 10, 0, 1 << 20, 3, 300 << 10}
	check := func() {
		t.Helper()
		for _, maxBytes := range []int{1, 10 << 10, 10 << 20} {
			got := readFrom(t, l, 1, maxBytes)
			if len(got) != len(sizes) {
				t.Fatalf("%d entries, want %d", len(got), len(sizes))
			}
			for i, e := range got {
				if !bytes.Equal(e.Data, content(uint64(i+1), sizes[i])) {
					t.Fatalf("entry %d (%d bytes) differs", i+1, sizes[i])
				}
			}
		}
	}
	for i, n := range sizes {
		mustAppend(t, l, content(uint64(i+1), n), nil, n == 0) // 0 bytes: a part, or no entry would be made
	}
	mustSync(t, l)
	check()
	l.Close()
	l = mustOpen(t, dir, o)
	check()
}

func TestSecondOpenerIsRefused(t *testing.T) {
	dir := t.TempDir()
	mustOpen(t, dir, tiny())
	_, err := Open(dir, tiny())
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) ||
		!strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("second Open: %v", err)
	}
	if _, err := OpenReadOnly(dir, tiny()); !errors.Is(err, ErrLocked) {
		t.Errorf("OpenReadOnly of a log in use: %v", err)
	}
}

func TestFilesAreForTheOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	l := mustOpen(t, dir, tiny())
	fillLog(t, l, 1000, 300)
	if err := l.SetMeta("x", []byte("y")); err != nil {
		t.Fatal(err)
	}
	l.Close()
	filepath.Walk(dir, func(path string, fi os.FileInfo, err error) error {
		if err != nil {
			t.Fatal(err)
		}
		want := os.FileMode(0o600)
		if fi.IsDir() {
			want = 0o700
		}
		if fi.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, fi.Mode().Perm(), want)
		}
		return nil
	})
}
