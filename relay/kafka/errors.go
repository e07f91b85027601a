package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"binrelay/relay"

	"github.com/twmb/franz-go/pkg/kerr"
)

// answer is what a failed batch asks for.
type answer uint8

const (
	again  answer = iota // not written for sure: send it again
	unsure               // may be written: look, then go on
	refuse               // Kafka does not want this record
	mend                 // an operator has to do something: wait, try again
)

// answerTo classifies what a broker, or the way to it, said about a batch.
func answerTo(err error) answer {
	var ke *kerr.Error
	if !errors.As(err, &ke) {
		return unsure // no answer: a cut connection, a time-out
	}
	switch ke {
	case kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.PolicyViolation:
		return refuse
	case kerr.NotEnoughReplicas, kerr.ThrottlingQuotaExceeded:
		return again // refused before it was appended
	case kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.UnknownTopicOrPartition,
		kerr.UnknownTopicID, kerr.UnsupportedCompressionType, kerr.InvalidTopicException, kerr.InvalidRequiredAcks,
		kerr.UnsupportedForMessageFormat, kerr.UnsupportedVersion:
		return mend
	}
	// NOT_LEADER and REQUEST_TIMED_OUT may come after the append, OUT_OF_ORDER means that a request of
	// an earlier process was faster; what we do not know is asked about too.
	return unsure
}

// waiting is why something does not go on: a partition, or the sink as a whole.
type waiting struct {
	what   string
	since  time.Time
	logged bool
}

// patience is how long something may fail before it is called waiting.
const patience = 3 * time.Second

// trouble notes a failure of something that is tried again; w is the partition's, or the sink's. The
// caller holds s.mu.
func (s *Sink) trouble(w *waiting, what string) {
	if w.what == "" {
		w.since = time.Now()
	}
	w.what = what
	if !w.logged && time.Since(w.since) > s.patience {
		w.logged = true
		if s.said != what { // a topic's partitions wait for the same thing
			s.said = what
			s.log.Warn("kafka: waiting: " + what)
		}
	}
}

// well notes that it goes on. The caller holds s.mu.
func (s *Sink) well(w *waiting) {
	if w.logged && s.said != "" {
		s.said = ""
		s.log.Info("kafka: goes on", "after", time.Since(w.since).Round(time.Millisecond).String())
	}
	if w.what != "" {
		*w = waiting{}
	}
}

func (s *Sink) waitingLocked(now time.Time) string {
	var f *relay.Fault
	if errors.As(s.err, &f) {
		return "halted: " + f.Error()
	}
	if s.jerr != nil {
		return s.journalError(s.jerr).Error()
	}
	if s.why.what != "" && now.Sub(s.why.since) > s.patience {
		return s.why.what
	}
	for _, p := range s.active {
		if p.why.what != "" && now.Sub(p.why.since) > s.patience {
			return p.why.what
		}
	}
	if len(s.pend) > 0 {
		if age := now.Sub(s.pend[0].since); age > 2*(produceTimeout+replyTimeout) {
			return fmt.Sprintf("Kafka has not acknowledged the oldest record for %s", age.Round(time.Second))
		}
	}
	return ""
}

// explain turns an error about a topic into what an operator can act on.
func (s *Sink) explain(topic string, err error) string {
	var ke *kerr.Error
	if !errors.As(err, &ke) {
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Sprintf("Kafka at %v does not answer", s.cfg.Brokers)
		}
		return fmt.Sprintf("Kafka at %v: %v", s.cfg.Brokers, err)
	}
	switch ke {
	case kerr.TopicAuthorizationFailed:
		return fmt.Sprintf("topic %s: %s may not do this; it needs Describe, Write and Read on the topic", topic, s.cfg.principal())
	case kerr.ClusterAuthorizationFailed:
		return fmt.Sprintf("%s needs the right IdempotentWrite on the cluster (Kafka below 3.0), or Create to make topic %s", s.cfg.principal(), topic)
	case kerr.UnknownTopicOrPartition:
		if s.cfg.TopicCreate {
			return fmt.Sprintf("topic %s does not exist (yet)", topic)
		}
		return fmt.Sprintf("topic %s does not exist: create it, or set TOPIC_CREATE=true", topic)
	case kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend:
		return fmt.Sprintf("topic %s: fewer replicas are in sync than min.insync.replicas asks for: start the missing brokers", topic)
	case kerr.SaslAuthenticationFailed:
		return fmt.Sprintf("Kafka refuses the credentials of %s", s.cfg.principal())
	}
	if topic == "" {
		return fmt.Sprintf("Kafka at %v: %s: %s", s.cfg.Brokers, ke.Message, ke.Description)
	}
	return fmt.Sprintf("topic %s: %s: %s", topic, ke.Message, ke.Description)
}

// faultOf is a record that cannot be delivered.
func faultOf(rec *relay.Record, err error) error {
	var f *relay.Fault
	if errors.As(err, &f) {
		c := *f
		c.Row, c.Seq = int(rec.Row), rec.Seq
		return &c
	}
	return err
}

// journalError says where the journal could not be written.
func (s *Sink) journalError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("hand-over journal in %s (disk full, read-only or damaged?): %w", s.cfg.StateDir, err)
}

func removeAll(paths []string) {
	for _, p := range paths {
		os.Remove(p) // one that stays is read again and dropped later
	}
}
