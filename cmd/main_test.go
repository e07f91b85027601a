package cmd

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"binrelay/functions"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be the relay, for tests that need a process.
func TestMain(m *testing.M) {
	if os.Getenv(beRelay) != "" {
		os.Unsetenv(beRelay)
		Main(functions.Set{})
	}
	goleak.VerifyTestMain(m)
}

const beRelay = "BE_RELAY"

// run is one command in this process.
func run(t *testing.T, environ map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := &program{args: args, environ: environ, stdout: &out, stderr: &errs}
	code = p.main(t.Context())
	return code, out.String(), errs.String()
}

func TestCommandLine(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"version"}, 0, runtime.Version(), ""},
		{[]string{"help"}, 0, "Usage: relay <command>", ""},
		{[]string{"--help"}, 0, "wal verify", ""},
		{[]string{"help", "wal", "dump"}, 0, "--from=SEQ", ""},
		{[]string{"wal"}, 2, "", `see "relay help"`},
		{[]string{"rnu"}, 2, "", "rnu"},
		{[]string{"run", "--fast"}, 2, "", "--fast"},
		{[]string{"wal", "dump", "--from", "x"}, 2, "", "--from"},
		{[]string{"wal", "stat", "--dir", "/no/such"}, 1, "", "there is no log here"},
		{nil, 2, "", "MYSQL_URL: required, but not set\n  KAFKA_BROKERS: required, but not set\n"},
		{[]string{"run"}, 2, "", "mistakes in the configuration: 2\n"},
		{[]string{"check"}, 2, "", "MYSQL_URL: required"},
	} {
		code, stdout, stderr := run(t, nil, tt.args...)
		if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("relay %q = %d, want %d\nstdout %s\nwant   %s\nstderr %s\nwant   %s", tt.args, code, tt.code, stdout, tt.stdout, stderr, tt.stderr)
		}
	}
}

func TestHealthz(t *testing.T) {
	answer := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(answer)
		fmt.Fprintln(w, "text")
	}))
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	check := func(addr string, want int) {
		t.Helper()
		if code, _, stderr := run(t, map[string]string{"HTTP_ADDR": addr}, "healthz"); code != want {
			t.Errorf("healthz at %q with status %d = %d, want %d: %s", addr, answer, code, want, stderr)
		}
	}
	check("127.0.0.1:"+port, 0)
	check("0.0.0.0:"+port, 0)
	check("", 0)
	check("nonsense", 2)
	answer = http.StatusInternalServerError
	check("127.0.0.1:"+port, 1)
	server.Close()
	check("127.0.0.1:"+port, 1)
	http.DefaultClient.CloseIdleConnections()
}

// process is the relay as a process of its own.
type process struct {
	*exec.Cmd
	out  *output
	done chan struct{}
	temp string // its TMPDIR
}

// output collects what a process prints, and lets tests wait for a text in it.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Write(p)
	close(o.more)
	o.more = make(chan struct{})
	return len(p), nil
}

func (o *output) String() string { o.mu.Lock(); defer o.mu.Unlock(); return o.b.String() }

// patience bounds waiting for events; no test measures time.
const patience = time.Minute

func start(t *testing.T, environ map[string]string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(self, args...), out: &output{more: make(chan struct{})}, done: make(chan struct{}), temp: t.TempDir()}
	p.Env = append(p.Env, beRelay+"=1", "PATH="+os.Getenv("PATH"), "TMPDIR="+p.temp)
	for k, v := range environ {
		p.Env = append(p.Env, k+"="+v)
	}
	p.Stdout, p.Stderr = p.out, p.out
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.Wait(); close(p.done) }()
	t.Cleanup(func() { p.Process.Kill(); <-p.done })
	return p
}

// sees waits until the process has printed text.
func (p *process) sees(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		p.out.mu.Lock()
		found, more := strings.Contains(p.out.b.String(), text), p.out.more
		p.out.mu.Unlock()
		if found {
			return
		}
		select {
		case <-more:
		case <-p.done:
			t.Fatalf("the relay ended without printing %q:\n%s", text, p.out)
		case <-deadline:
			t.Fatalf("the relay does not print %q:\n%s", text, p.out)
		}
	}
}

// ends waits for the end of the process and returns its exit code.
func (p *process) ends(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("the relay does not end:\n%s", p.out)
	}
	return p.ProcessState.ExitCode()
}

