package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// memtableBytes holds 8-byte keys and 12-byte pointers only; see maxCommits.
const memtableBytes = 1 << 20

// badgerOptions of one segment. A segment is written once from front to back, lives seconds to hours and
// is removed whole, so everything that maintains a long-lived tree is off.
func badgerOptions(dir string, valueLogBytes int64, readOnly bool, logger badger.Logger) badger.Options {
	return badger.DefaultOptions(dir).
		WithLogger(logger).
		WithReadOnly(readOnly).
		// Without it a memtable that was rotated a moment ago is not covered by DB.Sync.
		WithSyncWrites(true).
		// The lock file of the whole log guards all segments.
		WithBypassLockGuard(true).
		// Of table blocks only, which hold pointers; chunks are compressed before they get here.
		WithCompression(options.None).
		WithBlockCacheSize(0).WithIndexCacheSize(0).
		WithChecksumVerificationMode(options.OnTableAndBlockRead).
		WithNumVersionsToKeep(1).
		WithDetectConflicts(false). // one writer
		WithMetricsEnabled(false).  // process-wide expvars
		WithNumMemtables(2).
		// Nothing is ever compacted: no key is written twice or deleted.
		WithNumCompactors(0).
		WithNumLevelZeroTables(1 << 20).WithNumLevelZeroTablesStall(1 << 21).
		WithMemTableSize(memtableBytes).
		// Every chunk is longer than this and goes to the value log: written once, not two or three times.
		WithValueThreshold(chunkHeader).
		WithValueLogFileSize(max(valueLogBytes, 1<<20)). // the file is mapped at twice this size, sparse
		WithValueLogMaxEntries(1 << 30)
}

// poisonLogger remembers the first error that Badger logs. Badger logs a failed sync of the value log and
// acknowledges the write all the same, so whoever commits must look here before and after.
type poisonLogger struct {
	log     *slog.Logger
	dir     string
	onFault atomic.Pointer[func(error)] // told of the first error, once it is set
	fault   atomic.Pointer[error]
	faulted chan struct{} // closed with the first error
}

func newPoisonLogger(dir string, log *slog.Logger) *poisonLogger {
	return &poisonLogger{log: log, dir: dir, faulted: make(chan struct{})}
}

func (p *poisonLogger) Errorf(format string, args ...any) {
	err := errors.New("badger: " + strings.TrimSpace(fmt.Sprintf(format, args...)))
	if !p.fault.CompareAndSwap(nil, &err) {
		return // Badger may repeat it every second
	}
	close(p.faulted)
	p.log.Error("wal: badger reports an error", "segment", filepath.Base(p.dir), "err", err)
	if fn := p.onFault.Load(); fn != nil {
		(*fn)(err)
	}
}

func (p *poisonLogger) Warningf(format string, args ...any) {
	p.log.Warn("wal: badger: "+strings.TrimSpace(fmt.Sprintf(format, args...)), "segment", filepath.Base(p.dir))
}

func (p *poisonLogger) Infof(string, ...any)  {}
func (p *poisonLogger) Debugf(string, ...any) {}

func (p *poisonLogger) err() error {
	if e := p.fault.Load(); e != nil {
		return *e
	}
	return nil
}

// store is an open Badger directory.
type store struct {
	db     *badger.DB
	logger *poisonLogger
	// broken: Badger met a value of the wrong length, or a bad disk block. It keeps the value log locked on
	// those paths, so Close would wait for ever; the handle is left to the end of the process instead.
	broken bool
}

func openStore(dir string, valueLogBytes int64, readOnly bool, logger *poisonLogger) (*store, error) {
	db, err := badger.OpenManaged(badgerOptions(dir, valueLogBytes, readOnly, logger))
	if err != nil {
		return nil, fmt.Errorf("open badger: %w", err)
	}
	return &store{db: db, logger: logger}, nil
}

// put makes one chunk durable.
func (s *store) put(number uint64, value []byte) error {
	if err := s.logger.err(); err != nil {
		return err
	}
	// Managed mode: the version is ours, so Badger's oracle has nothing to wait for.
	txn := s.db.NewTransactionAt(math.MaxUint64, true)
	defer txn.Discard()
	if err := txn.Set(chunkKey(number), value); err != nil {
		return err
	}
	if err := txn.CommitAt(number+1, nil); err != nil {
		return err
	}
	// The log line of a swallowed sync error comes before the acknowledgement, so it is visible here.
	return s.logger.err()
}

// view calls fn with a chunk's stored bytes, which are a piece of the mapped file.
func (s *store) view(number uint64, fn func([]byte) error) (err error) {
	// A bad disk block under a mapping is a SIGBUS, not an error; here it costs an entry, not the process.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(interface{ Addr() uintptr })
			if !ok {
				panic(r)
			}
			s.broken = true
			err = fmt.Errorf("chunk %d: the disk cannot read the mapped file at %#x", number, f.Addr())
		}
	}()
	txn := s.db.NewTransactionAt(math.MaxUint64, false)
	defer txn.Discard()
	item, err := txn.Get(chunkKey(number))
	if err != nil {
		return fmt.Errorf("chunk %d: %w", number, err)
	}
	err = item.Value(func(v []byte) error {
		if len(v) == 0 {
			// Badger's answer when a value cannot be read is an empty one and a log line.
			err := s.logger.err()
			if err == nil {
				err = errChunkMagic
			}
			s.broken = s.broken || strings.Contains(err.Error(), "Invalid read")
			return err
		}
		return fn(v)
	})
	if err != nil {
		return fmt.Errorf("chunk %d: %w", number, err)
	}
	return nil
}

// holds reports whether Badger has exactly want under number.
func (s *store) holds(number uint64, want []byte) bool {
	txn := s.db.NewTransactionAt(math.MaxUint64, false)
	defer txn.Discard()
	item, err := txn.Get(chunkKey(number))
	if err != nil {
		return false
	}
	same := false
	err = item.Value(func(v []byte) error { same = bytes.Equal(v, want); return nil })
	return err == nil && same
}

// newest is the highest chunk number that Badger has a key for, readable or not; 0 without any.
func (s *store) newest() (number uint64) {
	txn := s.db.NewTransactionAt(math.MaxUint64, false)
	defer txn.Discard()
	it := txn.NewIterator(badger.IteratorOptions{Reverse: true})
	defer it.Close()
	if it.Rewind(); it.Valid() {
		number = binary.BigEndian.Uint64(it.Item().Key())
	}
	return number
}

// closeGrace is how long a Close goes on after Badger reported an error.
const closeGrace = 3 * time.Second

func (s *store) close() error {
	if s.broken {
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- s.db.Close() }()
	var err error
	select {
	case err = <-done:
	case <-s.logger.faulted:
		// Where a table cannot be written, Badger tries again each second, for ever.
		select {
		case err = <-done:
		case <-time.After(closeGrace):
			s.broken = true
		}
	}
	if err == nil {
		err = s.logger.err()
	}
	return err
}

func chunkKey(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

// sweepEmpty removes value logs and memtables of 0 bytes. A kill between creating and sizing one, or between
// cutting and unlinking it, leaves it behind, and Badger then refuses to open the directory.
func sweepEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != vlogExt && ext != ".mem" {
			continue
		}
		if fi, err := e.Info(); err == nil && fi.Size() == 0 {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
