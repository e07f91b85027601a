package wal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// eventually polls until ok; what it waits for must come, the limit is only there to end a broken run.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(60 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// pump appends numbered entries until ctx ends and returns how many are in the log.
func pump(ctx context.Context, t *testing.T, l *Log, from uint64, size int) chan uint64 {
	done := make(chan uint64, 1)
	go func() {
		i := from
		for {
			seq, err := l.Append(ctx, content(i, size), fmt.Appendf(nil, "p%d", i), false)
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("Append: %v", err)
				}
				done <- i - 1
				return
			}
			if seq != i {
				t.Errorf("Append = %d, want %d", seq, i)
			}
			i++
		}
	}()
	return done
}

func TestFullLogWaitsForTrim(t *testing.T) {
	dir := t.TempDir()
	o := tiny()
	o.MaxBytes = 24 << 20
	o.SegmentBytes = 1 << 20
	l := mustOpen(t, dir, o)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := pump(ctx, t, l, 1, 2000)
	seq := uint64(1)
	for range 3 {
		eventually(t, "the log is full", func() bool { return l.Stats().Full != "" })
		if n := allocated(dir); n > o.MaxBytes {
			t.Errorf("the log takes %d bytes, more than MaxBytes", n)
		}
		last := l.Last()
		got := readFrom(t, l, seq, 1<<20)
		checkRun(t, got, seq, seq+uint64(len(got))-1, 2000)
		seq += uint64(len(got))
		if err := l.Trim(seq - 1); err != nil {
			t.Fatal(err)
		}
		eventually(t, "appends go on after Trim", func() bool { return l.Last() > last+100 })
	}
	cancel()
	<-done
	t.Log(l.Stats().Bytes, "bytes at the end")
}

// TestOpenTransactionPassesMaxBytes: its parts cannot be trimmed, so waiting for Trim would be for ever.
func TestOpenTransactionPassesMaxBytes(t *testing.T) {
	dir := t.TempDir()
	o := tiny()
	o.MaxBytes = 8 << 20
	o.SegmentBytes = 1 << 20
	l := mustOpen(t, dir, o)
	const parts = 20_000
	for i := range uint64(parts) {
		mustAppend(t, l, content(i+1, 1000), []byte("end"), i < parts-1)
	}
	mustSync(t, l)
	if n := allocated(dir); n < o.MaxBytes {
		t.Fatalf("only %d bytes, the test proves nothing", n)
	}
	checkRun(t, readFrom(t, l, 1, 1<<20), 1, parts, 1000)
	// And one that is given up after it filled the log must not block the next.
	for range parts {
		mustAppend(t, l, content(1, 1000), nil, true)
	}
	if err := l.Abandon(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := l.Trim(parts); err != nil {
		t.Fatal(err)
	}
	eventually(t, "void segments go", func() bool { return l.Stats().Segments <= 2 })
	seq := mustAppend(t, l, []byte("next"), []byte("p"), false)
	mustSync(t, l)
	if got := readFrom(t, l, 1, 1<<20); seq != 2*parts+1 || len(got) != 1 || got[0].Seq != seq {
		t.Fatalf("entry %d; read %d entries", seq, len(got))
	}
	l.Close()
	l = mustOpen(t, dir, o)
	if got := readFrom(t, l, 1, 1<<20); len(got) != 1 || got[0].Seq != seq {
		t.Fatalf("after reopening: %d entries", len(got))
	}
}

// TestCancelledAppendLeavesNoTrace ends an Append that has already put half of its entry on disk.
func TestCancelledAppendLeavesNoTrace(t *testing.T) {
	dir := t.TempDir()
	o := tiny()
	o.MaxBytes = 8 << 20
	o.SegmentBytes = 1 << 20
	l := mustOpen(t, dir, o)
	mustAppend(t, l, []byte("one"), []byte("p1"), false)
	mustAppend(t, l, []byte("two"), nil, true) // a part; then the disk "fills" in the middle of the next
	l.mu.Lock()
	l.o.MinFree = 1 << 60
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error)
	go func() {
		_, err := l.Append(ctx, content(3, 30<<20), []byte("p3"), false)
		failed <- err
	}()
	eventually(t, "the append waits", func() bool { return l.Stats().Full != "" })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatalf("Append = %v", err)
	}
	l.mu.Lock()
	l.o.MinFree = 0
	l.mu.Unlock()
	seq := mustAppend(t, l, []byte("four"), []byte("p4"), false) // ends the transaction of "two"
	mustSync(t, l)
	check := func(l *Log) {
		t.Helper()
		got := readFrom(t, l, 1, 1<<20)
		if len(got) != 3 || string(got[1].Data) != "two" || string(got[2].Data) != "four" || got[2].Seq != seq || seq != 4 {
			t.Fatalf("read %d entries, the last is %d", len(got), seq)
		}
		if string(l.Position()) != "p4" {
			t.Errorf("position %q", l.Position())
		}
	}
	check(l)
	copied := crash(t, l)
	check(mustOpen(t, copied, o))
	check(mustOpen(t, dir, o))
}

