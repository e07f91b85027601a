package services

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

//go:embed srcdb
var srcdbScript []byte

//go:embed kafka
var kafkaScript []byte

// The scripts take at most this long: a first download over a slow line included.
const scriptTimeout = 15 * time.Minute

// run executes one of the two scripts and returns what it printed on stdout. Its error ends with the last
// lines of stderr, where the scripts say what is wrong and what to do.
func run(ctx context.Context, script []byte, env []string, args ...string) (string, error) {
	name := "kafka"
	if &script[0] == &srcdbScript[0] {
		name = "srcdb"
	}
	path, err := unpack(name, script)
	if err != nil {
		return "", err
	}
	ctx, stop := context.WithTimeout(ctx, scriptTimeout)
	defer stop()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = 5 * time.Second
	// Its own group: Ctrl-C in a terminal must not kill a half-done "wipe".
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, lastLines(errOut.String(), 12))
	}
	return out.String(), nil
}

var unpackMu sync.Mutex

// unpack writes a script where it can be executed: a test binary has no directory of its own.
func unpack(name string, script []byte) (string, error) {
	unpackMu.Lock()
	defer unpackMu.Unlock()
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	sum := sha256.Sum256(script)
	path := filepath.Join(dir, "binrelay", "scripts", fmt.Sprintf("%s-%x", name, sum[:6]))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(tmp, script, 0o755); err != nil {
		return "", err
	}
	return path, os.Rename(tmp, path)
}

func lastLines(s string, n int) string {
	l := strings.Split(strings.TrimSpace(s), "\n")
	if len(l) > n {
		l = l[len(l)-n:]
	}
	return strings.Join(l, "\n")
}

// vars reads NAME=value lines, as both scripts' env command prints them. None of the values that are used
// holds a character that bash would quote.
func vars(s string) map[string]string {
	m := map[string]string{}
	for line := range strings.SplitSeq(s, "\n") {
		if k, v, ok := strings.Cut(line, "="); ok {
			m[k] = strings.Trim(v, "'")
		}
	}
	return m
}

var nextInstance struct {
	sync.Mutex
	n int
}

// instanceName is unique among all that run at the same time: the pid says whose it is, so that the next
// run can clear away what a killed one left.
func instanceName(kind string) string {
	nextInstance.Lock()
	defer nextInstance.Unlock()
	nextInstance.n++
	return fmt.Sprintf("run%d-%d-%s", os.Getpid(), nextInstance.n, strings.ReplaceAll(kind, ".", ""))
}

var reaped sync.Map // script name → *sync.Once

// reap wipes instances of runs whose process is gone (killed, or timed out by go test).
func reap(ctx context.Context, script []byte) {
	once, _ := reaped.LoadOrStore(&script[0], new(sync.Once))
	once.(*sync.Once).Do(func() {
		out, err := run(ctx, script, nil, "list")
		if err != nil {
			return // it cleans up only; what is wrong shows at the real call
		}
		for line := range strings.SplitSeq(out, "\n") {
			name, _, _ := strings.Cut(line, "\t")
			owner, _, ok := strings.Cut(strings.TrimPrefix(name, "run"), "-")
			pid, err := strconv.Atoi(owner)
			if !strings.HasPrefix(name, "run") || !ok || err != nil {
				continue
			}
			if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
				run(ctx, script, nil, "wipe", name)
			}
		}
	})
}

// Ports below the range that the kernel gives to clients, so that no outgoing connection takes one.
const (
	firstPort = 20000
	lastPort  = 32000
)

// FreePorts finds n ports in a row on 127.0.0.1 that nothing listens on, and claims them against other
// processes that use this package, for as long as this process lives.
func FreePorts(n int) (int, error) {
	dir := filepath.Join(os.TempDir(), "binrelay-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return 0, err
	}
	const block = 50 // a Kafka instance takes up to 50
	if n > block {
		return 0, fmt.Errorf("%d ports in a row: at most %d", n, block)
	}
	// Begin at a place of our own: fewer collisions on the claim files.
	start := os.Getpid() % ((lastPort - firstPort) / block)
	for i := range (lastPort - firstPort) / block {
		base := firstPort + block*((start+i)%((lastPort-firstPort)/block))
		f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(base)), os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			continue
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil || !allFree(base, n) {
			f.Close()
			continue
		}
		claims.Lock()
		claims.files = append(claims.files, f) // the lock ends with the process
		claims.Unlock()
		return base, nil
	}
	return 0, errors.New("no free ports between 20000 and 32000 on 127.0.0.1")
}

var claims struct {
	sync.Mutex
	files []*os.File
}

func allFree(base, n int) bool {
	for p := base; p < base+n; p++ {
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(p))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}
