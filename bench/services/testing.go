package services

import (
	"os"
	"testing"
)

// Off reports whether the developer asked to leave out tests that need real servers. Never where CI=true.
func Off() bool { return os.Getenv("BENCH_SERVICES") == "off" && os.Getenv("CI") != "true" }

// Database starts a server for one test and wipes it when the test ends.
func Database(t testing.TB, kind string, flags ...string) *DB {
	t.Helper()
	need(t)
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
	need(t)
	k, err := StartKafka(t.Context(), o)
	if err != nil {
		t.Fatalf("a real Kafka is needed here: %v", err)
	}
	t.Cleanup(func() { k.Wipe() })
	return k
}

func need(t testing.TB) {
	t.Helper()
	if Off() {
		t.Skip("BENCH_SERVICES=off: this test needs real servers")
	}
}
