package relaytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startSource(t testing.TB, cfg SourceConfig) *Source {
	t.Helper()
	s, err := StartSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

var flavors = []Flavor{MySQL, MariaDB}

func eachFlavor(t *testing.T, fn func(t *testing.T, f Flavor)) {
	for _, f := range flavors {
		t.Run(string(f), func(t *testing.T) { fn(t, f) })
	}
}

// syncer is go-mysql's own replication client.
func syncer(t testing.TB, s *Source) *replication.BinlogSyncer {
	host, port, _ := net.SplitHostPort(s.Addr())
	n, _ := strconv.Atoi(port)
	b := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: 4711, Flavor: string(s.cfg.Flavor), Host: host, Port: uint16(n), User: "relay", Password: "secret",
		HeartbeatPeriod: 100 * time.Millisecond, ReadTimeout: 5 * time.Second, DisableRetrySync: true,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), VerifyChecksum: true,
	})
	t.Cleanup(b.Close)
	return b
}

func startGTID(t testing.TB, b *replication.BinlogSyncer, f Flavor, set string) *replication.BinlogStreamer {
	t.Helper()
	g, err := mysql.ParseGTIDSet(string(f), set)
	if err != nil {
		t.Fatal(err)
	}
	st, err := b.StartSyncGTID(g)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// collect reads events until n transactions are complete and returns their rows and GTIDs.
func collect(t testing.TB, st *replication.BinlogStreamer, n int) (rows []string, gtids []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for n > 0 {
		ev, err := st.GetEvent(ctx)
		if err != nil {
			return rows, gtids, err
		}
		switch e := ev.Event.(type) {
		case *replication.GTIDEvent:
			g, err := e.GTIDNext()
			if err != nil {
				t.Fatal(err)
			}
			gtids = append(gtids, g.String())
		case *replication.MariadbGTIDEvent:
			gtids = append(gtids, e.GTID.String())
		case *replication.RowsEvent:
			for _, r := range e.Rows {
				rows = append(rows, fmt.Sprintf("%d %s.%s %v", ev.Header.EventType, e.Table.Schema, e.Table.Table, r))
			}
		case *replication.XIDEvent:
			n--
		}
	}
	return rows, gtids, nil
}

func TestSyncerReadsTransactions(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f Flavor) {
		s := startSource(t, SourceConfig{Flavor: f})
		item := s.CreateTable("CREATE TABLE shop.item (id INT NOT NULL PRIMARY KEY, name VARCHAR(40), qty INT UNSIGNED)")
		g1 := s.Tx(Insert(item, 1, "lamp", 5), Insert(item, 2, nil, 4294967295))
		st := startGTID(t, syncer(t, s), f, "")
		g2 := s.Tx(Update(item, Row(1, "lamp", 5), Row(1, "lamp", 4)), Delete(item, 2, nil, 4294967295))
		rows, gtids, err := collect(t, st, 2)
		if err != nil {
			t.Fatal(err)
		}
		d := map[Flavor]int{MySQL: 0, MariaDB: 7}[f]
		want := []string{
			fmt.Sprintf("%d shop.item [1 lamp 5]", 30-d), fmt.Sprintf("%d shop.item [2 <nil> 4294967295]", 30-d),
			fmt.Sprintf("%d shop.item [1 lamp 5]", 31-d), fmt.Sprintf("%d shop.item [1 lamp 4]", 31-d),
			fmt.Sprintf("%d shop.item [2 <nil> 4294967295]", 32-d),
		}
		if fmt.Sprint(rows) != fmt.Sprint(want) {
			t.Errorf("rows\n%v\nwant\n%v", rows, want)
		}
		if len(gtids) != 3 || gtids[1] != g1 || gtids[2] != g2 { // the first is CREATE TABLE
			t.Errorf("gtids %v, want %s and %s", gtids, g1, g2)
		}
	})
}

func TestSyncerResumesByGTIDAndPosition(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f Flavor) {
		s := startSource(t, SourceConfig{Flavor: f})
		item := CreateTable("CREATE TABLE shop.item (id INT PRIMARY KEY)")
		for i := range 10 {
			s.Tx(Insert(item, i))
			if i%3 == 2 {
				s.Rotate()
			}
		}
		set := s.GTIDs()
		file, pos := s.Position()
		s.Tx(Insert(item, 10))
		s.Rotate()
		s.Tx(Insert(item, 11))
		_, gtids, err := collect(t, startGTID(t, syncer(t, s), f, set), 2)
		if err != nil || len(gtids) != 2 {
			t.Errorf("by GTID: %v, %v", gtids, err)
		}
		st, err := syncer(t, s).StartSync(mysql.Position{Name: file, Pos: uint32(pos)})
		if err != nil {
			t.Fatal(err)
		}
		if rows, _, err := collect(t, st, 2); err != nil || len(rows) != 2 {
			t.Errorf("by position: %v, %v", rows, err)
		}
	})
}

