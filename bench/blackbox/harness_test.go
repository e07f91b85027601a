package blackbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"binrelay/bench/internal/relayproc"
	"binrelay/bench/services"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The relay's own account has a password that can be looked for in all that it shows.
const (
	user   = "bb_relay"
	secret = "Sesame-4711-geheim"
)

// patience bounds every wait for an event; no test asserts how long one takes.
const patience = 2 * time.Minute

var shared struct {
	relay string
	kafka func() (*services.Kafka, error)
	db    map[string]func() (*services.DB, error)
}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "binrelay-blackbox")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	if shared.relay, err = relayproc.Build(ctx, dir); err != nil {
		fmt.Println(err)
		return 1
	}
	var wipe []func() error
	var mu sync.Mutex
	defer func() {
		for _, w := range wipe {
			w()
		}
	}()
	shared.kafka = sync.OnceValues(func() (*services.Kafka, error) {
		k, err := services.StartKafka(ctx, services.KafkaOptions{Auth: true, FastStart: true})
		if err == nil {
			mu.Lock()
			wipe = append(wipe, k.Wipe)
			mu.Unlock()
		}
		return k, err
	})
	shared.db = map[string]func() (*services.DB, error){}
	for _, kind := range []string{"mysql", "mariadb"} {
		shared.db[kind] = sync.OnceValues(func() (*services.DB, error) {
			d, err := services.StartDatabase(ctx, kind)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			wipe = append(wipe, d.Wipe)
			mu.Unlock()
			return d, d.Exec("SET sql_log_bin=0", "CREATE USER '"+user+"'@'%' IDENTIFIED BY '"+secret+"'",
				"GRANT SELECT, RELOAD, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '"+user+"'@'%'",
				"CREATE USER 'weak'@'%' IDENTIFIED BY '"+secret+"'", "GRANT SELECT ON *.* TO 'weak'@'%'",
				"SET sql_log_bin=1", "CREATE DATABASE bb", "CREATE TABLE bb.t (id INT PRIMARY KEY, v VARCHAR(20))")
		})
	}
	return m.Run()
}

// world is the shared servers and one relay to be started.
type world struct {
	t     *testing.T
	db    *services.DB
	kafka *services.Kafka
	env   map[string]string
}

func setUp(t *testing.T, kind string) *world {
	t.Helper()
	services.Need(t)
	db, err := shared.db[kind]()
	if err != nil {
		t.Fatal(err)
	}
	k, err := shared.kafka()
	if err != nil {
		t.Fatal(err)
	}
	port, err := services.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, db, k, map[string]string{
		"MYSQL_URL": db.URLAs(user, secret), "KAFKA_BROKERS": k.Brokers, "WAL_DIR": filepath.Join(t.TempDir(), "wal"),
		"HTTP_ADDR": "127.0.0.1:" + strconv.Itoa(port), "TABLES": "bb.*", "LOG_FORMAT": "text",
		"TOPIC": strings.NewReplacer("/", ".", " ", "-").Replace(t.Name()),
	}}
}

// on runs a test on both flavours.
func on(t *testing.T, fn func(t *testing.T, w *world)) {
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) { fn(t, setUp(t, kind)) })
	}
}

// onOne runs a test that has nothing to do with the flavour on the faster server.
func onOne(t *testing.T, fn func(t *testing.T, w *world)) { fn(t, setUp(t, "mariadb")) }

// set changes the environment of the relay to be started; an empty value removes the variable.
func (w *world) set(pairs ...string) *world {
	c := *w
	c.env = maps.Clone(w.env)
	for i := 0; i < len(pairs); i += 2 {
		if c.env[pairs[i]] = pairs[i+1]; pairs[i+1] == "" {
			delete(c.env, pairs[i])
		}
	}
	return &c
}

func (w *world) exec(statements ...string) {
	w.t.Helper()
	if err := w.db.Exec(statements...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) start() *relayproc.Process {
	w.t.Helper()
	p, err := relayproc.Start(shared.relay, w.env)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		p.Kill()
		w.noSecret(p)
	})
	return p
}

func (w *world) noSecret(p *relayproc.Process) {
	w.t.Helper()
	for _, s := range []string{secret, "wrong-" + secret[:6]} {
		if strings.Contains(p.Log(), s) {
			w.t.Errorf("the secret %q is in the relay's output:\n%s", s, p.Log())
		}
	}
	if strings.Contains(p.Log(), "goroutine ") {
		w.t.Errorf("the relay panicked:\n%s", p.Log())
	}
}

// fails runs the relay until it ends by itself and checks exit code and message.
func (w *world) fails(code int, message string) {
	w.t.Helper()
	p := w.start()
	select {
	case <-p.Done():
	case <-time.After(patience):
		_, status := p.Get("/status")
		w.t.Fatalf("the relay still runs; want exit %d with a message like %s\n/status: %s\nlog:\n%s", code, message, status, p.Log())
	}
	if p.ExitCode() != code {
		w.t.Errorf("exit code %d, want %d", p.ExitCode(), code)
	}
	if !regexp.MustCompile("(?i)" + message).MatchString(p.Log()) {
		w.t.Errorf("no message like %s in:\n%s", message, p.Log())
	}
	// One clear message: not the same again and again, not a page.
	if n := strings.Count(strings.TrimSpace(p.Log()), "\n"); n > 12 {
		w.t.Errorf("%d lines for one mistake:\n%s", n+1, p.Log())
	}
}

func (w *world) until(p *relayproc.Process, what string, ok func(relayproc.Status) bool) relayproc.Status {
	w.t.Helper()
	ctx, stop := context.WithTimeoutCause(w.t.Context(), patience, errors.New("patience is over"))
	defer stop()
	s, err := p.Until(ctx, what, ok)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// waits checks that the relay neither ends nor halts, says what it waits for, and is not ready.
func (w *world) waits(p *relayproc.Process, reason string) {
	w.t.Helper()
	re := regexp.MustCompile("(?is)" + reason)
	w.until(p, "it waits because of "+reason, func(s relayproc.Status) bool { return s.State == "waiting" && re.MatchString(s.Reason) })
	if code, body := p.Get("/readyz"); code != 503 || !re.MatchString(body) {
		w.t.Errorf("/readyz: %d %s, want 503 and %s", code, body, reason)
	}
	if code, _ := p.Get("/healthz"); code != 200 {
		w.t.Errorf("/healthz: %d while waiting, want 200: an orchestrator would restart it for nothing", code)
	}
}

// arrives waits for a record whose value has text in it.
func (w *world) arrives(text string) {
	w.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Seeds()...), kgo.ConsumeTopics(w.env["TOPIC"]), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		w.t.Fatal(err)
	}
	defer cl.Close()
	ctx, stop := context.WithTimeout(w.t.Context(), patience)
	defer stop()
	for ctx.Err() == nil {
		found := false
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { found = found || strings.Contains(string(r.Value), text) })
		if found {
			return
		}
	}
	w.t.Fatalf("no record with %s came to topic %s", text, w.env["TOPIC"])
}

// ready waits for /readyz.
func (w *world) ready(p *relayproc.Process) {
	w.t.Helper()
	ctx, stop := context.WithTimeoutCause(w.t.Context(), patience, errors.New("patience is over"))
	defer stop()
	if err := p.Ready(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// connected waits until the source streams; the sink may be waiting.
func (w *world) connected(p *relayproc.Process) {
	w.t.Helper()
	w.until(p, "the source is connected", func(s relayproc.Status) bool { return s.Source.Connected })
}
