package binlog

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"

	"binrelay/bench/services"
	"binrelay/relay"
)

// wantStop demands that Stream ends with a permanent error that has all the texts, and no secret.
func wantStop(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil || !relay.IsPermanent(err) {
		t.Fatalf("Stream ended with %v, want a permanent error", err)
	}
	t.Log(err)
	for _, x := range texts {
		if !strings.Contains(err.Error(), x) {
			t.Errorf("%q is not in the error: %v", x, err)
		}
	}
	for _, x := range []string{"secret", services.RelayPassword + "-wrong"} {
		if strings.Contains(err.Error(), x) {
			t.Errorf("a secret is in the error: %v", err)
		}
	}
}

func TestStreamNamesWhatIsWrongAtStart(t *testing.T) {
	onBoth(t, func(t *testing.T, s testServer, db string) {
		account := func(name, password string) func(*Config) {
			return func(c *Config) {
				c.User = name
				c.Password = func() (string, error) { return password, nil }
			}
		}
		exec(t, s, "DROP USER IF EXISTS nobody1", "CREATE USER nobody1 IDENTIFIED BY 'relay-x'")
		defer exec(t, s, "DROP USER nobody1")
		c := newCollector(t)
		wantStop(t, c.end(sourceOf(t, s.DB, account(services.RelayUser, services.RelayPassword+"-wrong"))), "login of user relay", "MYSQL_PASSWORD")
		wantStop(t, c.end(sourceOf(t, s.DB, account("nobody1", "relay-x"))), "REPLICATION SLAVE", "REPLICATION CLIENT")

		for _, x := range []struct {
			set, back string
			want      []string
		}{
			{"SET GLOBAL binlog_format=STATEMENT", "SET GLOBAL binlog_format=ROW", []string{"binlog_format is STATEMENT", "SET GLOBAL binlog_format=ROW"}},
			{"SET GLOBAL binlog_format=MIXED", "SET GLOBAL binlog_format=ROW", []string{"binlog_format is MIXED"}},
			{"SET GLOBAL binlog_row_metadata=MINIMAL", "SET GLOBAL binlog_row_metadata=FULL", []string{"binlog_row_metadata is MINIMAL", "SET GLOBAL binlog_row_metadata=FULL"}},
		} {
			exec(t, s, x.set)
			err := c.end(sourceOf(t, s.DB, nil))
			exec(t, s, x.back)
			wantStop(t, err, x.want...)
		}
		id := s.row(t, "SELECT @@server_id")[0]
		var n uint32
		for _, ch := range id {
			n = n*10 + uint32(ch-'0')
		}
		wantStop(t, c.end(sourceOf(t, s.DB, func(cfg *Config) { cfg.ServerID = n })), "server id "+id)
		wantStop(t, c.end(sourceOf(t, s.DB, func(cfg *Config) { cfg.Start = "nonsense" })), "MYSQL_START")
		other := "0-1-5"
		if s.Flavor == "mariadb" {
			other = "11111111-aaaa-11ee-8000-000000000001:1-5"
		}
		wantStop(t, c.end(sourceOf(t, s.DB, func(cfg *Config) { cfg.Start = other })), other)
		wantStop(t, c.end(sourceOf(t, s.DB, func(cfg *Config) { cfg.Start = "nofile.000077:4" })), "nofile.000077")
		if c.pos != nil && s.Flavor == "mariadb" {
			t.Error("a position was saved before the start was known to be good")
		}
	})
}

func TestStreamRetriesALostPassword(t *testing.T) {
	onBoth(t, func(t *testing.T, s testServer, db string) {
		c := newCollector(t)
		password := services.RelayPassword
		src := sourceOf(t, s.DB, func(cfg *Config) { cfg.Password = func() (string, error) { return password, nil } })
		stop := c.run(src)
		c.wait("position", func() bool { return c.pos != nil })
		stop()
		password += "-wrong"
		if err := c.end(src); err == nil || relay.IsPermanent(err) {
			t.Errorf("a password that worked before: %v, want an error that is retried", err)
		}
		password = services.RelayPassword
		stop = c.run(src)
		c.wait("position again", func() bool { return c.quiet > 1 })
		stop()
	})
}

