package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"binrelay/bench/internal/history"
	"binrelay/bench/internal/relayproc"
	"binrelay/bench/services"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions  = 12
	memoryLimit = 128 << 10 // KiB of resident memory, design C1
)

// config is the size of a run.
type config struct {
	relay       string
	seed        uint64
	keep        string
	say         func(string, ...any)
	writers     int
	rows        int64 // row changes at least, beside the large transaction
	pace        int64 // row changes a second at most: what is written must be read again and compared
	kills       int
	longestLife time.Duration
	bulk        int           // rows of the large transaction
	outage      time.Duration // Kafka away
	rounds      int           // how often the database and Kafka are stopped and killed
	memoryLimit int           // KiB, 0: not judged
}

func longForm() config {
	return config{writers: 4, rows: 500_000, pace: 10_000, kills: 30, longestLife: 5 * time.Second, bulk: 1_000_000, outage: time.Minute, rounds: 2}
}

func shortForm() config {
	return config{writers: 4, rows: 25_000, pace: 1_500, kills: 8, longestLife: 2 * time.Second, bulk: 50_000, outage: 8 * time.Second, rounds: 1}
}

// result is what a run found.
type result struct {
	kind, version       string
	rows                int64
	kills, dbRestarts   int
	kafkaRestarts       int
	backlog             uint64 // entries in the log at the end of the outage
	peak                relayproc.Memory
	peakOf              int // which start of the relay took the most
	wrote, drained, all time.Duration
	checker             *history.Checker
}

func (r *result) String() string {
	c := r.checker
	var b strings.Builder
	fmt.Fprintf(&b, "  %s %s: %d row changes, %d records in Kafka, %d rows by key\n", r.kind, r.version, r.rows, c.Records, c.Keys())
	fmt.Fprintf(&b, "  relay killed %d times, database restarted %d, Kafka %d; %d log entries waited for Kafka\n", r.kills, r.dbRestarts, r.kafkaRestarts, r.backlog)
	fmt.Fprintf(&b, "  peak memory %d MiB resident, %d MiB of it not files (start %d of the relay); wrote for %v, drained in %v, all in %v\n", r.peak.HighWater>>10, r.peak.Anonymous>>10, r.peakOf,
		r.wrote.Round(time.Second), r.drained.Round(time.Second), r.all.Round(time.Second))
	fmt.Fprintf(&b, "  %s\n", c.Report())
	return b.String()
}

// soak is one run under way.
type soak struct {
	config
	db     *services.DB
	kafka  *services.Kafka
	keeper *keeper
	rand   *rand.Rand
	total  atomic.Int64
	hold   sync.RWMutex
	res    result
}

