package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"binrelay/bench/services"
	"binrelay/relay/relaytest/faultnet"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// via puts a fault network in front of every broker and says how a child reaches it.
func via(t *testing.T, n *faultnet.Net, brokers []string) (dial string) {
	t.Helper()
	var out []string
	var stops []func()
	t.Cleanup(func() {
		for _, stop := range stops {
			stop()
		}
		n.CutAll()
		n.Wait()
	})
	for _, b := range brokers {
		addr, stop, err := n.Forward(b)
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, stop)
		out = append(out, b+"="+addr)
	}
	return strings.Join(out, ",")
}

// TestReal is on a real Kafka of one broker; REAL_BROKERS=3 takes three, replication 3, min.insync.replicas 2.
func TestReal(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes a real Kafka")
	}
	t.Parallel() // it waits for JVMs most of the time
	brokers := 1
	if os.Getenv("REAL_BROKERS") == "3" {
		brokers = 3
	}
	k := services.Broker(t, services.KafkaOptions{Brokers: brokers, FastStart: true, Auth: true})
	t.Run("answers lost and broker restarted", func(t *testing.T) { realAnswersLost(t, k, brokers) })
	t.Run("rights", func(t *testing.T) { realRights(t, k) })
	t.Run("kill", func(t *testing.T) { realKill(t, k, brokers) })
}

// realAnswersLost: five batches are written, their answers lost, and the broker remembers only the last one
// after its restart. kgo alone repeats records here.
func realAnswersLost(t *testing.T, k *services.Kafka, brokers int) {
	ctx := ctxFor(t)
	makeTopic(t, k.Seeds(), "lost", 1)
	n := faultnet.New()
	cfg := testConfig(t, k.Seeds())
	cfg.Compression, cfg.BatchMaxBytes = "none", 1<<10
	cfg.KgoOpts = append(cfg.KgoOpts, kgo.Dialer(dialVia(via(t, n, k.Seeds()))))
	s, _ := start(t, cfg)
	send := func(from, to uint64) {
		t.Helper()
		b := run("lost", from, to)
		for i := range b.Records {
			b.Records[i] = big("lost", from+uint64(i), noise(600)) // a batch each
		}
		if err := s.Send(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	send(1, 3)
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	n.Lock(func() {
		n.OnResponse = func(f faultnet.Frame) faultnet.Action {
			if f.Key == 0 {
				return faultnet.Swallow
			}
			return faultnet.Pass
		}
	})
	send(4, 12)
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Seeds()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for endOffsets(t, cl, "lost")[0] < 8 {
		time.Sleep(5 * time.Millisecond)
	}
	if err := k.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	n.Lock(func() { n.OnResponse = nil })
	if err := k.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err, s.Status().Waiting)
	}
	once(t, k.Seeds(), "lost", 1, 12)
}

// realKill is TestKill with brokers that are killed and restarted meanwhile; REAL_KILLS is how many lives (6).
func realKill(t *testing.T, k *services.Kafka, brokers int) {
	kills := 6
	if s := os.Getenv("REAL_KILLS"); s != "" {
		kills, _ = strconv.Atoi(s)
	}
	ctx := context.Background()
	isr := strconv.Itoa(1 + brokers/2)
	r, err := admin(t, k.Seeds()).CreateTopic(ctx, 12, int16(brokers), map[string]*string{"min.insync.replicas": &isr}, killTopic)
	if err == nil {
		err = r.Err
	}
	if err != nil {
		t.Fatal(err)
	}
	n := faultnet.New()
	n.InDelay = func() time.Duration { return time.Duration(rand.IntN(2)) * rand.N(600*time.Millisecond) }
	col := collect(t, k.Seeds())
	run := newKiller(t, k.Seeds(), "SINK_DIAL="+via(t, n, k.Seeds()))

	stop := make(chan struct{})
	var wg sync.WaitGroup
	counts := map[string]int{}
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Second + rand.N(3*time.Second)):
			}
			b := 1 + rand.IntN(brokers)
			var err error
			if rand.IntN(2) == 0 {
				counts["broker killed"]++
				err = k.Kill(ctx, b)
			} else {
				counts["broker stopped"]++
				err = k.Stop(ctx, b)
			}
			time.Sleep(rand.N(time.Second))
			if err2 := k.Start(ctx, b); errors.Join(err, err2) != nil {
				t.Error(errors.Join(err, err2))
				return
			}
		}
	})
	total := run.kill(kills, 300*time.Millisecond, 4*time.Second, func() uint64 {
		close(stop)
		wg.Wait()
		return col.upTo(t)
	})
	time.Sleep(time.Second)         // the last late requests have arrived
	total = max(total, col.upTo(t)) // more may have been in the last journal
	col.once(t, total)
	t.Logf("%d kills of the child, %v: %d records", kills, counts, total)
}

// collector reads along, in order, while brokers come and go.
type collector struct {
	cl   *kgo.Client
	mu   sync.Mutex
	log  map[int32][]uint64
	pos  map[int32]int64
	done chan struct{}
}