// smallDisk mounts a tmpfs of so many bytes.
func smallDisk(t *testing.T, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=0700", bytes), "tmpfs", dir).CombinedOutput()
	if err != nil {
		need(t, "mount a tmpfs", fmt.Errorf("%w: %s", err, out))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// need skips a test that asks for more than this machine allows, loudly, and never in CI.
func need(t *testing.T, what string, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("cannot %s: %v", what, err)
	}
	t.Skipf("NOT TESTED: cannot %s: %v", what, err)
}

// keeperIdle: the next segment is there, the old ones are sealed, the trimmed ones gone.
func keeperIdle(l *Log) bool {
	trash, _ := filepath.Glob(filepath.Join(l.dir, trashPrefix+"*"))
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segs {
		if s != l.active && !s.sealed {
			return false
		}
	}
	return len(l.spare) == 1 && len(trash) == 0 && l.droppable() == nil
}

func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
}

// TestFullDisk drives a log on a disk that someone else fills to the last byte: appending, rotating, sealing,
// closing, opening, reading and trimming on it, and going on once there is room. Badger alone dies of a
// SIGBUS at each of these steps.
func TestFullDisk(t *testing.T) {
	disk := os.Getenv("WAL_TEST_ALONE")
	if disk == "" {
		disk = smallDisk(t, 64<<20)
	}
	if !alone(t, disk) {
		return // a segment that cannot be closed for want of a block stays open to the end of the process
	}
	dir, filler := filepath.Join(disk, "wal"), filepath.Join(disk, "filler")
	o := Options{MaxBytes: 1 << 30, MinFree: -1, SegmentBytes: 2 << 20, ChunkBytes: 16 << 10, RingBytes: 64 << 10}
	l := mustOpen(t, dir, o)
	ctx, cancel := context.WithCancel(context.Background())
	done := pump(ctx, t, l, 1, 3000)
	eventually(t, "some segments", func() bool { return l.Stats().Segments > 4 })
	cancel()
	next := <-done + 1
	// Not in the very moment in which a segment is closed: nothing can keep others from taking blocks that
	// were free a millisecond ago. (The process dies then, and the next one recovers: see TestKill.)
	eventually(t, "the keeper is idle", func() bool { return keeperIdle(l) })
	fillDisk(t, filler)
	ctx, cancel = context.WithCancel(context.Background())
	done = pump(ctx, t, l, next, 3000)
	eventually(t, "the log waits for space", func() bool { return l.Stats().Full != "" })
	cancel()
	appended := <-done
	last := l.Last()
	checkRun(t, readFrom(t, l, 1, 1<<20), 1, last, 3000)
	if err := l.Close(); err != nil {
		t.Fatalf("Close on a full disk: %v", err)
	}
	l = mustOpen(t, dir, o)
	if l.Last() < last || l.Last() > appended {
		t.Fatalf("last = %d, it was %d", l.Last(), last)
	}
	last = l.Last()
	checkRun(t, readFrom(t, l, 1, 1<<20), 1, last, 3000)
	fillDisk(t, filler+"2") // what closing gave back
	ctx, cancel = context.WithCancel(context.Background())
	done = pump(ctx, t, l, last+1, 3000)
	eventually(t, "the log waits again", func() bool { return l.Stats().Full != "" })
	if err := l.Trim(last); err != nil {
		t.Fatalf("Trim on a full disk: %v", err)
	}
	eventually(t, "trimmed space is used", func() bool { return l.Last() > last+1000 })
	os.Remove(filler)
	os.Remove(filler + "2")
	eventually(t, "the log goes on", func() bool { return l.Last() > last+5000 })
	cancel()
	<-done
	mustSync(t, l)
	got := readFrom(t, l, last+1, 1<<20)
	checkRun(t, got, last+1, l.Last(), 3000)
}

