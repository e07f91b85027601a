package binlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"binrelay/bench/services"
	"binrelay/relay"
)

var nextServerID atomic.Uint32

// sourceOf reads db as the relay does.
func sourceOf(t testing.TB, db *services.DB, change func(*Config)) *Source {
	t.Helper()
	cfg := Config{
		Addr: db.Addr, User: services.RelayUser, Password: func() (string, error) { return services.RelayPassword, nil },
		ServerID: 900000 + nextServerID.Add(1), Heartbeat: time.Second, ParkDir: t.TempDir(),
	}
	if change != nil {
		change(&cfg)
	}
	return NewSource(cfg)
}

// onBoth runs a test on both flavours, each in a database of its own.
func onBoth(t *testing.T, f func(t *testing.T, s testServer, db string)) {
	for _, kind := range serverKinds {
		t.Run(kind, func(t *testing.T) {
			s := server(t, kind)
			db := "b_" + strings.ToLower(strings.Map(func(r rune) rune {
				if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
					return r
				}
				return '_'
			}, t.Name()))
			exec(t, s, "DROP DATABASE IF EXISTS "+db, "CREATE DATABASE "+db+" CHARACTER SET utf8mb4")
			f(t, s, db)
		})
	}
}

func exec(t testing.TB, s testServer, statements ...string) {
	t.Helper()
	if err := s.Exec(statements...); err != nil {
		t.Fatal(err)
	}
}

func onlyTables(t testing.TB, text string) func(*Config) {
	m, err := ParseTables(text)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Tables = m }
}

func TestStreamResumesByGTID(t *testing.T) {
	onBoth(t, func(t *testing.T, s testServer, db string) {
		exec(t, s, "CREATE TABLE "+db+".a (id INT PRIMARY KEY, v VARCHAR(20))")
		c := newCollector(t)
		src := sourceOf(t, s.DB, onlyTables(t, db+".*"))
		stop := c.run(src)
		c.wait("start position", func() bool { return c.pos != nil })
		exec(t, s, "INSERT INTO "+db+".a VALUES (1,'x'),(2,'y')", "UPDATE "+db+".a SET v='z' WHERE id=2")
		c.wait("three rows", func() bool { return c.rows() == 3 })
		if err := stop(); err == nil || relay.IsPermanent(err) {
			t.Errorf("Stream ended with %v", err)
		}
		for i := range 20 {
			exec(t, s, fmt.Sprintf("INSERT INTO %s.a VALUES (%d,'n')", db, 10+i))
		}
		stop = c.run(src)
		c.wait("rows written while it was away", func() bool { return c.rows() >= 23 })
		exec(t, s, "FLUSH BINARY LOGS", "DELETE FROM "+db+".a WHERE id=1")
		c.wait("the delete", func() bool { return c.rows() >= 24 })
		stop()
		got := strings.Join(c.snapshot(), "\n")
		want := []string{`c DB.a #0 {"id":1,"v":"x"}`, `c DB.a #1 {"id":2,"v":"y"}`, `u DB.a #0 {"id":2,"v":"z"}`}
		for i := range 20 {
			want = append(want, fmt.Sprintf(`c DB.a #0 {"id":%d,"v":"n"}`, 10+i))
		}
		want = append(want, `d DB.a #0 {"id":1,"v":"x"}`)
		if w := strings.ReplaceAll(strings.Join(want, "\n"), "DB", db); got != w {
			t.Errorf("got\n%s\nwant\n%s", got, w)
		}
		if c.urgent != 1 {
			t.Errorf("%d urgent parts, want the start position only", c.urgent)
		}
		st := src.Status()
		if st.GTID == "" || st.File == "" || st.ServerID == 0 || st.Version == "" || st.Connects != 2 {
			t.Errorf("Status = %+v", st)
		}
	})
}

