package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"binrelay/relay"
	"binrelay/relay/relaytest"

	"github.com/docker/go-units"
)

// screen shows the demo's records as a consumer sees them arrive.
type screen struct {
	out    io.Writer
	colour bool

	mu    sync.Mutex
	shown uint64
	more  chan struct{} // closed and replaced at each record
	last  struct {      // at the summary before
		records uint64
		at      time.Time
	}
}

func newScreen(out io.Writer, colour bool) *screen {
	s := &screen{out: out, colour: colour, more: make(chan struct{})}
	s.last.at = time.Now()
	return s
}

func (s *screen) title(c *Config, mysql, brokers, dir, http string, ends time.Duration) {
	how := "Ctrl-C stops it."
	if ends > 0 {
		how = fmt.Sprintf("Ends after %v.", ends)
	}
	fmt.Fprintf(s.out, "A shop trades on an embedded MySQL at %s; the relay copies its changes to an embedded Kafka at %s.\nLog: %s. ",
		hostOf(mysql), brokers, dir)
	if http != "" {
		fmt.Fprintf(s.out, "Status page: http://%s/ ", http)
	}
	fmt.Fprintf(s.out, "%s\n\n%s\n", how, s.paint(dim, row("time", "op", "table", "key", "partition", "offset", "commit to consumer")))
}

// change is what the screen looks at in a record of FORMAT=json.
type change struct {
	Op     string
	Source struct {
		DB, Table string
		TSMillis  int64 `json:"ts_ms"`
	}
}

var ops = map[string]struct{ word, colour string }{
	"c": {"insert", green}, "u": {"update", yellow}, "d": {"delete", red}, "ddl": {"ddl", dim},
}

// record prints one record. A function may have given it any shape: then there is less to show.
func (s *screen) record(r relaytest.KafkaRecord) error {
	now := time.Now()
	var c change
	json.Unmarshal(r.Value, &c)
	op, ok := ops[c.Op]
	if !ok {
		op.word = "record"
		if r.Value == nil {
			op.word = "tombstone"
		}
	}
	// The record's time is the commit's, in milliseconds; a clock may be coarser than the path is fast.
	latency := max(0, now.Sub(r.Time)).Round(time.Millisecond)
	table := r.Topic
	if c.Source.Table != "" {
		table = c.Source.DB + "." + c.Source.Table
	}
	key := string(bytes.ToValidUTF8(r.Key, []byte("?")))
	if r.Key == nil {
		key = "-"
	}
	line := row(now.Format("15:04:05.000"), op.word, table, key, fmt.Sprint(r.Partition), fmt.Sprint(r.Offset), latency.String())

	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.out, s.paint(op.colour, line))
	s.shown++
	close(s.more)
	s.more = make(chan struct{})
	return nil
}

func row(at, op, table, key, partition, offset, latency string) string {
	return fmt.Sprintf("%-12s  %-9s  %-17s  %-26s  %9s  %6s  %s", at, op, table, key, partition, offset, latency)
}

// await returns when n records were shown, or none has come for a while.
func (s *screen) await(n uint64) {
	for {
		s.mu.Lock()
		shown, more := s.shown, s.more
		s.mu.Unlock()
		if shown >= n {
			return
		}
		select {
		case <-more:
		case <-time.After(2 * time.Second):
			return
		}
	}
}

// sumUp prints a summary line now and then until ctx ends.
func (s *screen) sumUp(ctx context.Context, every time.Duration, status func() relay.Status) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.summary(status())
		}
	}
}

// summary is one line about the relay, and another when it does not stream.
func (s *screen) summary(st relay.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	rate := float64(st.Sink.Records-s.last.records) / max(now.Sub(s.last.at).Seconds(), 1e-3)
	s.last.records, s.last.at = st.Sink.Records, now
	fmt.Fprintln(s.out, s.paint(dim, fmt.Sprintf("── %d rows, %d records, %.1f/s, lag %.1f s, backlog %d, log %s ──",
		st.Rows.Handled, st.Sink.Records, rate, st.Source.LagSeconds, st.WAL.Backlog, units.BytesSize(float64(st.WAL.Bytes)))))
	if st.State != relay.Streaming && st.Reason != "" && st.State != relay.Starting {
		fmt.Fprintln(s.out, s.paint(red, fmt.Sprintf("── %s: %s ──", st.State, st.Reason)))
	}
}

func (s *screen) paint(colour, text string) string {
	if !s.colour || colour == "" {
		return text
	}
	return colour + text + plain
}

// hostOf is the address in a URL, without user and password.
func hostOf(url string) string { return url[strings.LastIndexByte(url, '@')+1:] }
