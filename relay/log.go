package relay

import (
	"context"
	"io"
)

// Log is the durable log between source and sink, satisfied by *wal.Log (through cmd's adapter, as wal
// imports nothing of ours) and by the model in relaytest.
type Log interface {
	// Append adds one entry and the position after it; see wal.Log.Append.
	Append(ctx context.Context, data, pos []byte, more bool) (seq uint64, err error)
	// Abandon drops the entries appended with more since the last whole transaction.
	Abandon(ctx context.Context) error
	// Sync waits until all that was appended is durable.
	Sync(ctx context.Context) error
	// Read returns readable entries from seq on, at least one, up to about maxBytes; it blocks for the
	// first. The entries are valid until release is called.
	Read(ctx context.Context, seq uint64, maxBytes int) (entries []Entry, release func(), err error)
	// Trim drops entries up to and including seq, as far as the log's units allow.
	Trim(seq uint64) error
	Position() []byte // saved with the newest whole transaction; nil on an empty log
	Status() LogStatus
	io.Closer
}

// LogStatus is what /status and /metrics show of the log.
type LogStatus struct {
	First    uint64 `json:"first"`   // oldest entry kept
	Dropped  uint64 `json:"-"`       // every entry up to it is gone, those of abandoned transactions included
	Last     uint64 `json:"last"`    // newest readable entry
	Durable  uint64 `json:"durable"` // newest durable entry, parts of an open transaction included
	Bytes    int64  `json:"bytes"`   // on disk
	Backlog  uint64 `json:"backlog"` // entries not yet acknowledged; filled in by the relay
	Full     string `json:"full,omitempty"`
	FreeDisk int64  `json:"free_disk"`
	Commits  uint64 `json:"-"`
	Segments int    `json:"-"`
}
