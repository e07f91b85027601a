//go:build linux

package wal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestSwallowedSyncErrorStopsTheLog: Badger logs that the value log could not be synced, and returns nil.
func TestSwallowedSyncErrorStopsTheLog(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, tiny())
	fillLog(t, l, 100, 300)
	l.active.store.logger.Errorf("Error while curlf sync: %v\n", unix.EIO)
	_, err := l.Append(context.Background(), []byte("x"), []byte("px"), false)
	if err == nil {
		err = l.Sync(context.Background())
	}
	var failed *FailedError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("after a failed sync: %v", err)
	}
	for range 2 { // for good
		if _, err := l.Append(context.Background(), []byte("y"), nil, false); !errors.As(err, &failed) {
			t.Fatalf("Append = %v", err)
		}
	}
	if l.Stats().Err == nil {
		t.Error("Stats does not say so")
	}
	checkRun(t, readFrom(t, l, 1, 1<<20), 1, 100, 300) // what is durable can still be delivered
	if _, err := l.Read(context.Background(), 101, 1); !errors.As(err, &failed) {
		t.Errorf("Read behind the end = %v", err)
	}
	if err := l.Close(); !errors.As(err, &failed) {
		t.Errorf("Close = %v", err)
	}
	l = mustOpen(t, dir, tiny())
	got := readFrom(t, l, 1, 1<<20)
	checkRun(t, got[:100], 1, 100, 300)
	fillLog(t, l, 10, 300)
}

// TestFailingDisk lets the kernel answer EIO to a sync in the middle of the work of a child, in each of its
// two places, and wants the child to stop and all that it acknowledged to be there.
func TestFailingDisk(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		need(t, "find strace (apt-get install strace)", err)
	}
	for _, when := range []string{"30", "31", "30+", "77+2"} {
		t.Run(when, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command(strace, "-f", "-q", "-o", "/dev/null", "-e", "trace=msync",
				"-e", "inject=msync:error=EIO:when="+when, os.Args[0])
			cmd.Env = append(os.Environ(), "WAL_TEST_CHILD=append", "WAL_TEST_DIR="+dir, "WAL_TEST_SEED=1")
			out, err := cmd.CombinedOutput()
			if strings.Contains(string(out), "ptrace") {
				need(t, "trace a process", fmt.Errorf("%w: %s", err, out))
			}
			var f follower
			stopped := false
			for line := range strings.Lines(string(out)) {
				if strings.HasPrefix(line, "E ") {
					stopped = true
					if !strings.Contains(line, "did not reach the disk") {
						t.Errorf("child: %s", line)
					}
					continue
				}
				f.line(t, line)
			}
			if !stopped || f.acked == 0 {
				t.Fatalf("the child went on (%v), acked %d:\n%.500s", err, f.acked, out)
			}
			again, lines := child(t, "append", dir, 2)
			for lines.Scan() {
				f.line(t, lines.Text())
				if strings.HasPrefix(lines.Text(), "R ") {
					again.Process.Kill()
				}
			}
			again.Wait()
			if f.recovered != 2 {
				t.Errorf("%d recoveries", f.recovered)
			}
		})
	}
}

// TestPowerCut takes the power from an ext4 in the middle of the work of a child: what was not flushed is
// gone, and every later write fails. All that was acknowledged must be there after a remount.
func TestPowerCut(t *testing.T) {
	img := filepath.Join(diskDir(t), "disk")
	mnt := t.TempDir()
	if err := os.WriteFile(img, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(img, 96<<20); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			need(t, "make an ext4 of a file", fmt.Errorf("%s: %w: %s", name, err, out))
		}
	}
	run("mkfs.ext4", "-q", "-F", img)
	mounted := false
	mount := func() { t.Helper(); run("mount", "-o", "loop", img, mnt); mounted = true }
	umount := func() {
		t.Helper()
		eventually(t, "umount", func() bool { return exec.Command("umount", mnt).Run() == nil })
		mounted = false
	}
	t.Cleanup(func() {
		if mounted {
			umount()
		}
	})
	mount()
	var f follower
	for round := range 5 {
		cmd, out := child(t, "append", filepath.Join(mnt, "wal"), uint64(round))
		lines, cut := 0, false
		for out.Scan() {
			line := out.Text()
			if cut && strings.HasPrefix(line, "E ") {
				continue // of course
			}
			f.line(t, line)
			if lines++; lines == 40+30*round {
				cut = true
				d, err := os.Open(mnt)
				if err != nil {
					t.Fatal(err)
				}
				how := uint32(2) // without flushing the journal
				_, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), 0x8004587D, uintptr(unsafe.Pointer(&how)))
				d.Close()
				if errno != 0 {
					need(t, "cut the power of an ext4", errno)
				}
			}
		}
		cmd.Wait() // by an error, or by a SIGBUS where a page had no place any more
		umount()
		mount()
	}
	if f.recovered != 5 || f.acked < 100 {
		t.Errorf("%d recoveries, %d entries", f.recovered, f.acked)
	}
	t.Logf("%d power cuts, %d entries acknowledged at the end", 5, f.acked)
}

// TestNothingLeaksOverRotations watches what 300 segments leave behind.
func TestNothingLeaksOverRotations(t *testing.T) {
	o := tiny()
	o.SegmentBytes = 32 << 10
	l := mustOpen(t, t.TempDir(), o)
	var goroutines, files int
	for round := range 30 {
		for range 10 {
			segs := l.active
			for l.active == segs {
				fillLog(t, l, 20, 1000)
			}
		}
		read := readFrom(t, l, 0, 64<<10)
		if err := l.Trim(read[len(read)-1].Seq); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the keeper is idle", func() bool { return keeperIdle(l) && l.Stats().Segments <= 2 })
		switch round {
		case 2:
			goroutines, files = runtime.NumGoroutine(), openFiles(t)
		case 29:
			if g, f := runtime.NumGoroutine(), openFiles(t); g > goroutines+2 || f > files+2 {
				t.Errorf("goroutines %d → %d, files %d → %d", goroutines, g, files, f)
			}
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		need(t, "read /proc", err)
	}
	return len(fds)
}

// TestSecondProcessIsRefused is the lock between processes: named while it is held, gone with kill -9.
func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	cmd, out := child(t, "hold", dir, 0)
	out.Scan()
	if _, err := Open(dir, tiny()); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(cmd.Process.Pid)) {
		t.Errorf("Open = %v, want the pid %d", err, cmd.Process.Pid)
	}
	if _, err := Verify(dir, tiny(), nil); !errors.Is(err, ErrLocked) {
		t.Errorf("Verify = %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	mustOpen(t, dir, tiny())
}
