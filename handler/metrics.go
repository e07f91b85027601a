package handler

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"binrelay/relay"
)

// Metrics is everything that /metrics shows, in a registry of its own. The table in README.md lists it.
type Metrics struct {
	registry    *prometheus.Registry
	calls       [numFunctions]prometheus.Counter
	faults      *prometheus.CounterVec
	seconds     [numFunctions]prometheus.Observer
	abandoned   prometheus.Counter
	deadLetters prometheus.Counter
	append      prometheus.Histogram
	produce     prometheus.Histogram
}

// NewMetrics makes the registry. What comes from the relay's status is added by NewServer.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "relay_change_faults_total",
			Help: "Changes that a function failed on, that could not be decoded, or that Kafka refused, by function."}, []string{"function"}),
		abandoned: prometheus.NewCounter(prometheus.CounterOpts{Name: "relay_function_abandoned_total",
			Help: "Calls of functions that never returned and were left behind."}),
		deadLetters: prometheus.NewCounter(prometheus.CounterOpts{Name: "relay_dead_letters_total",
			Help: "Records made for DEAD_LETTER_TOPIC."}),
		// 50 µs is a group commit on a fast disk, 13 s a disk that is about to fail.
		append: prometheus.NewHistogram(histogram("relay_log_append_duration_seconds",
			"Time of a group commit of the log, its sync included.", 50e-6, 19)),
		produce: prometheus.NewHistogram(histogram("relay_sink_produce_duration_seconds",
			"Time from handing a batch over to the acknowledgement of its last record.", 500e-6, 19)),
	}
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "relay_function_calls_total",
		Help: "Calls of the user's functions."}, []string{"function"})
	seconds := prometheus.NewHistogramVec(histogram("relay_function_duration_seconds",
		"Time of a function's call: of the first call in each batch of work, and of one in 64 others.", 100e-9, 27), []string{"function"})
	for f := range numFunctions {
		m.calls[f], m.seconds[f] = calls.WithLabelValues(f.String()), seconds.WithLabelValues(f.String())
	}
	for _, f := range []function{fnFilter, fnSerialize, fnPartition, fnDecode, fnKafka} {
		m.faults.WithLabelValues(f.String())
	}
	m.registry.MustRegister(calls, m.faults, seconds, m.abandoned, m.deadLetters, m.append, m.produce,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// histogram has native buckets and classic ones that double from start.
func histogram(name, help string, start float64, n int) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: name, Help: help,
		Buckets:                     prometheus.ExponentialBuckets(start, 2, n),
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour}
}

// ObserveAppend notes how long a group commit of the log took.
func (m *Metrics) ObserveAppend(d time.Duration) { m.append.Observe(d.Seconds()) }

// ObserveProduce notes how long a batch was in flight.
func (m *Metrics) ObserveProduce(d time.Duration) { m.produce.Observe(d.Seconds()) }

// done counts a finished task: once for many changes.
func (m *Metrics) done(t *task, f *relay.Fault) {
	for i, n := range t.calls {
		if n > 0 {
			m.calls[i].Add(float64(n))
		}
	}
	if t.job.Stats.DeadLetters > 0 {
		m.deadLetters.Add(float64(t.job.Stats.DeadLetters))
	}
	if f != nil {
		m.fault(f)
	}
}

func (m *Metrics) fault(f *relay.Fault) { m.faults.WithLabelValues(f.Function).Inc() }

func (m *Metrics) called(f function, d time.Duration) { m.seconds[f].Observe(d.Seconds()) }

// handler serves the registry.
func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second, DisableCompression: true,
	})
}

// statusCollector turns one snapshot of the relay into metrics at each scrape, so that the numbers of
// a scrape belong together and the data path counts nothing twice.
type statusCollector struct {
	relay     Relay
	abandoned func() int
	fields    []field
	state     *prometheus.Desc
	build     *prometheus.Desc
	labels    []string // of build
}

type field struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	get  func(*relay.Status) float64
}

func newStatusCollector(r Relay, abandoned func() int, version, commit string) *statusCollector {
	c := &statusCollector{
		relay: r, abandoned: abandoned,
		state:  prometheus.NewDesc("relay_state", "1 for the state that the relay is in, 0 for the others.", []string{"state"}, nil),
		build:  prometheus.NewDesc("relay_build_info", "Always 1; what is running is in the labels.", []string{"version", "commit", "goversion"}, nil),
		labels: []string{version, commit, runtime.Version()},
	}
	gauge := func(name, help string, get func(*relay.Status) float64) {
		c.fields = append(c.fields, field{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, get})
	}
	counter := func(name, help string, get func(*relay.Status) uint64) {
		c.fields = append(c.fields, field{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue,
			func(s *relay.Status) float64 { return float64(get(s)) }})
	}

	gauge("relay_source_connected", "1 while connected to the database.", func(s *relay.Status) float64 { return bit(s.Source.Connected) })
	gauge("relay_source_lag_seconds", "How far reading is behind the database; 0 at the end of its binlog.", func(s *relay.Status) float64 { return s.Source.LagSeconds })
	counter("relay_source_events_total", "Binlog events read.", func(s *relay.Status) uint64 { return s.Source.Events })
	counter("relay_source_transactions_total", "Transactions read.", func(s *relay.Status) uint64 { return s.Source.Transactions })
	counter("relay_source_bytes_total", "Binlog bytes read.", func(s *relay.Status) uint64 { return s.Source.Bytes })
	counter("relay_source_connects_total", "Connections made to the database, the first included.", func(s *relay.Status) uint64 { return s.Source.Connects })

	gauge("relay_log_bytes", "Size of the log on disk.", func(s *relay.Status) float64 { return float64(s.WAL.Bytes) })
	gauge("relay_log_free_disk_bytes", "Free space on the log's disk.", func(s *relay.Status) float64 { return float64(s.WAL.FreeDisk) })
	gauge("relay_log_segments", "Segments of the log.", func(s *relay.Status) float64 { return float64(s.WAL.Segments) })
	gauge("relay_log_full", "1 while the log has no room and reading pauses.", func(s *relay.Status) float64 { return bit(s.WAL.Full != "") })
	gauge("relay_log_first_entry", "Number of the oldest entry kept.", func(s *relay.Status) float64 { return float64(s.WAL.First) })
	gauge("relay_log_last_entry", "Number of the newest readable entry.", func(s *relay.Status) float64 { return float64(s.WAL.Last) })
	gauge("relay_log_backlog_entries", "Entries that Kafka has not acknowledged.", func(s *relay.Status) float64 { return float64(s.WAL.Backlog) })
	gauge("relay_log_backlog_seconds", "Age of the oldest entry that Kafka has not acknowledged.", func(s *relay.Status) float64 { return s.BacklogSeconds })
	counter("relay_log_commits_total", "Group commits of the log.", func(s *relay.Status) uint64 { return s.WAL.Commits })

	counter("relay_rows_handled_total", "Row changes that delivery has handled; again after a resumed session.", func(s *relay.Status) uint64 { return s.Rows.Handled })
	counter("relay_rows_filtered_total", "Row changes that a function dropped.", func(s *relay.Status) uint64 { return s.Rows.Filtered })
	counter("relay_halts_total", "Halts of delivery.", func(s *relay.Status) uint64 { return s.Faults })

	gauge("relay_sink_waiting", "1 while the sink waits for something that an operator mends.", func(s *relay.Status) float64 { return bit(s.Sink.Waiting != "") })
	gauge("relay_sink_acked_entry", "Number of the last entry acknowledged with all before it.", func(s *relay.Status) float64 { return float64(s.Sink.Acked) })
	gauge("relay_sink_in_flight_records", "Records handed over and not acknowledged.", func(s *relay.Status) float64 { return float64(s.Sink.InFlight) })
	gauge("relay_sink_oldest_in_flight_seconds", "Age of the oldest record in flight.", func(s *relay.Status) float64 { return s.Sink.OldestSecs })
	gauge("relay_sink_partitions", "Partitions written to.", func(s *relay.Status) float64 { return float64(s.Sink.Partitions) })
	counter("relay_sink_records_total", "Records acknowledged.", func(s *relay.Status) uint64 { return s.Sink.Records })
	counter("relay_sink_bytes_total", "Bytes of their keys and values.", func(s *relay.Status) uint64 { return s.Sink.Bytes })
	counter("relay_sink_retries_total", "Produce requests that were tried again.", func(s *relay.Status) uint64 { return s.Sink.Retries })
	counter("relay_sink_sessions_total", "Producer sessions begun.", func(s *relay.Status) uint64 { return s.Sink.Sessions })
	counter("relay_sink_resumed_records_total", "Records settled by resuming a session.", func(s *relay.Status) uint64 { return s.Sink.Resumed })
	counter("relay_sink_may_repeat_records_total", "Records that may have been repeated because nothing could prove otherwise.", func(s *relay.Status) uint64 { return s.Sink.MayRepeat })

	gauge("relay_function_abandoned", "Calls of functions that hang at the moment.", func(*relay.Status) float64 { return float64(c.abandoned()) })
	return c
}

func (c *statusCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.state
	ch <- c.build
	for _, f := range c.fields {
		ch <- f.desc
	}
}

func (c *statusCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.relay.Status()
	for _, st := range []relay.State{relay.Starting, relay.Streaming, relay.Paused, relay.Waiting, relay.Halted} {
		ch <- prometheus.MustNewConstMetric(c.state, prometheus.GaugeValue, bit(s.State == st), string(st))
	}
	ch <- prometheus.MustNewConstMetric(c.build, prometheus.GaugeValue, 1, c.labels...)
	for _, f := range c.fields {
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.get(&s))
	}
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