func collect(t *testing.T, brokers []string) *collector {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(killTopic), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(100*time.Millisecond), kgo.UnknownTopicRetries(-1))
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{cl: cl, log: map[int32][]uint64{}, pos: map[int32]int64{}, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for {
			fs := cl.PollFetches(context.Background())
			if fs.IsClientClosed() {
				return
			}
			c.mu.Lock()
			fs.EachRecord(func(r *kgo.Record) {
				if r.Offset < c.pos[r.Partition] {
					t.Errorf("partition %d: offset %d after %d", r.Partition, r.Offset, c.pos[r.Partition]-1)
				}
				c.log[r.Partition] = append(c.log[r.Partition], binary.BigEndian.Uint64(r.Value))
				c.pos[r.Partition] = r.Offset + 1
			})
			c.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cl.Close(); <-c.done })
	return c
}

// upTo waits until all is read that is there now, and gives the greatest entry.
func (c *collector) upTo(t *testing.T) (most uint64) {
	t.Helper()
	ends := endOffsets(t, c.cl, killTopic)
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	for {
		c.mu.Lock()
		left := 0
		for p, end := range ends {
			if c.pos[p] < end {
				left++
			}
		}
		for _, l := range c.log {
			for _, i := range l {
				most = max(most, i)
			}
		}
		c.mu.Unlock()
		if left == 0 {
			return most
		}
		if ctx.Err() != nil {
			t.Fatalf("reading back took too long: %d partitions left", left)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *collector) once(t *testing.T, total uint64) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := make([]int, total+1)
	repeated, back, missing := 0, 0, 0
	for _, l := range c.log {
		last := uint64(0)
		for _, i := range l {
			if i > total {
				t.Fatalf("record %d of %d", i, total)
			}
			if seen[i]++; seen[i] > 1 {
				repeated++
			}
			if i < last {
				back++
			}
			last = i
		}
	}
	for _, n := range seen[1:] {
		if n == 0 {
			missing++
		}
	}
	if repeated+back+missing > 0 {
		t.Errorf("%d repeated, %d out of order, %d missing of %d", repeated, back, missing, total)
	}
}

// TestRealUnclean: an unclean leader election takes acknowledged records away; they are found and sent again
// from the journal, in order, and named in the log. It takes three brokers, and 40 seconds, most of them waiting.
func TestRealUnclean(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes three real brokers")
	}
	t.Parallel()
	k := services.Broker(t, services.KafkaOptions{Brokers: 3, FastStart: true})
	ctx := context.Background()
	if _, err := k.Tool(ctx, "topics", "--create", "--topic", killTopic, "--replica-assignment", "1:2,1:2",
		"--config", "min.insync.replicas=1", "--config", "unclean.leader.election.enable=true"); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t, k.Seeds())
	var said lockedBuffer
	cfg.Logger = said.logger()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeSink(t, s)
	long, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if _, err := s.Start(long); err != nil {
		t.Fatal(err)
	}
	next := uint64(1)
	send := func(n uint64) {
		t.Helper()
		for range n {
			if err := s.Send(long, run(killTopic, next, next+49)); err != nil {
				t.Fatal(err)
			}
			next += 50
		}
		if err := s.Flush(long); err != nil {
			t.Fatal(err, s.Status().Waiting)
		}
	}
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	send(20)
	step(k.Kill(ctx, 2))
	send(20) // acknowledged by broker 1 alone
	step(k.Kill(ctx, 1))
	step(k.Start(ctx, 2)) // has never seen the second part
	send(20)
	step(k.Start(ctx, 1))
	col := collect(t, k.Seeds())
	col.upTo(t)
	col.once(t, next-1)
	if !strings.Contains(said.String(), "LOST") || !strings.Contains(said.String(), "sending the lost records again") {
		t.Errorf("the log does not name the loss:\n%s", said.String())
	}
}

// realRights: with Write alone nothing can be settled; the relay says which right is missing and goes on
// when it is given.
func realRights(t *testing.T, k *services.Kafka) {
	ctx := ctxFor(t)
	makeTopic(t, k.Seeds(), "a", 1)
	adm := admin(t, k.Seeds())
	allow := func(ops ...kadm.ACLOperation) {
		t.Helper()
		b := kadm.NewACLs().Topics("a").ResourcePatternType(kadm.ACLPatternLiteral).Operations(ops...).Allow("User:relay").AllowHosts("*")
		r, err := adm.CreateACLs(ctx, b)
		if err == nil && len(r) > 0 {
			err = r[0].Err
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	allow(kadm.OpDescribe)
	cfg := testConfig(t, strings.Split(k.SASL, ","))
	cfg.SASLMechanism, cfg.SASLUsername = "SCRAM-SHA-256", "relay"
	cfg.SASLPassword = func() (string, error) { return "relay", nil }
	s := startImpatient(t, cfg)
	if err := s.Send(ctx, run("a", 1, 10)); err != nil {
		t.Fatal(err)
	}
	until(t, s, "topic a: User:relay may not do this; it needs Describe, Write and Read")
	found := s.Check(ctx, []string{"a"})
	if !found.has("may not write") {
		t.Errorf("Check = %v", found)
	}
	allow(kadm.OpWrite, kadm.OpRead)
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	once(t, k.Seeds(), "a", 1, 10)

	cfg.StateDir = t.TempDir()
	cfg.SASLPassword = func() (string, error) { return "wrong-secret", nil }
	bad, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if found := bad.Check(ctx, nil); !found.has("refuses the credentials of User:relay") || strings.Contains(fmt.Sprint(found), "wrong-secret") {
		t.Errorf("Check with a wrong password = %v", found)
	}
}