func TestKillAfterEventsThenResume(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f Flavor) {
		s := startSource(t, SourceConfig{Flavor: f})
		item := CreateTable("CREATE TABLE shop.item (id INT PRIMARY KEY)")
		for i := range 20 {
			s.Tx(Insert(item, i))
		}
		s.KillAfter(23)
		_, gtids, err := collect(t, startGTID(t, syncer(t, s), f, ""), 20)
		if err == nil {
			t.Fatal("the stream was not cut")
		}
		s.KillAfterBytes(700)
		if _, _, err = collect(t, startGTID(t, syncer(t, s), f, ""), 20); err == nil {
			t.Fatal("the stream was not cut by bytes")
		}
		set := ""
		if len(gtids) > 1 {
			set = gtids[len(gtids)-2]
			if f == MySQL {
				g, _ := parseGTIDSet(gtids[len(gtids)-2], false)
				for u, in := range g.mysql {
					set = fmt.Sprintf("%s:1-%d", uuidText(u), in[0].last)
				}
			}
		}
		rest, _, err := collect(t, startGTID(t, syncer(t, s), f, set), 20-max(0, len(gtids)-1))
		if err != nil {
			t.Fatal(err, gtids, rest)
		}
	})
}

func TestHeartbeatsWhenIdle(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f Flavor) {
		s := startSource(t, SourceConfig{Flavor: f})
		st := startGTID(t, syncer(t, s), f, "")
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		for {
			ev, err := st.GetEvent(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if ev.Header.EventType == replication.HEARTBEAT_EVENT {
				if _, pos := s.Position(); uint64(ev.Header.LogPos) != pos {
					t.Errorf("heartbeat at %d, log ends at %d", ev.Header.LogPos, pos)
				}
				return
			}
		}
	})
}

func TestPurgedPositionsAreRefused(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f Flavor) {
		s := startSource(t, SourceConfig{Flavor: f})
		item := CreateTable("CREATE TABLE shop.item (id INT PRIMARY KEY)")
		g := s.Tx(Insert(item, 1))
		s.Rotate()
		s.Tx(Insert(item, 2))
		s.Rotate()
		s.Purge(1)
		for _, set := range []string{"", g} {
			if _, _, err := collect(t, startGTID(t, syncer(t, s), f, set), 1); errCode(err) != 1236 {
				t.Errorf("from %q: %v, want error 1236", set, err)
			}
		}
		if _, err := syncer(t, s).StartSync(mysql.Position{Name: "binlog.000001", Pos: 4}); err != nil {
			t.Fatal(err)
		}
	})
}

// errCode is the code of a server's error packet, 0 where err is none.
func errCode(err error) uint16 {
	var m *mysql.MyError
	if !errors.As(err, &m) {
		return 0
	}
	return m.Code
}

func TestRepeatMakesCopiesUnderNewGTIDs(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f Flavor) {
		s := startSource(t, SourceConfig{Flavor: f})
		item := CreateTable("CREATE TABLE shop.item (id INT PRIMARY KEY)")
		s.Tx(Insert(item, 0))
		if err := s.Repeat(100, []Change{Insert(item, 1)}, []Change{Update(item, Row(1), Row(2)), Delete(item, 2)}); err != nil {
			t.Fatal(err)
		}
		set, file, pos := s.GTIDs(), "", uint64(0)
		file, pos = s.Position()
		last := s.Tx(Insert(item, 9))
		rows, gtids, err := collect(t, startGTID(t, syncer(t, s), f, ""), 202)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) != 1+100*4+1 || gtids[201] != last {
			t.Errorf("%d rows, last GTID %s, want 402 and %s", len(rows), gtids[201], last)
		}
		if rows, _, err := collect(t, startGTID(t, syncer(t, s), f, set), 1); err != nil || len(rows) != 1 {
			t.Errorf("behind the copies: %v, %v", rows, err)
		}
		half := gtids[99]
		if f == MySQL {
			half = fmt.Sprintf("%s:1-100", s.cfg.UUID)
		}
		if _, rest, err := collect(t, startGTID(t, syncer(t, s), f, half), 102); err != nil || rest[0] != gtids[100] {
			t.Errorf("from the middle: %v, %v; want %s", rest, err, gtids[100])
		}
		st, err := syncer(t, s).StartSync(mysql.Position{Name: file, Pos: uint32(pos)})
		if err != nil {
			t.Fatal(err)
		}
		if rows, _, err := collect(t, st, 1); err != nil || len(rows) != 1 {
			t.Errorf("by position: %v, %v", rows, err)
		}
	})
}