// run does it all with a source of the given kind. The result is nil when there is nothing to check.
func run(ctx context.Context, c config, kind string) (*result, error) {
	t0 := time.Now()
	s := &soak{config: c, rand: rand.New(rand.NewPCG(c.seed, 99))}
	s.res.kind = kind
	dir, err := os.MkdirTemp("", "binrelay-soak")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := s.setUp(ctx, kind, dir); err != nil {
		return nil, err
	}
	defer s.db.Wipe()
	defer s.kafka.Wipe()
	defer func() { s.keeper.process().Kill() }()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	var wg sync.WaitGroup
	writers := make([]*writer, c.writers)
	for i := range writers {
		writers[i] = newWriter(i+1, s.db, c.seed, &s.total, &s.hold)
		writers[i].pace = c.pace / int64(c.writers)
		wg.Go(func() {
			if err := writers[i].run(writing); err != nil {
				cancel(err)
			}
		})
	}
	err = s.storm(ctx)
	stopWriting()
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	s.res.wrote, s.res.rows = time.Since(t0), s.total.Load()

	want := map[history.ID]history.State{}
	for _, w := range writers {
		w.ledger(want)
	}
	for i := 1; i <= c.bulk; i++ {
		want[history.ID{Table: bulkTable.fullName(), ID: strconv.Itoa(i)}] = history.State{Ver: 1, Live: true}
	}
	t1 := time.Now()
	drainErr := s.drain(ctx)
	s.res.drained = time.Since(t1)
	p := s.keeper.process()
	if err := p.Stop(40 * time.Second); err != nil {
		drainErr = errors.Join(drainErr, err)
	} else if p.ExitCode() != 0 {
		drainErr = errors.Join(drainErr, fmt.Errorf("SIGTERM ended the relay with code %d, not 0; its last lines:\n%s", p.ExitCode(), relayproc.Tail(p.Log(), 8)))
	}
	s.keeper.ended(p)
	s.res.peak, s.res.peakOf, s.res.kills = s.keeper.peak, s.keeper.peakOf, s.keeper.kills
	if err := s.check(ctx, want); err != nil {
		return nil, errors.Join(drainErr, err)
	}
	s.res.all = time.Since(t0)
	switch {
	case drainErr != nil:
		err = drainErr
	case !s.res.checker.OK():
		err = errors.New("the promise is broken: " + s.res.checker.Report())
	case c.memoryLimit > 0 && s.res.peak.HighWater > c.memoryLimit:
		err = fmt.Errorf("the relay took %d MiB, the limit is %d", s.res.peak.HighWater>>10, c.memoryLimit>>10)
	}
	return &s.res, err
}

func (s *soak) setUp(ctx context.Context, kind, dir string) (err error) {
	if s.db, err = services.StartDatabase(ctx, kind, "--max-binlog-size=16M"); err != nil {
		return err
	}
	if s.kafka, err = services.StartKafka(ctx, services.KafkaOptions{FastStart: true}); err != nil {
		s.db.Wipe()
		return err
	}
	undo := func(err error) error { s.db.Wipe(); s.kafka.Wipe(); return err }
	s.res.version, _ = s.db.Value("SELECT VERSION()")
	statements := []string{"CREATE DATABASE " + database, writerTable.create(), bulkTable.create(), createNoise,
		"CREATE TABLE " + database + ".digits (d INT PRIMARY KEY)",
		"INSERT INTO " + database + ".digits VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)"}
	for _, t := range writtenTables {
		statements = append(statements, t.create())
	}
	if err := s.db.Exec(statements...); err != nil {
		return undo(err)
	}
	port, err := services.FreePorts(1)
	if err != nil {
		return undo(err)
	}
	s.keeper = &keeper{path: s.relay, keep: s.keep, env: map[string]string{
		"MYSQL_URL":        s.db.URL(),
		"KAFKA_BROKERS":    s.kafka.Brokers,
		"TABLES":           database + ".*,!" + database + ".noise,!" + database + ".digits",
		"TOPIC_PARTITIONS": strconv.Itoa(partitions),
		"WAL_DIR":          filepath.Join(dir, "wal"),
		"HTTP_ADDR":        "127.0.0.1:" + strconv.Itoa(port),
		"LOG_FORMAT":       "json",
	}}
	if err := s.keeper.start(); err != nil {
		return undo(err)
	}
	// From here on nothing may be lost: an empty log begins at "now".
	if err := s.ready(ctx); err != nil {
		p := s.keeper.process()
		p.Kill()
		s.keeper.ended(p)
		return undo(err)
	}
	return nil
}

func (s *soak) ready(ctx context.Context) error {
	ctx, stop := context.WithTimeoutCause(ctx, 3*time.Minute, errors.New("three minutes have passed"))
	defer stop()
	return s.keeper.process().Ready(ctx)
}