func TestStreamStarts(t *testing.T) {
	onBoth(t, func(t *testing.T, s testServer, db string) {
		exec(t, s, "FLUSH BINARY LOGS", "CREATE TABLE "+db+".a (id INT PRIMARY KEY)", "INSERT INTO "+db+".a VALUES (1)")
		status := "SHOW MASTER STATUS"
		if s.Flavor == "mysql" {
			status = "SHOW BINARY LOG STATUS"
		}
		row := s.row(t, status)
		at := row[0] + ":" + row[1]
		set, err := s.GTIDs()
		if err != nil {
			t.Fatal(err)
		}
		exec(t, s, "INSERT INTO "+db+".a VALUES (2)")
		for _, x := range []struct {
			start string
			want  []string
		}{
			{"earliest", []string{"1", "2", "3"}},
			{at, []string{"2", "3"}},
			{row[0] + ":4", []string{"1", "2", "3"}},
			{set, []string{"2", "3"}},
			{"now", []string{"3"}},
		} {
			exec(t, s, "DELETE FROM "+db+".a WHERE id=3")
			c := newCollector(t)
			c.undecode = false
			only := onlyTables(t, db+".a")
			src := sourceOf(t, s.DB, func(cfg *Config) { only(cfg); cfg.Start = x.start })
			stop := c.run(src)
			c.wait("position", func() bool { return c.pos != nil })
			exec(t, s, "INSERT INTO "+db+".a VALUES (3)")
			c.wait(x.start, func() bool { return len(c.lines) > 0 && strings.HasSuffix(c.lines[len(c.lines)-1], `{"id":3}`) })
			// A second connection goes on from a position that the first one has moved.
			stop()
			exec(t, s, "INSERT INTO "+db+".a VALUES (4)")
			stop = c.run(src)
			c.wait(x.start+", resumed", func() bool { return strings.HasSuffix(c.lines[len(c.lines)-1], `{"id":4}`) })
			stop()
			exec(t, s, "DELETE FROM "+db+".a WHERE id=4")
			var got []string
			for _, l := range c.snapshot() {
				if strings.HasPrefix(l, "c ") {
					got = append(got, strings.Trim(l[strings.LastIndexByte(l, ':')+1:], "}"))
				}
			}
			var want []string
			seen := map[string]int{} // earlier rounds inserted 3 and 4 again
			for _, g := range got {
				if seen[g]++; seen[g] == 1 {
					want = append(want, g)
				}
			}
			if w := append(x.want, "4"); fmt.Sprint(sortedUnique(want)) != fmt.Sprint(w) {
				t.Errorf("MYSQL_START=%s gave %v, want %v", x.start, got, w)
			}
			if x.start != "earliest" && x.start != row[0]+":4" && seen["1"] > 0 {
				t.Errorf("MYSQL_START=%s gave a row from before it", x.start)
			}
		}
	})
}

func sortedUnique(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return slices.Compact(s)
}

// row is the first row of a query, as text.
func (s testServer) row(t testing.TB, query string) []string {
	t.Helper()
	c, err := s.Connect("")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rows, err := (&conn{Conn: c}).query(query)
	if err != nil || len(rows) == 0 {
		t.Fatalf("%s: %v, %d rows", query, err, len(rows))
	}
	return rows[0]
}

