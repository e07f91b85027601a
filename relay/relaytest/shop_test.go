package relaytest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"
)

// rebuild applies the events of n transactions to empty tables and returns their rows by table and key.
func rebuild(t *testing.T, st *replication.BinlogStreamer, n int) map[string]map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out := map[string]map[string]string{}
	for n > 0 {
		ev, err := st.GetEvent(ctx)
		if err != nil {
			t.Fatal(err)
		}
		switch e := ev.Event.(type) {
		case *replication.XIDEvent:
			n--
		case *replication.RowsEvent:
			table := string(e.Table.Table)
			if out[table] == nil {
				out[table] = map[string]string{}
			}
			key := func(r []any) string {
				k := ""
				for _, i := range e.Table.PrimaryKey {
					k += fmt.Sprint(r[i], "|")
				}
				return k
			}
			put := func(r []any) {
				if old, ok := out[table][key(r)]; ok {
					t.Fatalf("%s %v is there already: %s", table, r, old)
				}
				out[table][key(r)] = fmt.Sprint(r)
			}
			drop := func(r []any) {
				if old := out[table][key(r)]; old != fmt.Sprint(r) {
					t.Fatalf("%s: before image %v, but the row is %s", table, r, old)
				}
				delete(out[table], key(r))
			}
			switch typ := ev.Header.EventType; {
			case typ == replication.WRITE_ROWS_EVENTv1 || typ == replication.WRITE_ROWS_EVENTv2:
				for _, r := range e.Rows {
					put(r)
				}
			case typ == replication.DELETE_ROWS_EVENTv1 || typ == replication.DELETE_ROWS_EVENTv2:
				for _, r := range e.Rows {
					drop(r)
				}
			default:
				for i := 0; i < len(e.Rows); i += 2 {
					drop(e.Rows[i])
					put(e.Rows[i+1])
				}
			}
		}
	}
	return out
}

func TestShopHistoryIsConsistent(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f Flavor) {
		src := startSource(t, SourceConfig{Flavor: f, FileBytes: 64 << 10})
		shop := NewShop(src, ShopConfig{Seed: 7})
		for range 1500 {
			shop.Step()
		}
		rows, err := shop.Fill(10000)
		if err != nil {
			t.Fatal(err)
		}
		if rows < 10000 {
			t.Errorf("Fill = %d", rows)
		}
		got := rebuild(t, startGTID(t, syncer(t, src), f, ""), 1+1500+rows/3)
		for _, table := range shop.Tables() {
			want := shop.Rows(table)
			if len(want) == 0 || len(got[table.Name]) != len(want) {
				t.Errorf("%s has %d rows, the shop %d", table, len(got[table.Name]), len(want))
			}
			for _, r := range want {
				key := ""
				for _, k := range table.Key {
					key += fmt.Sprint(r[table.columnIndex(k)], "|")
				}
				if _, ok := got[table.Name][key]; !ok {
					t.Errorf("%s: %s is missing", table, key)
				}
			}
		}
	})
}

func TestShopIsDeterministic(t *testing.T) {
	clock := func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	var ends [2]uint64
	for i := range ends {
		src := startSource(t, SourceConfig{Clock: clock})
		shop := NewShop(src, ShopConfig{Seed: 3})
		for range 200 {
			shop.Step()
		}
		_, ends[i] = src.Position()
	}
	if ends[0] != ends[1] {
		t.Errorf("two runs of one seed end at %d and %d", ends[0], ends[1])
	}
}

func TestShopRunEndsWithContext(t *testing.T) {
	src := startSource(t, SourceConfig{})
	shop := NewShop(src, ShopConfig{Rate: 10000})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- shop.Run(ctx) }()
	st := startGTID(t, syncer(t, src), MySQL, "")
	rebuild(t, st, 20)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