// nobody is an environment whose servers are not there, with markers for secrets.
func nobody(t *testing.T) map[string]string {
	return map[string]string{
		"MYSQL_URL": "mysql://u:" + marker + "@127.0.0.1:1", "KAFKA_BROKERS": "127.0.0.1:1", "ADMIN_TOKEN": marker,
		"KAFKA_SASL_MECHANISM": "PLAIN", "KAFKA_SASL_USERNAME": "u", "KAFKA_SASL_PASSWORD": marker,
		"WAL_DIR": filepath.Join(t.TempDir(), "wal"), "HTTP_ADDR": "127.0.0.1:0", "LOG_LEVEL": "debug", "SHUTDOWN_TIMEOUT": "2s",
	}
}

func TestServersNotThereAreWaitedFor(t *testing.T) {
	p := start(t, nobody(t))
	p.sees(t, "127.0.0.1:1: connect: connection refused")
	p.sees(t, "retry_in")
	p.Process.Signal(syscall.SIGTERM)
	if code := p.ends(t); code != 0 {
		t.Errorf("exit code after SIGTERM = %d, want 0:\n%s", code, p.out)
	}
	leaks(t, p.out.String())
}

func TestSecondRelayOnOneLog(t *testing.T) {
	environ := nobody(t)
	p := start(t, environ)
	p.sees(t, "retry_in")
	q := start(t, environ)
	if code := q.ends(t); code != 1 || !strings.Contains(q.out.String(), "in use") {
		t.Errorf("second relay: exit code %d, want 1:\n%s", code, q.out)
	}
	code, _, stderr := run(t, environ, "wal", "stat")
	if code != 1 || !strings.Contains(stderr, "stop that relay first") {
		t.Errorf("wal stat of a log in use = %d: %s", code, stderr)
	}
	leaks(t, p.out.String()+q.out.String())
}

func TestUnusableWALDir(t *testing.T) {
	file := write(t, "")
	for dir, want := range map[string]string{file: "not a directory", file + "/x": "not a directory", "/proc/x": ""} {
		environ := nobody(t)
		environ["WAL_DIR"] = dir
		if code, _, stderr := run(t, environ, "run"); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("WAL_DIR=%s: exit code %d, want 1: %s", dir, code, stderr)
		}
	}
}

func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	environ := nobody(t)
	environ["HTTP_ADDR"] = l.Addr().String()
	if code, _, stderr := run(t, environ, "run"); code != 1 || !strings.Contains(stderr, "HTTP_ADDR: ") {
		t.Errorf("exit code %d, want 1: %s", code, stderr)
	}
}

func TestCheckWithoutServers(t *testing.T) {
	environ := nobody(t)
	code, stdout, stderr := run(t, environ, "check")
	if code != 1 || !strings.Contains(stdout, "STOP     mysql") || !strings.Contains(stdout, "STOP     kafka") {
		t.Errorf("check = %d, want 1:\n%s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(environ["WAL_DIR"]); err == nil {
		t.Error("check has made WAL_DIR")
	}
	leaks(t, stdout+stderr)
}

// Functions and children must not find secrets in the process's environment.
func TestSecretsLeaveTheEnvironment(t *testing.T) {
	environ := maps.Clone(with("ADMIN_TOKEN", marker))
	for k, v := range environ {
		t.Setenv(k, v)
	}
	forget()
	for _, name := range SecretNames() {
		if v, ok := os.LookupEnv(name); ok {
			t.Errorf("%s is still set: %s", name, v)
		}
	}
	if os.Getenv("KAFKA_BROKERS") == "" {
		t.Error("KAFKA_BROKERS is gone too")
	}
}

func TestSecondSignalLeavesAtOnce(t *testing.T) {
	var stderr output
	stderr.more = make(chan struct{})
	left := make(chan int, 1)
	p := &program{stderr: &stderr, exit: func(code int) { left <- code }}
	ctx, stop := p.untilSignal()
	defer stop()
	self, _ := os.FindProcess(os.Getpid())
	self.Signal(syscall.SIGTERM)
	select {
	case <-ctx.Done():
	case <-time.After(patience):
		t.Fatal("the first SIGTERM ends nothing")
	}
	self.Signal(syscall.SIGTERM)
	select {
	case code := <-left:
		if code != exitFault {
			t.Errorf("exit code = %d, want %d", code, exitFault)
		}
	case <-time.After(patience):
		t.Fatal("the second SIGTERM ends nothing")
	}
}
