package services

import (
	"context"
	"strconv"
	"strings"
)

// KafkaOptions say which cluster is wanted. The zero value is one broker without authentication.
type KafkaOptions struct {
	Brokers    int      // 1 or 3; 0 means 1
	Auth       bool     // SASL, TLS and ACLs, on further listeners
	FastStart  bool     // less CPU for a start, less speed later: for tests that restart brokers often
	Properties []string // further server properties, key=value
}

// Kafka is one private cluster.
type Kafka struct {
	Name    string
	Brokers string // host:port, comma separated; what KAFKA_BROKERS takes
	Dir     string
	// With Auth: addresses by listener, and files for TLS. Users are relay and admin (a super user),
	// the password is the name. ANONYMOUS, at Brokers, is a super user.
	SASL, TLS, SASLTLS        string
	CAFile, CertFile, KeyFile string
	env                       []string
}

// StartKafka starts a cluster and waits until every broker knows the others. Wipe ends it.
func StartKafka(ctx context.Context, o KafkaOptions) (*Kafka, error) {
	reap(ctx, kafkaScript)
	port, err := FreePorts(50)
	if err != nil {
		return nil, err
	}
	k := &Kafka{Name: instanceName("kafka")}
	if o.FastStart {
		k.env = []string{"BROKER_JVM=-Xmx384m -XX:TieredStopAtLevel=1"}
	}
	args := []string{"up", k.Name, strconv.Itoa(max(o.Brokers, 1)), strconv.Itoa(port)}
	if o.Auth {
		args = append(args, "--auth")
	}
	if len(o.Properties) > 0 {
		args = append(append(args, "--"), o.Properties...)
	}
	if _, err := run(ctx, kafkaScript, k.env, args...); err != nil {
		k.Wipe()
		return nil, err
	}
	out, err := run(ctx, kafkaScript, k.env, "env", k.Name)
	if err != nil {
		k.Wipe()
		return nil, err
	}
	v := vars(out)
	k.Brokers, k.Dir = v["KAFKA_BROKERS"], v["BROKER_DIR"]
	k.SASL, k.TLS, k.SASLTLS = v["BROKER_SASL"], v["BROKER_TLS"], v["BROKER_SASL_TLS"]
	k.CAFile, k.CertFile, k.KeyFile = v["BROKER_CA_FILE"], v["BROKER_CERT_FILE"], v["BROKER_KEY_FILE"]
	return k, nil
}

// Seeds is Brokers as a list.
func (k *Kafka) Seeds() []string { return strings.Split(k.Brokers, ",") }

// Start starts the brokers (all, or the given one from 1) that do not run.
func (k *Kafka) Start(ctx context.Context, broker ...int) error { return k.do(ctx, "start", broker) }

// Stop ends them cleanly.
func (k *Kafka) Stop(ctx context.Context, broker ...int) error { return k.do(ctx, "down", broker) }

// Kill ends them with SIGKILL.
func (k *Kafka) Kill(ctx context.Context, broker ...int) error { return k.do(ctx, "kill", broker) }

// Wipe kills the cluster and deletes its data.
func (k *Kafka) Wipe() error {
	_, err := run(context.Background(), kafkaScript, k.env, "wipe", k.Name)
	return err
}

// Tool runs one of Kafka's own command line tools ("topics", "acls", "configs", …) against the cluster.
func (k *Kafka) Tool(ctx context.Context, tool string, args ...string) (string, error) {
	return run(ctx, kafkaScript, k.env, append([]string{"tool", k.Name, tool}, args...)...)
}

func (k *Kafka) do(ctx context.Context, what string, broker []int) error {
	args := []string{what, k.Name}
	for _, b := range broker {
		args = append(args, strconv.Itoa(b))
	}
	_, err := run(ctx, kafkaScript, k.env, args...)
	return err
}
