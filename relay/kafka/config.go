package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"binrelay/relay"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Deliveries.
const (
	ExactlyOnce = "exactly-once"
	AtLeastOnce = "at-least-once"
)

// Config is what New needs. The comments name the environment variable that a mistake is reported under.
type Config struct {
	Brokers  []string    // KAFKA_BROKERS, host:port
	ClientID string      // shown in the broker's logs and quotas
	TLS      *tls.Config // KAFKA_TLS; nil: plain text

	SASLMechanism string                 // KAFKA_SASL_MECHANISM: "", PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
	SASLUsername  string                 // KAFKA_SASL_USERNAME
	SASLPassword  func() (string, error) // asked at each authentication

	Compression   string        // KAFKA_COMPRESSION: none, snappy, lz4, zstd, gzip
	Linger        time.Duration // KAFKA_LINGER
	BatchMaxBytes int           // KAFKA_BATCH_MAX_BYTES, of a batch before compression
	InFlight      int           // KAFKA_IN_FLIGHT: 1 or 5 requests a broker
	Delivery      string        // DELIVERY

	TopicCreate      bool // TOPIC_CREATE
	TopicPartitions  int  // TOPIC_PARTITIONS; 0: the broker's default
	TopicReplication int  // TOPIC_REPLICATION; 0: the broker's default

	StateDir string // the journal's directory, below WAL_DIR; nothing else may use it

	// DeadLetter is asked what to do with a record that Kafka refuses for good: it gives the record to
	// deliver in its place, or false to halt. nil: halt. It may be called again for the same record.
	DeadLetter func(refused *relay.Record, reason error) (*relay.Record, bool)

	// OnAcked, which may be nil, is told how long a batch was on its way: from durable in the journal to the
	// acknowledgement of its last record. It must be fast.
	OnAcked func(time.Duration)

	Logger  *slog.Logger // nil: slog.Default()
	KgoOpts []kgo.Opt    // more options of the client; tests use it
}

// validate fills in defaults and lists every mistake.
func (c *Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Brokers) == 0 {
		bad("KAFKA_BROKERS: at least one host:port is needed")
	}
	for _, b := range c.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			bad("KAFKA_BROKERS: %q is not host:port", b)
		}
	}
	switch c.SASLMechanism {
	case "":
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
		if c.SASLUsername == "" || c.SASLPassword == nil {
			bad("KAFKA_SASL_MECHANISM=%s needs KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD or KAFKA_SASL_PASSWORD_FILE", c.SASLMechanism)
		}
		if c.SASLMechanism == "PLAIN" && c.TLS == nil && !loopback(c.Brokers) {
			bad("KAFKA_SASL_MECHANISM=PLAIN sends the password in the clear: set KAFKA_TLS=true")
		}
	default:
		bad("KAFKA_SASL_MECHANISM: %q is not PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", c.SASLMechanism)
	}
	if c.Compression == "" {
		c.Compression = "snappy"
	}
	if _, err := compressor(c.Compression); err != nil {
		errs = append(errs, err)
	}
	if c.Linger < 0 || c.Linger > time.Minute {
		bad("KAFKA_LINGER: %v is not between 0 and 1m", c.Linger)
	}
	if c.BatchMaxBytes == 0 {
		c.BatchMaxBytes = 1_000_000
	}
	if c.BatchMaxBytes < 1<<10 || c.BatchMaxBytes > 512<<20 {
		bad("KAFKA_BATCH_MAX_BYTES: %d is not between 1KiB and 512MiB", c.BatchMaxBytes)
	}
	if c.Delivery == "" {
		c.Delivery = ExactlyOnce
	}
	if c.InFlight == 0 {
		c.InFlight = 5
	}
	switch {
	case c.InFlight != 1 && c.InFlight != 5:
		bad("KAFKA_IN_FLIGHT: %d is not 1 or 5", c.InFlight)
	case c.Delivery != ExactlyOnce && c.Delivery != AtLeastOnce:
		bad("DELIVERY: %q is not exactly-once or at-least-once", c.Delivery)
	case c.InFlight == 1 && c.Delivery == ExactlyOnce:
		bad("KAFKA_IN_FLIGHT=1 writes without idempotence and can repeat records: set DELIVERY=at-least-once with it, or KAFKA_IN_FLIGHT=5")
	}
	if c.TopicPartitions < 0 || c.TopicPartitions > 100_000 {
		bad("TOPIC_PARTITIONS: %d is not between 1 and 100000", c.TopicPartitions)
	}
	if c.TopicReplication < 0 || c.TopicReplication > 1000 {
		bad("TOPIC_REPLICATION: %d is not between 1 and 1000", c.TopicReplication)
	}
	if c.StateDir == "" {
		bad("WAL_DIR: no directory for the hand-over journal")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.ClientID == "" {
		c.ClientID = "binrelay"
	}
	return errors.Join(errs...)
}