func TestStreamSurvivesKilledDumps(t *testing.T) {
	onBoth(t, func(t *testing.T, s testServer, db string) {
		exec(t, s, "CREATE TABLE "+db+".a (id INT PRIMARY KEY, v VARCHAR(300))")
		c := newCollector(t)
		src := sourceOf(t, s.DB, func(cfg *Config) { onlyTables(t, db+".a")(cfg); cfg.PartBytes = 2000 })
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		done := make(chan struct{})
		go func() { // the relay's loop
			defer close(done)
			for ctx.Err() == nil {
				c.mu.Lock()
				pos := slices.Clone(c.pos)
				c.mu.Unlock()
				if err := src.Stream(ctx, pos, c.emit); relay.IsPermanent(err) {
					t.Error(err)
					return
				}
			}
		}()
		c.wait("position", func() bool { return c.pos != nil })
		const trx = 60
		kills := 0
		for i := range trx {
			var v []string
			for k := range 50 {
				v = append(v, fmt.Sprintf("(%d,REPEAT('x',200))", i*50+k))
			}
			exec(t, s, "INSERT INTO "+db+".a VALUES "+strings.Join(v, ","))
			if i%3 == 0 {
				kills += s.killDumps(t)
			}
		}
		c.wait("all rows", func() bool { return c.rows() >= trx*50 })
		cancel()
		<-done
		if n := c.rows(); n != trx*50 || len(c.gtids) != trx {
			t.Errorf("%d rows of %d in %d transactions of %d", n, trx*50, len(c.gtids), trx)
		}
		if g := sortedUnique(c.gtids); len(g) != trx {
			t.Errorf("%d different transactions, want %d", len(g), trx)
		}
		if kills == 0 || c.parts < 2*trx {
			t.Errorf("%d kills, %d parts: the test did not test", kills, c.parts)
		}
	})
}

func (s testServer) killDumps(t testing.TB) (n int) {
	t.Helper()
	c, err := s.Connect("")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rows, err := (&conn{Conn: c}).query("SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if _, err := c.Execute("KILL " + r[0]); err == nil {
			n++
		}
	}
	return n
}

func TestStreamBigTransactionInBoundedMemory(t *testing.T) {
	onBoth(t, func(t *testing.T, s testServer, db string) {
		exec(t, s, "CREATE TABLE "+db+".a (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(300))")
		c := newCollector(t)
		c.undecode = true
		src := sourceOf(t, s.DB, onlyTables(t, db+".*"))
		var rows, parts, big int
		var base, next uint32
		last := ""
		emit := func(p relay.Part) error {
			if len(p.Data) > 0 {
				h, _, gtid, events, err := parsePart(p.Data)
				if err != nil {
					return err
				}
				parts++
				big = max(big, len(p.Data))
				if string(gtid) != last {
					last, next = string(gtid), 0
				}
				if base = h.RowBase; base != next {
					return fmt.Errorf("part of %s begins with row %d, want %d", gtid, base, next)
				}
				n := rowsOf(t, events)
				rows += n
				next += uint32(n)
				p.Data = nil
				p.First = true
			}
			if p.More {
				return nil
			}
			return c.emit(p)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- src.Stream(ctx, nil, emit) }()
		c.wait("position", func() bool { return c.pos != nil })
		exec(t, s, "INSERT INTO "+db+".a (v) VALUES (REPEAT('x',200))")
		for range 17 {
			exec(t, s, "INSERT INTO "+db+".a (v) SELECT v FROM "+db+".a")
		}
		c.wait("end", func() bool { p, _ := parsePosition(c.pos); return p.gtids() == s.gtids(t) })
		cancel()
		<-done
		if rows != 1<<17 {
			t.Errorf("%d rows, want %d", rows, 1<<17)
		}
		if big > defaultPartBytes+64<<10 || parts < 80 {
			t.Errorf("%d parts, the largest of %d bytes", parts, big)
		}
	})
}

// gtids is the executed set as positions print it.
func (s testServer) gtids(t testing.TB) string {
	t.Helper()
	g, err := s.GTIDs()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func rowsOf(t testing.TB, events []byte) (n int) {
	t.Helper()
	plans := newPlanCache()
	m := map[uint64]*plan{}
	for len(events) > 0 {
		ev, rest, err := splitEvent(events)
		if err != nil {
			t.Fatal(err)
		}
		events = rest
		id, _ := rowsTableID(ev[eventHeaderLen:])
		switch {
		case ev[4] == evTableMap:
			if m[id], err = plans.plan(ev[eventHeaderLen:]); err != nil {
				t.Fatal(err)
			}
		case isRowsEvent(ev[4]):
			k, err := countRows(m[id], ev[4], ev[eventHeaderLen:])
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
	}
	return n
}
