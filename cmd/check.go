package cmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"binrelay/relay/binlog"
	"binrelay/relay/kafka"
)

// checkTimeout bounds what is asked of both servers together.
const checkTimeout = time.Minute

// check is the command "relay check": the configuration, then the live servers, a line for each thing.
// It changes nothing, neither there nor here.
func (p *program) check(ctx context.Context) error {
	c, err := ParseConfig(p.environ)
	if err != nil {
		return err
	}
	r := &report{out: p.stdout, colour: p.colours(p.stdout)}
	r.line("ok", "configuration", "", "")
	for _, w := range c.Warnings {
		r.line("warning", "configuration", w, "")
	}
	checkDir(r, c.WALDir)
	quiet := slog.New(slog.DiscardHandler)

	source, err := sourceConfig(c, quiet)
	if err != nil {
		return err
	}
	if source.ServerID == 0 {
		source.ServerID = 1 << 20 // a stand-in: only "run" makes the real one
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	for _, f := range binlog.NewSource(source).Preflight(ctx) {
		r.line(string(f.Level), "mysql "+f.What, f.Detail, f.Fix)
	}

	sink, err := newSink(c, quiet, nil, nil)
	if err != nil {
		return err
	}
	for _, f := range sink.Check(ctx, c.knownTopics()) {
		r.line(grades[f.Grade], "kafka", f.Text, f.Hint)
	}
	if r.stops > 0 {
		fmt.Fprintf(p.stdout, "findings that stop relay run: %d\n", r.stops)
		return errSaid
	}
	return nil
}

var grades = map[kafka.Grade]string{kafka.Good: "ok", kafka.Warn: "warning", kafka.Stop: "stop"}

// knownTopics are the topics that do not depend on what is read.
func (c *Config) knownTopics() []string {
	var topics []string
	for _, t := range []string{c.Topic, c.DDLTopic, c.DeadLetterTopic} {
		if t != "" && !strings.Contains(t, "{") {
			topics = append(topics, t)
		}
	}
	return topics
}

// checkDir looks whether WAL_DIR, or the nearest directory above that is there, can be written to.
func checkDir(r *report, dir string) {
	at := dir
	for {
		info, err := os.Stat(at)
		if err == nil && !info.IsDir() {
			r.line("stop", "WAL_DIR", at+" is not a directory", "name another")
			return
		}
		if err == nil {
			break
		}
		if !os.IsNotExist(err) || at == filepath.Dir(at) {
			r.line("stop", "WAL_DIR", err.Error(), "name another")
			return
		}
		at = filepath.Dir(at)
	}
	f, err := os.CreateTemp(at, ".relay-check-*")
	if err != nil {
		r.line("stop", "WAL_DIR", err.Error(), "give this user the right to write there")
		return
	}
	f.Close()
	os.Remove(f.Name())
	r.line("ok", "WAL_DIR", dir, "")
}

// report prints findings.
type report struct {
	out    io.Writer
	colour bool
	stops  int
}

func (r *report) line(level, what, detail, fix string) {
	mark := map[string]string{"ok": "ok     ", "warning": "warning", "stop": "STOP   "}[level]
	if level == "stop" {
		r.stops++
	}
	if r.colour {
		mark = map[string]string{"ok": green, "warning": yellow, "stop": red}[level] + mark + plain
	}
	fmt.Fprintf(r.out, "%s  %s", mark, what)
	if detail != "" {
		fmt.Fprintf(r.out, ": %s", detail)
	}
	if fix != "" {
		fmt.Fprintf(r.out, "  →  %s", fix)
	}
	fmt.Fprintln(r.out)
}

// Colours of terminals.
const (
	green, yellow, red, dim, plain = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[2m", "\x1b[0m"
)
