package wal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"time"
)

// This file is the other side of the tests that kill: the test binary, run again with WAL_TEST_CHILD set,
// opens a log, checks all of it and appends until it is killed. It tells its parent on stdout:
//
//	R first last   recovered: all entries from first to last are right
//	A last         durable and readable up to here
//	T seq          about to trim up to here
//	E text         something is wrong

func say(format string, a ...any) { os.Stdout.WriteString(fmt.Sprintf(format+"\n", a...)) }

func childMain(job string) int {
	dir := os.Getenv("WAL_TEST_DIR")
	seed, _ := strconv.ParseUint(os.Getenv("WAL_TEST_SEED"), 10, 64)
	var err error
	if uid, _ := strconv.Atoi(os.Getenv("WAL_TEST_UID")); uid != 0 {
		if err := syscall.Setuid(uid); err != nil {
			say("E %v", err)
			return 3
		}
	}
	switch job {
	case "append":
		err = childAppend(dir, seed, childOptions(seed))
	case "open":
		_, err = Open(dir, Options{MinFree: -1, MaxBytes: 64 << 20})
	case "badger":
		_, err = openStore(dir, 1<<20, false, newPoisonLogger(dir, slog.New(slog.DiscardHandler)))
	case "hold":
		if _, err = Open(dir, tiny()); err == nil {
			say("R 0 0")
			select {}
		}
	default:
		err = errors.New("unknown job " + job)
	}
	if err != nil {
		say("E %v", err)
		return 3
	}
	return 0
}

func childOptions(seed uint64) Options {
	o := tiny()
	if os.Getenv("WAL_TEST_CRYPT") != "" {
		o.Key = bytes.Repeat([]byte{7}, 32)
	}
	return o
}

// A transaction is 1 to 5 entries; each says which one it is, and where the transaction before it ended, so
// that a reader can prove that none is missing, torn or in the wrong place.
const txnHeader = 8 + 8 + 2

func txnEntry(buf []byte, seq, prev uint64, part, parts int) []byte {
	buf = binary.BigEndian.AppendUint64(buf[:0], seq)
	buf = binary.BigEndian.AppendUint64(buf, prev)
	buf = append(buf, byte(part), byte(parts))
	size := int(seq * 2654435761 % 700)
	if seq%199 == 0 {
		size = 30 << 10
	}
	return append(buf, content(seq, size)...)
}

// txnChecker checks a run of entries made by txnEntry.
type txnChecker struct {
	last  uint64 // of the newest whole transaction
	open  int    // parts seen of the current one
	began uint64 // prev of the first transaction seen
	any   bool
	buf   []byte
}

func (c *txnChecker) add(e Entry) error {
	if len(e.Data) < txnHeader {
		return fmt.Errorf("entry %d has %d bytes", e.Seq, len(e.Data))
	}
	prev, part, parts := binary.BigEndian.Uint64(e.Data[8:]), int(e.Data[16]), int(e.Data[17])
	c.buf = txnEntry(c.buf, e.Seq, prev, part, parts)
	if !bytes.Equal(c.buf, e.Data) {
		return fmt.Errorf("entry %d has wrong content", e.Seq)
	}
	if !c.any {
		if part != 0 {
			c.open = part // Trim may cut a transaction: all its entries are acknowledged or it is read again
		}
		c.any, c.began, c.last = true, prev, prev
	}
	if part != c.open || prev != c.last {
		return fmt.Errorf("entry %d is part %d after %d, want part %d after %d", e.Seq, part, prev, c.open, c.last)
	}
	if c.open++; c.open == parts {
		c.open, c.last = 0, e.Seq
	}
	return nil
}

func childAppend(dir string, seed uint64, o Options) error {
	r := rand.New(rand.NewPCG(seed, 9))
	var l *Log
	ready := make(chan struct{})
	o.OnCommit = func(time.Duration, int, int) {
		<-ready
		say("A %d", l.Last())
	}
	l, err := Open(dir, o)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	var c txnChecker
	entries, err := tryReadFrom(l, 0, 64<<10)
	for i := 0; err == nil && i < len(entries); i++ {
		err = c.add(entries[i])
	}
	if err == nil && c.open != 0 {
		err = fmt.Errorf("half a transaction behind entry %d is readable", c.last)
	}
	if want := fmt.Sprintf("p%d", l.Last()); err == nil && l.Last() > 0 && string(l.Position()) != want {
		err = fmt.Errorf("position %q, want %q", l.Position(), want)
	}
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	say("R %d %d", c.began, l.Last())
	close(ready)

	go func() { // the live tail has to be right as well
		c, seq := txnChecker{}, l.Last()+1
		for {
			b, err := l.Read(context.Background(), seq, 8<<10)
			if err != nil {
				if !errors.Is(err, ErrClosed) {
					say("E tail: %v", err)
				}
				return
			}
			for _, e := range b.Entries {
				if err := c.add(e); err != nil {
					say("E tail: %v", err)
					return
				}
			}
			seq = b.Entries[len(b.Entries)-1].Seq + 1
			b.Release()
		}
	}()

	ctx := context.Background()
	var buf []byte
	prev := l.Last()
	txns := 20 + r.IntN(3000)
	if r.IntN(4) == 0 {
		txns = 1 + r.IntN(30) // to be killed while it closes and seals
	}
	for range txns {
		parts := 1
		if r.IntN(4) == 0 {
			parts = 2 + r.IntN(4)
		}
		for part := range parts {
			l.mu.Lock()
			seq := l.next
			l.mu.Unlock()
			buf = txnEntry(buf, seq, prev, part, parts)
			if _, err := l.Append(ctx, buf, fmt.Appendf(nil, "p%d", seq), part < parts-1); err != nil {
				return fmt.Errorf("append: %w", err)
			}
			if part == parts-1 {
				prev = seq
			} else if r.IntN(30) == 0 {
				if err := l.Abandon(ctx); err != nil {
					return fmt.Errorf("abandon: %w", err)
				}
				break
			}
		}
		switch r.IntN(40) {
		case 0:
			if last := l.Last(); last > 500 {
				say("T %d", last-300)
				if err := l.Trim(last - 300); err != nil {
					return fmt.Errorf("trim: %w", err)
				}
			}
		case 1:
			if err := l.Sync(ctx); err != nil {
				return fmt.Errorf("sync: %w", err)
			}
		}
	}
	if err := l.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
