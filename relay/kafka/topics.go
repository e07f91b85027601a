package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"binrelay/relay"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// growthEvery is how often topics are looked at for new partitions.
const growthEvery = 5 * time.Second

var errNotRunning = errors.New("kafka: Start has not been called")

// Partitions is relay.Sink's.
func (s *Sink) Partitions(ctx context.Context, name string) (int, error) {
	t, err := s.topic(ctx, name)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(t.parts), nil
}

// topic gives a topic with the partition count that the journal fixed for it; the first use fixes it.
func (s *Sink) topic(ctx context.Context, name string) (*topic, error) {
	s.mu.Lock()
	t, running := s.byName[name], s.st != nil
	s.mu.Unlock()
	if t != nil {
		return t, nil
	}
	if !running {
		return nil, errNotRunning
	}
	if !legalTopic(name) {
		return nil, &relay.Fault{Function: "kafka", Err: fmt.Sprintf("%q is not a topic name", name),
			Hint: "a topic has 1 to 249 of the characters a-z A-Z 0-9 . _ -"}
	}
	s.topicMu.Lock()
	defer s.topicMu.Unlock()
	s.mu.Lock()
	t = s.byName[name]
	s.mu.Unlock()
	if t != nil {
		return t, nil
	}
	found, err := s.ensure(ctx, name, 0)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t = &topic{place: len(s.st.topics), name: name, id: found.id, maxBytes: found.maxBytes}
	for i, end := range found.ends {
		p := &partition{t: t, num: int32(i), pid: s.st.pid, epoch: s.st.epoch, off: end, id: found.id}
		p.leader = found.leaders[i]
		t.parts = append(t.parts, p)
	}
	s.st.topics = append(s.st.topics, t)
	s.byName[name] = t
	return t, nil
}

// found is a topic as Kafka has it.
type found struct {
	id       [16]byte
	leaders  []int32
	ends     []int64
	maxBytes int
}

// ensure waits until a topic is there with at least want partitions, and makes it if that is allowed.
func (s *Sink) ensure(ctx context.Context, name string, want int) (*found, error) {
	for try := 0; ; try++ {
		f, err := s.lookUp(ctx, name)
		if err == nil && len(f.leaders) < want {
			err = fmt.Errorf("topic %s has %d partitions, the log was written for %d: add partitions", name, len(f.leaders), want)
		}
		if errors.Is(err, kerr.UnknownTopicOrPartition) && s.cfg.TopicCreate {
			err = s.create(ctx, name, want)
			if err == nil {
				err = kerr.UnknownTopicOrPartition // made, not yet visible
			}
		}
		if err == nil {
			s.mu.Lock()
			s.well(&s.why)
			s.mu.Unlock()
			return f, nil
		}
		if errors.Is(err, kerr.InvalidTopicException) {
			return nil, &relay.Fault{Function: "kafka", Err: fmt.Sprintf("topic %s: %v", name, err), Hint: "Kafka does not take this name"}
		}
		s.mu.Lock()
		s.trouble(&s.why, s.explain(name, err))
		s.mu.Unlock()
		if err := s.pause(ctx, min(20*time.Millisecond<<min(try, 8), 2*time.Second)); err != nil {
			return nil, err
		}
	}
}

