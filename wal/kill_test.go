package wal

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

var kills = flag.Int("wal.kills", 210, "SIGKILLs of TestKill")

// child starts this test binary as a writer of dir.
func child(t testing.TB, job, dir string, seed uint64, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "WAL_TEST_CHILD="+job, "WAL_TEST_DIR="+dir, fmt.Sprint("WAL_TEST_SEED=", seed),
		"GORACE=atexit_sleep_ms=0") // or a child that is through waits a second to be killed
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// follower keeps what children said about a log.
type follower struct {
	acked, trimmed uint64
	recovered      int
}

// line takes one line of a child. A line cut by the kill may say anything, so only whole ones count.
func (f *follower) line(t testing.TB, line string) {
	t.Helper()
	var a, b uint64
	switch {
	case strings.HasPrefix(line, "R "):
		if n, _ := fmt.Sscanf(line, "R %d %d", &a, &b); n != 2 {
			return
		}
		f.recovered++
		if b < f.acked {
			t.Errorf("entries up to %d were durable, %d are left", f.acked, b)
		}
		if a > f.trimmed {
			t.Errorf("entries from %d on are there, trimmed was up to %d only", a+1, f.trimmed)
		}
		f.acked = b
	case strings.HasPrefix(line, "A "):
		if n, _ := fmt.Sscanf(line, "A %d", &a); n == 1 {
			f.acked = max(f.acked, a)
		}
	case strings.HasPrefix(line, "T "):
		if n, _ := fmt.Sscanf(line, "T %d", &a); n == 1 {
			f.trimmed = max(f.trimmed, a)
		}
	case strings.HasPrefix(line, "E "):
		t.Errorf("child: %s", line)
	}
}

// TestKill kills writers at random moments, in opening, committing, rotating, sealing, trimming and closing,
// and lets the next one check what is there.
func TestKill(t *testing.T) {
	const logs = 3
	for n := range logs {
		t.Run(fmt.Sprint("log", n), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := rand.New(rand.NewPCG(uint64(n), uint64(time.Now().UnixNano())))
			var env []string
			if n == 0 {
				env = append(env, "WAL_TEST_CRYPT=1")
			}
			var f follower
			killed, left, from := 0, 0, time.Now()
			for killed < (*kills+logs-1)/logs && !t.Failed() {
				cmd, out := child(t, "append", dir, r.Uint64(), env...)
				var timer *time.Timer
				kill := func(d time.Duration) {
					timer = time.AfterFunc(d, func() { cmd.Process.Kill() })
				}
				early := r.IntN(4) == 0 // while it opens and recovers
				if early {
					kill(time.Duration(r.IntN(60)) * time.Millisecond)
				}
				for out.Scan() {
					f.line(t, out.Text())
					if timer == nil && strings.HasPrefix(out.Text(), "R ") {
						kill(time.Duration(r.IntN(70)) * time.Millisecond)
					}
				}
				err := cmd.Wait()
				if timer != nil {
					timer.Stop()
				}
				switch {
				case err == nil:
					left++
				case cmd.ProcessState.ExitCode() == -1:
					killed++
				default:
					t.Errorf("child: %v", err)
				}
			}
			t.Logf("%d kills, %d closed by themselves, %d recoveries checked, %d entries, %d trimmed, %v",
				killed, left, f.recovered, f.acked, f.trimmed, time.Since(from).Round(time.Millisecond))
		})
	}
}