func loopback(brokers []string) bool {
	for _, b := range brokers {
		host, _, _ := net.SplitHostPort(b)
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

func compressor(name string) (kgo.Compressor, error) {
	var codec kgo.CompressionCodec
	switch name {
	case "none":
		return nil, nil
	case "snappy":
		codec = kgo.SnappyCompression()
	case "lz4":
		codec = kgo.Lz4Compression()
	case "zstd":
		codec = kgo.ZstdCompression().WithLevel(1)
	case "gzip":
		codec = kgo.GzipCompression()
	default:
		return nil, fmt.Errorf("KAFKA_COMPRESSION: %q is not none, snappy, lz4, zstd or gzip", name)
	}
	return kgo.DefaultCompressor(codec)
}

// produceTimeout is how long a broker may wait for its replicas, replyTimeout what the network may take
// on top: an answer that never comes on an open connection costs both.
const (
	produceTimeout = 5 * time.Second
	replyTimeout   = 5 * time.Second
)

func (c *Config) options() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...), kgo.ClientID(c.ClientID),
		kgo.MaxVersions(versions()),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(time.Minute),
		kgo.RequestTimeoutOverhead(replyTimeout), kgo.DialTimeout(3 * time.Second),
		kgo.RetryTimeout(2 * time.Second), kgo.RequestRetries(2),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.DisableClientMetrics(),
		// A batch may hold one very large row; kgo's default of 100 MiB would refuse it here, before the
		// broker could say whether its limit lets it pass.
		kgo.BrokerMaxWriteBytes(1 << 30),
	}
	if c.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(c.TLS))
	}
	if m := c.sasl(); m != nil {
		opts = append(opts, kgo.SASL(m))
	}
	return append(opts, c.KgoOpts...)
}

func (c *Config) sasl() sasl.Mechanism {
	if c.SASLMechanism == "" {
		return nil
	}
	if c.SASLMechanism == "PLAIN" {
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			pass, err := c.SASLPassword()
			return plain.Auth{User: c.SASLUsername, Pass: pass}, err
		})
	}
	auth := func(context.Context) (scram.Auth, error) {
		pass, err := c.SASLPassword()
		return scram.Auth{User: c.SASLUsername, Pass: pass}, err
	}
	if c.SASLMechanism == "SCRAM-SHA-256" {
		return scram.Sha256(auth)
	}
	return scram.Sha512(auth)
}

// versions keeps Produce and Fetch at the last versions that name topics: both are built here.
func versions() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(0, 11)
	v.SetMaxKeyVersion(1, 11)
	return v
}

// principal is who Kafka sees, for messages.
func (c *Config) principal() string {
	if c.SASLUsername != "" {
		return "User:" + c.SASLUsername
	}
	host, _ := os.Hostname()
	if c.TLS != nil && len(c.TLS.Certificates) > 0 {
		return "the client certificate of " + host
	}
	return "User:ANONYMOUS"
}

func legalTopic(name string) bool {
	if name == "" || len(name) > 249 || name == "." || name == ".." {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	}) < 0
}
