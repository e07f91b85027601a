package faultnet

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFaults: without idempotence each fault shows in the log as what it is: an answer that is lost after
// the request was applied leaves the record twice, a request that never arrived whole leaves it once.
func TestFaults(t *testing.T) {
	for _, x := range []struct {
		name     string
		request  Action
		response Action
		late     time.Duration
		want     int64
	}{
		{name: "none", want: 1},
		{name: "answer cut", response: Cut, want: 2},
		{name: "answer swallowed", response: Swallow, want: 2},
		{name: "request cut", request: Cut, want: 1},
		{name: "request cut in the middle", request: CutMiddle, want: 1},
		{name: "late", late: 30 * time.Millisecond, want: 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			n := New()
			once := func(a Action) func(Frame) Action {
				return func(f Frame) Action {
					if f.Key == 0 && f.N == 1 {
						return a
					}
					return Pass
				}
			}
			n.OnRequest, n.OnResponse = once(x.request), once(x.response)
			if x.late > 0 {
				n.InDelay = func() time.Duration { return x.late }
			}
			c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"), kfake.ListenFn(n.ListenFn))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { c.Close(); n.CutAll(); n.Wait() }()
			addr, stop, err := n.Forward(c.ListenAddrs()[0])
			if err != nil {
				t.Fatal(err)
			}
			stop()
			if addr == c.ListenAddrs()[0] {
				t.Error("Forward gives the broker's own address")
			}
			cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DisableIdempotentWrite(), kgo.ProduceRequestTimeout(100*time.Millisecond),
				kgo.RequestTimeoutOverhead(200*time.Millisecond), kgo.MetadataMinAge(10*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if got := c.PartitionInfo("t", 0).HighWatermark; got != x.want {
				t.Errorf("the record is there %d times, want %d", got, x.want)
			}
			if req, _ := n.Counts(0); req < 1 {
				t.Errorf("%d Produce requests counted", req)
			}
		})
	}
}
