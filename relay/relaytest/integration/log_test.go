package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"binrelay/relay/relaytest"
	"binrelay/wal"
)

// TestLogModelAgreesWithWAL does the same random things to the durable log and to the model: the relay's
// simulations may trust the model.
func TestLogModelAgreesWithWAL(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			ctx := context.Background()
			dir := t.TempDir()
			open := func() *wal.Log {
				l, err := wal.Open(dir, wal.Options{MaxBytes: 4 << 20, MinFree: -1, SegmentBytes: 64 << 10, ChunkBytes: 4 << 10})
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			real, model := open(), &relaytest.Log{}
			defer func() { real.Close() }()
			compare := func(step int) {
				if err := errors.Join(real.Sync(ctx), model.Sync(ctx)); err != nil {
					t.Fatal(err)
				}
				st := model.Status()
				if real.Last() != st.Last || real.Durable() != st.Durable || !bytes.Equal(real.Position(), model.Position()) {
					t.Fatalf("step %d: wal last %d durable %d at %q, model %d, %d, %q", step, real.Last(), real.Durable(), real.Position(), st.Last, st.Durable, model.Position())
				}
				if st.First > st.Last {
					return
				}
				from := st.First + rng.Uint64N(st.Last-st.First+1)
				want, release, err := model.Read(ctx, from, 1<<30)
				if err != nil {
					t.Fatal(err)
				}
				defer release()
				for len(want) > 0 {
					b, err := real.Read(ctx, from, 1+rng.IntN(20000))
					if err != nil {
						t.Fatal(err)
					}
					for _, e := range b.Entries {
						if len(want) == 0 || e.Seq != want[0].Seq || !bytes.Equal(e.Data, want[0].Data) {
							t.Fatalf("step %d: wal has entry %d of %d bytes, the model %d more", step, e.Seq, len(e.Data), len(want))
						}
						want, from = want[1:], e.Seq+1
					}
					b.Release()
				}
			}
			for step := range 200 {
				switch n := rng.IntN(40); {
				case n < 32:
					data := bytes.Repeat([]byte{byte(step)}, rng.IntN(2000))
					if rng.IntN(30) == 0 {
						data = bytes.Repeat([]byte("big"), 5000) // over several chunks
					}
					pos, more := fmt.Append(nil, step), rng.IntN(3) == 0
					if rng.IntN(8) == 0 {
						pos = nil
					}
					a, err1 := real.Append(ctx, data, pos, more)
					b, err2 := model.Append(ctx, data, pos, more)
					if a != b || errors.Join(err1, err2) != nil {
						t.Fatalf("step %d: Append = %d, %v; model %d, %v", step, a, err1, b, err2)
					}
				case n < 34:
					if err := errors.Join(real.Abandon(ctx), model.Abandon(ctx)); err != nil {
						t.Fatal(err)
					}
				case n < 37:
					compare(step)
				case n < 39:
					if last := model.Status().Last; last > 0 {
						compare(step)
						seq := rng.Uint64N(last + 1)
						if err := errors.Join(real.Trim(seq), model.Trim(seq)); err != nil {
							t.Fatal(err)
						}
					}
				default: // a clean end and a new process: what was open is void
					if err := errors.Join(real.Close(), model.Close()); err != nil {
						t.Fatal(err)
					}
					real, model = open(), model.Crash()
				}
			}
			compare(200)
		})
	}
}
