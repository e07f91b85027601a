package handler

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"binrelay/relay"
)

// fakeRelay has the status that a test gives it.
type fakeRelay struct {
	mu              sync.Mutex
	status          relay.Status
	paused, resumed int
}

func (f *fakeRelay) Status() relay.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}
func (f *fakeRelay) Pause()  { f.mu.Lock(); f.paused++; f.mu.Unlock() }
func (f *fakeRelay) Resume() { f.mu.Lock(); f.resumed++; f.mu.Unlock() }

const token = "s3cret-token"

func newServer(f *fakeRelay, token string) *Server {
	return NewServer(ServerOptions{Relay: f, Token: token, Version: "v1", Commit: "abc", Logger: slog.New(slog.DiscardHandler)})
}

func do(h http.Handler, method, path string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func bearer(tok string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+tok) }
}

func TestReadyzSaysWhyNot(t *testing.T) {
	f := &fakeRelay{}
	h := newServer(f, "").handler(false)
	for _, tc := range []struct {
		state  relay.State
		reason string
		code   int
	}{
		{relay.Starting, "connecting to the source", 503}, {relay.Streaming, "", 200}, {relay.Paused, "paused; POST /resume goes on", 200},
		{relay.Waiting, "kafka: no broker answers", 503}, {relay.Halted, "delivery: filter: boom \xff", 503},
	} {
		f.status.State, f.status.Reason = tc.state, tc.reason
		w := do(h, "GET", "/readyz", nil)
		if w.Code != tc.code || !strings.HasPrefix(w.Body.String(), string(tc.state)) || !strings.Contains(w.Body.String(), strings.TrimSuffix(tc.reason, "\xff")) {
			t.Errorf("%s: %d %q", tc.state, w.Code, w.Body)
		}
		if w := do(h, "GET", "/healthz", nil); w.Code != 200 {
			t.Errorf("%s: /healthz %d", tc.state, w.Code)
		}
	}
}

func TestStatusIsTheContracts(t *testing.T) {
	f := &fakeRelay{status: relay.Status{
		State: relay.Halted, Reason: "delivery", Since: commit,
		Fault: &relay.Fault{Function: "filter", Table: "a.b", GTID: "0-1-2", Row: 3, Err: "boom", Hint: "mend it"},
	}}
	w := do(newServer(f, "").handler(false), "GET", "/status", nil)
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%v: %s", err, w.Body)
	}
	for path, keys := range map[string]string{
		"": "state reason source wal sink fault since", "source": "connected flavor version gtid lag_seconds",
		"wal": "first last durable bytes backlog", "sink": "acked in_flight partitions", "fault": "function table gtid row error hint",
	} {
		m := got
		if path != "" {
			m = got[path].(map[string]any)
		}
		for _, k := range strings.Fields(keys) {
			if _, ok := m[k]; !ok {
				t.Errorf("/status has no %s %s", path, k)
			}
		}
	}
	f.status.Fault = nil
	if w := do(newServer(f, "").handler(false), "GET", "/status", nil); !strings.Contains(w.Body.String(), `"fault":null`) {
		t.Errorf("no fault is not null: %s", w.Body)
	}
}

func TestPostsNeedTheToken(t *testing.T) {
	with := func(fs ...func(*http.Request)) func(*http.Request) {
		return func(r *http.Request) {
			for _, f := range fs {
				f(r)
			}
		}
	}
	header := func(k, v string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(k, v) } }
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	local := host("127.0.0.1:8080")
	for name, tc := range map[string]struct {
		token  string
		change func(*http.Request)
		code   int
	}{
		"no token configured":           {"", with(local, bearer("")), 403},
		"no token configured, some":     {"", with(local, bearer("x")), 403},
		"none sent":                     {token, local, 401},
		"wrong":                         {token, with(local, bearer("s3cret-tokeN")), 401},
		"prefix":                        {token, with(local, bearer("s3cret")), 401},
		"empty":                         {token, with(local, bearer("")), 401},
		"basic":                         {token, with(local, header("Authorization", "Basic "+token)), 401},
		"right":                         {token, with(local, bearer(token)), 200},
		"right, localhost":              {token, with(host("localhost:8080"), bearer(token)), 200},
		"right, v6":                     {token, with(host("[::1]:8080"), bearer(token)), 200},
		"lower case scheme":             {token, with(local, header("Authorization", "bearer "+token)), 200},
		"other origin":                  {token, with(local, bearer(token), header("Origin", "https://evil.example")), 403},
		"null origin":                   {token, with(local, bearer(token), header("Origin", "null")), 403},
		"cross site":                    {token, with(local, bearer(token), header("Sec-Fetch-Site", "cross-site")), 403},
		"own page":                      {token, with(local, bearer(token), header("Origin", "http://127.0.0.1:8080"), header("Sec-Fetch-Site", "same-origin")), 200},
		"rebound name":                  {token, with(host("evil.example:8080"), bearer(token)), 403},
		"rebound name, its own page":    {token, with(host("evil.example"), bearer(token), header("Origin", "http://evil.example")), 403},
		"rebound name that looks alike": {token, with(host("127.0.0.1.evil.example"), bearer(token)), 403},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeRelay{}
			h := newServer(f, tc.token).handler(true)
			for _, path := range []string{"/pause", "/resume"} {
				w := do(h, "POST", path, tc.change)
				if w.Code != tc.code {
					t.Errorf("POST %s: %d %s, want %d", path, w.Code, w.Body, tc.code)
				}
				if (w.Code == 401) != (w.Header().Get("WWW-Authenticate") != "") {
					t.Error("WWW-Authenticate does not go with 401")
				}
			}
			want := 0
			if tc.code == 200 {
				want = 1
			}
			if f.paused != want || f.resumed != want {
				t.Errorf("paused %d, resumed %d times, want %d", f.paused, f.resumed, want)
			}
		})
	}
}

