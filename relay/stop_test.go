package relay_test

import (
	"context"
	"testing"
	"time"

	"binrelay/relay"
	"binrelay/relay/relaytest"
)

// refusing is a sink with a record that Kafka has refused.
type refusing struct{ *relaytest.Sink }

func (s refusing) Close(ctx context.Context) error {
	s.Sink.Close(ctx)
	return &relay.Fault{Function: "kafka", Err: "refused"}
}

// TestStopOfHaltedDeliveryIsNoFault: delivery that has halted keeps the process up until it is asked to stop, and
// that is an end as asked for, whoever was at fault: a function or Kafka.
func TestStopOfHaltedDeliveryIsNoFault(t *testing.T) {
	s := newSim(t, 1)
	h := newHandler(s)
	defer h.wait()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	r := &relay.Relay{Source: s.source, Log: s.log, Sink: refusing{s.sink}, Handler: h, Logger: s.logger, ShutdownTimeout: time.Second, Workers: 1}
	if err := r.Run(ctx); err != nil {
		t.Errorf("Run = %v after a stop", err)
	}
}
