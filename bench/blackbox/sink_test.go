package blackbox

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"binrelay/bench/services"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestKafkaNotThere(t *testing.T) {
	onOne(t, func(t *testing.T, w *world) {
		// A Kafka of its own: stopping the shared one would cost every other test.
		k := services.Broker(t, services.KafkaOptions{FastStart: true})
		if err := k.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.kafka = k
		w = w.set("KAFKA_BROKERS", k.Brokers)
		p := w.start()
		w.waits(p, k.Brokers)
		w.exec("REPLACE INTO bb.t VALUES (910, 'kept')")
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.arrives(`"kept"`)
		w.ready(p)
	})
}

func TestUnauthorisedTopic(t *testing.T) {
	onOne(t, func(t *testing.T, w *world) {
		adm := admin(t, w.kafka)
		topic := w.env["TOPIC"]
		if _, err := adm.CreateTopic(t.Context(), 1, -1, nil, topic); err != nil {
			t.Fatal(err)
		}
		// From the first ACL on, a topic is closed to everyone else.
		allow(t, adm, topic, "User:somebody")
		w = w.set("KAFKA_BROKERS", w.kafka.SASL, "KAFKA_SASL_MECHANISM", "SCRAM-SHA-256", "KAFKA_SASL_USERNAME", "relay", "KAFKA_SASL_PASSWORD", "relay")
		p := w.start()
		w.connected(p)
		w.exec("REPLACE INTO bb.t VALUES (911, 'allowed')")
		w.waits(p, `(not authori[sz]ed|authori[sz]ation).*|`+topic)
		allow(t, adm, topic, "User:relay")
		w.arrives(`"allowed"`)
		w.ready(p)
	})
}

func TestWrongKafkaPassword(t *testing.T) {
	onOne(t, func(t *testing.T, w *world) {
		w = w.set("KAFKA_BROKERS", w.kafka.SASL, "KAFKA_SASL_MECHANISM", "PLAIN", "KAFKA_SASL_USERNAME", "relay", "KAFKA_SASL_PASSWORD", "wrong-"+secret[:6])
		w.waits(w.start(), `refuses the credentials of User:relay`)
	})
}

func TestMissingTopicMayNotBeMade(t *testing.T) {
	onOne(t, func(t *testing.T, w *world) {
		w = w.set("TOPIC_CREATE", "false")
		p := w.start()
		w.connected(p)
		w.exec("REPLACE INTO bb.t VALUES (912, 'late topic')")
		w.waits(p, w.env["TOPIC"])
		if _, err := admin(t, w.kafka).CreateTopic(t.Context(), 3, -1, nil, w.env["TOPIC"]); err != nil {
			t.Fatal(err)
		}
		w.arrives(`"late topic"`)
		w.ready(p)
	})
}

func TestSecondRelayOnTheSameLog(t *testing.T) {
	onOne(t, func(t *testing.T, w *world) {
		w.ready(w.start())
		port, err := services.FreePorts(1)
		if err != nil {
			t.Fatal(err)
		}
		w.set("HTTP_ADDR", addr(port)).fails(1, `(another|second|other).*(relay|process)|lock`)
	})
}

func TestLogDirectoryIsAFile(t *testing.T) {
	onOne(t, func(t *testing.T, w *world) {
		f := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.set("WAL_DIR", f).fails(1, f)
	})
}

func TestLogDirectoryIsReadOnly(t *testing.T) {
	// Nobody, root included, makes a directory under /proc.
	onOne(t, func(t *testing.T, w *world) { w.set("WAL_DIR", "/proc/binrelay").fails(1, `/proc/binrelay`) })
}

func TestNoRoomForANewLog(t *testing.T) {
	onOne(t, func(t *testing.T, w *world) { w.set("WAL_MIN_FREE", "900TiB").fails(1, `no room.*must stay free`) })
}

func TestAddressInUse(t *testing.T) {
	onOne(t, func(t *testing.T, w *world) {
		w.ready(w.start())
		w.set("WAL_DIR", filepath.Join(t.TempDir(), "other")).fails(1, `HTTP_ADDR|address already in use`)
	})
}

func admin(t *testing.T, k *services.Kafka) *kadm.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Seeds()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}

// allow lets a user read and write a topic.
func allow(t *testing.T, adm *kadm.Client, topic, user string) {
	t.Helper()
	b := kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead, kadm.OpWrite).Allow(user).AllowHosts("*")
	res, err := adm.CreateACLs(context.WithoutCancel(t.Context()), b)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range res {
		if r.Err != nil && !kerr.IsRetriable(r.Err) {
			t.Fatal(r.Err)
		}
	}
}
