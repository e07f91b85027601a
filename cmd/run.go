package cmd

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"binrelay/functions"
	"binrelay/handler"
	"binrelay/relay"
	"binrelay/relay/binlog"
	"binrelay/relay/kafka"
	"binrelay/wal"
)

// run is the command "relay run".
func (p *program) run(ctx context.Context) error {
	c, err := ParseConfig(p.environ)
	if err != nil {
		return err
	}
	limitMemory(p.environ)
	logger := newLogger(p.stderr, c)
	for _, w := range c.Warnings {
		logger.Warn(w)
	}
	logger.Info("relay starts", "version", versionLine(), "mysql", c.MySQLURL.String(), "kafka", []string(c.KafkaBrokers), "tables", c.Tables,
		"topic", c.Topic, "format", c.Format, "delivery", c.Delivery, "wal_dir", c.WALDir)
	a, err := open(c, p.set, logger)
	if err != nil {
		return err
	}
	defer a.close()
	err = a.run(ctx)
	if err == nil {
		logger.Info("relay stopped", "acked", a.sink.Acked(), "left_in_log", a.relay.Status().WAL.Backlog)
	}
	return err
}

// app is a relay with all its parts: what "run" and "demo" have in common.
type app struct {
	relay    *relay.Relay
	sink     *kafka.Sink
	pool     *handler.Pool
	log      *wal.Log
	listener net.Listener // nil without HTTP
	server   *handler.Server
	logger   *slog.Logger
	hung     chan error // a function that hangs too often
}

// open puts the parts together; nothing is connected yet. Parts are opened from the disk outwards, so that what
// is wrong with this machine is said before anything is asked of another.
func open(c *Config, set functions.Set, logger *slog.Logger) (_ *app, err error) {
	a := &app{logger: logger, hung: make(chan error, 1)}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if c.HTTPAddr != "" {
		if a.listener, err = net.Listen("tcp", c.HTTPAddr); err != nil {
			return nil, fmt.Errorf("HTTP_ADDR: %w", err)
		}
	}
	metrics := handler.NewMetrics()
	if a.log, err = openLog(c, wal.Options{Logger: logger, OnCommit: func(d time.Duration, _, _ int) { metrics.ObserveAppend(d) }}); err != nil {
		return nil, err
	}
	source, err := newSource(c, a.log, logger)
	if err != nil {
		return nil, err
	}
	if a.sink, err = newSink(c, logger, metrics.ObserveProduce, func(r *relay.Record, why error) (*relay.Record, bool) {
		d := a.pool.DeadLetterRecord(*r, why)
		return d, d != nil
	}); err != nil {
		return nil, err
	}
	warnLostJournal(c, a.log, logger)
	decoders := binlog.NewDecoders(func(table, column string) {
		logger.Warn("text that is not in its column's character set is published with replacement characters", "table", table, "column", column)
	})
	topic, err := functions.ParseTopic(c.Topic)
	if err != nil {
		return nil, err
	}
	format, _ := functions.FormatNamed(c.Format) // checked with the rest of the configuration
	a.pool, err = handler.NewPool(handler.Options{
		Decoder: func() relay.Decoder { return decoders.New() },
		Set:     set, Format: format, Topic: topic, PartitionBy: handler.PartitionBy(c.PartitionBy),
		Partitions: a.sink.Partitions, Tombstones: c.tombstones(a.sink),
		DDLTopic: c.DDLTopic, DeadLetterTopic: c.DeadLetterTopic,
		Timeout: time.Duration(c.FunctionLimit), Logger: logger, Metrics: metrics,
		OnFatal: func(err error) { a.hung <- err },
	})
	if err != nil {
		return nil, err
	}
	a.relay = &relay.Relay{
		Source: source, Log: walLog{a.log}, Handler: a.pool, Sink: a.sink, Logger: logger,
		ShutdownTimeout: time.Duration(c.ShutdownTimeout), Workers: 2 * runtime.GOMAXPROCS(0),
		Locate: func(f *relay.Fault) { locate(a.log, decoders.New(), f) },
	}
	a.server = handler.NewServer(handler.ServerOptions{Relay: a.relay, Metrics: metrics, Abandoned: a.pool.Abandoned,
		Token: c.AdminToken.Reveal(), Version: version, Commit: commit, Logger: logger})
	return a, nil
}

