package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"binrelay/bench/internal/relayproc"
	"binrelay/bench/services"
	"binrelay/relay/relaytest"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The rows of facts/peers-measured.md: bigint key, varchar(40), int, decimal, timestamp(6), bigint, about 70 B.
const (
	drainPartitions = 6
	drainDB         = "drain"
)

// drain lets the built relay deliver a backlog: from the embedded source to the embedded broker, then from a real
// MySQL and MariaDB to a real Kafka. Rows a second, rows per CPU-second of the relay, and its memory. The floor is a
// bare kgo client that produces the same keys and values to the same broker with the same settings.
func (s *suite) drain(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "binrelay-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := relayproc.Build(ctx, dir)
	if err != nil {
		return err
	}
	if err := s.drainEmbedded(ctx, program, dir); err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	if !s.real {
		return nil
	}
	k, err := services.StartKafka(ctx, services.KafkaOptions{})
	if err != nil {
		return err
	}
	defer k.Wipe()
	to := broker{"kafka", k.Seeds()}
	if err := warmUp(ctx, to); err != nil {
		return err
	}
	for _, kind := range []string{"mysql", "mariadb"} {
		if err := s.drainReal(ctx, program, dir, kind, to); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

// backlog is a run of transactions in a binlog.
type backlog struct {
	source string // name of the server, for the table
	name   string
	url    string // MYSQL_URL
	from   string // MYSQL_START
	tables string
	rows   int64
}

// drainShapes are the transactions of the peers' measurements, and one very large one.
var drainShapes = []struct {
	name      string
	rows, txn int
}{{"10 rows a transaction", 300_000, 10}, {"1000 rows a transaction", 600_000, 1000}, {"1 M rows in one transaction", 1_000_000, 1_000_000}}

func (s *suite) drainEmbedded(ctx context.Context, program, dir string) error {
	to, stop, err := embeddedBroker(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for _, shape := range drainShapes {
		src, err := relaytest.StartSource(relaytest.SourceConfig{KeepBytes: 1 << 30})
		if err != nil {
			return err
		}
		defer src.Close()
		t := src.CreateTable("CREATE TABLE " + drainDB + ".m (id BIGINT PRIMARY KEY, name VARCHAR(40), qty INT, price DECIMAL(12,2), ts TIMESTAMP(6) NULL, n BIGINT)")
		row := func(i, qty int) []any {
			return relaytest.Row(i, fmt.Sprintf("customer name %d", i), qty, fmt.Sprintf("%d.%02d", i%90_000, i%100), "2026-03-04 05:06:07.000008", i*31)
		}
		var txn []relaytest.Change
		for i := range shape.txn * 7 / 10 {
			txn = append(txn, relaytest.Insert(t, row(i, i)...))
		}
		for i := range shape.txn * 2 / 10 {
			txn = append(txn, relaytest.Update(t, row(i, i), row(i, i+1)))
		}
		for i := range shape.txn / 10 {
			txn = append(txn, relaytest.Delete(t, row(i, i+1)...))
		}
		if err := src.Repeat(shape.rows/shape.txn, txn); err != nil {
			return err
		}
		b := backlog{"embedded", shape.name, src.URL(), "earliest", drainDB + ".*", int64(shape.rows)}
		if err := s.drainBacklog(ctx, program, dir, to, b); err != nil {
			return fmt.Errorf("%s: %w", shape.name, err)
		}
	}
	return nil
}

func (s *suite) drainReal(ctx context.Context, program, dir, kind string, to broker) error {
	db, err := services.StartDatabase(ctx, kind)
	if err != nil {
		return err
	}
	defer db.Wipe()
	if err := db.Exec("CREATE DATABASE " + drainDB); err != nil {
		return err
	}
	for _, shape := range drainShapes {
		b, err := fill(db, shape.name, shape.rows, shape.txn)
		if err != nil {
			return err
		}
		if err := s.drainBacklog(ctx, program, dir, to, b); err != nil {
			return fmt.Errorf("%s: %w", shape.name, err)
		}
	}
	return nil
}

// fill writes 70 % inserts, 20 % updates and 10 % deletes.
func fill(db *services.DB, name string, rows, txn int) (backlog, error) {
	table := fmt.Sprintf("m%d", txn)
	b := backlog{source: db.Kind, name: name, url: db.URL(), tables: drainDB + "." + table, rows: int64(rows)}
	c, err := db.Connect(drainDB)
	if err != nil {
		return b, err
	}
	defer c.Close()
	if _, err := c.Execute("CREATE TABLE " + table + " (id BIGINT PRIMARY KEY, name VARCHAR(40), qty INT, price DECIMAL(12,2), ts TIMESTAMP(6) NULL, n BIGINT)"); err != nil {
		return b, err
	}
	if b.from, err = db.GTIDs(); err != nil {
		return b, err
	}
	do := func(format string, args ...any) {
		if err == nil {
			if _, err = c.Execute(fmt.Sprintf(format, args...)); err != nil {
				err = fmt.Errorf("%.100s: %w", format, err)
			}
		}
	}
	next := 0
	for done := 0; done < rows && err == nil; done += txn {
		insert, update := txn*7/10, txn*2/10
		first := next
		do("BEGIN")
		for next < first+insert {
			var values []string
			for range min(1000, first+insert-next) {
				values = append(values, fmt.Sprintf("(%d,'customer name %d',%d,%d.%02d,'2026-03-04 05:06:07.%06d',%d)",
					next, next*7919%100_000, next%1000, next%90_000, next%100, next%1_000_000, next*31))
				next++
			}
			do("INSERT INTO %s VALUES %s", table, strings.Join(values, ","))
		}
		do("UPDATE %s SET qty=qty+1 WHERE id BETWEEN %d AND %d", table, first, first+update-1)
		do("DELETE FROM %s WHERE id BETWEEN %d AND %d", table, first+insert-txn/10, first+insert-1)
		do("COMMIT")
	}
	return b, err
}

// drained is what one drain cost.
type drained struct {
	rows, perCPU         float64 // a second, per CPU-second of the relay's process, start included
	warmRows, warmPerCPU float64 // the same of the second half
	memory               float64 // MiB, peak
}

func (s *suite) drainBacklog(ctx context.Context, program, dir string, to broker, b backlog) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(to.seeds...))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	var rows, perCPU, warmRows, warmPerCPU, memory, floor []float64
	for range s.runs {
		topic := fmt.Sprintf("drain-%d", topicNumber.Add(1))
		if err := makeTopic(ctx, adm, topic, drainPartitions); err != nil {
			return err
		}
		d, err := drainOnce(ctx, program, filepath.Join(dir, topic), to, adm, topic, b)
		if err != nil {
			return err
		}
		f, err := produceSame(ctx, to, adm, topic)
		if err != nil {
			return fmt.Errorf("floor: %w", err)
		}
		adm.DeleteTopics(ctx, topic)
		rows, perCPU, floor = append(rows, d.rows), append(perCPU, d.perCPU), append(floor, f)
		warmRows, warmPerCPU, memory = append(warmRows, d.warmRows), append(warmPerCPU, d.warmPerCPU), append(memory, d.memory)
	}
	where := fmt.Sprintf("%s → %s, %s", b.source, to.name, b.name)
	s.emit(measured("drain", where, "rows/s", rows))
	s.emit(measured("drain", where+", 2nd half", "rows/s", warmRows))
	s.emit(measured("drain", where, "rows/CPU-s", perCPU).over(floor))
	r := measured("drain", where+", 2nd half", "rows/CPU-s", warmPerCPU).over(floor)
	if r.Ratio != nil {
		r = r.want("CPU per row ≤ 1.6 × bare kgo's", *r.Ratio >= 1/1.6)
	}
	s.emit(r)
	r = measured("drain", where+", peak memory", "MiB", memory)
	s.emit(r.want("≤ 128 MiB", r.Max <= 128))
	return nil
}

// drainOnce starts a relay on an empty log at the backlog's beginning and waits until Kafka holds all of it.
func drainOnce(ctx context.Context, program, wal string, to broker, adm *kadm.Client, topic string, b backlog) (drained, error) {
	const patience = 3 * time.Minute
	port, err := services.FreePorts(1)
	if err != nil {
		return drained{}, err
	}
	defer os.RemoveAll(wal)
	t0 := time.Now()
	p, err := relayproc.Start(program, map[string]string{
		"MYSQL_URL": b.url, "MYSQL_START": b.from, "TABLES": b.tables, "KAFKA_BROKERS": strings.Join(to.seeds, ","),
		"TOPIC": topic, "KAFKA_COMPRESSION": "lz4", "WAL_DIR": wal, "HTTP_ADDR": "127.0.0.1:" + strconv.Itoa(port),
	})
	if err != nil {
		return drained{}, err
	}
	defer p.Kill()
	var half struct {
		at   time.Time
		cpu  time.Duration
		rows int64
	}
	for {
		n, err := arrived(ctx, adm, topic)
		now, cpu := time.Now(), relayproc.CPU(p.PID())
		switch {
		case err != nil:
			return drained{}, err
		case p.Exited():
			return drained{}, fmt.Errorf("the relay ended with code %d:\n%s", p.ExitCode(), relayproc.Tail(p.Log(), 6))
		case now.Sub(t0) > patience:
			return drained{}, fmt.Errorf("%d of %d rows after %v; the relay's last lines:\n%s", n, b.rows, patience, relayproc.Tail(p.Log(), 6))
		case n > b.rows:
			return drained{}, fmt.Errorf("%d records for %d rows", n, b.rows)
		case n == b.rows:
			took := now.Sub(t0)
			return drained{
				rows: float64(n) / took.Seconds(), perCPU: float64(n) / cpu.Seconds(),
				warmRows:   float64(n-half.rows) / now.Sub(half.at).Seconds(),
				warmPerCPU: float64(n-half.rows) / max(cpu-half.cpu, 10*time.Millisecond).Seconds(),
				memory:     float64(p.Peak().HighWater) / 1024,
			}, nil
		case n >= b.rows/2 && half.at.IsZero():
			half.at, half.cpu, half.rows = now, cpu, n
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// produceSame is the floor: reads the topic that the relay filled, then produces the same keys and values to a new
// topic with a bare kgo client, and returns rows per CPU-second of that. Reading is not counted.
func produceSame(ctx context.Context, to broker, adm *kadm.Client, from string) (float64, error) {
	want, err := arrived(ctx, adm, from)
	if err != nil {
		return 0, err
	}
	records, err := consume(ctx, to, from, want)
	if err != nil {
		return 0, err
	}
	topic := from + "-floor"
	if err := makeTopic(ctx, adm, topic, drainPartitions); err != nil {
		return 0, err
	}
	defer adm.DeleteTopics(context.WithoutCancel(ctx), topic)
	cl, err := kgo.NewClient(kgo.SeedBrokers(to.seeds...), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5*time.Millisecond), kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.MaxBufferedRecords(100_000),
		kgo.DefaultProduceTopic(topic))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	t0 := ownCPU()
	for _, r := range records {
		cl.Produce(ctx, &kgo.Record{Key: r.Key, Value: r.Value, Partition: r.Partition}, nil)
	}
	if err := cl.Flush(ctx); err != nil {
		return 0, err
	}
	used := ownCPU() - t0
	if n, err := arrived(ctx, adm, topic); err != nil || n != want {
		return 0, errors.Join(err, fmt.Errorf("%d of %d records arrived", n, want))
	}
	return float64(want) / used.Seconds(), nil
}

func consume(ctx context.Context, to broker, topic string, n int64) ([]*kgo.Record, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(to.seeds...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	records := make([]*kgo.Record, 0, n)
	for int64(len(records)) < n {
		f := cl.PollFetches(ctx)
		if err := f.Err0(); err != nil {
			return nil, err
		}
		records = append(records, f.Records()...)
	}
	return records, nil
}

// ownCPU is the processor time of this process so far.
func ownCPU() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
