package services

import (
	"os"
	"testing"
)

// Database starts a server for one test and wipes it when the test ends.
func Database(t testing.TB, kind string, flags ...string) *DB {
	t.Helper()
	Need(t)
	d, err := StartDatabase(t.Context(), kind, flags...)
	if err != nil {
		t.Fatalf("a real %s is needed here: %v", kind, err)
	}
	t.Cleanup(func() { d.Wipe() })
	return d
}

// Broker starts a Kafka for one test and wipes it when the test ends.
func Broker(t testing.TB, o KafkaOptions) *Kafka {
	t.Helper()
	Need(t)
	k, err := StartKafka(t.Context(), o)
	if err != nil {
		t.Fatalf("a real Kafka is needed here: %v", err)
	}
	t.Cleanup(func() { k.Wipe() })
	return k
}

// Need skips a test that needs real servers where they are off.
func Need(t testing.TB) {
	t.Helper()
	if Off() {
		t.Skip("this test needs real servers, and -short or BENCH_SERVICES=off is set")
	}
}

// Off reports whether real servers are not wanted: under -short, and where a developer set BENCH_SERVICES=off,
// which is ignored where CI=true.
func Off() bool {
	return testing.Short() || os.Getenv("BENCH_SERVICES") == "off" && os.Getenv("CI") != "true"
}
