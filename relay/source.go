package relay

import (
	"context"

	"binrelay/functions"
)

// Source reads a server's binlog. relay/binlog implements it over the replication protocol.
type Source interface {
	// Stream reads from pos, the position saved with the newest entry of the log (nil: an empty log;
	// the source then decides by its configured start), and calls emit for each part in commit order
	// until ctx ends or something fails. It connects and checks the server's settings itself and never
	// reconnects: the relay calls it again. emit blocks while the log is full; when it returns an error
	// Stream returns that error.
	//
	// An error made by Permanent halts capture; any other is retried with backoff for ever.
	Stream(ctx context.Context, pos []byte, emit func(Part) error) error

	// Status is safe to call at any time, from any goroutine.
	Status() SourceStatus
}

// Part is one transaction, or a part of a large one, in the source's own encoding.
type Part struct {
	Data []byte // valid during emit; empty: nothing to store, only Pos moves on
	Pos  []byte // position after this transaction; only of the last part. Valid during emit
	// First is set on the first part of a transaction: it discards a transaction left open by parts
	// before it (a source that lost its connection sends the transaction again).
	First bool
	More  bool // other parts of the same transaction follow
	// Urgent asks that Pos becomes durable before emit returns (the start position of an empty log).
	Urgent bool
}

// SourceStatus is what /status and /metrics show of the source.
type SourceStatus struct {
	Connected bool   `json:"connected"`
	Flavor    string `json:"flavor"` // "mysql" or "mariadb"
	Version   string `json:"version"`
	GTID      string `json:"gtid"` // executed set read so far
	File      string `json:"file"`
	Pos       uint64 `json:"pos"`
	ServerID  uint32 `json:"server_id"` // of the server
	// LagSeconds is how far reading is behind the server: 0 when the last thing heard was a heartbeat
	// or an event at the end of the log, else now minus the newest commit time, clamped to ≥ 0.
	LagSeconds   float64 `json:"lag_seconds"`
	Events       uint64  `json:"-"`
	Transactions uint64  `json:"-"`
	Bytes        uint64  `json:"-"`
	Connects     uint64  `json:"-"` // connections made, the first included
}

// Decoder turns entry data back into changes. It is made per worker and need not be safe for
// concurrent use.
type Decoder interface {
	// Decode calls fn for each change of data (one Part) in order. The Change and everything in it is
	// valid only during the call. An error of fn is returned as it is; an error of decoding is a
	// *DecodeError.
	Decode(seq uint64, data []byte, fn func(*functions.Change) error) error
}

// DecodeError is a change that cannot be turned into the right value. It always halts delivery.
type DecodeError struct {
	Table string // "db.table", "" where unknown
	GTID  string
	File  string
	Pos   uint64
	Row   int // ordinal in the transaction, -1 where unknown
	Err   error
	Hint  string
}