func (s *Sink) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s *Sink) lookUp(ctx context.Context, name string) (*found, error) {
	resp, err := s.metadata(ctx, []string{name})
	if err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 {
		return nil, kerr.UnknownTopicOrPartition
	}
	mt := &resp.Topics[0]
	if err := kerr.ErrorForCode(mt.ErrorCode); err != nil {
		return nil, err
	}
	if len(mt.Partitions) == 0 {
		return nil, kerr.UnknownTopicOrPartition
	}
	f := &found{id: mt.TopicID, leaders: make([]int32, len(mt.Partitions)), ends: make([]int64, len(mt.Partitions)), maxBytes: s.cfg.BatchMaxBytes}
	for i := range mt.Partitions {
		mp := &mt.Partitions[i]
		if mp.Partition < 0 || int(mp.Partition) >= len(f.leaders) {
			return nil, fmt.Errorf("topic %s: partition %d of %d", name, mp.Partition, len(f.leaders))
		}
		if mp.Leader < 0 {
			return nil, kerr.LeaderNotAvailable
		}
		f.leaders[mp.Partition] = mp.Leader
	}
	ends, err := s.adm.ListEndOffsets(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := ends.Error(); err != nil {
		return nil, err
	}
	if len(ends[name]) < len(f.ends) {
		return nil, kerr.UnknownTopicOrPartition
	}
	for i := range f.ends {
		f.ends[i] = ends[name][int32(i)].Offset
	}
	// A batch larger than the topic takes would be refused whole; smaller ones cost nothing. Without the
	// right DescribeConfigs the configured size is tried, and a refusal is sorted out record by record.
	if cs, err := s.adm.DescribeTopicConfigs(ctx, name); err == nil {
		if c, err := cs.On(name, nil); err == nil {
			for _, kv := range c.Configs {
				if n, err := strconv.Atoi(kv.MaybeValue()); kv.Key == "max.message.bytes" && err == nil && n > 1<<10 {
					f.maxBytes = min(f.maxBytes, n)
				}
			}
		}
	}
	return f, nil
}

// create makes a topic; that another was faster is fine.
func (s *Sink) create(ctx context.Context, name string, want int) error {
	parts, repl := int32(-1), int16(-1)
	if s.cfg.TopicPartitions > 0 {
		parts = int32(s.cfg.TopicPartitions)
	}
	if want > 0 {
		parts = int32(want)
	}
	if s.cfg.TopicReplication > 0 {
		repl = int16(s.cfg.TopicReplication)
	}
	resp, err := s.adm.CreateTopic(ctx, parts, repl, nil, name)
	if err == nil {
		err = resp.Err
	}
	switch {
	case err == nil:
		s.log.Info("kafka: topic created", "topic", name, "partitions", resp.NumPartitions, "replication", resp.ReplicationFactor)
		return nil
	case errors.Is(err, kerr.TopicAlreadyExists):
		return nil
	}
	var ke *kerr.Error
	if errors.As(err, &ke) && resp.ErrMessage != "" && ke != kerr.TopicAuthorizationFailed && ke != kerr.ClusterAuthorizationFailed && ke != kerr.InvalidTopicException {
		return fmt.Errorf("create topic %s: %s: %s", name, ke.Message, resp.ErrMessage)
	}
	return err
}

func (s *Sink) metadata(ctx context.Context, topics []string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*replyTimeout)
	defer cancel()
	return req.RequestWith(ctx, s.cl)
}

