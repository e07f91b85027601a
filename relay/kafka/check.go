package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Grade is how bad a finding is.
type Grade uint8

const (
	Good Grade = iota
	Warn       // runs, but a promise is weaker than the user may think
	Stop       // run would wait or halt
)

// Finding is one line of Check.
type Finding struct {
	Grade Grade
	Text  string // what was found
	Hint  string // what to do, "" when Good
}

func (f Finding) String() string {
	if f.Hint == "" {
		return f.Text
	}
	return f.Text + ": " + f.Hint
}

// Findings are in the order of the checks.
type Findings []Finding

func (fs *Findings) add(g Grade, text, hint string) { *fs = append(*fs, Finding{g, text, hint}) }

// Check looks at the live Kafka: reachable, authentication, version, and for each of the topics that are
// known beforehand whether it exists or may be made, rights, replication and size limits. It needs no
// Start and changes nothing. ctx bounds it.
func (s *Sink) Check(ctx context.Context, topics []string) (fs Findings) {
	cl, err := kgo.NewClient(append(s.cfg.options(), kgo.RequestRetries(0))...)
	if err != nil {
		fs.add(Stop, "Kafka settings", err.Error())
		return fs
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)

	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range topics {
		if !legalTopic(name) {
			fs.add(Stop, fmt.Sprintf("topic %q", name), "a topic has 1 to 249 of the characters a-z A-Z 0-9 . _ -; change TOPIC")
			continue
		}
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		fs.add(Stop, s.explain("", err), "check KAFKA_BROKERS, KAFKA_TLS, KAFKA_SASL_*")
		return fs
	}
	fs.add(Good, fmt.Sprintf("Kafka answers: %d brokers", len(resp.Brokers)), "")
	s.checkVersion(ctx, cl, &fs)
	if s.idempotent {
		pr := kmsg.NewPtrInitProducerIDRequest()
		pr.TransactionTimeoutMillis = 60_000
		r, err := pr.RequestWith(ctx, cl)
		if err == nil {
			err = kerr.ErrorForCode(r.ErrorCode)
		}
		switch {
		case kerr.IsRetriable(err):
			fs.add(Stop, "no producer id: "+s.explain("", err), "run this check again when Kafka has started; relay run waits for it")
		case err != nil:
			fs.add(Stop, "no producer id: "+s.explain("", err), "mend it, or do without one: DELIVERY=at-least-once with KAFKA_IN_FLIGHT=1")
		}
	}
	for i := range resp.Topics {
		s.checkTopic(ctx, adm, &resp.Topics[i], &fs)
	}
	return fs
}

func (s *Sink) checkVersion(ctx context.Context, cl *kgo.Client, fs *Findings) {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, cl)
	if err != nil {
		return
	}
	v := kversion.FromApiVersionsResponse(resp)
	if max, ok := v.LookupMaxKeyVersion(61); s.resume && (!ok || max < 0) {
		fs.add(Stop, "Kafka "+v.VersionGuess(), "exactly-once needs Kafka 2.8 or later (DescribeProducers); set DELIVERY=at-least-once")
	}
}

func (s *Sink) checkTopic(ctx context.Context, adm *kadm.Client, mt *kmsg.MetadataResponseTopic, fs *Findings) {
	if mt.Topic == nil {
		return
	}
	name := *mt.Topic
	if err := kerr.ErrorForCode(mt.ErrorCode); err != nil {
		if !errors.Is(err, kerr.UnknownTopicOrPartition) {
			fs.add(Stop, s.explain(name, err), "then run this check again")
			return
		}
		if !s.cfg.TopicCreate {
			fs.add(Stop, "topic "+name+" does not exist", "create it, or set TOPIC_CREATE=true")
			return
		}
		parts, repl := int32(-1), int16(-1)
		if s.cfg.TopicPartitions > 0 {
			parts = int32(s.cfg.TopicPartitions)
		}
		if s.cfg.TopicReplication > 0 {
			repl = int16(s.cfg.TopicReplication)
		}
		r, err := adm.ValidateCreateTopics(ctx, parts, repl, nil, name)
		if err == nil {
			err = r[name].Err
		}
		if err != nil {
			fs.add(Stop, "topic "+name+" cannot be created", strings.TrimSpace(s.explain(name, err)+" "+r[name].ErrMessage))
			return
		}
		fs.add(Good, "topic "+name+" will be created", "")
		return
	}
	ok := true
	say := func(g Grade, text, hint string) {
		ok = ok && g == Good
		fs.add(g, "topic "+name+" "+text, hint)
	}
	if ops := mt.AuthorizedOperations; ops != -1<<31 {
		if ops&(1<<4) == 0 {
			say(Stop, "may not be written by "+s.cfg.principal()+" (may not write)", "grant Write on it")
		}
		if ops&(1<<3) == 0 && s.resume {
			say(Stop, "may not be read by "+s.cfg.principal(), "grant Read on it: exactly-once settles what was in flight by reading; or set DELIVERY=at-least-once")
		}
	}
	replicas := 1 << 30
	for i := range mt.Partitions {
		replicas = min(replicas, len(mt.Partitions[i].Replicas))
		if mt.Partitions[i].Leader < 0 {
			say(Stop, fmt.Sprintf("partition %d has no leader", mt.Partitions[i].Partition), "start the missing brokers")
		}
	}
	get := s.topicConfig(ctx, adm, name)
	if isr, err := strconv.Atoi(get("min.insync.replicas")); err == nil && isr < 2 && replicas > 1 {
		say(Warn, fmt.Sprintf("has %d replicas but min.insync.replicas=%d", replicas, isr), "an acknowledged record may be on one broker only; set 2")
	}
	if replicas == 1 {
		say(Warn, "has one replica", "a lost disk loses acknowledged records; use 3 where it matters")
	}
	if get("unclean.leader.election.enable") == "true" {
		say(Warn, "allows unclean leader elections", "they lose acknowledged records; the relay finds that and sends again what its journal still has")
	}
	if n, err := strconv.Atoi(get("max.message.bytes")); err == nil && n < s.cfg.BatchMaxBytes {
		say(Warn, fmt.Sprintf("has max.message.bytes=%d, below KAFKA_BATCH_MAX_BYTES=%d", n, s.cfg.BatchMaxBytes), "batches for it are made smaller; a row above the limit, compressed, is refused")
	}
	if ok {
		fs.add(Good, fmt.Sprintf("topic %s: %d partitions, %d replicas", name, len(mt.Partitions), replicas), "")
	}
}

func (s *Sink) topicConfig(ctx context.Context, adm *kadm.Client, name string) func(key string) string {
	cs, err := adm.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return func(string) string { return "" }
	}
	c, err := cs.On(name, nil)
	return func(key string) string {
		if err == nil {
			for _, kv := range c.Configs {
				if kv.Key == key {
					return kv.MaybeValue()
				}
			}
		}
		return ""
	}
}
