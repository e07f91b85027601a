package blackbox

import (
	"strings"
	"testing"

	"binrelay/bench/internal/relayproc"
)

func TestWrongPassword(t *testing.T) {
	on(t, func(t *testing.T, w *world) {
		w.set("MYSQL_URL", w.db.URLAs(user, "wrong-"+secret[:6])).fails(1, `access denied.*(password|MYSQL_)`)
	})
}

func TestMissingGrant(t *testing.T) {
	on(t, func(t *testing.T, w *world) {
		w.set("MYSQL_URL", w.db.URLAs("weak", secret)).fails(1, `(GRANT|privilege|needs).*REPLICATION SLAVE`)
	})
}

// A global that a test sets wrong, and its right value.
func wrongGlobal(t *testing.T, variable, wrong, right, message string) {
	on(t, func(t *testing.T, w *world) {
		w.exec("SET GLOBAL " + variable + "=" + wrong)
		t.Cleanup(func() { w.exec("SET GLOBAL " + variable + "=" + right) })
		w.fails(1, message)
	})
}

func TestStatementFormat(t *testing.T) {
	wrongGlobal(t, "binlog_format", "'STATEMENT'", "'ROW'", `binlog_format.*STATEMENT.*ROW|binlog_format.*ROW.*STATEMENT`)
}

func TestMetadataNotFull(t *testing.T) {
	wrongGlobal(t, "binlog_row_metadata", "'MINIMAL'", "'FULL'", `SET GLOBAL binlog_row_metadata ?= ?'?FULL`)
}

func TestMalformedStart(t *testing.T) {
	on(t, func(t *testing.T, w *world) { w.set("MYSQL_START", "yesterday").fails(2, `MYSQL_START`) })
}

func TestUnknownGTID(t *testing.T) {
	on(t, func(t *testing.T, w *world) {
		w.exec("INSERT INTO bb.t VALUES (900, 'x') ON DUPLICATE KEY UPDATE v='x'")
		have, err := w.db.GTIDs()
		if err != nil {
			t.Fatal(err)
		}
		// More than the server has of its own transactions: it was restored from a backup, or is another one.
		unknown := have[:strings.LastIndexAny(have, ":-")] + "-999999"
		w.set("MYSQL_START", unknown).fails(1, `(gtid|transaction|MYSQL_START)`)
	})
}

func TestPurgedBinlog(t *testing.T) {
	on(t, func(t *testing.T, w *world) {
		w.exec("INSERT INTO bb.t VALUES (901, 'x') ON DUPLICATE KEY UPDATE v='y'")
		old, err := w.db.GTIDs()
		if err != nil {
			t.Fatal(err)
		}
		w.exec("DELETE FROM bb.t WHERE id=901", "INSERT INTO bb.t VALUES (901, 'z')")
		if err := w.db.PurgeBinlogs(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.exec("INSERT INTO bb.t VALUES (902, 'z')", "DELETE FROM bb.t WHERE id=902")
		w.set("MYSQL_START", old).fails(1, `purged`)
	})
}

// What the log holds is delivered before the relay gives up.
func TestPurgedWhileDown(t *testing.T) {
	on(t, func(t *testing.T, w *world) {
		p := w.start()
		w.ready(p)
		if err := p.Stop(patience); err != nil || p.ExitCode() != 0 {
			t.Fatalf("SIGTERM: %v, exit code %d, want 0:\n%s", err, p.ExitCode(), p.Log())
		}
		w.exec("REPLACE INTO bb.t VALUES (903, 'x')")
		if err := w.db.PurgeBinlogs(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.exec("REPLACE INTO bb.t VALUES (903, 'y')")
		w.fails(1, `purged`)
	})
}

func TestDatabaseNotThere(t *testing.T) {
	on(t, func(t *testing.T, w *world) {
		if err := w.db.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		started := false
		start := func() {
			if err := w.db.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			started = true
		}
		defer func() {
			if !started {
				start()
			}
		}()
		p := w.start()
		w.waits(p, w.db.Addr)
		start()
		w.ready(p)
		w.exec("REPLACE INTO bb.t VALUES (904, 'back')")
		w.arrives(`"back"`)
	})
}

func TestStreamingEndsCleanly(t *testing.T) {
	on(t, func(t *testing.T, w *world) {
		p := w.start()
		w.ready(p)
		w.exec("REPLACE INTO bb.t VALUES (905, 'streamed')")
		w.arrives(`"streamed"`)
		w.until(p, "all is acknowledged", func(s relayproc.Status) bool { return s.State == "streaming" && s.WAL.Backlog == 0 })
		if err := p.Stop(patience); err != nil || p.ExitCode() != 0 {
			t.Errorf("SIGTERM: %v, exit code %d, want 0:\n%s", err, p.ExitCode(), p.Log())
		}
	})
}
