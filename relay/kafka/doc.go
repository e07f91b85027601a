// Package kafka hands records to Kafka once, in order, across any death of the relay. It implements relay.Sink.
//
//	s, err := kafka.New(kafka.Config{Brokers: []string{"127.0.0.1:9092"}, StateDir: "data/session", TopicCreate: true})
//	next, err := s.Start(ctx)   // the first log entry that still has to be sent
//	err = s.Send(ctx, &relay.Batch{First: next, Last: next, Records: records})
//
// # How
//
// Before anything is sent it is written down: the records of a batch, as they will be, and the log entries
// they cover go into the hand-over journal in StateDir and are synced. The journal's order numbers the
// records of each partition, and that number is the sequence number under which the record goes to Kafka,
// in the producer session (producer id and epoch) that the journal names for the partition.
//
// A broker takes each sequence number of a session once and only in turn. So it does not matter who sends
// a record, how often, in which batch, or how late: it is written once. After a crash, a lost answer, a
// moved leader, the partition is asked what it holds of the session (look.go) and the rest is sent again
// under the same numbers, from the journal's very bytes: no function of the user runs again, and the map
// from numbers to records cannot change (invariant 6). The journal is the lease of invariant 7, per record.
//
// # Why not kgo's own producer
//
// The client (connections, authentication, versions, compression) is kgo's. Its producer numbers records
// itself and cannot be told to go on under given numbers; and when a record is refused it fails what is
// buffered for the partition, moves to the next epoch by itself, and sends what was produced in the
// meantime: later records overtake the refused ones, and from the sequence numbers nobody can tell any more
// which they were (TestKgoOvertakesRefused).
//
// # Goroutines
//
// Between the first Start and Close there are: journaler, the only writer of the journal; dispatcher, which
// gives batches to brokers; leaders, which follows the metadata; one for each request under way; and one for
// each partition that is looked at or has a refused record. All end in Close.
package kafka
