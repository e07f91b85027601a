package cmd

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"binrelay/relay/relaytest"
)

type demoOptions struct {
	For  time.Duration `help:"End by itself after this time (default: at Ctrl-C)." placeholder:"TIME"`
	Rate float64       `help:"Row changes a second of the shop." default:"5"`
	Seed uint64        `help:"Another seed trades differently." default:"1"`
}

// demoSummary is how often the demo sums up.
const demoSummary = 5 * time.Second

// demo runs the relay that "run" would run, between a shop on an embedded MySQL and an embedded Kafka.
// Variables that say how to work, not where (TABLES, TOPIC, PARTITION_BY, HTTP_ADDR, …), hold here too.
func (p *program) demo(ctx context.Context, o demoOptions) (err error) {
	if o.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.For)
		defer cancel()
	}
	dir, err := os.MkdirTemp("", "binrelay-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	source, err := relaytest.StartSource(relaytest.SourceConfig{})
	if err != nil {
		return err
	}
	defer source.Close()
	broker, err := relaytest.StartKafka(relaytest.KafkaConfig{})
	if err != nil {
		return err
	}
	defer broker.Close()

	c, err := ParseConfig(demoEnvironment(p.environ, source.URL(), broker.Brokers(), filepath.Join(dir, "wal")))
	if err != nil {
		return err
	}
	limitMemory(p.environ)
	a, err := open(c, p.set, newLogger(p.stderr, c))
	if err != nil {
		return err
	}
	defer a.close()

	screen := newScreen(p.stdout, p.colours(p.stdout))
	screen.title(c, source.URL(), broker.Brokers(), dir, a.address(), o.For)
	shop := relaytest.NewShop(source, relaytest.ShopConfig{Seed: o.Seed, Rate: o.Rate})

	// The shop closes first, then the relay drains what was traded, and the screen shows it to the end.
	relayEnded := make(chan struct{})
	screenCtx, stopScreen := context.WithCancel(context.WithoutCancel(ctx))
	relayCtx, stopRelay := context.WithCancel(context.WithoutCancel(ctx))
	defer stopScreen()
	defer stopRelay()
	var others sync.WaitGroup
	others.Go(func() { broker.Tail(screenCtx, screen.record) })
	others.Go(func() { screen.sumUp(screenCtx, demoSummary, a.relay.Status) })
	go func() { err = a.run(relayCtx); close(relayEnded) }()
	shopCtx, closeShop := context.WithCancel(ctx)
	shopClosed := make(chan struct{})
	go func() { shop.Run(shopCtx); close(shopClosed) }()

	select {
	case <-ctx.Done():
	case <-relayEnded: // capture has halted
	}
	closeShop()
	<-shopClosed
	stopRelay()
	<-relayEnded
	screen.await(a.relay.Status().Sink.Records)
	stopScreen()
	others.Wait()
	screen.summary(a.relay.Status())
	return err
}

// demoEnvironment is the user's environment with the embedded servers in place of real ones.
func demoEnvironment(environ map[string]string, mysql, brokers, dir string) map[string]string {
	e := maps.Clone(environ)
	maps.DeleteFunc(e, func(name, _ string) bool {
		return strings.HasPrefix(name, "MYSQL_") || strings.HasPrefix(name, "KAFKA_") || strings.HasPrefix(name, "WAL_")
	})
	e["MYSQL_URL"], e["MYSQL_START"], e["KAFKA_BROKERS"], e["WAL_DIR"] = mysql, "earliest", brokers, dir
	if _, ok := e["HTTP_ADDR"]; !ok {
		e["HTTP_ADDR"] = "127.0.0.1:8080"
		if !free(e["HTTP_ADDR"]) {
			e["HTTP_ADDR"] = "127.0.0.1:0"
		}
	}
	if e["LOG_LEVEL"] == "" {
		e["LOG_LEVEL"] = strings.ToLower(slog.LevelWarn.String()) // the screen is for records
	}
	return e
}

func free(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	return l.Close() == nil
}
