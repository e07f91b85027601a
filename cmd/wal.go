package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"binrelay/functions"
	"binrelay/relay/binlog"
	"binrelay/wal"

	"github.com/docker/go-units"
)

type walOptions struct {
	Dir string `help:"The log's directory (default: WAL_DIR, or ./data)." placeholder:"DIR"`
}

type walDumpOptions struct {
	walOptions
	From  uint64 `help:"First log entry (default: the oldest there is)." placeholder:"SEQ"`
	Limit uint64 `help:"Most changes to print (default: all)." placeholder:"N"`
}

// wal is "relay wal stat", "dump" and "verify". All open the log for reading only.
func (p *program) wal(ctx context.Context, command string, c *commands) error {
	options := map[string]walOptions{"wal stat": c.Wal.Stat, "wal dump": c.Wal.Dump.walOptions, "wal verify": c.Wal.Verify}[command]
	dir := options.Dir
	if dir == "" {
		dir = p.environ["WAL_DIR"]
	}
	if dir == "" {
		dir = "./data"
	}
	var o wal.Options
	if file := p.environ["WAL_ENCRYPTION_KEY_FILE"]; file != "" {
		key, err := readKey(file)
		if err != nil {
			return Mistakes{{"WAL_ENCRYPTION_KEY_FILE", err.Error()}}
		}
		o.Key = key
	}
	l, err := wal.OpenReadOnly(dir, o)
	if errors.Is(err, wal.ErrLocked) {
		return fmt.Errorf("%w; stop that relay first, or ask its /status", err)
	}
	if err != nil {
		return err
	}
	defer l.Close()
	switch command {
	case "wal dump":
		return p.walDump(ctx, l, c.Wal.Dump)
	case "wal verify":
		return p.walVerify(ctx, l)
	}
	return p.walStat(l)
}

func (p *program) walStat(l *wal.Log) error {
	s := l.Stats()
	fmt.Fprintf(p.stdout, "entries    %s\n", entryRange(s.First, s.Last))
	if s.Durable > s.Last {
		fmt.Fprintf(p.stdout, "open       %d parts of a transaction whose end has not come\n", s.Durable-s.Last)
	}
	fmt.Fprintf(p.stdout, "size       %s in %d segments\n", units.BytesSize(float64(s.Bytes)), s.Segments)
	fmt.Fprintf(p.stdout, "free disk  %s\n", units.BytesSize(float64(s.Free)))
	position := "none yet"
	if b := l.Position(); b != nil {
		var err error
		if position, err = binlog.FormatPosition(b); err != nil {
			return err
		}
	}
	fmt.Fprintf(p.stdout, "position   %s\n", position)
	return nil
}

func entryRange(first, last uint64) string {
	if first > last {
		return fmt.Sprintf("none kept (the next is %d)", last+1)
	}
	return fmt.Sprintf("%d to %d", first, last)
}

// dumped is one line of "wal dump".
type dumped struct {
	Seq    uint64          `json:"seq"`
	Key    json.RawMessage `json:"key"` // null for a table without a primary key
	Change json.RawMessage `json:"change"`
}

// errEnough ends a dump at its limit.
var errEnough = errors.New("enough")

func (p *program) walDump(ctx context.Context, l *wal.Log, o walDumpOptions) error {
	decoder := binlog.NewDecoders(nil).New()
	out := json.NewEncoder(p.stdout)
	out.SetEscapeHTML(false)
	n := uint64(0)
	err := readAll(ctx, l, o.From, func(e wal.Entry) error {
		return decoder.Decode(e.Seq, e.Data, func(c *functions.Change) error {
			key, has, err := functions.JSON{}.AppendKey(nil, c)
			if err != nil {
				return err
			}
			if !has {
				key = []byte("null")
			}
			value, err := functions.JSON{}.AppendValue(nil, c)
			if err != nil {
				return err
			}
			if err := out.Encode(dumped{e.Seq, key, value}); err != nil {
				return err
			}
			if n++; n == o.Limit {
				return errEnough
			}
			return nil
		})
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// walVerify reads every entry, which checks every byte on the way, and decodes it.
func (p *program) walVerify(ctx context.Context, l *wal.Log) error {
	decoder := binlog.NewDecoders(nil).New()
	var entries, changes, undecodable uint64
	var firstUndecodable error
	err := readAll(ctx, l, 0, func(e wal.Entry) error {
		entries++
		if err := decoder.Decode(e.Seq, e.Data, func(*functions.Change) error { changes++; return nil }); err != nil {
			// The bytes are what was received: no damage, but delivery will halt here.
			if undecodable++; firstUndecodable == nil {
				firstUndecodable = fmt.Errorf("log entry %d: %w", e.Seq, err)
			}
		}
		return nil
	})
	if err != nil {
		fmt.Fprintf(p.stdout, "%d entries are sound, then:\n%v\n", entries, strings.TrimSpace(err.Error()))
		return errSaid
	}
	s := l.Stats()
	fmt.Fprintf(p.stdout, "all sound: %d entries (%s), %d changes\n", entries, entryRange(s.First, s.Last), changes)
	if undecodable > 0 {
		fmt.Fprintf(p.stdout, "%d entries cannot be decoded by this version, the first: %v\n", undecodable, firstUndecodable)
	}
	return nil
}