func connect(t testing.TB, s *Source) *client.Conn {
	t.Helper()
	c, err := client.Connect(s.Addr(), "relay", "secret", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestQueries(t *testing.T) {
	ask := func(t *testing.T, c *client.Conn, q string) string {
		t.Helper()
		r, err := c.Execute(q)
		if err != nil {
			return fmt.Sprint(errCode(err))
		}
		out := ""
		for i := range r.RowNumber() {
			for j := range r.ColumnNumber() {
				v, _ := r.GetString(i, j)
				out += v + "|"
			}
		}
		return out
	}
	my := startSource(t, SourceConfig{})
	ma := startSource(t, SourceConfig{Flavor: MariaDB, Version: "10.11.19-MariaDB-log", Domain: 7})
	for _, s := range []*Source{my, ma} {
		s.CreateTable("CREATE TABLE shop.item (id INT UNSIGNED NOT NULL, doc JSON, PRIMARY KEY (id))")
	}
	cmy, cma := connect(t, my), connect(t, ma)
	for _, q := range []struct{ sql, mysql, mariadb string }{
		{"SELECT 1", "1|", "1|"},
		{"select @@global.log_bin, @@binlog_format as f, @@SESSION.`server_id`", "ON|ROW|1|", "ON|ROW|1|"},
		{"SELECT @@gtid_mode", "ON|", "1193"},
		{"SELECT @@GLOBAL.gtid_executed", my.GTIDs() + "|", "1193"},
		{"SELECT @@gtid_binlog_pos", "1193", "7-1-1|"},
		{"SELECT VERSION(), IFNULL(NULL, 'x'), USER()", "8.4.6|x|relay@%|", "10.11.19-MariaDB-log|x|relay@%|"},
		{"SHOW GLOBAL VARIABLES LIKE 'binlog\\_row\\_m%'", "binlog_row_metadata|FULL|", "binlog_row_metadata|FULL|"},
		{"SHOW VARIABLES WHERE Variable_name IN ('log_bin','binlog_checksum')", "binlog_checksum|CRC32|log_bin|ON|", "binlog_checksum|CRC32|log_bin|ON|"},
		{"SHOW MASTER STATUS", "1064", "binlog.000001|509|||"},
		{"SHOW GRANTS FOR CURRENT_USER()", "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `relay`@`%`|", "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `relay`@`%`|"},
		{"SET @a = 5, @@session.time_zone = '+00:00', NAMES utf8mb4", "", ""},
		{"SELECT @a, @b", "5||", "5||"},
		{"SELECT column_name, COLUMN_TYPE FROM information_schema.columns c WHERE c.table_schema = 'shop' AND table_name IN ('item','x') ORDER BY ordinal_position", "id|int unsigned|doc|json|", "id|int unsigned|doc|longtext|"},
		{"SELECT count(*) FROM information_schema.tables WHERE NOT (table_schema LIKE 'sh%') OR engine <> 'InnoDB'", "0|", "0|"},
		{"SELECT id, character_set_name FROM information_schema.collations WHERE collation_name='latin1_swedish_ci'", "8|latin1|", "8|latin1|"},
		{"SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA=_utf8 X'73686f70' AND TABLE_NAME=_utf8 X'6974656d' AND DATA_TYPE='json'", "doc|", ""},
		{"SELECT CONSTRAINT_NAME, CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA='shop'", "", "doc|json_valid(`doc`)|"},
		{"SELECT BINLOG_GTID_POS('binlog.000001',509), BINLOG_GTID_POS('binlog.000001',4), BINLOG_GTID_POS('x',4) IS NULL", "1305", "7-1-1||1|"},
		{"INSERT INTO item VALUES (1)", "1235", "1235"},
		{"/*!40101 SET NAMES latin1 */;", "", ""},
		{"KILL 1", "1094", "1094"},
	} {
		if got := ask(t, cmy, q.sql); got != q.mysql {
			t.Errorf("MySQL: %s = %q, want %q", q.sql, got, q.mysql)
		}
		if got := ask(t, cma, q.sql); got != q.mariadb {
			t.Errorf("MariaDB: %s = %q, want %q", q.sql, got, q.mariadb)
		}
	}
	if _, err := client.Connect(my.Addr(), "relay", "wrong", ""); errCode(err) != 1045 {
		t.Errorf("wrong password: %v, want 1045", err)
	}
	if _, err := client.Connect(my.Addr(), "nobody", "secret", ""); errCode(err) != 1045 {
		t.Errorf("unknown user: %v, want 1045", err)
	}
	my.FailLogins(1, 1040, "Too many connections")
	if _, err := client.Connect(my.Addr(), "relay", "secret", ""); errCode(err) != 1040 {
		t.Errorf("scripted login error: %v, want 1040", err)
	}
}
