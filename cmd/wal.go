package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

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
	switch command {
	case "wal dump":
		return p.walDump(ctx, dir, o, c.Wal.Dump)
	case "wal verify":
		return p.walVerify(ctx, dir, o)
	}
	return p.walStat(dir)
}

// busy says what to do about a log that a relay has open.
func busy(err error) error {
	if errors.Is(err, wal.ErrLocked) {
		return fmt.Errorf("%w; stop that relay first, or ask its /status", err)
	}
	return err
}

func (p *program) walStat(dir string) error {
	r, err := wal.Stat(dir)
	if err != nil {
		return busy(err)
	}
	position := "none yet"
	if r.Position != nil {
		if position, err = binlog.FormatPosition(r.Position); err != nil {
			return err
		}
	}
	fmt.Fprintf(p.stdout, "log        %s\nentries    %s\nsize       %s in %d segments, encrypted: %t\nfree disk  %s\nposition   %s\n",
		r.Dir, entryRange(r.First, r.Last), units.BytesSize(float64(r.Bytes)), len(r.Segments), r.Encrypted, units.BytesSize(float64(r.Free)), position)
	for _, s := range r.Segments {
		fmt.Fprintf(p.stdout, "  %s  %s, %s, newest %s\n", s.Name, entryRange(s.First, s.Last), units.BytesSize(float64(s.Bytes)), s.Newest.Format(time.RFC3339))
	}
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

func (p *program) walDump(ctx context.Context, dir string, w wal.Options, o walDumpOptions) error {
	l, err := wal.OpenReadOnly(dir, w)
	if err != nil {
		return busy(err)
	}
	defer l.Close()
	decoder := binlog.NewDecoders(nil).New()
	out := json.NewEncoder(p.stdout)
	out.SetEscapeHTML(false)
	n := uint64(0)
	err = readAll(ctx, l, o.From, func(e wal.Entry) error {
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

// walVerify compares every byte with its checksum, then decodes every change: what a later delivery would do.
func (p *program) walVerify(ctx context.Context, dir string, o wal.Options) error {
	r, err := wal.Verify(dir, o, func(s wal.SegmentInfo) {
		state := "sound"
		if s.Damage != "" {
			state = "DAMAGED: " + s.Damage
		}
		fmt.Fprintf(p.stdout, "%s  %s  %s\n", s.Name, entryRange(s.First, s.Last), state)
	})
	if err != nil {
		return busy(err)
	}
	l, err := wal.OpenReadOnly(dir, o)
	if err != nil {
		return busy(err)
	}
	defer l.Close()
	decoder := binlog.NewDecoders(nil).New()
	changes := 0
	var undecodable error
	err = readAll(ctx, l, 0, func(e wal.Entry) error {
		err := decoder.Decode(e.Seq, e.Data, func(*functions.Change) error { changes++; return nil })
		if err != nil && undecodable == nil {
			undecodable = fmt.Errorf("log entry %d: %w", e.Seq, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "all sound: entries %s, %d changes\n", entryRange(r.First, r.Last), changes)
	if undecodable != nil { // the bytes are what the server sent: no damage, but delivery would halt
		fmt.Fprintf(p.stdout, "this version cannot decode all of it: %v\n", undecodable)
	}
	return nil
}
