package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"binrelay/relay"
	"binrelay/relay/relaytest/faultnet"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const killTopic = "kill"

// child is the relay's delivery as a process: it sends entries from where Start says, until it is killed
// or has sent SINK_TOTAL of them. Entry i becomes a record that begins with i; what follows, and the
// partition, differ in each run, as they do when a user changes the functions between two runs.
func child() {
	total, _ := strconv.ParseUint(os.Getenv("SINK_TOTAL"), 10, 64)
	cfg := Config{Brokers: strings.Split(os.Getenv("SINK_BROKERS"), ","), StateDir: os.Getenv("SINK_DIR"), Linger: time.Millisecond,
		BatchMaxBytes: 4 << 10, Compression: "snappy", Delivery: os.Getenv("SINK_DELIVERY"),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if s := os.Getenv("SINK_DIAL"); s != "" {
		cfg.KgoOpts = append(cfg.KgoOpts, kgo.Dialer(dialVia(s)))
	}
	die := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(3)
		}
	}
	s, err := New(cfg)
	die(err)
	ctx := context.Background()
	next, err := s.Start(ctx)
	die(err)
	next = max(next, 1)
	run := rand.Uint64()
	seed := rand.New(rand.NewPCG(run, 1))
	for next <= total {
		to := min(next+uint64(seed.IntN(60)), total)
		b := &relay.Batch{First: next, Last: to}
		for i := next; i <= to; i++ {
			v := make([]byte, 40+seed.IntN(120))
			binary.BigEndian.PutUint64(v, i)
			binary.BigEndian.PutUint64(v[8:], run)
			k := strconv.AppendUint(nil, i%53+run%7, 10)
			b.Records = append(b.Records, relay.Record{Topic: killTopic, Key: k, Value: v, Partition: -1, Hash: k, Time: time.Now(), Seq: i})
		}
		die(s.Send(ctx, b))
		next = to + 1
		if seed.IntN(3) == 0 {
			time.Sleep(time.Duration(seed.IntN(2000)) * time.Microsecond)
		}
	}
	die(s.Flush(ctx))
	die(s.Close(ctx))
	st := s.Status()
	fmt.Fprintf(os.Stderr, "child: done, may repeat %d\n", st.MayRepeat)
	os.Exit(0)
}

func dialVia(spec string) func(ctx context.Context, network, host string) (net.Conn, error) {
	to := map[string]string{}
	for _, kv := range strings.Split(spec, ",") {
		from, via, _ := strings.Cut(kv, "=")
		to[from] = via
	}
	return func(ctx context.Context, network, host string) (net.Conn, error) {
		if via, ok := to[host]; ok {
			host = via
		}
		return (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, network, host)
	}
}

// killer runs children one after another.
type killer struct {
	t       *testing.T
	env     []string
	dir     string
	mu      sync.Mutex
	says    map[string]int
	lastOut []string
}

func newKiller(t *testing.T, brokers []string, env ...string) *killer {
	k := &killer{t: t, dir: filepath.Join(t.TempDir(), "session"), says: map[string]int{}}
	k.env = append(append(os.Environ(), "SINK_CHILD=1", "SINK_DIR="+k.dir, "SINK_BROKERS="+strings.Join(brokers, ",")), env...)
	return k
}

func (k *killer) start(total uint64) (*exec.Cmd, <-chan error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(k.env, fmt.Sprintf("SINK_TOTAL=%d", total))
	out := &lines{k: k}
	cmd.Stderr, cmd.Stdout = out, out
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	return cmd, done
}

// lines collects what children say, without figures.
type lines struct{ k *killer }

func (l *lines) Write(p []byte) (int, error) {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	for _, s := range strings.Split(strings.TrimSpace(string(p)), "\n") {
		if i := strings.Index(s, "level="); i > 0 {
			s = s[i:]
		}
		l.k.lastOut = append(l.k.lastOut, s)
		if len(l.k.lastOut) > 20 {
			l.k.lastOut = l.k.lastOut[1:]
		}
		l.k.says[strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return -1
			}
			return r
		}, s)]++
	}
	return len(p), nil
}