// warnLostJournal says that what was handed to Kafka is not known any more: the log has entries, but the
// directory that the sink makes before it sends anything is empty or gone. Delivery begins again with the
// oldest entry kept.
func warnLostJournal(c *Config, l *wal.Log, logger *slog.Logger) {
	last := l.Stats().Last
	if last == 0 || kafka.HasJournal(stateDir(c)) {
		return
	}
	logger.Error("kafka: the log has entries, but no hand-over journal: it was removed. Records that Kafka has already may be repeated",
		"journal", stateDir(c), "from_entry", l.Stats().First, "to_entry", last)
}

func stateDir(c *Config) string { return filepath.Join(c.WALDir, "session") }

// locate reads the log entry of a fault that names no more, and fills in the change's table and place. What it
// cannot find stays empty.
func locate(l *wal.Log, decoder relay.Decoder, f *relay.Fault) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	b, err := l.Read(ctx, f.Seq, 1)
	if err != nil {
		return
	}
	defer b.Release()
	if b.Entries[0].Seq != f.Seq {
		return
	}
	found := errors.New("found")
	_ = decoder.Decode(f.Seq, b.Entries[0].Data, func(c *functions.Change) error {
		if c.Source.Row != f.Row || c.Table == nil {
			return nil
		}
		f.Table, f.GTID = c.Table.Database+"."+c.Table.Name, strings.Clone(c.Source.GTID)
		f.File, f.Pos = strings.Clone(c.Source.File), c.Source.Pos
		return found
	})
}

// run serves HTTP and copies until ctx ends, capture halts or too many functions hang.
func (a *app) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	httpCtx, stopHTTP := context.WithCancel(context.WithoutCancel(ctx)) // answers until the very end
	served := make(chan struct{})
	go func() {
		defer close(served)
		if a.listener == nil {
			return
		}
		if err := a.server.Serve(httpCtx, a.listener); err != nil {
			a.logger.Error("status and metrics are not served any more: " + err.Error())
		}
	}()
	watched := make(chan error, 1)
	go func() {
		select {
		case err := <-a.hung:
			cancel(err)
			watched <- err
		case <-ctx.Done():
			watched <- nil
		}
	}()
	err := a.relay.Run(ctx)
	cancel(nil)
	if hung := <-watched; err == nil {
		err = hung
	}
	stopHTTP()
	<-served
	return err
}

// address is where HTTP is served, "" without.
func (a *app) address() string {
	if a.listener == nil {
		return ""
	}
	return a.listener.Addr().String()
}

// close gives back what open took, in the order that the parts need each other.
func (a *app) close() {
	if a.pool != nil {
		a.pool.Close()
	}
	if a.log != nil {
		if err := a.log.Close(); err != nil {
			a.logger.Error("close the log: " + err.Error())
		}
	}
	if a.listener != nil {
		a.listener.Close()
	}
}

func openLog(c *Config, o wal.Options) (*wal.Log, error) {
	o.MaxBytes, o.MinFree = int64(c.WALMaxBytes), int64(c.WALMinFree)
	if o.MinFree == 0 {
		o.MinFree = -1 // none, where 0 would mean the default
	}
	if c.WALKeyFile != "" {
		key, err := readKey(c.WALKeyFile)
		if err != nil {
			return nil, err
		}
		o.Key = key
	}
	return wal.Open(c.WALDir, o)
}

