// Command bench measures Binrelay beside its floors: the same work done by the bare library, on the same machine, in
// the same run, in turns. It counts what arrived in Kafka. README.md says how to read it.
//
//	go run ./bench                      # every part, under 15 minutes
//	go run ./bench -part inflight       # or BENCH=inflight; a comma list
//	go run ./bench -seconds 5           # or BENCH_SECONDS=5: length of one measurement
//	go run ./bench -kafka=false         # without the real Kafka and databases
//
// The table on the terminal is also bench/results/latest.json. Targets are design C1's; a missed one is marked
// and changes nothing about the exit code.
package main
