package kafka

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// policyAge is how long a topic's cleanup.policy is believed.
const policyAge = time.Minute

// policies remembers which topics are compacted. The zero value is ready.
type policies struct {
	known sync.Map   // topic → policy
	mu    sync.Mutex // one question at a time
}

type policy struct {
	compacted bool
	asked     time.Time
}

// Compacted reports whether a topic's cleanup.policy has compact, so that a delete needs a tombstone there. It
// makes the topic when it is missing and may be made, and waits for as long as ctx lives while Kafka cannot say.
// The answer is believed for a minute; without the right DescribeConfigs it is false, and said once.
func (s *Sink) Compacted(ctx context.Context, topic string) (bool, error) {
	if v, ok := s.policies.known.Load(topic); ok && time.Since(v.(policy).asked) < policyAge {
		return v.(policy).compacted, nil
	}
	if _, err := s.topic(ctx, topic); err != nil {
		return false, err
	}
	s.policies.mu.Lock()
	defer s.policies.mu.Unlock()
	old, asked := s.policies.known.Load(topic)
	if asked && time.Since(old.(policy).asked) < policyAge {
		return old.(policy).compacted, nil // another worker asked meanwhile
	}
	for {
		compacted, err := s.askPolicy(ctx, topic)
		switch {
		case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
			if !asked {
				s.log.Warn("TOMBSTONES=auto: "+s.cfg.principal()+" may not read the topic's configuration; no tombstones are written to it",
					"topic", topic, "hint", "grant DescribeConfigs on the topic, or set TOMBSTONES=on or off")
			}
			err = nil
		case err != nil && asked:
			compacted, err = old.(policy).compacted, nil // what was true a minute ago is better than to wait
		}
		if err == nil {
			s.policies.known.Store(topic, policy{compacted, time.Now()})
			return compacted, nil
		}
		if err := s.pause(ctx, 200*time.Millisecond); err != nil {
			return false, err
		}
	}
}

func (s *Sink) askPolicy(ctx context.Context, topic string) (compacted bool, err error) {
	configs, err := s.adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return false, err
	}
	c, err := configs.On(topic, nil)
	if err == nil {
		err = c.Err
	}
	if err != nil {
		return false, err
	}
	for _, kv := range c.Configs {
		if kv.Key == "cleanup.policy" {
			return strings.Contains(kv.MaybeValue(), "compact"), nil
		}
	}
	return false, nil
}
