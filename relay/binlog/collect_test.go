package binlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"binrelay/functions"
	"binrelay/relay"
)

// collector is the log as Source sees it: it takes parts, drops what a First discards, and keeps what is
// readable, as text lines made by the package's own decoder.
type collector struct {
	mu       sync.Mutex
	t        testing.TB
	open     [][]byte // parts of an unfinished transaction
	lines    []string // "c t.a gtid#row {"id":1}"
	gtids    []string // of transactions with data, in order
	pos      []byte   // saved position
	parts    int
	maxPart  int
	urgent   int
	quiet    int
	decoder  relay.Decoder
	changed  chan struct{}
	seq      uint64
	undecode bool  // keep no lines: the rows cannot be decoded
	bad      error // a part that broke the rules
	ended    error // what Stream returned before it was asked to stop
}

func newCollector(t testing.TB) *collector {
	return &collector{t: t, decoder: NewDecoders(nil).New(), changed: make(chan struct{}, 1)}
}

func (c *collector) emit(p relay.Part) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.take(p)
	if err != nil && c.bad == nil {
		c.bad = err
	}
	return err
}

func (c *collector) take(p relay.Part) error {
	if p.First {
		c.open = nil
	}
	if len(p.Data) > 0 {
		h, _, gtid, _, err := parsePart(p.Data)
		if err != nil {
			return err
		}
		if first := h.Flags&partFirst != 0; first != (len(c.open) == 0) || first != p.First {
			return fmt.Errorf("part of %s: header says first %v, Part %v, %d parts open", gtid, first, p.First, len(c.open))
		}
		if last := h.Flags&partLast != 0; last == p.More {
			return fmt.Errorf("part of %s: header says last %v, More %v", gtid, last, p.More)
		}
		c.parts++
		c.maxPart = max(c.maxPart, len(p.Data))
		c.open = append(c.open, bytes.Clone(p.Data))
		if !p.More {
			c.gtids = append(c.gtids, string(gtid))
		}
	} else if len(c.open) > 0 {
		return errors.New("a transaction ends without its last part")
	} else {
		c.quiet++
	}
	if p.More != (p.Pos == nil) {
		return fmt.Errorf("More %v with position %x", p.More, p.Pos)
	}
	if p.Urgent {
		c.urgent++
	}
	if p.More {
		return nil
	}
	if _, err := parsePosition(p.Pos); err != nil {
		return err
	}
	c.pos = bytes.Clone(p.Pos)
	for _, d := range c.open {
		c.seq++
		if c.undecode {
			continue
		}
		err := c.decoder.Decode(c.seq, d, func(ch *functions.Change) error {
			c.lines = append(c.lines, line(ch))
			return nil
		})
		if err != nil {
			return err
		}
	}
	c.open = nil
	select {
	case c.changed <- struct{}{}:
	default:
	}
	return nil
}

func line(ch *functions.Change) string {
	id := ch.Source.GTID
	if id == "" {
		id = fmt.Sprintf("%s:%d", ch.Source.File, ch.Source.Pos)
	}
	if ch.Op == functions.DDL {
		return fmt.Sprintf("ddl %s %s %s", ch.Database, id, ch.Statement)
	}
	row, err := ch.Row().Image().AppendRowJSON(nil)
	if err != nil {
		row = []byte(err.Error())
	}
	return fmt.Sprintf("%s %s.%s %s#%d %s", ch.Op, ch.Table.Database, ch.Table.Name, id, ch.Source.Row, row)
}

// snapshot returns the lines so far, without ids.
func (c *collector) snapshot() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]string, len(c.lines))
	for i, l := range c.lines {
		f := strings.SplitN(l, " ", 4)
		if f[0] == "ddl" {
			out[i] = "ddl " + f[1] + " " + f[3]
			continue
		}
		_, row, _ := strings.Cut(f[2], "#")
		out[i] = f[0] + " " + f[1] + " #" + row + " " + f[3]
	}
	return out
}

// wait returns when cond holds; it fails after a minute.
func (c *collector) wait(what string, cond func() bool) {
	c.t.Helper()
	deadline := time.After(time.Minute)
	for {
		c.mu.Lock()
		ok, ended := cond(), c.ended
		c.mu.Unlock()
		if ok {
			return
		}
		if ended != nil {
			c.t.Fatalf("%s: Stream ended: %v", what, ended)
		}
		select {
		case <-c.changed:
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			c.t.Fatalf("%s: not within a minute; got %d lines, last %q", what, len(c.lines), tail(c.lines, 3))
		}
	}
}

func tail(s []string, n int) []string { return s[max(0, len(s)-n):] }

func (c *collector) rows() int {
	n := 0
	for _, l := range c.lines {
		if !strings.HasPrefix(l, "ddl ") {
			n++
		}
	}
	return n
}

// run streams into c until stop is called, which returns Stream's error.
func (c *collector) run(s *Source) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	c.mu.Lock()
	pos := bytes.Clone(c.pos)
	c.ended = nil
	c.mu.Unlock()
	go func() {
		err := s.Stream(ctx, pos, c.emit)
		c.mu.Lock()
		if ctx.Err() == nil {
			c.ended = err
		}
		c.mu.Unlock()
		done <- err
	}()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-done
		})
		return err
	}
	c.t.Cleanup(func() { stop() })
	return stop
}

// end waits for Stream to end by itself.
func (c *collector) end(s *Source) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c.mu.Lock()
	pos := bytes.Clone(c.pos)
	c.mu.Unlock()
	return s.Stream(ctx, pos, c.emit)
}
