// Package wal is the relay's durable log: opaque entries in order, the source position that belongs to
// them, and nothing else. It is what stands between a source that forgets and a sink that may be down.
//
//	l, err := wal.Open(dir, wal.Options{MaxBytes: 8 << 30})
//	seq, err := l.Append(ctx, transaction, position, false) // buffered; durable a commit later
//	b, err := l.Read(ctx, seq, 1<<20)                       // durable entries only; blocks for the first
//	err = l.Trim(b.Entries[len(b.Entries)-1].Seq)           // what nobody needs any more
//	b.Release()
//
// # What is promised
//
//   - An entry and the position after it become durable together, in one synced write.
//   - Only what is durable can be read; what was read once is there after any kill -9 or power cut.
//   - Parts of a transaction (Append with more) become readable all at once or never.
//   - Sequence numbers rise by one and are never given twice; the numbers of void parts are left out.
//   - Damage is found, named and stops reading. Nothing is skipped, nothing is truncated to pass it.
//   - A full log or disk makes Append wait. It is never an error, and never a lost entry.
//
// Not promised: durability on a disk that lies about flushes (plain msync on macOS), a log shared by two
// hosts, network file systems.
//
// # How it works
//
// Entries are packed into chunks (chunk.go). While one chunk is being committed the next one fills, so a
// commit carries whatever arrived during the one before it: one entry when it is quiet, up to a megabyte
// when there is much to catch up. A chunk is one key of a small Badger directory, a segment; after
// SegmentBytes a new one takes over, the old one is closed and sealed. Trim renames and removes whole
// segments: nothing is ever deleted inside Badger, so there are no tombstones, compactions or value log GC.
//
// Two goroutines live in an open Log: the committer (commit.go), the only writer of chunks, and the keeper
// (keeper.go), which makes segments ahead of need, seals old ones and removes trimmed ones. Both end in Close.
// Badger adds about ten for each of the three or four segments that are open at a time.
//
// Lock order: Log.readMu → segment.mu → Log.mu → ring.mu. No lock is held during a commit.
//
// README.md has the layout, the formats byte by byte, and what survives what.
package wal