func newSource(c *Config, l *wal.Log, logger *slog.Logger) (*binlog.Source, error) {
	source, err := sourceConfig(c, logger)
	if err != nil {
		return nil, err
	}
	if source.ServerID, source.ReplicaUUID, err = replica(c, l); err != nil {
		return nil, err
	}
	return binlog.NewSource(source), nil
}

func sourceConfig(c *Config, logger *slog.Logger) (binlog.Config, error) {
	tables, err := binlog.ParseTables(c.Tables)
	return binlog.Config{
		Addr: c.MySQLURL.Addr, User: c.MySQLURL.User, Password: c.mysqlPassword,
		TLS: binlog.TLSMode(c.MySQLTLS), TLSCAFile: c.MySQLTLSCAFile, TLSCertFile: c.MySQLTLSCertFile, TLSKeyFile: c.MySQLTLSKeyFile,
		ServerID: c.MySQLServerID, Start: c.MySQLStart, Tables: tables,
		ParkDir: filepath.Join(c.WALDir, "xa"), Logger: logger,
	}, err
}

// replica is who we are to the server. Both are made once and kept in the log: a new id at each start would
// leave dead replicas behind in the server's lists, and the same for all would make relays throw each other out.
func replica(c *Config, l *wal.Log) (id uint32, uuid string, err error) {
	b, err := kept(l, "replica_uuid", func() []byte {
		var u [16]byte
		rand.Read(u[:])
		u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80 // version 4
		return fmt.Appendf(nil, "%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
	})
	if err != nil {
		return 0, "", err
	}
	uuid = string(b)
	if c.MySQLServerID != 0 {
		return c.MySQLServerID, uuid, nil
	}
	b, err = kept(l, "server_id", func() []byte {
		var r [4]byte
		rand.Read(r[:])
		// From 2²⁰ on: above what people number their servers with.
		return strconv.AppendUint(nil, uint64(1<<20+binary.LittleEndian.Uint32(r[:])%(1<<32-1<<20)), 10)
	})
	if err != nil {
		return 0, "", err
	}
	n, err := strconv.ParseUint(string(b), 10, 32)
	if err != nil {
		return 0, "", fmt.Errorf("the log's server_id is damaged: %w; set MYSQL_SERVER_ID", err)
	}
	return uint32(n), uuid, nil
}

// kept is a small value that the log keeps, made when it is not there.
func kept(l *wal.Log, name string, fresh func() []byte) ([]byte, error) {
	b, err := l.Meta(name)
	if err != nil || b != nil {
		return b, err
	}
	b = fresh()
	return b, l.SetMeta(name, b)
}

func newSink(c *Config, logger *slog.Logger, acked func(time.Duration), deadLetter func(*relay.Record, error) (*relay.Record, bool)) (*kafka.Sink, error) {
	tls, err := c.kafkaTLS()
	if err != nil {
		return nil, err
	}
	return kafka.New(kafka.Config{
		Brokers: c.KafkaBrokers, ClientID: "binrelay", TLS: tls,
		SASLMechanism: c.KafkaSASLMechanism, SASLUsername: c.KafkaSASLUsername, SASLPassword: c.kafkaPassword,
		Compression: c.KafkaCompression, Linger: time.Duration(c.KafkaLinger), BatchMaxBytes: int(c.KafkaBatchMaxBytes),
		InFlight: c.KafkaInFlight, Delivery: c.Delivery,
		TopicCreate: c.TopicCreate, TopicPartitions: c.TopicPartitions, TopicReplication: c.TopicReplication,
		StateDir: stateDir(c), DeadLetter: deadLetter, OnAcked: acked, Logger: logger,
	})
}

// tombstones says for which topics a delete is followed by one; nil: for none.
func (c *Config) tombstones(sink *kafka.Sink) func(context.Context, string) (bool, error) {
	switch c.Tombstones {
	case "on":
		return func(context.Context, string) (bool, error) { return true, nil }
	case "off":
		return nil
	}
	return sink.Compacted
}
