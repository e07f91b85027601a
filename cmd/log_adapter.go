package cmd

import (
	"context"
	"errors"
	"io"

	"binrelay/relay"
	"binrelay/wal"
)

// walLog is a *wal.Log as the relay's Log: neither package knows the other.
type walLog struct{ *wal.Log }

var _ relay.Log = walLog{}

func (l walLog) Read(ctx context.Context, seq uint64, maxBytes int) ([]relay.Entry, func(), error) {
	b, err := l.Log.Read(ctx, seq, maxBytes)
	if err != nil {
		return nil, nil, err
	}
	entries := make([]relay.Entry, len(b.Entries))
	for i, e := range b.Entries {
		entries[i] = relay.Entry(e)
	}
	return entries, b.Release, nil
}

func (l walLog) Status() relay.LogStatus {
	s := l.Stats()
	full := s.Full
	if s.Err != nil && !errors.Is(s.Err, wal.ErrClosed) {
		full = s.Err.Error()
	}
	return relay.LogStatus{First: s.First, Dropped: s.Dropped, Last: s.Last, Durable: s.Durable, Bytes: s.Bytes, Full: full,
		FreeDisk: s.Free, Commits: s.Commits, Segments: s.Segments}
}

// readAll calls fn for every entry of a log that was opened for reading, from seq (0: the first) on.
func readAll(ctx context.Context, l *wal.Log, seq uint64, fn func(wal.Entry) error) error {
	for seq = max(seq, l.First()); ; {
		b, err := l.Read(ctx, seq, 1<<20)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range b.Entries {
			if err = fn(e); err != nil {
				break
			}
			seq = e.Seq + 1
		}
		b.Release()
		if err != nil {
			return err
		}
	}
}
