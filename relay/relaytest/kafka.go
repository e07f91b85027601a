package relaytest

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"binrelay/functions"
)

// KafkaConfig says how a Kafka is to be. The zero value is one broker without topics.
type KafkaConfig struct {
	Brokers    int // 0 means 1
	Partitions int // of a topic made without a count; 0 means 4
	// Options are what else kfake can do: SASL, TLS, ACLs, DataDir. A ListenFn among them (faultnet's)
	// takes the place of our own network; Stop, CutConnections and LoseResponses then do nothing.
	Options []kfake.Opt
}

// Kafka is an in-process Kafka cluster (kfake) that listens on loopback, with the faults of a network and
// of brokers on request. Records are in memory: it is for tests and demonstrations, not for storage.
type Kafka struct {
	cluster *kfake.Cluster
	net     kafkaNet
	addrs   []string
}

// KafkaRecord is a record as it lies in a partition.
type KafkaRecord struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte // nil: tombstone
	Headers   []functions.Header
	Time      time.Time
}

// StartKafka starts a cluster; Close ends it.
func StartKafka(cfg KafkaConfig) (*Kafka, error) {
	k := &Kafka{}
	opts := []kfake.Opt{kfake.NumBrokers(max(1, cfg.Brokers)), kfake.DefaultNumPartitions(4), kfake.ListenFn(k.net.listen)}
	if cfg.Partitions > 0 {
		opts = append(opts, kfake.DefaultNumPartitions(cfg.Partitions))
	}
	c, err := kfake.NewCluster(append(opts, cfg.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("relaytest: kafka: %w", err)
	}
	k.cluster, k.addrs = c, c.ListenAddrs()
	return k, nil
}

// Close ends the cluster and all its connections.
func (k *Kafka) Close() error {
	k.net.close()
	k.cluster.Close()
	return nil
}

// Addrs are the brokers' addresses. They stay the same over Stop and Restart.
func (k *Kafka) Addrs() []string { return append([]string(nil), k.addrs...) }

// Brokers are the addresses as KAFKA_BROKERS takes them.
func (k *Kafka) Brokers() string { return strings.Join(k.addrs, ",") }

// Cluster is kfake's own handle, for faults that are not offered here.
func (k *Kafka) Cluster() *kfake.Cluster { return k.cluster }

// CreateTopic makes a topic; config may be nil.
func (k *Kafka) CreateTopic(topic string, partitions int, config map[string]string) error {
	if err := k.cluster.CreateTopic(topic, int32(partitions), config); err != nil {
		return fmt.Errorf("relaytest: kafka: topic %s: %w", topic, err)
	}
	return nil
}

// Stop makes every broker unreachable: connections drop, connecting is refused. Records stay.
func (k *Kafka) Stop() { k.net.stop() }

// Restart makes the brokers reachable again at the same addresses.
func (k *Kafka) Restart() error { return k.net.restart() }

// CutConnections drops every connection now.
func (k *Kafka) CutConnections() { k.net.cut() }

// LoseResponses cuts the connection in place of each of the next n answers to Produce: the records are
// written, but the producer never learns it.
func (k *Kafka) LoseResponses(n int) { k.net.lose.Store(int64(n)) }

// FailProduce answers the next n produce requests with an error, before anything is written (after it
// with kerr.RequestTimedOut and kerr.NotEnoughReplicasAfterAppend); n < 0: until the returned function is
// called. topic "" means all.
func (k *Kafka) FailProduce(n int, topic string, err *kerr.Error) (stop func()) {
	h := k.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: err, Count: n})
	return h.Remove
}

// Records returns everything that lies in the given topics (none given: in all), by topic, partition and
// offset, as a consumer without read_committed sees it.
func (k *Kafka) Records(ctx context.Context, topics ...string) ([]KafkaRecord, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.addrs...), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("relaytest: kafka: %w", err)
	}
	defer cl.Close()
	if len(topics) == 0 {
		list, err := kadm.NewClient(cl).ListTopics(ctx)
		if err != nil {
			return nil, fmt.Errorf("relaytest: kafka: list topics: %w", err)
		}
		topics = list.Names()
	}
	from := map[string]map[int32]kgo.Offset{}
	missing := map[string]map[int32]int64{} // partition → offset behind its last record
	for _, t := range topics {
		for _, p := range k.cluster.PartitionInfos(t) {
			if p.HighWatermark <= p.LogStartOffset {
				continue
			}
			if from[t] == nil {
				from[t], missing[t] = map[int32]kgo.Offset{}, map[int32]int64{}
			}
			from[t][p.Partition] = kgo.NewOffset().At(p.LogStartOffset)
			missing[t][p.Partition] = p.HighWatermark
		}
	}
	var out []KafkaRecord
	cl.AddConsumePartitions(from)
	for left := count(missing); left > 0; left = count(missing) {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return out, fmt.Errorf("relaytest: kafka: %d partitions not read to their end: %w", left, context.Cause(ctx))
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			end, wanted := missing[p.Topic][p.Partition]
			for _, r := range p.Records {
				if wanted && r.Offset < end {
					out = append(out, kafkaRecord(r))
				}
				if r.Offset+1 >= end {
					delete(missing[p.Topic], p.Partition)
				}
			}
		})
	}
	sort.SliceStable(out, func(i, j int) bool {
		a, b := &out[i], &out[j]
		if a.Topic != b.Topic {
			return a.Topic < b.Topic
		}
		if a.Partition != b.Partition {
			return a.Partition < b.Partition
		}
		return a.Offset < b.Offset
	})
	return out, nil
}

func count(m map[string]map[int32]int64) (n int) {
	for _, p := range m {
		n += len(p)
	}
	return n
}

// Tail calls fn for each record of all topics, those that are made later too, from their beginnings until
// ctx ends (nil) or fn returns an error. Within a partition it is in order.
func (k *Kafka) Tail(ctx context.Context, fn func(KafkaRecord) error) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.addrs...), kgo.ConsumeRegex(), kgo.ConsumeTopics(".*"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.MetadataMinAge(20*time.Millisecond), kgo.MetadataMaxAge(100*time.Millisecond)) // a new topic shows soon
	if err != nil {
		return fmt.Errorf("relaytest: kafka: %w", err)
	}
	defer cl.Close()
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return nil
		}
		for it := fetches.RecordIter(); !it.Done(); {
			if err := fn(kafkaRecord(it.Next())); err != nil {
				return err
			}
		}
	}
}

func kafkaRecord(r *kgo.Record) KafkaRecord {
	out := KafkaRecord{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Time: r.Timestamp}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, functions.Header{Key: h.Key, Value: h.Value})
	}
	return out
}

// errKafkaClosed ends Accept for good.
var errKafkaClosed = errors.New("relaytest: kafka is closed")