func TestUnusableDirectories(t *testing.T) {
	t.Run("full disk", func(t *testing.T) {
		disk := smallDisk(t, 4<<20)
		fillDisk(t, filepath.Join(disk, "filler"))
		_, err := Open(filepath.Join(disk, "wal"), Options{})
		wantError(t, err, disk, "full", "free")
		os.Remove(filepath.Join(disk, "filler"))
		_, err = Open(filepath.Join(disk, "wal"), Options{})
		wantError(t, err, disk, "256 MiB must stay free")
	})
	t.Run("read-only file system", func(t *testing.T) {
		disk := smallDisk(t, 32<<20)
		dir := filepath.Join(disk, "wal")
		o := tiny()
		l := mustOpen(t, dir, o)
		fillLog(t, l, 500, 300)
		l.Close()
		if out, err := exec.Command("mount", "-o", "remount,ro", disk).CombinedOutput(); err != nil {
			need(t, "remount read-only", fmt.Errorf("%w: %s", err, out))
		}
		_, err := Open(dir, o)
		wantError(t, err, dir, "read-only")
		_, err = Open(filepath.Join(disk, "new"), o)
		wantError(t, err, disk, "read-only")
		// Looking at it needs no write.
		if r, err := Verify(dir, o, nil); err != nil || r.Last != 500 {
			t.Errorf("Verify on a read-only disk: last %d, %v", r.Last, err)
		}
		l, err = OpenReadOnly(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		checkRun(t, readFrom(t, l, 1, 1<<20), 1, 500, 300)
		l.Close()
	})
	t.Run("not a directory", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		os.WriteFile(path, nil, 0o600)
		_, err := Open(path, tiny())
		wantError(t, err, path, "not a directory")
	})
	t.Run("no log there", func(t *testing.T) {
		dir := t.TempDir()
		_, err := OpenReadOnly(dir, tiny())
		wantError(t, err, dir, "no log here")
		_, err = Stat(filepath.Join(dir, "nowhere"))
		wantError(t, err, "nowhere", "no log here")
	})
	t.Run("no permission", func(t *testing.T) {
		dir := t.TempDir()
		os.Chmod(dir, 0o755)
		cmd, out := child(t, "open", dir, 0, "WAL_TEST_UID=65534")
		out.Scan()
		wantError(t, errors.New(out.Text()), dir, "may not write")
		cmd.Wait()
	})
}

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Error("no error")
		return
	}
	found := false
	for i, w := range words {
		has := strings.Contains(err.Error(), w)
		if i == 0 && !has {
			t.Errorf("%q does not name %s", err, w)
		}
		found = found || i > 0 && has
	}
	if !found {
		t.Errorf("%q says none of %q", err, words[1:])
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is more than one line", err)
	}
}