func TestStreamRetriesWhenNobodyListens(t *testing.T) {
	ports, err := services.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	src := NewSource(Config{Addr: "127.0.0.1:" + itoa(ports), ServerID: 5})
	err = src.Stream(context.Background(), nil, func(relay.Part) error { return nil })
	if err == nil || relay.IsPermanent(err) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
	if f := src.Preflight(context.Background()); len(f) != 1 || f[0].Level != LevelStop || !strings.Contains(f[0].Detail, "connection refused") {
		t.Errorf("Preflight = %+v", f)
	}
}

func files(t testing.TB, dir string) int {
	t.Helper()
	e, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}

func itoa(n int) string { return string(appendUint(nil, uint64(n))) }

func TestStreamHaltsAtPurgedLogs(t *testing.T) {
	onBoth(t, func(t *testing.T, s testServer, db string) {
		exec(t, s, "CREATE TABLE "+db+".a (id INT PRIMARY KEY)")
		c := newCollector(t)
		src := sourceOf(t, s.DB, nil)
		stop := c.run(src)
		c.wait("position", func() bool { return c.pos != nil })
		exec(t, s, "INSERT INTO "+db+".a VALUES (1)")
		c.wait("row", func() bool { return c.rows() == 1 })
		stop()
		exec(t, s, "INSERT INTO "+db+".a VALUES (2)", "FLUSH BINARY LOGS", "INSERT INTO "+db+".a VALUES (3)")
		p, _ := parsePosition(c.pos)
		// MariaDB keeps a file for as long as a dump thread, which notices late that we are gone, has it open.
		for s.row(t, "SHOW BINARY LOGS")[0] <= p.File {
			s.killDumps(t)
			if err := s.PurgeBinlogs(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		err := c.end(src)
		if s.Flavor == "mysql" {
			missing, _ := parseMySQLSet(s.gtids(t))
			missing = missing.minus(&p.mysql)
			wantStop(t, err, "purged", missing.String(), "WAL_DIR")
		} else {
			wantStop(t, err, "purged", p.gtids(), "WAL_DIR")
		}
		if c.rows() != 1 {
			t.Errorf("%d rows: it jumped over the gap", c.rows())
		}
	})
}

func TestStreamHaltsAtAnotherHistory(t *testing.T) {
	for _, kind := range serverKinds {
		t.Run(kind, func(t *testing.T) {
			db := services.Database(t, kind)
			s := testServer{db}
			exec(t, s, "CREATE DATABASE t", "CREATE TABLE t.a (id INT PRIMARY KEY)")
			c := newCollector(t)
			src := sourceOf(t, db, nil)
			stop := c.run(src)
			c.wait("position", func() bool { return c.pos != nil })
			exec(t, s, "INSERT INTO t.a VALUES (1)", "INSERT INTO t.a VALUES (2)", "INSERT INTO t.a VALUES (3)")
			c.wait("rows", func() bool { return c.rows() == 3 })
			stop()
			reset := "RESET MASTER"
			if db.Flavor == "mysql" {
				reset = "RESET BINARY LOGS AND GTIDS"
			}
			exec(t, s, reset, "INSERT INTO t.a VALUES (4)")
			wantStop(t, c.end(src), "history")

			// The other way round: a server that is down, and one that comes back after a crash.
			c = newCollector(t)
			src = sourceOf(t, db, nil)
			stop = c.run(src)
			c.wait("position", func() bool { return c.pos != nil })
			exec(t, s, "INSERT INTO t.a VALUES (5)")
			c.wait("row", func() bool { return c.rows() == 1 })
			if err := db.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.wait("the end of the stream", func() bool { return c.ended != nil })
			c.ended = nil
			if err := stop(); err == nil || relay.IsPermanent(err) {
				t.Errorf("server killed: %v", err)
			}
			if err := c.end(src); err == nil || relay.IsPermanent(err) {
				t.Errorf("server down: %v", err)
			}
			if err := db.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			stop = c.run(src)
			exec(t, s, "INSERT INTO t.a VALUES (6)")
			c.wait("row after the restart", func() bool { return c.rows() == 2 })
			stop()
		})
	}
}

func TestStreamNamesAServerIDThatIsUsedTwice(t *testing.T) {
	onBoth(t, func(t *testing.T, s testServer, db string) {
		c := newCollector(t)
		stop := c.run(sourceOf(t, s.DB, func(cfg *Config) { cfg.ServerID = 4711 }))
		c.wait("position", func() bool { return c.pos != nil })
		d := newCollector(t)
		second := sourceOf(t, s.DB, func(cfg *Config) { cfg.ServerID = 4711 })
		stop2 := d.run(second)
		d.wait("position of the second", func() bool { return d.quiet > 1 })
		exec(t, s, "CREATE TABLE "+db+".a (id INT PRIMARY KEY)")
		c.wait("the first is ended", func() bool { return c.ended != nil })
		c.mu.Lock()
		err := c.ended
		c.mu.Unlock()
		if relay.IsPermanent(err) || !strings.Contains(err.Error(), "4711") {
			t.Errorf("got %v", err)
		}
		stop()
		stop2()
	})
}

func TestStreamReadsStatementsAndCompression(t *testing.T) {
	onBoth(t, func(t *testing.T, s testServer, db string) {
		c := newCollector(t)
		src := sourceOf(t, s.DB, onlyTables(t, db+".*"))
		stop := c.run(src)
		c.wait("position", func() bool { return c.pos != nil })
		q := s.session(t)
		do := func(statements ...string) {
			t.Helper()
			for _, x := range statements {
				if _, err := q.Execute(x); err != nil {
					t.Fatalf("%s: %v", x, err)
				}
			}
		}
		do("USE "+db, "CREATE TABLE a (id INT PRIMARY KEY, t TEXT)")
		if s.Flavor == "mysql" {
			do("SET SESSION binlog_transaction_compression=ON")
		} else {
			do("SET GLOBAL log_bin_compress=1", "SET GLOBAL log_bin_compress_min_len=10")
			defer exec(t, s, "SET GLOBAL log_bin_compress=0")
		}
		do("INSERT INTO a VALUES (1,REPEAT('abc',200)),(2,'s')", "UPDATE a SET t=REPEAT('xyz',300) WHERE id=1", "DELETE FROM a WHERE id=1",
			"ALTER TABLE a ADD COLUMN n INT COMMENT 'a long comment that is longer than the limit of compression, a long comment'", "INSERT INTO a VALUES (3,'q',1)")
		do("START TRANSACTION", "INSERT INTO a VALUES (4,'x',1)", "SAVEPOINT s", "INSERT INTO a VALUES (5,'x',1)", "ROLLBACK TO s", "INSERT INTO a VALUES (6,'x',1)", "COMMIT")
		do("CREATE TABLE b AS SELECT id FROM a", "TRUNCATE b", "CREATE TEMPORARY TABLE tmp (i INT)", "INSERT INTO tmp VALUES (7)", "INSERT INTO b SELECT i FROM tmp", "DROP TEMPORARY TABLE tmp")
		do("CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM", "INSERT INTO m VALUES (8)")
		want := []string{
			`c a #0 {"id":1,"t":"` + strings.Repeat("abc", 200) + `"}`, `c a #1 {"id":2,"t":"s"}`, `u a #0 {"id":1,"t":"` + strings.Repeat("xyz", 300) + `"}`,
			`d a #0 {"id":1,"t":"` + strings.Repeat("xyz", 300) + `"}`, `c a #0 {"id":3,"t":"q","n":1}`, `c a #0 {"id":4,"t":"x","n":1}`, `c a #1 {"id":6,"t":"x","n":1}`,
			`c b #0 {"id":2}`, `c b #1 {"id":3}`, `c b #2 {"id":4}`, `c b #3 {"id":6}`, `c b #0 {"id":7}`, `c m #0 {"id":8}`,
		}
		c.wait("all rows", func() bool { return c.rows() >= len(want) })
		stop()
		var got, ddl []string
		for _, l := range c.snapshot() {
			if strings.HasPrefix(l, "ddl ") {
				ddl = append(ddl, l)
			} else {
				got = append(got, strings.Replace(l, " "+db+".", " ", 1))
			}
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if all := strings.Join(ddl, "\n"); len(ddl) != 5 || !strings.Contains(all, "ALTER TABLE") || !strings.Contains(all, "TRUNCATE b") || strings.Contains(all, "TEMPORARY") {
			t.Errorf("statements kept: %q", ddl)
		}
	})
}

func TestStreamHaltsAtStatementFormat(t *testing.T) {
	onBoth(t, func(t *testing.T, s testServer, db string) {
		exec(t, s, "CREATE TABLE "+db+".a (id INT PRIMARY KEY, v VARCHAR(20))")
		c := newCollector(t)
		src := sourceOf(t, s.DB, onlyTables(t, db+".*"))
		stop := c.run(src)
		c.wait("position", func() bool { return c.pos != nil })
		q := s.session(t)
		for _, x := range []string{"USE " + db, "SET SESSION binlog_format='STATEMENT'", "SET @v='secret'", "INSERT INTO a VALUES (1,@v)", "SET SESSION binlog_format='ROW'", "INSERT INTO a VALUES (2,'y')"} {
			if _, err := q.Execute(x); err != nil {
				t.Fatalf("%s: %v", x, err)
			}
		}
		c.wait("halt", func() bool { return c.ended != nil })
		err := stop()
		_, behind, _ := strings.Cut(err.Error(), "MYSQL_START=")
		behind, _, _ = strings.Cut(behind, ", or")
		only := onlyTables(t, db+".*")
		d := newCollector(t)
		stop = d.run(sourceOf(t, s.DB, func(cfg *Config) { only(cfg); cfg.Start = behind }))
		d.wait("the row behind it, begun as the hint says", func() bool { return d.rows() == 1 })
		stop()
		wantStop(t, err, "statement-format", "INSERT "+db+".a", "binlog.0")
		wantStop(t, c.end(src), "statement-format", "INSERT "+db+".a") // and again at the same place
		if c.rows() != 0 {
			t.Errorf("%d rows from behind the halt", c.rows())
		}
		only = onlyTables(t, db+".*,!"+db+".a")
		stop = c.run(sourceOf(t, s.DB, only))
		exec(t, s, "CREATE TABLE "+db+".z (id INT PRIMARY KEY)", "INSERT INTO "+db+".z VALUES (1)")
		c.wait("the table is excluded, so reading goes on", func() bool { return c.rows() == 1 })
		stop()
	})
}

func TestStreamParksXA(t *testing.T) {
	onBoth(t, func(t *testing.T, s testServer, db string) {
		exec(t, s, "CREATE TABLE "+db+".a (id INT PRIMARY KEY)")
		c := newCollector(t)
		dir := t.TempDir()
		only := onlyTables(t, db+".*")
		src := sourceOf(t, s.DB, func(cfg *Config) { only(cfg); cfg.ParkDir = dir })
		stop := c.run(src)
		c.wait("position", func() bool { return c.pos != nil })
		run := func(statements ...string) {
			t.Helper()
			q := s.session(t)
			defer q.Close()
			for _, x := range statements {
				if _, err := q.Execute(x); err != nil {
					t.Fatalf("%s: %v", x, err)
				}
			}
		}
		run("USE "+db, "XA START 'x2'", "INSERT INTO a VALUES (103)", "XA END 'x2'", "XA PREPARE 'x2'", "XA ROLLBACK 'x2'",
			"XA START 'x3'", "INSERT INTO a VALUES (104)", "XA END 'x3'", "XA COMMIT 'x3' ONE PHASE")
		run("USE "+db, "XA START 'x1','b',7", "INSERT INTO a VALUES (101)", "XA END 'x1','b',7", "XA PREPARE 'x1','b',7")
		run("INSERT INTO " + db + ".a VALUES (102)")
		c.wait("what is committed", func() bool { return c.rows() >= 2 })
		stop()
		stop = c.run(src)
		run("XA COMMIT 'x1','b',7")
		c.wait("what XA COMMIT commits", func() bool { return c.rows() >= 3 })
		stop()
		want := `c DB.a #0 {"id":104}|c DB.a #0 {"id":102}|c DB.a #0 {"id":101}`
		if got := strings.Join(c.snapshot(), "|"); got != strings.ReplaceAll(want, "DB", db) {
			t.Errorf("got %s", got)
		}
		if n := files(t, dir); n != 0 {
			t.Errorf("%d files are left in the parking directory", n)
		}
	})
}

func TestDumpErrors(t *testing.T) {
	p := &position{SetKnown: true, File: "binlog.000007", Pos: 400}
	for _, x := range []struct {
		code uint16
		text string
		perm bool
		want string
	}{
		{1236, "Cannot replicate because the source purged required binary logs. Replicate the missing transactions from elsewhere", true, "purged"},
		{1236, "Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old and required binlog files have been purged.", true, "WAL_DIR"},
		{1236, "Could not find first log file name in binary log index file", true, "binlog.000007"},
		{1236, "Client requested source to start replication from position > file size", true, "history"},
		{1236, "bogus data in log event; the first event 'x' at 4", true, "history"},
		{1236, "Replica has more GTIDs than the source has, using the source's SERVER_UUID.", true, "history"},
		{1236, "Error: connecting slave requested to start from GTID 0-1-5, which is not in the master's binlog", true, "history"},
		{1236, "The binlog on the master is missing the GTID 0-1-5 requested by the slave (even though a subsequent sequence number does exist), and GTID strict mode is enabled", true, "history"},
		{1236, "A replica with the same server_uuid/server_id as this replica has connected to the source; the first event", false, "server id 4711"},
		{4052, "A slave with the same server_uuid/server_id as this slave has connected to the master", false, "MYSQL_SERVER_ID"},
		{1236, "Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file x, position 4.", false, "AUTO_POSITION"},
		{1236, "Cannot replicate anonymous transaction when @@GLOBAL.GTID_MODE = ON, at file x", false, "ON_PERMISSIVE"},
		{1236, "Cannot replicate GTID-transaction when @@GLOBAL.GTID_MODE = OFF, at file x", false, "OFF_PERMISSIVE"},
		{1236, "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source", true, "max_allowed_packet"},
		{1236, "Binary log is not open", true, "log_bin"},
		{1236, "could not find next log; the first event 'x' at 4", false, "could not find next log"},
		{1236, "binlog truncated in the middle of event; consider out of disk space on source", false, "truncated"},
		{1045, "Access denied for user 'relay'@'%' (using password: YES)", true, "REPLICATION SLAVE"},
		{1227, "Access denied; you need (at least one of) the REPLICATION SLAVE privilege(s)", true, "GRANT"},
		{1053, "Server shutdown in progress", false, "shutdown"},
	} {
		s := NewSource(Config{ServerID: 4711})
		err := s.dumpError(&mysql.MyError{Code: x.code, Message: x.text}, p)
		if relay.IsPermanent(err) != x.perm || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%d %s\n\tpermanent %v, want %v with %q: %v", x.code, x.text, relay.IsPermanent(err), x.perm, x.want, err)
		}
	}
}

// TestStreamAfterEmptyFiles: asked for its set, MySQL begins in the newest file; the ones before it are
// looked through for transactions without a GTID first, if they are still there.
func TestStreamAfterEmptyFiles(t *testing.T) {
	onBoth(t, func(t *testing.T, s testServer, db string) {
		exec(t, s, "CREATE TABLE "+db+".a (id INT PRIMARY KEY)")
		c := newCollector(t)
		src := sourceOf(t, s.DB, onlyTables(t, db+".*"))
		stop := c.run(src)
		c.wait("position", func() bool { return c.pos != nil })
		exec(t, s, "INSERT INTO "+db+".a VALUES (1)")
		c.wait("row", func() bool { return c.rows() == 1 })
		stop()
		exec(t, s, "FLUSH BINARY LOGS", "FLUSH BINARY LOGS", "INSERT INTO "+db+".a VALUES (2)")
		stop = c.run(src)
		c.wait("row behind empty files", func() bool { return c.rows() == 2 })
		stop()
		exec(t, s, "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
		p, _ := parsePosition(c.pos)
		for s.row(t, "SHOW BINARY LOGS")[0] <= p.File {
			s.killDumps(t)
			if err := s.PurgeBinlogs(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		exec(t, s, "INSERT INTO "+db+".a VALUES (3)")
		stop = c.run(src)
		c.wait("row behind purged files that had nothing new", func() bool { return c.rows() == 3 })
		stop()
		if got := len(sortedUnique(c.gtids)); got != 3 || len(c.gtids) != 3 {
			t.Errorf("transactions %q", c.gtids)
		}
	})
}

func TestStreamUsesTLSAsAsked(t *testing.T) {
	s := server(t, "mysql")
	ca := filepath.Join(s.row(t, "SELECT @@datadir")[0], "ca.pem")
	exec(t, s, "DROP USER IF EXISTS tls1, sha2", "CREATE USER tls1 IDENTIFIED WITH caching_sha2_password BY 'x' REQUIRE SSL", "CREATE USER sha2 IDENTIFIED WITH caching_sha2_password BY 'Sha-2-pass'",
		"GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO tls1, sha2")
	defer exec(t, s, "DROP USER tls1, sha2")
	for _, x := range []struct {
		name string
		cfg  Config
		user string
		fail string
	}{
		{"disabled, key exchange", Config{TLS: TLSDisabled}, "sha2", ""},
		{"preferred", Config{}, "tls1", ""},
		{"required", Config{TLS: TLSRequired}, "tls1", ""},
		{"disabled where the account demands it", Config{TLS: TLSDisabled}, "tls1", "login of user tls1"},
		{"the CA's", Config{TLS: TLSVerifyCA, TLSCAFile: ca}, "tls1", ""},
		{"required with a CA file", Config{TLS: TLSRequired, TLSCAFile: ca}, "tls1", ""},
		{"another CA's", Config{TLS: TLSVerifyCA}, "tls1", "certificate"},
		{"not this host's", Config{TLS: TLSVerifyIdentity, TLSCAFile: ca}, "tls1", "certificate"},
		{"no such file", Config{TLS: TLSVerifyCA, TLSCAFile: "/nowhere.pem"}, "tls1", "/nowhere.pem"},
	} {
		exec(t, s, "FLUSH PRIVILEGES") // forget cached logins: full authentication each time
		src := sourceOf(t, s.DB, func(c *Config) {
			c.TLS, c.TLSCAFile, c.User = x.cfg.TLS, x.cfg.TLSCAFile, x.user
			c.Password = func() (string, error) { return map[string]string{"tls1": "x", "sha2": "Sha-2-pass"}[x.user], nil }
		})
		c := newCollector(t)
		if x.fail == "" {
			stop := c.run(src)
			c.wait(x.name, func() bool { return c.quiet > 1 })
			stop()
			continue
		}
		if err := c.end(src); err == nil || !strings.Contains(err.Error(), x.fail) {
			t.Errorf("%s: %v, want %q", x.name, err, x.fail)
		}
	}
	m := server(t, "mariadb") // it has no TLS
	if err := newCollector(t).end(sourceOf(t, m.DB, func(c *Config) { c.TLS = TLSRequired })); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("TLS demanded of a server without: %v", err)
	}
}