func TestNothingButThePostsChangesState(t *testing.T) {
	f := &fakeRelay{}
	h := newServer(f, token).handler(true)
	for _, path := range []string{"/pause", "/resume", "/", "/status", "/readyz", "/healthz", "/metrics", "/invoke", "/x", "/pause/", "//pause", "/./pause", "/PAUSE"} {
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "POST", "BREW"} {
			if method == "POST" && (path == "/pause" || path == "/resume") {
				continue
			}
			w := do(h, method, path, func(r *http.Request) { r.Host = "localhost"; bearer(token)(r) })
			if strings.Contains(w.Body.String(), token) || strings.Contains(fmt.Sprint(w.Header()), token) {
				t.Errorf("%s %s shows the token", method, path)
			}
			if method != "GET" && method != "HEAD" && w.Code < 300 {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
		}
	}
	if f.paused+f.resumed != 0 {
		t.Errorf("paused %d, resumed %d times", f.paused, f.resumed)
	}
}

func TestEveryAnswerHasTheHeaders(t *testing.T) {
	h := newServer(&fakeRelay{}, token).handler(false)
	for _, path := range []string{"/", "/status", "/readyz", "/healthz", "/metrics", "/nothing", "/debug/pprof/"} {
		w := do(h, "GET", path, nil)
		for _, k := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Cache-Control", "Referrer-Policy"} {
			if w.Header().Get(k) == "" {
				t.Errorf("%s has no %s", path, k)
			}
		}
		if strings.Contains(path, "pprof") && w.Code != 404 {
			t.Errorf("%s on an address that others reach: %d", path, w.Code)
		}
	}
}

func TestProfilesAreForLocalhost(t *testing.T) {
	h := newServer(&fakeRelay{}, token).handler(true)
	for path, hosts := range map[string]map[string]int{
		"/debug/pprof/":             {"localhost:1": 200, "127.0.0.1:1": 200, "evil.example": 403, "10.0.0.1:80": 403},
		"/debug/pprof/goroutine":    {"localhost": 200, "evil.example": 403},
		"/debug/pprof/cmdline":      {"localhost": 404},
		"/debug/pprof/nonexistent":  {"localhost": 404},
		"/debug/pprof/profile":      {"evil.example": 403},
		"/debug/pprof/trace?x=%00y": {"evil.example": 403},
	} {
		for host, code := range hosts {
			if w := do(h, "GET", path, func(r *http.Request) { r.Host = host }); w.Code != code {
				t.Errorf("%s at %s: %d, want %d", path, host, w.Code, code)
			}
		}
	}
}

func TestPageStandsAlone(t *testing.T) {
	w := do(newServer(&fakeRelay{}, "").handler(false), "GET", "/", nil)
	body := w.Body.String()
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Fatalf("%d %s", w.Code, w.Header())
	}
	if m := regexp.MustCompile(`(?i)(src|href)\s*=\s*["']?(https?:)?//|@import|url\(|innerHTML|\son\w+=|style=`).FindString(body); m != "" {
		t.Errorf("the page has %q", m)
	}
	csp := w.Header().Get("Content-Security-Policy")
	if strings.Contains(csp, "unsafe") || strings.Count(csp, "'sha256-") != 2 || !strings.Contains(csp, "default-src 'none'") {
		t.Errorf("policy %s", csp)
	}
	if strings.Count(body, "<script") != 1 || strings.Count(body, "<style") != 1 {
		t.Error("the policy knows one script and one style")
	}
}

// serve runs the server on a socket for the length of a test.
func serve(t *testing.T, s *Server) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return ln.Addr().String()
}

