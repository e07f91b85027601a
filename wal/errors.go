package wal

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is what every method returns once Close was called.
	ErrClosed = errors.New("wal: the log is closed")
	// ErrReadOnly is returned by methods that would write to a log opened with OpenReadOnly.
	ErrReadOnly = errors.New("wal: the log is open for reading only")
	// ErrKey means that the log is encrypted and the key is missing or is another one.
	ErrKey = errors.New("wal: wrong encryption key")
	// ErrLocked means that another process has the log open.
	ErrLocked = errors.New("wal: the log is in use")
)

// ErrRemoved is a log directory that is not there any more, or is another one. What the log held is lost with
// it unless the directory is put back.
var ErrRemoved = errors.New("the log directory was deleted or replaced")

// CorruptError is damage of the log: bytes on disk are not what was written. Reading stops there.
type CorruptError struct {
	Dir     string // of the log
	Segment string // directory, with the file where it is known, "" when the log as a whole is meant
	Seq     uint64 // entry, or the first one that may be missing
	Err     error
}

func (e *CorruptError) Error() string {
	where := e.Dir
	if e.Segment != "" {
		where += "/" + e.Segment
	}
	return fmt.Sprintf("wal: %s is damaged at entry %d: %v (bytes on disk changed after they were written; "+
		`"relay wal verify" lists what is readable; restore the directory from a copy, or start with an empty one)`,
		where, e.Seq, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// FailedError is a write that did not become durable. The log takes no more entries: after a failed sync
// the kernel may drop the very pages that matter, so the only safe way on is a new process that recovers
// what is on disk and reads the rest from the source again.
type FailedError struct {
	Dir string
	Err error
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("wal: %s: a write did not reach the disk, no more entries are taken: %v "+
		"(check the disk, then restart: nothing that was read from this log is lost)", e.Dir, e.Err)
}

func (e *FailedError) Unwrap() error { return e.Err }

// errGone is a segment that was trimmed while it was being read.
var errGone = errors.New("wal: segment was trimmed")

// errShort is a read that failed for want of files or memory; the log is not to blame.
var errShort = errors.New("wal: cannot open a segment")
