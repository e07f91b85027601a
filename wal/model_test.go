package wal

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
)

var (
	modelSeed  = flag.Uint64("wal.seed", 0, "run TestModel with this seed only")
	modelSteps = flag.Int("wal.steps", 600, "steps of TestModel for each seed")
)

// model is the log as a slice.
type model struct {
	entries []Entry // readable
	open    []Entry // parts of the open transaction
	next    uint64
	pos     []byte
}

// TestModel does random things to a log and to a slice and wants the same answers.
func TestModel(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5}
	if *modelSeed != 0 {
		seeds = []uint64{*modelSeed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			t.Parallel()
			runModel(t, seed, *modelSteps)
		})
	}
}

func runModel(t *testing.T, seed uint64, steps int) {
	r := rand.New(rand.NewPCG(seed, 0))
	o := tiny()
	o.RingBytes = []int{1, 8 << 10, 64 << 10}[r.IntN(3)]
	o.ChunkBytes = []int{1 << 10, 4 << 10, 16 << 10}[r.IntN(3)]
	o.SegmentBytes = []int64{32 << 10, 64 << 10, 256 << 10}[r.IntN(3)]
	if r.IntN(2) == 0 {
		o.Key = bytes.Repeat([]byte{byte(seed)}, 32)
	}
	dir := t.TempDir()
	l := mustOpen(t, dir, o)
	m := model{next: 1}
	var trimmed uint64

	read := func(seq uint64, maxBytes int) {
		t.Helper()
		var want []Entry
		from := max(seq, l.First())
		for _, e := range m.entries {
			if e.Seq >= from {
				want = append(want, e)
			}
		}
		got := readFrom(t, l, seq, maxBytes)
		if len(got) != len(want) {
			t.Fatalf("read from %d: %d entries, want %d (first %d, last %d)", seq, len(got), len(want), l.First(), l.Last())
		}
		for i := range got {
			if got[i].Seq != want[i].Seq || !bytes.Equal(got[i].Data, want[i].Data) {
				t.Fatalf("read from %d: entry %d has seq %d and %d bytes, want seq %d and %d bytes",
					seq, i, got[i].Seq, len(got[i].Data), want[i].Seq, len(want[i].Data))
			}
		}
	}
	check := func() {
		t.Helper()
		last := uint64(0)
		if n := len(m.entries); n > 0 {
			last = m.entries[n-1].Seq
		}
		if l.Last() != last || !bytes.Equal(l.Position(), m.pos) {
			t.Fatalf("last %d, position %q; want %d, %q", l.Last(), l.Position(), last, m.pos)
		}
		if f := l.First(); f > trimmed+1 && (len(m.entries) == 0 || f > firstAbove(m.entries, trimmed)) {
			t.Fatalf("First = %d, trimmed to %d only", f, trimmed)
		}
	}

	for step := range steps {
		switch n := r.IntN(1000); {
		case n < 850:
			size := r.IntN(600)
			switch r.IntN(60) {
			case 0:
				size = r.IntN(80 << 10)
			case 1:
				size = 0
			}
			data := content(r.Uint64(), size)
			pos := fmt.Appendf(nil, "pos-%d-%d", seed, step)
			more := r.IntN(3) == 0
			seq := mustAppend(t, l, data, pos, more)
			if size == 0 && !more {
				if seq != m.next-1 {
					t.Fatalf("a position alone returned %d, want %d", seq, m.next-1)
				}
				m.entries, m.open, m.pos = append(m.entries, m.open...), nil, pos
				continue
			}
			if seq != m.next {
				t.Fatalf("Append = %d, want %d", seq, m.next)
			}
			m.next++
			m.open = append(m.open, Entry{seq, data})
			if !more {
				m.entries, m.open, m.pos = append(m.entries, m.open...), nil, pos
			}
		case n < 890:
			if err := l.Abandon(context.Background()); err != nil {
				t.Fatal(err)
			}
			m.open = nil
		case n < 930:
			mustSync(t, l)
			check()
			read(r.Uint64N(m.next+1), []int{1, 2000, 1 << 20}[r.IntN(3)])
		case n < 960:
			if len(m.entries) > 0 {
				e := m.entries[r.IntN(len(m.entries))]
				trimmed = max(trimmed, min(e.Seq, l.Last()))
				if err := l.Trim(e.Seq); err != nil {
					t.Fatal(err)
				}
			}
		case n < 985: // stop and start
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			m.open = nil // an open transaction does not outlive its process
			l = mustOpen(t, dir, o)
			check()
		default: // a crash
			mustSync(t, l)
			dir = crash(t, l)
			m.open = nil
			l = mustOpen(t, dir, o)
			check()
		}
	}
	mustSync(t, l)
	check()
	read(0, 1<<20)
	read(0, 1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func firstAbove(entries []Entry, seq uint64) uint64 {
	for _, e := range entries {
		if e.Seq > seq {
			return e.Seq
		}
	}
	return entries[len(entries)-1].Seq + 1
}