func TestHostileInput(t *testing.T) {
	f := &fakeRelay{}
	addr := serve(t, newServer(f, token))
	auth := "Authorization: Bearer " + token + "\r\n"
	for name, tc := range map[string]struct {
		send string
		want string // regular expression of the first line, "" for a closed connection
	}{
		"no HTTP":         {"\x16\x03\x01\x00\xa5", `400|^$`},
		"huge header":     {"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("a", 64<<10) + "\r\n\r\n", `431`},
		"huge path":       {"GET /" + strings.Repeat("a", 64<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n", `431|414`},
		"no host":         {"GET /status HTTP/1.1\r\n\r\n", `400`},
		"bad host":        {"POST /pause HTTP/1.1\r\nHost: a b\r\n\r\n", `400`},
		"huge body":       {"POST /pause HTTP/1.1\r\nHost: localhost\r\n" + auth + "Content-Length: 10000000\r\n\r\n", `413`},
		"two lengths":     {"POST /pause HTTP/1.1\r\nHost: localhost\r\n" + auth + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", `400`},
		"minus length":    {"POST /pause HTTP/1.1\r\nHost: localhost\r\n" + auth + "Content-Length: -1\r\n\r\n", `400`},
		"path tricks":     {"POST /status/../pause HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", `30[178]`},
		"encoded path":    {"POST /%70ause%00 HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", `40[045]`},
		"connect":         {"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", `40[045]`},
		"absolute target": {"POST http://evil.example/pause HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", `403`},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			go func() { io.WriteString(c, tc.send); c.(*net.TCPConn).CloseWrite() }()
			line, _ := bufio.NewReader(c).ReadString('\n')
			if !regexp.MustCompile(tc.want).MatchString(line) {
				t.Errorf("answer %q, want %s", line, tc.want)
			}
		})
	}
	if f.paused+f.resumed != 0 {
		t.Errorf("paused %d, resumed %d times", f.paused, f.resumed)
	}
}

func TestChunkedFloodIsCut(t *testing.T) {
	f := &fakeRelay{}
	addr := serve(t, newServer(f, token))
	req, err := http.NewRequest("POST", "http://"+addr+"/pause", io.MultiReader(bytes.NewReader(make([]byte, 10<<20))))
	if err != nil {
		t.Fatal(err)
	}
	bearer("wrong")(req)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	if resp, err := tr.RoundTrip(req); err == nil { // or the connection is cut before the answer is read
		resp.Body.Close()
		if resp.StatusCode != 401 {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	if f.paused != 0 {
		t.Error("paused")
	}
}

func TestIdleConnectionsDoNotKeepOthersOut(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limit(ln, 2)
	var held []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, s)
	}
	third := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			c.Close()
		}
		third <- err
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	select {
	case <-third:
		t.Error("a third connection beyond the limit of two")
	default:
	}
	held[0].Close()
	held[0].Close() // frees one place only
	if err := <-third; err != nil {
		t.Error(err)
	}
	// A full house does not block the end.
	for range 1 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _, err := l.Accept(); third <- err }()
	l.Close()
	if err := <-third; err == nil {
		t.Error("Accept went on after Close")
	}
	held[1].Close()
}

func TestScrapesLeakNothing(t *testing.T) { // goleak looks at the end
	f := &fakeRelay{}
	addr := serve(t, newServer(f, token))
	client := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	for i := range 200 {
		path := []string{"/metrics", "/status", "/"}[i%3]
		resp, err := client.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatalf("%s: %d", path, resp.StatusCode)
		}
	}
}

// TestMetricsTable keeps the table of README.md true: each metric that /metrics shows has its row.
func TestMetricsTable(t *testing.T) {
	f := &fakeRelay{status: relay.Status{State: relay.Waiting, WAL: relay.LogStatus{Backlog: 42}, Source: relay.SourceStatus{Bytes: 7}}}
	body := do(newServer(f, "").handler(false), "GET", "/metrics", nil).Body.String()
	for _, want := range []string{`relay_state{state="waiting"} 1`, `relay_state{state="streaming"} 0`, "relay_log_backlog_entries 42", "relay_source_bytes_total 7",
		`relay_build_info{commit="abc",goversion="go`, `relay_function_calls_total{function="filter"} 0`, "go_goroutines "} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
	var have []string
	for _, m := range regexp.MustCompile(`(?m)^# HELP (relay_\w+) (.*)\n# TYPE \w+ (\w+)$`).FindAllStringSubmatch(body, -1) {
		have = append(have, fmt.Sprintf("| `%s` | %s | %s |", m[1], m[3], m[2]))
	}
	slices.Sort(have)
	readme := filepath.Join("README.md")
	b, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile("(?m)^\\| `relay_.*$").FindAllString(string(b), -1)
	if !slices.Equal(have, documented) {
		t.Errorf("README.md's table is not what /metrics shows; it should be\n%s", strings.Join(have, "\n"))
	}
}
