// Package relaytest is the relay's surroundings in one process: a database server with a binlog, a Kafka,
// and models of the log, the sink and the source, all scriptable for faults. The relay's own tests,
// `relay demo` and the benchmarks run on it; a user's tests may too. A whole path is
//
//	src, err := relaytest.StartSource(relaytest.SourceConfig{Flavor: relaytest.MariaDB})
//	defer src.Close()
//	kafka, err := relaytest.StartKafka(relaytest.KafkaConfig{})
//	defer kafka.Close()
//
//	item := src.CreateTable("CREATE TABLE shop.item (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(8,2))")
//	gtid := src.Tx(
//		relaytest.Insert(item, 1, "lamp", "12.50"),
//		relaytest.Update(item, relaytest.Row(1, "lamp", "12.50"), relaytest.Row(1, "lamp", "9.90")),
//	)
//	src.KillAfter(3)       // cut the connection after three more events
//	kafka.LoseResponses(1) // write the next batch, but do not say so
//
//	// run a relay from src.URL() to kafka.Brokers(), then:
//	records, err := kafka.Records(ctx, "shop.item")
//
// # What is in it
//
//   - [Source]: the real MySQL protocol over a bounded in-memory binlog, both flavours. It executes no SQL:
//     rows are written from Go, by [Source.Tx]; SELECT and SHOW know system variables and a little of
//     information_schema. Faults: kills after events or bytes, freeze, slow, down, error packets, purged
//     files, failover.
//   - [Shop]: a small business that trades on a Source, for demonstrations and histories. [Shop.Fill] and
//     [Source.Repeat] are a source that is never the bottleneck (millions of events a second).
//   - [Builder], [Table], [Insert], [Update], [Delete]: binlog events byte for byte as servers write them
//     (a test compares them with real ones), for tests that need no server.
//   - [Kafka]: an in-process cluster (kfake) that can go down, lose answers and refuse.
//   - [Log], [Sink], [ScriptedSource]: exact models of the relay's three neighbours, without goroutines,
//     for simulations in testing/synctest. Crash is kill -9: what was not durable is gone.
//
// # What it does not promise
//
// Source is no database: no statement changes a row, and nothing checks that an updated row exists. XA,
// compressed events and partial JSON are for tests against real servers. The models are not fast.
//
// # Goroutines
//
// A Source has one that accepts, one for each connection and one more for each dump, which notices when the
// client hangs up; Close ends them. A Kafka has kfake's. The models have none.
package relaytest
