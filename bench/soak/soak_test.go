package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"binrelay/bench/internal/history"
	"binrelay/bench/internal/relayproc"
	"binrelay/bench/services"
)

// testSeed is SEED= of the environment, or one of this moment, which a failing test prints.
func testSeed(t *testing.T) uint64 {
	seed, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano() % 1e9)
	}
	t.Logf("SEED=%d", seed)
	return seed
}

// TestSoakShort is the soak in small, on both flavours: see doc.go. `make soak` is the long form.
func TestSoakShort(t *testing.T) {
	services.Need(t)
	relay, err := relayproc.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	seed := testSeed(t)
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) {
			c := shortForm()
			c.relay, c.seed, c.say, c.memoryLimit = relay, seed, t.Logf, memoryLimit
			r, err := run(t.Context(), c, kind)
			if r != nil {
				t.Log("\n" + r.String())
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestLedgerSurvivesAKilledDatabase proves the writers' own book-keeping: what they take for committed is what
// the tables hold, also where a COMMIT was never answered.
func TestLedgerSurvivesAKilledDatabase(t *testing.T) {
	seed := testSeed(t)
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := services.Database(t, kind)
			create := []string{"CREATE DATABASE " + database, writerTable.create(), createNoise}
			for _, tb := range writtenTables {
				create = append(create, tb.create())
			}
			if err := db.Exec(create...); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var (
				wg    sync.WaitGroup
				total atomic.Int64
				hold  sync.RWMutex
			)
			var writers []*writer
			for i := range 4 {
				w := newWriter(i+1, db, seed, &total, &hold)
				writers = append(writers, w)
				wg.Go(func() {
					if err := w.run(ctx); err != nil {
						t.Error(err)
						stop()
					}
				})
			}
			until := func(n int64) {
				for total.Load() < n && ctx.Err() == nil {
					time.Sleep(10 * time.Millisecond)
				}
			}
			for i := range int64(2) {
				until(3000 * (i + 1))
				if err := db.Kill(t.Context()); err != nil {
					t.Error(err)
				}
				if err := db.Start(t.Context()); err != nil {
					t.Error(err)
				}
			}
			until(9000)
			stop()
			wg.Wait()
			want := map[history.ID]history.State{}
			for _, w := range writers {
				w.ledger(want)
			}
			live := 0
			for _, s := range want {
				if s.Live {
					live++
				}
			}
			for _, tb := range append([]*table{writerTable}, writtenTables...) {
				rows, err := selectAll(db, tb)
				if err != nil {
					t.Fatal(err)
				}
				ver := 1
				if tb.extra != nil {
					ver = 2
				}
				for id, row := range rows {
					live--
					s := want[history.ID{Table: tb.fullName(), ID: id}]
					if !s.Live || fmt.Sprint(s.Ver) != row[ver] || fmt.Sprint(history.Check(id, s.Ver)) != row[ver+1] {
						t.Errorf("%s %s: ledger %+v, table %q", tb.fullName(), id, s, row)
					}
				}
			}
			if live != 0 {
				t.Errorf("%d rows of the ledger are not in the tables", live)
			}
		})
	}
}
