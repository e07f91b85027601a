// Package services starts real servers for tests and benchmarks: MariaDB, MySQL and Apache Kafka, each a
// private instance with its own data directory and free ports, without Docker and without a system service.
//
//	db := services.Database(t, "mariadb")             // or "mysql", "mariadb10.5", "mariadb11.8"
//	k := services.Broker(t, services.KafkaOptions{})  // one broker
//	relay := start(db.URL(), k.Brokers)
//	db.Kill(ctx); db.Start(ctx)                       // a crash, and back
//
// The work is done by the two bash scripts beside this file, which a person can use alone; see README.md.
// The first use downloads the server into ~/.cache/binrelay. A server that cannot be had fails the test: a
// flavour that is skipped reads as a tested one. go test -short skips such tests, and so does BENCH_SERVICES=off on a
// developer's machine; where CI=true the latter is ignored.
//
// It does not promise durability against a power cut (commits are not synced unless asked for), and it does
// not set anything up for production.
package services
