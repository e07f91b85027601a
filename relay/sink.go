package relay

import (
	"context"
	"time"

	"binrelay/functions"
)

// Sink hands records to Kafka. relay/kafka implements it.
type Sink interface {
	// Start settles what an earlier session (of a dead process or of this one) left open, begins a new
	// session, and returns the first log entry that still has to be sent; 0 where nothing was ever sent.
	// Every entry below it is handed over for good: the sink keeps its records until Kafka has them.
	// It retries what an operator mends outside for as long as ctx lives, reporting it through Status.
	// A *Fault means that a record is refused for good and delivery halts there; Start may be called again.
	Start(ctx context.Context) (next uint64, err error)

	// Send takes the next batch, in order and without gaps in entries, makes its hand-over durable and
	// gives its records to the producer. It blocks while too much is in flight. The sink owns b until it
	// calls b.Release, exactly once: when it has copied the records, or when Send fails. That says nothing
	// of acknowledgement; Acked does.
	// After an error the session is over: the relay calls Start again, and sends from what it returns.
	Send(ctx context.Context, b *Batch) error

	// Partitions returns the partition count of a topic that this log uses, making the topic when it is
	// missing and may be made. It waits for as long as ctx lives while Kafka cannot say.
	Partitions(ctx context.Context, topic string) (int, error)

	// Broken is closed when the session that the last Start began is over: the next Send or Flush says
	// why. It lets an idle relay see that its last record was refused.
	Broken() <-chan struct{}

	// Flush waits until all that was sent is acknowledged.
	Flush(ctx context.Context) error

	// Acked returns the last entry of the log that is acknowledged together with all before it.
	Acked() uint64

	// Status is safe to call at any time.
	Status() SinkStatus

	// Close ends the session; ctx bounds the wait for what is in flight. What is left is settled by the
	// next Start.
	Close(ctx context.Context) error
}

// SinkStatus is what /status and /metrics show of the sink.
type SinkStatus struct {
	Waiting    string  `json:"waiting,omitempty"` // why the sink waits for an operator, "" when it does not
	Acked      uint64  `json:"acked"`             // last entry acknowledged with all before it
	InFlight   int     `json:"in_flight"`         // records handed over and not acknowledged
	Partitions int     `json:"partitions"`        // partitions written to
	Records    uint64  `json:"records"`           // records acknowledged by this process
	Bytes      uint64  `json:"-"`                 // their keys and values
	Retries    uint64  `json:"-"`
	Sessions   uint64  `json:"-"` // producer sessions begun
	Resumed    uint64  `json:"-"` // records settled by a resumed session
	MayRepeat  uint64  `json:"-"` // records that may have been repeated because nothing could prove otherwise
	OldestSecs float64 `json:"-"` // age of the oldest record in flight
}

// Batch is the records of a run of whole log entries, ready to be sent.
type Batch struct {
	First, Last uint64 // log entries covered, every one of them whole
	Records     []Record
	Release     func() // see Sink.Send; may be nil
}

// Record is one record to produce. Key, Value and Headers belong to the batch.
type Record struct {
	Topic     string
	Key       []byte
	Value     []byte // nil: tombstone
	Headers   []functions.Header
	Partition int32  // -1: by Hash
	Of        int32  // partition count that a user's function was given when it chose Partition; 0: none was asked
	Hash      []byte // what murmur2 hashes when Partition is -1
	Time      time.Time
	Seq       uint64 // log entry
	Row       int32  // ordinal of the row in its transaction
	Dead      bool   // a dead letter: refused again, it halts
}
