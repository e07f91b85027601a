package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"binrelay/functions"
	"binrelay/relay"
	"binrelay/relay/binlog"
	"binrelay/relay/relaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var servers = map[string]relaytest.SourceConfig{
	"mysql":       {},
	"mysql-file":  {NoGTID: true},
	"mysql-nocrc": {NoChecksum: true},
	"mariadb":     {Flavor: relaytest.MariaDB},
}

func start(t *testing.T, cfg relaytest.SourceConfig) (*relaytest.Source, binlog.Config) {
	t.Helper()
	src, err := relaytest.StartSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	tables, err := binlog.ParseTables("*.*")
	if err != nil {
		t.Fatal(err)
	}
	return src, binlog.Config{
		Addr: src.Addr(), User: "relay", Password: func() (string, error) { return "secret", nil }, ServerID: 4711,
		Start: "earliest", Tables: tables, Heartbeat: time.Second, PartBytes: 2000,
	}
}

// history is what a reader has: the parts of whole transactions and the position behind them.
type history struct {
	pos   []byte
	parts [][]byte
	open  [][]byte // of the transaction that is not complete
	whole int
	want  int
	then  func() // called after each whole transaction, may be nil
}

var errEnough = errors.New("enough")

func (h *history) emit(p relay.Part) error {
	if p.First {
		h.open = nil
	}
	if len(p.Data) > 0 {
		h.open = append(h.open, append([]byte(nil), p.Data...))
	}
	if p.More {
		return nil
	}
	if len(h.open) > 0 {
		h.whole++
		if h.then != nil {
			defer h.then()
		}
	}
	h.parts, h.open = append(h.parts, h.open...), nil
	h.pos = append([]byte(nil), p.Pos...)
	if h.whole >= h.want {
		return errEnough
	}
	return nil
}

// tables are rows by table and key, rebuilt from changes.
type tables map[string]map[string]string

func (ts tables) apply(c *functions.Change) error {
	if c.Op == functions.DDL {
		return nil
	}
	name := c.Table.Name
	if ts[name] == nil {
		ts[name] = map[string]string{}
	}
	render := func(r functions.Row) (key, row string) {
		k, err := r.Image().AppendColumnsJSON(nil, c.Table.Key)
		if err != nil {
			panic(err)
		}
		v, err := r.Image().AppendRowJSON(nil)
		if err != nil {
			panic(err)
		}
		return string(k), string(v)
	}
	if !c.Before.IsZero() {
		k, v := render(c.Before)
		if ts[name][k] != v {
			return fmt.Errorf("%s: before image %s, but the row is %s", name, v, ts[name][k])
		}
		delete(ts[name], k)
	}
	if !c.After.IsZero() {
		k, v := render(c.After)
		if old, ok := ts[name][k]; ok {
			return fmt.Errorf("%s: %s is there already: %s", name, k, old)
		}
		ts[name][k] = v
	}
	return nil
}

// TestBinlogReadsTheShopThroughFaults trades while connections break in every way, and rebuilds the tables.
func TestBinlogReadsTheShopThroughFaults(t *testing.T) {
	for name, cfg := range servers {
		t.Run(name, func(t *testing.T) {
			cfg.FileBytes = 20 << 10
			src, bc := start(t, cfg)
			shop := relaytest.NewShop(src, relaytest.ShopConfig{Seed: 1})
			reader := binlog.NewSource(bc)
			const steps = 400
			h := &history{want: 4 + 1 + steps} // four tables, and the first stock on the shelves
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			done := 0
			h.then = func() { // each transaction that was read lets two more happen
				for range min(2, steps-done) {
					switch done++; done % 50 {
					case 10:
						src.KillAfter(7)
					case 20:
						src.KillAfterBytes(1234)
					case 30:
						src.KillAll()
					case 40:
						src.Rotate()
					case 45:
						src.BreakDumps(1158, "Got an error reading communication packets")
					}
					shop.Step()
				}
			}
			for err := error(nil); err != errEnough; {
				err = reader.Stream(ctx, h.pos, h.emit)
				if relay.IsPermanent(err) || ctx.Err() != nil {
					t.Fatalf("after %d transactions: %v", h.whole, err)
				}
			}
			if src.Dumps() < steps/50 {
				t.Errorf("%d dumps only: the faults did not bite", src.Dumps())
			}
			got := tables{}
			dec := binlog.NewDecoders(nil).New()
			gtids := map[string]bool{}
			for i, p := range h.parts {
				if err := dec.Decode(uint64(i), p, func(c *functions.Change) error {
					gtids[c.Source.GTID] = true
					return got.apply(c)
				}); err != nil {
					t.Fatal(err)
				}
			}
			if !cfg.NoGTID && len(gtids) != h.want {
				t.Errorf("%d GTIDs, want %d", len(gtids), h.want)
			}
			for _, table := range shop.Tables() {
				rows := shop.Rows(table)
				if len(rows) == 0 || len(got[table.Name]) != len(rows) {
					t.Errorf("%s: %d rows, the shop has %d", table, len(got[table.Name]), len(rows))
				}
			}
			for _, r := range shop.Rows(shop.Items) {
				want := fmt.Sprintf(`{"sku":"%s","name":"%s","price":"%s","stock":%d,`, r[0], r[1], r[2], r[3])
				if v := got["items"][fmt.Sprintf(`{"sku":"%s"}`, r[0])]; !strings.HasPrefix(v, want) {
					t.Errorf("item %s, want %s", v, want)
				}
			}
		})
	}
}

