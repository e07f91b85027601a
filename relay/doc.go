// Package relay is the loop between a database and Kafka: what is read is made durable, what is
// durable is delivered, what is acknowledged is dropped.
//
//	          ┌────────────────────────── one process, one volume ───────────────────────────┐
//	          │ INGEST  never decodes a row,              DELIVER  in order, entry by entry  │
//	  MySQL   │         never runs user code                                                 │      Kafka
//	┌───────┐ │                         ┌────────┐                                           │ ┌────────────┐
//	│binlog ├─┼─▶ Source ──▶ ingest ───▶│  Log   │──▶ deliver ──▶ Handler ──▶ Sink ──────────┼▶│ topics     │
//	│       │ │  raw trx     group      │ Badger │    jobs of     decode,      journal,      │ │ dead letter│
//	└───────┘ │  bytes       commit     │ fsync  │    entries     functions    produce       │ └────────────┘
//	          │   ▲                     └─┬────▲─┘                               │ acks       │
//	          │   └── position ───────────┘    └──── trim ◀── acked ◀────────────┘            │
//	          └───────────────────────────────────────────────────────────────────────────────┘
//
// The interfaces between the stages are here, the stages are elsewhere: relay/binlog is the Source and
// the Decoder, wal is the Log, handler is the Handler, relay/kafka is the Sink; relay/relaytest has
// fakes of all of them. Run starts ingest and deliver and ends them in order.
//
// # Invariants
//
// They are numbered, and the line of code that enforces one cites its number.
//
//  1. Nothing goes to Kafka before it is durable here.
//  2. Entries and the source position after them become durable together; a half-received transaction
//     is never readable.
//  3. Trim never passes an entry with a record that is not acknowledged (dead letters included).
//  4. Records of one partition are produced in log order; one key, one partition, for as long as the
//     log's partition count stands.
//  5. Every change ends as exactly one of: delivered, filtered, dead-lettered, or the reason for a halt.
//  6. Within a producer session (PID, epoch) the n-th record of a partition is a fixed change of the
//     log: the map is never renumbered, whatever functions, format or filters the next run has. The
//     sink's hand-over journal holds the records themselves, so a re-run never decides what was sent.
//  7. State on disk is never ahead of Kafka: acknowledged ≤ committed; a record is in the journal
//     before it is handed to the producer.
//
// # Goroutines
//
// All are started by Run and have ended when it returns: ingest (one, blocks in Source.Stream),
// deliver (one, blocks in Sink.Start and Sink.Send), its reader (one a delivery attempt, blocks in
// Log.Read), and the trimmer (one, ticks). The Handler owns its workers, the Sink its own.
//
// # Faults
//
// An error made by Permanent and any *Fault halt; every other error is retried with backoff for ever.
// A halt of delivery keeps the process up and capture going until Resume or a restart. A halt of capture
// lets delivery drain what the log holds and then ends Run with the error.
package relay
