// Package relaytest is the relay's surroundings in one process: a database server with a binlog, a Kafka,
// and models of the log, the sink and the source, all scriptable for faults. Our own tests, `relay demo`
// and the benchmarks run on it; a user's tests may too.
//
//	src, err := relaytest.StartSource(relaytest.SourceConfig{Flavor: relaytest.MariaDB})
//	defer src.Close()
//	item := src.CreateTable("CREATE TABLE shop.item (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(8,2))")
//	gtid := src.Tx(
//		relaytest.Insert(item, 1, "lamp", "12.50"),
//		relaytest.Update(item, relaytest.Row(1, "lamp", "12.50"), relaytest.Row(1, "lamp", "9.90")),
//	)
//	src.KillAfter(3) // cut the connection after three more events
//	// point a relay, or any replication client, at src.URL()
//
// # What is in it
//
//   - [Source]: the real MySQL protocol over a bounded in-memory binlog, both flavours. It executes no SQL:
//     rows are written from Go, by [Source.Tx], and SELECT knows system variables and a little of
//     information_schema.
//   - [Builder], [Table], [Insert], [Update], [Delete]: binlog events byte for byte as servers write them,
//     for tests that need no server.
//
// # What it does not promise
//
// It is no database: no statement changes a row, nothing checks that an updated row exists. Replication of
// statements, XA, compressed events and partial JSON are for tests against real servers.
package relaytest
