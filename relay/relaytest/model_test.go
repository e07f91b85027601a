package relaytest

import (
	"context"
	"errors"
	"fmt"
	"io"
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

func TestSinkModelSettlesWhatACrashLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Sink{AckDelay: func() time.Duration { return time.Hour }, Arrived: func(n int) int { return n - 1 }}
		ctx := context.Background()
		if _, err := s.Start(ctx); err != nil {
			t.Fatal(err)
		}
		released := 0
		for i := uint64(1); i <= 3; i++ {
			b := &relay.Batch{First: i, Last: i, Release: func() { released++ }}
			b.Records = []relay.Record{{Topic: "t", Partition: 1, Seq: i, Value: []byte("v")}}
			if err := s.Send(ctx, b); err != nil {
				t.Fatal(err)
			}
			b.Records[0].Value[0] = 'x' // what is handed over is the journal's
		}
		if s.Acked() != 0 || s.Status().InFlight != 3 {
			t.Errorf("acked %d, %+v", s.Acked(), s.Status())
		}
		n := s.Crash()
		if err := s.Send(ctx, &relay.Batch{First: 4, Last: 4, Release: func() { released++ }}); !errors.Is(err, ErrCrashed) {
			t.Errorf("Send of the dead process = %v", err)
		}
		if got := n.Records("t")[1]; len(got) != 2 {
			t.Errorf("%d records had arrived, want 2", len(got))
		}
		next, err := n.Start(ctx)
		if got := n.Records("t")[1]; err != nil || next != 4 || len(got) != 3 || string(got[2].Value) != "v" {
			t.Errorf("Start = %d, %v with %d records, want 4 with 3", next, err, len(got))
		}
		time.Sleep(2 * time.Hour)
		if released != 4 || n.Acked() != 3 {
			t.Errorf("%d batches of 4 were released, acked %d", released, n.Acked())
		}
	})
}

func TestScriptedSourceStartsOverInsideATransaction(t *testing.T) {
	breaks := 0
	s := &ScriptedSource{Rows: func(n int) int { return n - 1 }, PartRows: 1, Break: func(n int) error {
		if n == 3 {
			if breaks++; breaks == 2 {
				return ErrBroken
			}
		}
		return nil
	}}
	s.Extend(3)
	var pos []byte
	got := ""
	emit := func(p relay.Part) error {
		got += fmt.Sprintf("[%q first=%t more=%t at %s]", p.Data, p.First, p.More, p.Pos)
		if !p.More {
			pos = p.Pos
		}
		if string(p.Pos) == "3" {
			return io.EOF
		}
		return nil
	}
	if err := s.Stream(context.Background(), nil, emit); err != ErrBroken {
		t.Fatal(err)
	}
	if err := s.Stream(context.Background(), pos, emit); err != io.EOF {
		t.Fatal(err)
	}
	want := `["" first=true more=false at 0]["" first=true more=false at 1]["2 0\n" first=true more=false at 2]["3 0\n" first=true more=true at ]` +
		`["3 0\n" first=true more=true at ]["3 1\n" first=false more=false at 3]`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if rows, err := ScriptedRows([]byte("3 0\n3 1\n")); err != nil || fmt.Sprint(rows) != "[{3 0} {3 1}]" {
		t.Errorf("%v, %v", rows, err)
	}
}
