package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"binrelay/functions"
	"binrelay/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	item  = &functions.Table{Database: "shop", Name: "item", Columns: []functions.Column{{Name: "id"}}, Key: []int{0}}
	nokey = &functions.Table{Database: "shop", Name: "log", Columns: []functions.Column{{Name: "id"}}}
)

// image is a row of one integer column; damaged ones cannot be decoded.
type image struct {
	id      int64
	damaged bool
}

func (m *image) Has(int) bool    { return true }
func (m *image) IsNull(int) bool { return false }
func (m *image) Value(int) (any, error) {
	if m.damaged {
		return nil, errDamaged
	}
	return m.id, nil
}
func (m *image) AppendJSON(dst []byte, _ int) ([]byte, error) {
	if m.damaged {
		return dst, errDamaged
	}
	return strconv.AppendInt(dst, m.id, 10), nil
}
func (m *image) AppendText(dst []byte, i int) ([]byte, error) { return m.AppendJSON(dst, i) }
func (m *image) AppendRowJSON(dst []byte) ([]byte, error) {
	dst, err := m.AppendJSON(append(dst, `{"id":`...), 0)
	return append(dst, '}'), err
}
func (m *image) AppendColumnsJSON(dst []byte, _ []int) ([]byte, error) { return m.AppendRowJSON(dst) }

var errDamaged = errors.New("damaged value")

// lines is a Decoder whose entries are text, a change a line: "c 7", "u 7", "d 7", "n 7" (create in a table
// without a key), "x 7" (create, damaged), "ddl TEXT", "undecodable", "broken decoder".
type lines struct {
	c     functions.Change
	image image
}

var commit = time.UnixMilli(1760000000123).UTC()

func (d *lines) Decode(seq uint64, data []byte, fn func(*functions.Change) error) error {
	row := 0
	for len(data) > 0 {
		var line []byte
		if i := indexNewline(data); i >= 0 {
			line, data = data[:i], data[i+1:]
		} else {
			line, data = data, nil
		}
		d.c = functions.Change{Table: item, Source: functions.Source{GTID: "0-1-9", File: "b.1", Pos: 4, Row: row, ServerID: 1, Seq: seq, Time: commit}}
		row++
		if len(line) > 2 && line[1] == ' ' {
			d.image = image{}
			for _, b := range line[2:] {
				d.image.id = d.image.id*10 + int64(b-'0')
			}
			switch line[0] {
			case 'c':
				d.c.Op, d.c.After = functions.Create, functions.NewRow(item, &d.image)
			case 'u':
				d.c.Op, d.c.Before, d.c.After = functions.Update, functions.NewRow(item, &d.image), functions.NewRow(item, &d.image)
			case 'd':
				d.c.Op, d.c.Before = functions.Delete, functions.NewRow(item, &d.image)
			case 'n':
				d.c.Op, d.c.Table, d.c.After = functions.Create, nokey, functions.NewRow(nokey, &d.image)
			case 'x':
				d.image.damaged = true
				d.c.Op, d.c.After = functions.Create, functions.NewRow(item, &d.image)
			}
		} else if statement, ok := strings.CutPrefix(string(line), "ddl "); ok {
			d.c.Op, d.c.Table, d.c.Database, d.c.Statement = functions.DDL, nil, "shop", statement
		} else if string(line) == "undecodable" {
			return &relay.DecodeError{Table: "shop.item", GTID: "0-1-9", Row: row - 1, Err: errors.New("type 99"), Hint: "upgrade"}
		} else {
			panic("decoder bug on " + strconv.Quote(string(line)))
		}
		if err := fn(&d.c); err != nil {
			return err
		}
	}
	return nil
}

func indexNewline(b []byte) int {
	for i, c := range b {
		if c == '\n' {
			return i
		}
	}
	return -1
}

func newPool(t testing.TB, o Options) *Pool {
	t.Helper()
	topic, err := functions.ParseTopic("{db}.{table}")
	if err != nil {
		t.Fatal(err)
	}
	o.Topic = topic
	o.Decoder = func() relay.Decoder { return &lines{} }
	o.Logger = slog.New(slog.DiscardHandler)
	if o.Partitions == nil {
		o.Partitions = func(context.Context, string) (int, error) { return 12, nil }
	}
	p, err := NewPool(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// job has entries numbered from 1.
func job(entries ...string) *relay.Job {
	j := &relay.Job{Done: make(chan struct{}, 1)}
	for i, e := range entries {
		j.Entries = append(j.Entries, relay.Entry{Seq: uint64(i + 1), Data: []byte(e)})
	}
	return j
}

func run(p *Pool, j *relay.Job) *relay.Job {
	p.Go(j)
	<-j.Done
	return j
}

// show is the job's outcome in short: "topic/partition key value" with values cut to their op.
func show(j *relay.Job) []string {
	var out []string
	for _, r := range j.Out.Records {
		key, value := "nil", "nil"
		if r.Key != nil {
			key = string(r.Key)
		}
		switch {
		case r.Dead:
			value = "dead"
		case strings.HasPrefix(string(r.Value), `{"op":"`):
			value, _, _ = strings.Cut(string(r.Value[7:]), `"`)
		case r.Value != nil:
			value = string(r.Value)
		}
		s := fmt.Sprintf("%d.%d %s/%d %s %s", r.Seq, r.Row, r.Topic, r.Partition, key, value)
		if r.Partition < 0 {
			s += " by " + string(r.Hash)
		}
		out = append(out, s)
	}
	return out
}

func wantRecords(t *testing.T, j *relay.Job, want ...string) {
	t.Helper()
	got := show(j)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("records:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
