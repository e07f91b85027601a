// Command soak runs the built relay between a real MySQL or MariaDB and a real Kafka, kills everything again and again,
// and compares what arrived with what was written.
//
//	go run ./bench/soak                           # both flavours, 500,000 row changes each, 30 and more kill -9: 10–15 minutes
//	go run ./bench/soak -short -source mysql      # the form that make test runs
//	go run ./bench/soak -seed 7                   # the same choices again; the moments are the machine's
//
// Writers own disjoint rows and keep a ledger of what was committed, also over a kill of the database (a row of
// theirs, changed in each transaction, says afterwards whether the last COMMIT was done). The checker is package
// history. What a run goes through, in this order: random kills of the relay while the database is restarted and
// killed and Kafka is restarted and killed; Kafka away while writing goes on, then PURGE BINARY LOGS of what the
// relay's log holds, then another kill, then Kafka back; one very large transaction with kills in the middle.
//
// Exit code 0: nothing lost, repeated, out of order or wrong, and the relay's memory stayed under its limit.
package main
