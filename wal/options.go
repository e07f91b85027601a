package wal

import (
	"fmt"
	"log/slog"
	"time"
)

// Options of a log. The zero value is right for production.
type Options struct {
	// MaxBytes bounds what the log allocates on disk, everything included; Append waits at the bound. An open
	// transaction (Append with more) may pass it, or a transaction larger than the log would wait for
	// itself. Default 8 GiB, at least 1 MiB.
	MaxBytes int64
	// MinFree is how much the disk keeps free for others; Append waits rather than pass it. Default 256 MiB;
	// negative: 0.
	MinFree int64
	// SegmentBytes is the unit of trimming. Default 32 MiB, 16 MiB below 1 GiB of MaxBytes, an eighth of
	// MaxBytes below 128 MiB.
	SegmentBytes int64
	// ChunkBytes is when a chunk counts as full; a writer that is ahead of the disk fills up to four times
	// as much, at most 1 MiB. Default 256 KiB.
	ChunkBytes int
	// RingBytes is how much of the newest entries is kept in memory for readers. Default 8 MiB.
	RingBytes int
	// Key, 32 bytes, turns on AES-256-GCM of entries at rest. Positions and Meta values stay in clear.
	Key []byte
	// Logger gets rare events: recovery, waiting for space, failures. Default: none.
	Logger *slog.Logger
	// OnCommit is called by the committer after each durable commit with its duration, the number of
	// records in it and their bytes. It must not block.
	OnCommit func(d time.Duration, entries, bytes int)
}

const (
	maxChunkBytes = 1 << 20   // of entries in a chunk
	maxPosBytes   = 256 << 10 // of a position: a GTID set of some 4,000 servers
	maxVoids      = 1024      // void ranges declared by one chunk
	maxEntryBytes = 1 << 30
	// maxCommits bounds the chunks of a segment so that their keys and pointers (~100 bytes each) never
	// fill Badger's memtable of 1 MiB, which would start a flush that nobody planned room for.
	maxCommits = 6000
)

func (o *Options) setDefaults() error {
	if o.MaxBytes == 0 {
		o.MaxBytes = 8 << 30
	}
	if o.MinFree == 0 {
		o.MinFree = 256 << 20
	}
	o.MinFree = max(o.MinFree, 0)
	if o.MaxBytes < 1<<20 {
		return fmt.Errorf("wal: MaxBytes is %d, less than 1 MiB", o.MaxBytes)
	}
	if o.ChunkBytes == 0 {
		o.ChunkBytes = 256 << 10
	}
	if o.ChunkBytes < 1<<10 || o.ChunkBytes > maxChunkBytes {
		return fmt.Errorf("wal: ChunkBytes is %d, not within 1 KiB and 1 MiB", o.ChunkBytes)
	}
	if o.SegmentBytes == 0 {
		switch {
		case o.MaxBytes >= 1<<30:
			o.SegmentBytes = 32 << 20
		case o.MaxBytes >= 128<<20:
			o.SegmentBytes = 16 << 20
		default:
			o.SegmentBytes = o.MaxBytes / 8
			o.ChunkBytes = min(o.ChunkBytes, max(1<<10, int(o.SegmentBytes)/8))
		}
	}
	if o.SegmentBytes < 32<<10 || o.SegmentBytes > 512<<20 {
		return fmt.Errorf("wal: SegmentBytes is %d, not within 32 KiB and 512 MiB", o.SegmentBytes)
	}
	if o.SegmentBytes > o.MaxBytes/4 {
		return fmt.Errorf("wal: SegmentBytes is %d, more than a quarter of MaxBytes (%d)", o.SegmentBytes, o.MaxBytes)
	}
	if o.RingBytes == 0 {
		o.RingBytes = 8 << 20
	}
	if len(o.Key) != 0 && len(o.Key) != 32 {
		return fmt.Errorf("wal: the encryption key has %d bytes, AES-256 needs 32", len(o.Key))
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// fillMax is the largest chunk that a writer ahead of the disk fills.
func (o *Options) fillMax() int { return min(4*o.ChunkBytes, maxChunkBytes) }