// TestBinlogReadsRepeatedTransactions checks Fill's copies: each under a GTID of its own.
func TestBinlogReadsRepeatedTransactions(t *testing.T) {
	for name, cfg := range servers {
		t.Run(name, func(t *testing.T) {
			src, bc := start(t, cfg)
			shop := relaytest.NewShop(src, relaytest.ShopConfig{})
			rows, err := shop.Fill(20000)
			if err != nil {
				t.Fatal(err)
			}
			h := &history{want: 4 + 1 + rows/3}
			src.KillEvery(5000)
			reader := binlog.NewSource(bc)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			for err := error(nil); err != errEnough; {
				err = reader.Stream(ctx, h.pos, h.emit)
				if relay.IsPermanent(err) || ctx.Err() != nil {
					t.Fatalf("after %d transactions: %v", h.whole, err)
				}
			}
			dec := binlog.NewDecoders(nil).New()
			got, n := tables{}, 0
			for i, p := range h.parts {
				if err := dec.Decode(uint64(i), p, func(c *functions.Change) error {
					if c.Op != functions.DDL {
						n++
					}
					return got.apply(c)
				}); err != nil {
					t.Fatal(err)
				}
			}
			if n != 8+rows || len(got["orders"]) != 0 {
				t.Errorf("%d changes, want %d; %d orders are left", n, 8+rows, len(got["orders"]))
			}
		})
	}
}

// TestBinlogHaltsAndWaitsAsTheServerSays drives the errors that decide between halt and retry.
func TestBinlogHaltsAndWaitsAsTheServerSays(t *testing.T) {
	for _, c := range []struct {
		name      string
		permanent bool
		text      string
		arrange   func(*relaytest.Source)
	}{
		{"purged", true, "purged", func(s *relaytest.Source) { s.Rotate(); s.Tx(); s.Rotate(); s.Purge(1) }},
		{"metadata", true, "binlog_row_metadata", func(s *relaytest.Source) { s.SetVariable("binlog_row_metadata", "MINIMAL") }},
		{"format", true, "binlog_format", func(s *relaytest.Source) { s.SetVariable("binlog_format", "STATEMENT") }},
		{"connections", false, "Too many connections", func(s *relaytest.Source) { s.FailLogins(1, 1040, "Too many connections") }},
		{"down", false, "refused", func(s *relaytest.Source) { s.Stop() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, bc := start(t, relaytest.SourceConfig{})
			table := src.CreateTable("CREATE TABLE d.t (id INT PRIMARY KEY)")
			src.Tx(relaytest.Insert(table, 1))
			h := &history{want: 2}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := binlog.NewSource(bc).Stream(ctx, nil, h.emit); err != errEnough {
				t.Fatal(err)
			}
			c.arrange(src)
			h.want = 3
			err := binlog.NewSource(bc).Stream(ctx, h.pos, h.emit)
			if err == nil || relay.IsPermanent(err) != c.permanent || !strings.Contains(err.Error(), c.text) {
				t.Errorf("permanent %t: %v; want %t and %q", relay.IsPermanent(err), err, c.permanent, c.text)
			}
		})
	}
}

// TestBinlogSurvivesFreezeAndFailover: a dead path is noticed by missing heartbeats, another server behind
// the address is followed by GTID.
func TestBinlogSurvivesFreezeAndFailover(t *testing.T) {
	for _, name := range []string{"mysql", "mariadb"} {
		t.Run(name, func(t *testing.T) {
			src, bc := start(t, servers[name])
			bc.Heartbeat = 100 * time.Millisecond
			table := src.CreateTable("CREATE TABLE d.t (id INT PRIMARY KEY)")
			src.Tx(relaytest.Insert(table, 1))
			h := &history{want: 3}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			reader := binlog.NewSource(bc)
			froze := false
			emit := func(p relay.Part) error {
				err := h.emit(p)
				if !froze && h.whole == 2 {
					froze = true
					src.Freeze()
				}
				return err
			}
			if err := reader.Stream(ctx, nil, emit); err == nil || err == errEnough || relay.IsPermanent(err) {
				t.Fatalf("frozen server: %v", err)
			}
			src.Thaw()
			if err := src.Failover(2, "5ca1ab1e-0000-4000-8000-000000000002"); err != nil {
				t.Fatal(err)
			}
			src.Tx(relaytest.Insert(table, 2))
			if err := reader.Stream(ctx, h.pos, h.emit); err != errEnough {
				t.Fatalf("after the failover: %v", err)
			}
			dec := binlog.NewDecoders(nil).New()
			var ids []uint32
			for i, p := range h.parts {
				if err := dec.Decode(uint64(i), p, func(c *functions.Change) error {
					if c.Op != functions.DDL {
						ids = append(ids, c.Source.ServerID)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			if fmt.Sprint(ids) != "[1 2]" {
				t.Errorf("server ids %v, want 1 and 2", ids)
			}
		})
	}
}
