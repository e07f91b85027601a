// Package relayproc builds the relay and runs it as a process, as a user would: environment in, log lines,
// HTTP answers and an exit code out. Nothing of the relay's own code is used.
package relayproc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Build compiles cmd/relay into dir and returns the program's path. Further flags go to go build ("-race").
func Build(ctx context.Context, dir string, flags ...string) (string, error) {
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(here), "../../..")
	path := filepath.Join(dir, "relay")
	args := append([]string{"build", "-o", path}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/relay")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/relay: %w: %s", err, out)
	}
	return path, nil
}

// Process is one running (or ended) relay.
type Process struct {
	cmd  *exec.Cmd
	http string
	log  logBuffer
	done chan struct{}

	mu   sync.Mutex
	peak Memory
	code int
}

// Memory of a process in KiB, from /proc/PID/status.
type Memory struct {
	HighWater int // VmHWM: the peak of the resident set, mapped files included
	Anonymous int // largest RssAnon seen: what is really its own
}

// Max is the larger of both, field by field.
func (m Memory) Max(o Memory) Memory {
	return Memory{max(m.HighWater, o.HighWater), max(m.Anonymous, o.Anonymous)}
}

// Start runs `path run` with exactly env, plus PATH, HOME and TMPDIR: the relay takes unknown variables of its
// prefixes for mistakes, so none of ours may reach it.
func Start(path string, env map[string]string, args ...string) (*Process, error) {
	if len(args) == 0 {
		args = []string{"run"}
	}
	p := &Process{http: env["HTTP_ADDR"], done: make(chan struct{})}
	p.cmd = exec.Command(path, args...)
	for _, k := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(k); ok {
			p.cmd.Env = append(p.cmd.Env, k+"="+v)
		}
	}
	for k, v := range env {
		p.cmd.Env = append(p.cmd.Env, k+"="+v)
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	// A relay must not outlive a benchmark that was killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// Pdeathsig is tied to the thread that forks, so that thread stays until the process has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		stop := make(chan struct{})
		var sampler sync.WaitGroup
		sampler.Go(func() { p.sample(stop) })
		p.cmd.Wait() // its error is the exit code
		close(stop)
		sampler.Wait()
		st := p.cmd.ProcessState
		p.mu.Lock()
		// Not SysUsage's Maxrss: it begins with what the parent had at the fork.
		p.code = st.ExitCode()
		p.mu.Unlock()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return p, nil
}

func (p *Process) sample(stop <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		p.measure()
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

func (p *Process) measure() {
	m := ReadMemory(p.PID())
	p.mu.Lock()
	p.peak = p.peak.Max(m)
	p.mu.Unlock()
}

// ReadMemory reads a process' memory; zero when it is gone.
func ReadMemory(pid int) Memory {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	field := func(name string) int {
		_, rest, ok := strings.Cut(string(b), name+":")
		if !ok {
			return 0
		}
		f := strings.Fields(rest)
		n, _ := strconv.Atoi(f[0])
		return n
	}
	return Memory{field("VmHWM"), field("RssAnon")}
}

// CPU is the user and system time that a living process has used.
func CPU(pid int) time.Duration {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * (time.Second / 100) // USER_HZ is 100 on Linux
}

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Peak memory so far.
func (p *Process) Peak() Memory { p.mu.Lock(); defer p.mu.Unlock(); return p.peak }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exited reports whether it has ended.
func (p *Process) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// ExitCode of an ended process; -1 when a signal ended it.
func (p *Process) ExitCode() int { p.mu.Lock(); defer p.mu.Unlock(); return p.code }

// Log is all that it printed.
func (p *Process) Log() string { return p.log.String() }

// Kill sends SIGKILL and waits for the end.
func (p *Process) Kill() {
	if !p.Exited() {
		p.measure()
	}
	p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.done
}

// Stop sends SIGTERM and waits; after d it gives up with an error, and kills.
func (p *Process) Stop(d time.Duration) error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(d):
		p.Kill()
		return fmt.Errorf("the relay did not end %v after SIGTERM; its last lines:\n%s", d, Tail(p.Log(), 8))
	}
}

// Status is the part of GET /status that tests look at.
type Status struct {
	State  string `json:"state"`
	Reason string `json:"reason"`
	Source struct {
		Connected bool   `json:"connected"`
		GTID      string `json:"gtid"`
	} `json:"source"`
	WAL struct {
		First   uint64 `json:"first"`
		Last    uint64 `json:"last"`
		Durable uint64 `json:"durable"`
		Bytes   int64  `json:"bytes"`
		Backlog uint64 `json:"backlog"`
	} `json:"wal"`
	Sink struct {
		Acked   uint64 `json:"acked"`
		Records uint64 `json:"records"` // acknowledged to this process
	} `json:"sink"`
	Fault json.RawMessage `json:"fault"`
}

var httpClient = &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Get fetches a path over HTTP; code 0 when nothing answers.
func (p *Process) Get(path string) (code int, body string) {
	r, err := httpClient.Get("http://" + p.http + path)
	if err != nil {
		return 0, ""
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(r.Body, 8<<20))
	return r.StatusCode, string(b)
}

// Status asks /status.
func (p *Process) Status() (Status, error) {
	var s Status
	code, body := p.Get("/status")
	if code != http.StatusOK {
		return s, fmt.Errorf("/status answers %d", code)
	}
	return s, json.Unmarshal([]byte(body), &s)
}

// Until asks /status until ok says yes. It fails when the process ends or ctx does.
func (p *Process) Until(ctx context.Context, what string, ok func(Status) bool) (Status, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last Status
	for {
		s, err := p.Status()
		if err == nil {
			if last = s; ok(s) {
				return s, nil
			}
		}
		select {
		case <-p.done:
			return last, fmt.Errorf("waiting until %s: the relay ended with code %d; its last lines:\n%s", what, p.ExitCode(), Tail(p.Log(), 8))
		case <-ctx.Done():
			return last, fmt.Errorf("waiting until %s: %w; last status: %+v; its last lines:\n%s", what, context.Cause(ctx), last, Tail(p.Log(), 8))
		case <-tick.C:
		}
	}
}

// Ready waits until /readyz says 200.
func (p *Process) Ready(ctx context.Context) error {
	_, err := p.Until(ctx, "the relay is ready", func(Status) bool {
		code, _ := p.Get("/readyz")
		return code == http.StatusOK
	})
	return err
}

// Tail is the last n lines of a text.
func Tail(s string, n int) string {
	l := strings.Split(strings.TrimSpace(s), "\n")
	if len(l) > n {
		l = l[len(l)-n:]
	}
	return strings.Join(l, "\n")
}

const maxLog = 16 << 20 // a relay that logs without end must not take the memory of its test

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() > maxLog {
		return 0, errors.New("more than 16 MiB of log")
	}
	return l.b.Write(b)
}

func (l *logBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }
