package relaytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"binrelay/relay"
)

func mustAppend(t *testing.T, l *Log, data, pos string, more bool) uint64 {
	t.Helper()
	seq, err := l.Append(context.Background(), []byte(data), []byte(pos), more)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func readAll(t *testing.T, l *Log) string {
	t.Helper()
	st := l.Status()
	if st.Last < st.First {
		return ""
	}
	entries, release, err := l.Read(context.Background(), 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, e := range entries {
		out += fmt.Sprintf("%d=%s ", e.Seq, e.Data)
	}
	release()
	return out
}

func TestLogModelKeepsWhatIsSyncedAndWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := &Log{CommitDelay: func() time.Duration { return time.Second }}
		mustAppend(t, l, "a", "p1", false)
		if got := readAll(t, l); got != "" {
			t.Errorf("readable before it is durable: %s", got)
		}
		time.Sleep(2 * time.Second)
		if got := readAll(t, l); got != "1=a " {
			t.Errorf("after the commit: %q", got)
		}
		mustAppend(t, l, "b1", "", true)
		mustAppend(t, l, "b2", "", true)
		if err := l.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, "b3", "p2", false) // its end is not synced
		if got := readAll(t, l); got != "1=a " {
			t.Errorf("parts of a transaction whose end is not durable: %q", got)
		}
		n := l.Crash()
		if got := readAll(t, n); got != "1=a " || string(n.Position()) != "p1" {
			t.Errorf("after a crash: %q at %s", got, n.Position())
		}
		if _, err := l.Append(ctx, nil, nil, true); !errors.Is(err, ErrCrashed) {
			t.Errorf("Append to the dead log = %v", err)
		}
		if seq := mustAppend(t, n, "c1", "", true); seq != 4 {
			t.Errorf("sequence number %d after durable parts 2 and 3 were voided, want 4", seq)
		}
		if err := n.Abandon(ctx); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, n, "d1", "", true)
		if seq := mustAppend(t, n, "", "p3", false); seq != 5 {
			t.Errorf("Append without data = %d, want 5, the newest", seq)
		}
		if err := n.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, n); got != "1=a 5=d1 " || string(n.Position()) != "p3" {
			t.Errorf("after Abandon: %q at %s", got, n.Position())
		}
		if err := n.Trim(1); err != nil {
			t.Fatal(err)
		}
		if st := n.Status(); st.First != 5 || st.Last != 5 || st.Durable != 5 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestLogModelWaitsWhenFull(t *testing.T) {
	l := &Log{MaxBytes: 3}
	mustAppend(t, l, "abc", "1", false)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Append(ctx, []byte("d"), nil, false); !errors.Is(err, context.Canceled) {
		t.Errorf("Append to a full log = %v", err)
	}
	if err := l.Trim(1); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, "d", "2", false)
	l.Fail(io.ErrUnexpectedEOF)
	if err := l.Sync(context.Background()); err != io.ErrUnexpectedEOF {
		t.Errorf("Sync = %v", err)
	}
}

func TestSinkModelRefusesAndGoesOn(t *testing.T) {
	refuse := true
	s := &Sink{Refuse: func(r *relay.Record) *relay.Fault {
		if refuse && r.Row == 1 {
			return &relay.Fault{Function: "kafka", Row: 1}
		}
		return nil
	}}
	ctx := context.Background()
	if next, err := s.Start(ctx); next != 0 || err != nil {
		t.Fatal(next, err)
	}
	b := &relay.Batch{First: 1, Last: 2}
	for i := range int32(3) {
		b.Records = append(b.Records, relay.Record{Topic: "t", Partition: 0, Row: i})
	}
	var f *relay.Fault
	if err := s.Send(ctx, b); !errors.As(err, &f) {
		t.Errorf("Send = %v, want the fault", err)
	}
	if _, err := s.Start(ctx); !errors.As(err, &f) {
		t.Errorf("Start = %v, want the fault again", err)
	}
	refuse = false
	if next, err := s.Start(ctx); next != 3 || err != nil || s.Acked() != 2 {
		t.Errorf("Start = %d, %v, acked %d", next, err, s.Acked())
	}
	if got := s.Records("t"); len(got) != 4 || len(got[0]) != 3 {
		t.Errorf("records %v", got)
	}
}

// rowsHandler turns the entries of a ScriptedSource into one record a row, some time later.
type rowsHandler struct{ delay func() time.Duration }

func (h rowsHandler) Go(j *relay.Job) {
	work := func() {
		for _, e := range j.Entries {
			rows, err := ScriptedRows(e.Data)
			if err != nil {
				j.Fault = &relay.Fault{Function: "decode", Seq: e.Seq, Err: err.Error()}
				break
			}
			for _, r := range rows {
				key := fmt.Append(nil, r.Row%5)
				j.Out.Records = append(j.Out.Records, relay.Record{Topic: "t", Partition: -1, Hash: key, Key: key, Value: fmt.Append(nil, r.Transaction), Seq: e.Seq, Row: int32(r.Row)})
			}
			j.Covered++
		}
		j.Done <- struct{}{}
	}
	time.AfterFunc(h.delay(), work)
}

// TestModelsSurviveCrashes runs the real relay on the models, kills it again and again, and expects every
// row once and in order: the models are fit for the relay's own simulations.
func TestModelsSurviveCrashes(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rng := NewRand(seed)
			ms := func(n int) func() time.Duration { return rng.UpTo(time.Duration(n) * time.Millisecond) }
			const transactions = 200
			src := &ScriptedSource{Seed: seed, PartRows: 3, Rows: func(n int) int { return n * 7 % 11 }}
			src.Break = func(int) error {
				time.Sleep(ms(3)())
				if rng.OneIn(50) {
					return ErrBroken
				}
				return nil
			}
			log := &Log{CommitDelay: ms(8), MaxBytes: 2000}
			sink := &Sink{AckDelay: ms(20), MaxInFlight: 50, Arrived: func(n int) int { return rng.IntN(n + 1) }}
			sink.AfterSend = func(*relay.Batch) error {
				if rng.OneIn(40) {
					return ErrBroken
				}
				return nil
			}
			src.Extend(transactions)
			for kills := 0; ; kills++ {
				ctx, cancel := context.WithCancel(t.Context())
				r := &relay.Relay{Source: src, Log: log, Sink: sink, Handler: rowsHandler{ms(5)}, Logger: slog.New(slog.DiscardHandler),
					Backoff: func(int) time.Duration { return time.Millisecond }, ShutdownTimeout: time.Minute}
				done := make(chan error, 1)
				go func() { done <- r.Run(ctx) }()
				if kills == 20 {
					for string(log.Position()) != fmt.Sprint(transactions) {
						time.Sleep(10 * time.Millisecond)
					}
					if err := log.Sync(ctx); err != nil { // Run drains what is readable
						t.Fatal(err)
					}
					cancel()
					if err := <-done; err != nil {
						t.Fatal(err)
					}
					break
				}
				time.Sleep(time.Duration(rng.IntN(120)) * time.Millisecond)
				cancel() // what is left of the process ends; it reaches nothing that outlives it
				log, sink = log.Crash(), sink.Crash()
				<-done
			}
			total := 0
			for p, recs := range sink.Records("t") {
				last := map[string]int{}
				for _, r := range recs {
					var n int
					fmt.Sscan(string(r.Value), &n)
					if at := n*100 + int(r.Row); at <= last[string(r.Key)] {
						t.Fatalf("seed %d partition %d: transaction %d row %d after %d", seed, p, n, r.Row, last[string(r.Key)])
					} else {
						last[string(r.Key)] = at
					}
					total++
				}
			}
			want := 0
			for n := 1; n <= transactions; n++ {
				want += src.Rows(n)
			}
			if total != want {
				t.Errorf("seed %d: %d records, want %d", seed, total, want)
			}
		})
	}
}