// kill runs lives children for a random time each, then one to the end.
func (k *killer) kill(lives int, lo, hi time.Duration, far func() uint64) (total uint64) {
	for i := 0; i < lives; i++ {
		cmd, done := k.start(1 << 60)
		select {
		case <-time.After(lo + rand.N(hi-lo)):
			cmd.Process.Kill()
			<-done
		case err := <-done:
			k.t.Fatalf("the child ended by itself: %v\n%s", err, strings.Join(k.lastOut, "\n"))
		}
	}
	total = far() + 500
	cmd, done := k.start(total)
	select {
	case err := <-done:
		if err != nil {
			k.t.Fatalf("the last child: %v\n%s", err, strings.Join(k.lastOut, "\n"))
		}
	case <-time.After(60 * time.Second):
		cmd.Process.Kill()
		<-done
		k.t.Fatalf("the last child hangs\n%s", strings.Join(k.lastOut, "\n"))
	}
	for s, n := range k.says {
		k.t.Logf("%5d x %s", n, s)
	}
	return total
}

func far(t *testing.T, brokers []string) func() uint64 {
	return func() (most uint64) {
		for _, l := range logs(t, brokers, killTopic) {
			for _, r := range l {
				most = max(most, binary.BigEndian.Uint64(r.Value))
			}
		}
		return most
	}
}

// TestKill: kill -9 at random times, Produce requests of half of the connections arrive when their sender is
// dead and its successor at work, leaders move, answers get lost, and the functions change from run to run.
func TestKill(t *testing.T) {
	lives := 40
	if s := os.Getenv("KILLS"); s != "" {
		lives, _ = strconv.Atoi(s)
	} else if testing.Short() {
		lives = 8
	}
	for _, faults := range []bool{false, true} {
		t.Run(fmt.Sprintf("faults=%v", faults), func(t *testing.T) {
			t.Parallel()
			n := faultnet.New()
			n.InDelay = func() time.Duration { return time.Duration(rand.IntN(2)) * rand.N(150*time.Millisecond) }
			c := cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(12, killTopic), kfake.ListenFn(n.ListenFn))
			stop := make(chan struct{})
			var wg sync.WaitGroup
			var counts map[string]int
			if faults {
				wg.Go(func() { counts = trouble(c, n, stop) })
			}
			k := newKiller(t, c.ListenAddrs())
			total := k.kill(lives/2, 60*time.Millisecond, 500*time.Millisecond, func() uint64 {
				close(stop)
				wg.Wait()
				n.Lock(func() { n.OnRequest, n.OnResponse = nil, nil })
				return far(t, c.ListenAddrs())()
			})
			time.Sleep(200 * time.Millisecond)            // the last late requests have arrived
			total = max(total, far(t, c.ListenAddrs())()) // more may have been in the last journal
			once(t, c.ListenAddrs(), killTopic, 1, total)
			t.Logf("%d kills, %d records, faults %v", lives/2, total, counts)
		})
	}
}

// trouble makes faults until stop is closed.
func trouble(c *kfake.Cluster, n *faultnet.Net, stop <-chan struct{}) map[string]int {
	counts := map[string]int{}
	var lose, half int
	n.Lock(func() {
		n.OnResponse = func(f faultnet.Frame) faultnet.Action {
			if f.Key == 0 && lose > 0 {
				lose--
				return faultnet.Cut
			}
			return faultnet.Pass
		}
		n.OnRequest = func(f faultnet.Frame) faultnet.Action {
			if f.Key == 0 && half > 0 {
				half--
				return faultnet.CutMiddle
			}
			return faultnet.Pass
		}
	})
	errs := []*kerr.Error{kerr.NotEnoughReplicas, kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend, kerr.NotLeaderForPartition, kerr.KafkaStorageError}
	for {
		select {
		case <-stop:
			return counts
		case <-time.After(5*time.Millisecond + rand.N(40*time.Millisecond)):
		}
		switch rand.IntN(5) {
		case 0:
			counts["leader moved"]++
			c.MoveTopicPartition(killTopic, rand.Int32N(12), rand.Int32N(3))
		case 1:
			counts["all cut"]++
			n.CutAll()
		case 2:
			counts["answers lost"]++
			n.Lock(func() { lose = 1 + rand.IntN(3) })
		case 3:
			counts["request cut"]++
			n.Lock(func() { half = 1 })
		case 4:
			counts["error code"]++
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{rand.Int32N(12)}, Err: errs[rand.IntN(len(errs))], Count: 1})
		}
	}
}