// storm is what happens while the writers write.
func (s *soak) storm(ctx context.Context) error {
	s.say("writing; the relay is killed at random, the database and Kafka are restarted and killed")
	err := s.whileKilling(ctx, s.kills, func() error {
		if err := s.written(ctx, s.rows/10); err != nil {
			return err
		}
		for range s.rounds {
			for _, step := range []struct {
				what  string
				do    func(context.Context) error
				count *int
			}{
				{"stop the database", s.db.Stop, &s.res.dbRestarts},
				{"start the database", s.db.Start, nil},
				{"kill the database", s.db.Kill, &s.res.dbRestarts},
				{"start the database", s.db.Start, nil},
				{"stop Kafka", func(ctx context.Context) error { return s.kafka.Stop(ctx) }, &s.res.kafkaRestarts},
				{"start Kafka", func(ctx context.Context) error { return s.kafka.Start(ctx) }, nil},
				{"kill Kafka", func(ctx context.Context) error { return s.kafka.Kill(ctx) }, &s.res.kafkaRestarts},
				{"start Kafka", func(ctx context.Context) error { return s.kafka.Start(ctx) }, nil},
			} {
				s.say("%s (%d row changes, %d kills)", step.what, s.total.Load(), s.keeper.killed())
				if err := step.do(ctx); err != nil {
					return fmt.Errorf("%s: %w", step.what, err)
				}
				if step.count != nil {
					*step.count++
				}
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Duration(s.rand.Int64N(int64(3 * time.Second)))):
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := s.outage(ctx); err != nil {
		return fmt.Errorf("outage of Kafka: %w", err)
	}
	s.say("one transaction of %d rows, with kills", s.bulk)
	if err := s.whileKilling(ctx, 3, s.bigTransaction); err != nil {
		return err
	}
	return s.written(ctx, s.rows+int64(s.bulk))
}

// written waits until the writers have committed n row changes.
func (s *soak) written(ctx context.Context, n int64) error {
	for s.total.Load() < n {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// whileKilling does something while the relay is killed again and again, n times at least.
func (s *soak) whileKilling(ctx context.Context, n int, do func() error) error {
	enough, stop := context.WithCancel(ctx)
	rampage := make(chan error, 1)
	r := rand.New(rand.NewPCG(s.seed, s.rand.Uint64()))
	go func() { rampage <- s.keeper.rampage(ctx, enough, r, s.longestLife, n) }()
	err := do()
	stop()
	return errors.Join(err, <-rampage)
}

// outage takes Kafka away while the writers go on, and the binlog too as soon as the relay's log holds it.
func (s *soak) outage(ctx context.Context) error {
	s.say("Kafka away for %v while writing goes on", s.config.outage)
	end := time.Now().Add(s.config.outage)
	if err := s.kafka.Stop(ctx); err != nil {
		return err
	}
	s.res.kafkaRestarts++
	ctx, cancel := context.WithTimeoutCause(ctx, s.config.outage+2*time.Minute, errors.New("two minutes more than planned"))
	defer cancel()
	waiting, err := s.keeper.process().Until(ctx, "/status says waiting", func(st relayproc.Status) bool { return st.State == "waiting" })
	if err != nil {
		return err
	}
	if waiting.Reason == "" {
		return errors.New("/status says waiting and gives no reason")
	}
	if code, _ := s.keeper.process().Get("/readyz"); code != 503 {
		return fmt.Errorf("/readyz answers %d while Kafka is away, want 503", code)
	}
	if _, err := s.keeper.process().Until(ctx, "capture goes on", func(st relayproc.Status) bool { return st.WAL.Last > waiting.WAL.Last+20 }); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(end)):
	}
	if err := s.purge(ctx); err != nil {
		return err
	}
	s.say("binlogs purged, the relay killed, then Kafka back")
	if err := s.keeper.again(); err != nil {
		return err
	}
	// The new process has no Kafka either, and only its own log knows what was purged.
	st, err := s.keeper.process().Until(ctx, "it is connected to the source again", func(st relayproc.Status) bool { return st.Source.Connected })
	if err != nil {
		return err
	}
	s.res.backlog = st.WAL.Last - st.WAL.First
	if err := s.kafka.Start(ctx); err != nil {
		return err
	}
	return s.ready(ctx)
}

// purge removes all binlogs while the writers stand still and the relay's log holds everything.
func (s *soak) purge(ctx context.Context) error {
	s.hold.Lock()
	defer s.hold.Unlock()
	text, err := s.db.GTIDs()
	if err != nil {
		return err
	}
	executed, err := mysql.ParseGTIDSet(s.db.Flavor, text)
	if err != nil {
		return err
	}
	if _, err := s.keeper.process().Until(ctx, "the log holds "+text, func(st relayproc.Status) bool {
		has, err := mysql.ParseGTIDSet(s.db.Flavor, st.Source.GTID)
		return err == nil && st.Source.GTID != "" && has.Contain(executed) && st.WAL.Durable >= st.WAL.Last
	}); err != nil {
		return err
	}
	return s.db.PurgeBinlogs(ctx)
}

func (s *soak) bigTransaction() error {
	var from, sum []string
	scale := 1
	for i := 0; scale < s.bulk; i++ {
		from = append(from, fmt.Sprintf("%s.digits d%d", database, i))
		sum = append(sum, fmt.Sprintf("%d*d%d.d", scale, i))
		scale *= 10
	}
	err := s.db.Exec(fmt.Sprintf("INSERT INTO %s SELECT n, 1, CRC32(CONCAT(n,':1')), CONCAT('row ', n) FROM (SELECT 1+%s AS n FROM %s) x WHERE n <= %d",
		bulkTable.fullName(), strings.Join(sum, "+"), strings.Join(from, ", "), s.bulk))
	if err == nil {
		s.total.Add(int64(s.bulk))
	}
	return err
}

// drain waits until Kafka holds as many records as there were changes, as long as it gets on.
func (s *soak) drain(ctx context.Context) error {
	const patience = 2 * time.Minute
	want, last, since := s.total.Load(), int64(-1), time.Now()
	s.say("draining: %d row changes", want)
	for {
		_, n, err := ends(ctx, s.kafka, topics())
		if err == nil && n >= want {
			return nil
		}
		if n != last {
			last, since = n, time.Now()
		}
		st, _ := s.keeper.process().Status()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.keeper.process().Exited():
			return s.keeper.kill()
		case st.State == "halted":
			return fmt.Errorf("halted with %d of %d records in Kafka: %s %s", n, want, st.Reason, st.Fault)
		case time.Since(since) > patience:
			return fmt.Errorf("no record in %v, %d of %d are there (%v); status %+v; the relay's last lines:\n%s", patience, n, want, err, st,
				relayproc.Tail(s.keeper.process().Log(), 8))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (s *soak) check(ctx context.Context, want map[history.ID]history.State) error {
	s.say("checking")
	c := history.New(checkedTables()...)
	c.Partition = javaPartition()
	if err := readAll(ctx, s.kafka, topics(), c.Add); err != nil {
		return err
	}
	c.Finish(want)
	for _, t := range append([]*table{writerTable, bulkTable}, writtenTables...) {
		rows, err := selectAll(s.db, t)
		if err != nil {
			return fmt.Errorf("%s: %w", t.fullName(), err)
		}
		c.Compare(t.fullName(), rows, sameRow(t))
	}
	s.res.checker = c
	return nil
}

// javaPartition is where Java's producer puts a key, by franz-go's own partitioner. Records without a key
// belong together, wherever the first of their topic is.
func javaPartition() func(topic string, key []byte) int32 {
	byTopic := map[string]kgo.TopicPartitioner{}
	p := kgo.StickyKeyPartitioner(nil)
	return func(topic string, key []byte) int32 {
		if key == nil {
			return -1
		}
		if byTopic[topic] == nil {
			byTopic[topic] = p.ForTopic(topic)
		}
		return int32(byTopic[topic].Partition(&kgo.Record{Topic: topic, Key: key}, partitions))
	}
}

func topics() []string {
	var names []string
	for _, t := range checkedTables() {
		names = append(names, t.Name)
	}
	return names
}
