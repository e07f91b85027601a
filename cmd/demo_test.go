package cmd

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// The demo is the whole product: a record of every kind must come out of it, and nothing stay behind.
func TestDemoEndsByItself(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	code, stdout, stderr := run(t, map[string]string{"HTTP_ADDR": "127.0.0.1:0"}, "demo", "--for", "4s", "--rate", "200")
	if code != 0 {
		t.Fatalf("relay demo = %d\n%s%s", code, stdout, stderr)
	}
	for _, want := range []string{
		`insert     shop\.customers +\{"id":1\} +\d+ +\d+ `, `update     shop\.orders `, `delete     shop\.order_lines `,
		`Status page: http://127\.0\.0\.1:\d+/`, `── \d+ rows, \d+ records, .*backlog 0, log `,
	} {
		if !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("no line like %q in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "\x1b[") {
		t.Error("colours where nobody looks")
	}
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if stderr != "" {
		t.Errorf("complaints:\n%s", stderr)
	}
}

func TestDemoStopsAtASignal(t *testing.T) {
	environ := map[string]string{"HTTP_ADDR": "127.0.0.1:0"}
	p := start(t, environ, "demo")
	p.sees(t, `insert     shop.`)
	address := regexp.MustCompile(`http://[0-9.:]+/`).FindString(p.out.String())
	if address == "" {
		t.Fatalf("no status page in\n%s", p.out)
	}
	var status struct {
		State string
		Sink  struct{ Records int }
	}
	for status.State != "streaming" || status.Sink.Records == 0 { // it has delivered; the process is watched by sees
		resp, err := http.Get(address + "status")
		if err != nil {
			t.Fatal(err)
		}
		err = json.NewDecoder(resp.Body).Decode(&status)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	resp, err := http.Get(address + "metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"relay_log_append_duration_seconds", "relay_sink_produce_duration_seconds"} {
		if !regexp.MustCompile(name + `_count [1-9]`).Match(metrics) {
			t.Errorf("%s observed nothing", name)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	p.Process.Signal(syscall.SIGINT)
	if code := p.ends(t); code != 0 {
		t.Errorf("exit code after Ctrl-C = %d, want 0:\n%s", code, p.out)
	}
	if left, _ := filepath.Glob(filepath.Join(p.temp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
