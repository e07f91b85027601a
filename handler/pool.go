package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"binrelay/functions"
	"binrelay/relay"
)

// PartitionBy is the rule that places a record when no function does.
type PartitionBy string

const (
	ByKey      PartitionBy = "key"      // hash of the record key; a record without one by its table
	ByTable    PartitionBy = "table"    // hash of "db.table"
	ByDatabase PartitionBy = "database" // hash of "db"
	BySingle   PartitionBy = "single"   // all to partition 0
)

// Options say what a Pool does with changes.
type Options struct {
	Decoder     func() relay.Decoder // makes one for each worker; required
	Set         functions.Set
	Format      functions.Format // nil: functions.JSON{}
	Topic       functions.Topic  // required
	PartitionBy PartitionBy      // "": ByKey

	// Tombstones reports whether a delete in this topic is followed by a record with the same key and
	// a null value. nil: never. It must be cheap and safe for concurrent use.
	Tombstones func(ctx context.Context, topic string) (bool, error)
	// Partitions is the partition count of a topic (relay.Sink's); required with Set.Partition.
	Partitions func(ctx context.Context, topic string) (int, error)

	DDLTopic        string        // "": DDL goes nowhere
	DeadLetterTopic string        // "": a fault halts
	Timeout         time.Duration // of one call of a function; 0: 5 s
	Workers         int           // 0: GOMAXPROCS
	Logger          *slog.Logger  // nil: slog.Default()
	Metrics         *Metrics      // nil: not measured
	// OnFatal is called once, when more than maxAbandoned functions hang: only a restart frees them.
	OnFatal func(error)
}

const (
	defaultTimeout = 5 * time.Second
	// maxAbandoned is how many hanging functions are left behind before the process should end. Each
	// holds a goroutine, a decoder and at most one entry of the log.
	maxAbandoned = 8
	// maxQueued bounds jobs that wait for a worker; the relay keeps fewer than that unfinished.
	maxQueued = 1024
)

// Pool turns jobs into batches on a few workers. It implements relay.Handler.
type Pool struct {
	opt     Options
	guarded bool                   // there are user functions
	headers functions.HeaderFormat // opt.Format, if its records have headers
	queue   chan *task
	ctx     context.Context // parent of what functions get
	cancel  context.CancelFunc
	running sync.WaitGroup // workers that are not abandoned
	watched sync.WaitGroup // the watchdog
	ended   chan struct{}  // closed when the last worker has ended
	arenas  sync.Pool

	mu      sync.Mutex
	workers map[*worker]struct{}

	stuck atomic.Int64 // abandoned and not returned yet
	fatal sync.Once

	logged   atomic.Int64 // when the last dead letter was logged, ns since 1970
	unlogged atomic.Int64 // those since
}

var _ relay.Handler = (*Pool)(nil)

// NewPool checks o and starts the workers. Close ends them.
func NewPool(o Options) (*Pool, error) {
	if o.Format == nil {
		o.Format = functions.JSON{}
	}
	if o.PartitionBy == "" {
		o.PartitionBy = ByKey
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	p := &Pool{
		opt:     o,
		guarded: o.Set.Filter != nil || o.Set.Serialize != nil || o.Set.Partition != nil,
		queue:   make(chan *task, maxQueued),
		ended:   make(chan struct{}),
		workers: map[*worker]struct{}{},
	}
	p.headers, _ = o.Format.(functions.HeaderFormat)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.arenas.New = func() any { return newArena(&p.arenas) }
	for range o.Workers {
		p.start(nil)
	}
	if p.guarded {
		p.watched.Go(p.watch)
	}
	return p, nil
}

func (o *Options) check() error {
	var errs []error
	if o.Decoder == nil {
		errs = append(errs, errors.New("handler: Options.Decoder is not set"))
	}
	if o.Topic.IsZero() {
		errs = append(errs, errors.New("handler: Options.Topic is not set"))
	}
	if o.Set.Partition != nil && o.Partitions == nil {
		errs = append(errs, errors.New("handler: Set.Partition needs Options.Partitions"))
	}
	switch o.PartitionBy {
	case ByKey, ByTable, ByDatabase, BySingle:
	default:
		errs = append(errs, fmt.Errorf("PARTITION_BY: %q is not one of key, table, database, single", o.PartitionBy))
	}
	for name, topic := range map[string]string{"DDL_TOPIC": o.DDLTopic, "DEAD_LETTER_TOPIC": o.DeadLetterTopic} {
		if topic == "" {
			continue
		}
		if err := functions.CheckTopic(topic); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Go implements relay.Handler. It must not be called after Close.
func (p *Pool) Go(job *relay.Job) {
	a := p.arenas.Get().(*arena)
	a.inUse.Store(true)
	p.queue <- &task{job: job, arena: a}
}

// Close ends the workers after the jobs that they have. Call it when the relay has ended.
func (p *Pool) Close() {
	p.cancel()
	close(p.queue)
	p.running.Wait() // the watchdog still runs: a function that hangs now is abandoned as ever
	close(p.ended)
	p.watched.Wait()
}

// start runs a new worker, first on t when there is one.
func (p *Pool) start(t *task) {
	w := newWorker(p)
	p.mu.Lock()
	p.workers[w] = struct{}{}
	p.mu.Unlock()
	p.running.Add(1)
	go w.loop(t)
}

// Abandoned is how many functions hang at the moment.
func (p *Pool) Abandoned() int { return int(p.stuck.Load()) }
