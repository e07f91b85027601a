package binlog

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"binrelay/bench/services"
	"binrelay/relay"
)

// TestStreamWithoutGTIDs follows a MySQL with gtid_mode=OFF, its default: by file and offset, over
// restarts, into gtid_mode=ON and back.
func TestStreamWithoutGTIDs(t *testing.T) {
	db := services.Database(t, "mysql", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
	s := testServer{db}
	exec(t, s, "CREATE DATABASE t", "CREATE TABLE t.a (id INT PRIMARY KEY)")
	c := newCollector(t)
	src := sourceOf(t, db, onlyTables(t, "t.a"))
	var stop func() error
	next := 0
	insert := func(n int) {
		t.Helper()
		for range n {
			next++
			exec(t, s, fmt.Sprintf("INSERT INTO t.a VALUES (%d)", next))
		}
	}
	drained := func(what string) {
		t.Helper()
		c.wait(what, func() bool { return c.rows() >= next })
	}
	resume := func() {
		if stop != nil {
			stop()
		}
		stop = c.run(src)
	}
	resume()
	c.wait("position", func() bool { return c.pos != nil })
	insert(3)
	drained("rows by offset")
	if p, _ := parsePosition(c.pos); p.gtids() != "" || p.Pos <= 4 || p.Server == [16]byte{} {
		t.Errorf("position %s of server %x", p.String(), p.Server)
	}
	stop()
	insert(3)
	resume()
	drained("rows written while it was away")
	exec(t, s, "FLUSH BINARY LOGS")
	insert(2)
	drained("rows in the next file")
	stop()
	if err := db.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	resume()
	insert(2)
	drained("rows after a restart")

	for _, mode := range []string{"OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"} {
		exec(t, s, "SET GLOBAL enforce_gtid_consistency=ON", "SET GLOBAL gtid_mode="+mode)
		insert(2)
		drained("rows with gtid_mode " + mode)
	}
	resume()
	c.wait("resumed by GTID", func() bool { return c.ended == nil && src.up.Load() })
	insert(2)
	drained("rows by GTID")
	if p, _ := parsePosition(c.pos); p.gtids() != s.gtids(t) || p.gtids() == "" {
		t.Errorf("set %q, the server's is %q", p.gtids(), s.gtids(t))
	}
	stop()
	// While we are away: back to OFF, some anonymous transactions, and ON again.
	insert(1)
	for _, mode := range []string{"ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"} {
		exec(t, s, "SET GLOBAL gtid_mode="+mode)
		insert(2)
	}
	exec(t, s, "SET GLOBAL gtid_mode=OFF_PERMISSIVE")
	resume()
	drained("rows by offset again")
	stop()
	insert(1)
	for _, mode := range []string{"ON_PERMISSIVE", "ON"} {
		exec(t, s, "SET GLOBAL gtid_mode="+mode)
		insert(2)
	}
	// Asked for its set, the server would pass over what has no GTID, in silence; by offset it refuses to
	// send it while gtid_mode is ON, which an operator can mend.
	err := c.end(src)
	if err == nil || relay.IsPermanent(err) || !strings.Contains(err.Error(), "gtid_mode=ON_PERMISSIVE") {
		t.Fatalf("transactions without GTIDs behind the position: %v", err)
	}
	exec(t, s, "SET GLOBAL gtid_mode=ON_PERMISSIVE")
	stop = c.run(src)
	drained("rows of all modes")
	stop()
	exec(t, s, "SET GLOBAL gtid_mode=ON")
	insert(1)
	stop = c.run(src)
	drained("a row by GTID again")
	stop()
	var want []string
	for i := range next {
		want = append(want, fmt.Sprintf(`c t.a #0 {"id":%d}`, i+1))
	}
	if got := c.snapshot(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}

	// Another server must not be taken for this one.
	exec(t, s, "SET GLOBAL gtid_mode=ON_PERMISSIVE")
	p, _ := parsePosition(c.pos)
	p.Server[3]++
	c.pos = newLivePosition(p).bytes()
	wantStop(t, c.end(src), "was read from server", "this is server")

	// And a place given by hand is read from the beginning of its file, so that the set is complete.
	exec(t, s, "SET GLOBAL gtid_mode=ON")
	row := s.row(t, "SHOW BINARY LOG STATUS")
	insert(2)
	d := newCollector(t)
	only := onlyTables(t, "t.a")
	src = sourceOf(t, db, func(cfg *Config) { only(cfg); cfg.Start = row[0] + ":" + row[1] })
	stop2 := d.run(src)
	d.wait("rows behind file:offset", func() bool { return d.rows() == 2 })
	if p, _ := parsePosition(d.pos); p.gtids() != s.gtids(t) {
		t.Errorf("set %q, the server's is %q", p.gtids(), s.gtids(t))
	}
	stop2()
	var off uint64
	fmt.Sscan(row[1], &off)
	d = newCollector(t)
	src = sourceOf(t, db, func(cfg *Config) { only(cfg); cfg.Start = fmt.Sprintf("%s:%d", row[0], off+90) })
	wantStop(t, d.end(src), "inside a transaction")
}

// TestOffsetsPastFourGiB reads a file that grows past what events and the dump command can say.
func TestOffsetsPastFourGiB(t *testing.T) {
	s := newScript(false, true).file("bin.000001")
	s.one("t", "a", "x")
	p := position{SetKnown: true, File: "bin.000001", Pos: 4}
	m := Matcher{}
	var last []byte
	a := newAssembler(&m, p, defaultPartBytes, func(p relay.Part) error {
		if p.Pos != nil {
			last = slices.Clone(p.Pos)
		}
		return nil
	})
	feed := func(events [][]byte) {
		t.Helper()
		for _, ev := range events {
			if err := a.event(ev); err != nil {
				t.Fatal(err)
			}
		}
	}
	feed(s.events)
	s.events, s.pos = nil, 4_294_960_000
	s.begin().table(7, "t", "a")
	for range 300 { // over the edge inside a transaction
		s.insert(7, strings.Repeat("x", 90))
	}
	s.xid()
	feed(s.events)
	if binary.LittleEndian.Uint32(s.events[len(s.events)-1][13:]) > 1<<20 {
		t.Fatal("the script does not wrap")
	}
	got, err := parsePosition(last)
	if want := 1<<32 + uint64(s.pos); err != nil || got.Pos != want {
		t.Errorf("offset %d, want %d", got.Pos, want)
	}
	if from, skipTo := fileStart(&got); from != 4 || skipTo != got.Pos {
		t.Errorf("resume from %d, skip to %d", from, skipTo)
	}
}