// leaders keeps the leaders of all partitions known, and notices topics that grow, vanish or come back.
func (s *Sink) leaders() {
	tick := time.NewTicker(growthEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.refresh:
		case <-tick.C:
		}
		s.mu.Lock()
		var names []string
		for _, t := range s.st.topics {
			names = append(names, t.name)
		}
		s.mu.Unlock()
		if len(names) > 0 {
			resp, err := s.metadata(s.ctx, names)
			var gone []*topic
			s.mu.Lock()
			if err != nil {
				if len(s.active) > 0 {
					s.trouble(&s.why, s.explain("", err))
				}
			} else {
				s.well(&s.why)
				gone = s.takeMetadata(resp)
			}
			s.mu.Unlock()
			s.poke()
			for _, t := range gone {
				if s.cfg.TopicCreate {
					if err := s.create(s.ctx, t.name, len(t.parts)); err != nil {
						s.mu.Lock()
						s.trouble(&s.why, s.explain(t.name, err))
						s.mu.Unlock()
					}
				}
			}
		}
		if s.pause(s.ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}

// takeMetadata gives the topics that are needed and do not exist.
func (s *Sink) takeMetadata(resp *kmsg.MetadataResponse) (gone []*topic) {
	for i := range resp.Topics {
		mt := &resp.Topics[i]
		if mt.Topic == nil {
			continue
		}
		t := s.byName[*mt.Topic]
		if t == nil {
			continue
		}
		if err := kerr.ErrorForCode(mt.ErrorCode); err != nil {
			needed := slices.ContainsFunc(t.parts, func(p *partition) bool { return len(p.queue) > 0 })
			for _, p := range t.parts {
				p.leader = -1
			}
			if needed {
				s.trouble(&t.parts[0].why, s.explain(t.name, err))
				if errors.Is(err, kerr.UnknownTopicOrPartition) {
					gone = append(gone, t)
				}
			}
			continue
		}
		t.id = mt.TopicID
		if n := len(mt.Partitions); n > len(t.parts) && n != t.grown {
			t.grown, s.worn = n, true
			s.log.Info("kafka: topic has grown; its new partitions are used once all before is acknowledged", "topic", t.name, "from", len(t.parts), "to", n)
		}
		for k := range mt.Partitions {
			mp := &mt.Partitions[k]
			if mp.Partition < 0 || int(mp.Partition) >= len(t.parts) {
				continue
			}
			p := t.parts[mp.Partition]
			if p.leader != mp.Leader {
				p.leader, p.proven = mp.Leader, false
			}
			if t.id != p.id && t.id != [16]byte{} && p.mode == streaming && p.inflight == 0 && s.resume && len(p.queue) > 0 {
				p.mode, p.err = failed, errRecreated
			}
		}
	}
	return gone
}

var errRecreated = errors.New("the topic was deleted and made again")

// grow takes up the new partitions of a topic. All that was sent is acknowledged.
func (s *Sink) grow(ctx context.Context, t *topic) error {
	f, err := s.ensure(ctx, t.name, len(t.parts))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from := len(t.parts)
	for i := from; i < len(f.leaders); i++ {
		p := &partition{t: t, num: int32(i), pid: s.st.pid, epoch: s.st.epoch, off: f.ends[i], id: f.id}
		p.leader = f.leaders[i]
		t.parts = append(t.parts, p)
	}
	t.grown, t.noted = 0, false
	s.log.Info("kafka: topic's new partitions are in use", "topic", t.name, "from", from, "to", len(t.parts))
	return nil
}

// knowCluster makes sure that the journal belongs to the cluster at hand before anything is sent.
func (s *Sink) knowCluster(ctx context.Context) error {
	var id string
	for try := 0; ; try++ {
		resp, err := s.metadata(ctx, nil)
		if err == nil {
			if resp.ClusterID != nil {
				id = *resp.ClusterID
			}
			break
		}
		s.mu.Lock()
		s.trouble(&s.why, s.explain("", err))
		s.mu.Unlock()
		if err := s.pause(ctx, min(50*time.Millisecond<<min(try, 6), 2*time.Second)); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.well(&s.why)
	was, topics := s.st.cluster, slices.Clone(s.st.topics)
	if was == "" || id == "" {
		s.st.cluster = id
	}
	s.mu.Unlock()
	if was != "" && id != "" && was != id {
		if err := s.adopt(ctx, id, was, topics); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.hold = false
	s.mu.Unlock()
	s.wantLeaders()
	s.poke()
	return nil
}

// adopt goes on in another cluster: what the first one has not acknowledged goes to this one.
func (s *Sink) adopt(ctx context.Context, id, was string, topics []*topic) error {
	s.log.Warn("kafka: KAFKA_BROKERS is another cluster than before; what the first has not acknowledged goes to this one", "cluster", id, "before", was)
	there := make([]*found, len(topics))
	for i, t := range topics {
		f, err := s.ensure(ctx, t.name, len(t.parts))
		if err != nil {
			return err
		}
		there[i] = f
	}
	pid, epoch, err := s.newProducer(ctx)
	if err != nil {
		return err
	}
	return s.journalError(s.control(ctx, func() error {
		s.mu.Lock()
		s.st.cluster, s.st.pid, s.st.epoch = id, pid, epoch
		for i, t := range topics {
			t.id, t.maxBytes = there[i].id, there[i].maxBytes
			for k, p := range t.parts {
				p.pid, p.epoch, p.n0, p.off, p.id, p.foreign = pid, epoch, p.acked, there[i].ends[k], there[i].id, false
				p.leader = there[i].leaders[k]
				p.mode, p.err, p.sent = streaming, nil, 0
			}
		}
		snap := s.st.appendSnapshot(nil)
		s.mu.Unlock()
		return s.j.begin(snap)
	}))
}

// newProducer asks for a producer session; -1 without idempotence.
func (s *Sink) newProducer(ctx context.Context) (pid int64, epoch int16, err error) {
	if !s.idempotent {
		return -1, -1, nil
	}
	for try := 0; ; try++ {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionTimeoutMillis = 60_000
		rctx, cancel := context.WithTimeout(ctx, 2*replyTimeout)
		resp, err := req.RequestWith(rctx, s.cl)
		cancel()
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err == nil {
			s.sessions.Add(1)
			// A relay without anything to send stays here: nothing else would say that it goes on.
			s.mu.Lock()
			s.well(&s.why)
			s.mu.Unlock()
			return resp.ProducerID, resp.ProducerEpoch, nil
		}
		s.mu.Lock()
		s.trouble(&s.why, s.explain("", err))
		s.mu.Unlock()
		if err := s.pause(ctx, min(50*time.Millisecond<<min(try, 6), 2*time.Second)); err != nil {
			return 0, 0, err
		}
	}
}
