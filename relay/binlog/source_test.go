package binlog

import (
	"fmt"
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
