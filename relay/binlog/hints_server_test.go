package binlog

import (
	"strings"
	"testing"
)

// TestStreamBringsHints: what information_schema alone knows is in the log with the rows, so that decoding
// them later, after the table is gone, still gives what SELECT gave.
func TestStreamBringsHints(t *testing.T) {
	s := server(t, "mariadb")
	exec(t, s, "DROP DATABASE IF EXISTS b_hints", "CREATE DATABASE b_hints", "CREATE TABLE b_hints.a (id INT PRIMARY KEY, u UUID, i4 INET4, i6 INET6, j JSON, l LONGTEXT, b BINARY(16), q UUID AS (u) VIRTUAL)")
	c := newCollector(t)
	src := sourceOf(t, s.DB, onlyTables(t, "b_hints.*"))
	stop := c.run(src)
	c.wait("position", func() bool { return c.pos != nil })
	exec(t, s, `INSERT INTO b_hints.a (id,u,i4,i6,j,l,b) VALUES (1,'0189a3c4-7b1e-7000-8000-000000000000','10.0.0.0','::','{"a": 1}','{}','x')`)
	c.wait("row", func() bool { return c.rows() == 1 })
	got := c.snapshot()[0]
	for _, want := range []string{`"u":"0189a3c4-7b1e-7000-8000-000000000000"`, `"i4":"10.0.0.0"`, `"i6":"::"`, `"l":"{}"`, `"b":"eAAAAAAAAAAAAAAAAAAAAA=="`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	// The lookup's connection was idle and is gone: another table needs it again.
	for _, id := range s.column(t, "SELECT ID FROM information_schema.PROCESSLIST WHERE USER='relay' AND COMMAND='Sleep'") {
		exec(t, s, "KILL "+id)
	}
	exec(t, s, "CREATE TABLE b_hints.b (u UUID PRIMARY KEY)", "INSERT INTO b_hints.b VALUES ('0189a3c4-7b1e-7000-8000-000000000000')")
	c.wait("row of a new table", func() bool { return c.rows() == 2 })
	if got := c.snapshot(); !strings.Contains(got[len(got)-1], `{"u":"0189a3c4-7b1e-7000-8000-000000000000"}`) {
		t.Errorf("got %s", got)
	}
	stop()
	exec(t, s, "DROP DATABASE b_hints")
}

// column is the first column of a query.
func (s testServer) column(t testing.TB, query string) (out []string) {
	t.Helper()
	c, err := s.Connect("")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rows, err := (&conn{Conn: c}).query(query)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		out = append(out, r[0])
	}
	return out
}

func TestPreflight(t *testing.T) {
	onBoth(t, func(t *testing.T, s testServer, db string) {
		src := sourceOf(t, s.DB, nil)
		for _, f := range src.Preflight(t.Context()) {
			if f.Level == LevelStop {
				t.Errorf("%+v", f)
			}
			t.Logf("%+v", f)
		}
		exec(t, s, "SET GLOBAL binlog_row_metadata=MINIMAL")
		defer exec(t, s, "SET GLOBAL binlog_row_metadata=FULL")
		stops := 0
		for _, f := range src.Preflight(t.Context()) {
			if f.Level == LevelStop {
				stops++
				if f.What != "binlog_row_metadata" || f.Fix == "" {
					t.Errorf("%+v", f)
				}
			}
		}
		if stops != 1 {
			t.Errorf("%d findings that stop, want one", stops)
		}
	})
}

func TestStreamReadsTaggedGTIDs(t *testing.T) {
	s := server(t, "mysql")
	exec(t, s, "DROP DATABASE IF EXISTS b_tag", "CREATE DATABASE b_tag", "CREATE TABLE b_tag.c (id INT PRIMARY KEY)")
	c := newCollector(t)
	src := sourceOf(t, s.DB, onlyTables(t, "b_tag.*"))
	stop := c.run(src)
	c.wait("position", func() bool { return c.pos != nil })
	exec(t, s, "INSERT INTO b_tag.c VALUES (1)", "SET gtid_next='AUTOMATIC:tag2'", "INSERT INTO b_tag.c VALUES (2)", "SET gtid_next='AUTOMATIC'", "INSERT INTO b_tag.c VALUES (3)")
	c.wait("three rows", func() bool { return c.rows() == 3 })
	stop()
	exec(t, s, "SET gtid_next='AUTOMATIC:tag2'", "INSERT INTO b_tag.c VALUES (4)")
	stop = c.run(src)
	c.wait("the fourth row", func() bool { return c.rows() == 4 })
	stop()
	for i, tagged := range []bool{false, true, false, true} {
		if strings.Contains(c.lines[i], ":tag2:") != tagged {
			t.Errorf("row %d: %s", i, c.lines[i])
		}
	}
	if p, _ := parsePosition(c.pos); p.gtids() != s.gtids(t) {
		t.Errorf("set %s, the server's is %s", p.gtids(), s.gtids(t))
	}
}

func TestStreamFollowsMariaDBDomains(t *testing.T) {
	s := server(t, "mariadb")
	exec(t, s, "DROP DATABASE IF EXISTS b_dom", "CREATE DATABASE b_dom", "CREATE TABLE b_dom.c (id INT PRIMARY KEY)")
	c := newCollector(t)
	src := sourceOf(t, s.DB, onlyTables(t, "b_dom.*"))
	stop := c.run(src)
	c.wait("position", func() bool { return c.pos != nil })
	exec(t, s, "INSERT INTO b_dom.c VALUES (1)", "SET gtid_domain_id=7", "INSERT INTO b_dom.c VALUES (2)", "SET gtid_domain_id=3, gtid_seq_no=5000", "INSERT INTO b_dom.c VALUES (3)",
		"SET gtid_domain_id=0, server_id=888", "INSERT INTO b_dom.c VALUES (4)")
	c.wait("four rows", func() bool { return c.rows() == 4 })
	stop()
	stop = c.run(src)
	exec(t, s, "SET gtid_domain_id=7", "INSERT INTO b_dom.c VALUES (5)")
	c.wait("the fifth row", func() bool { return c.rows() == 5 })
	stop()
	if p, _ := parsePosition(c.pos); len(p.maria.domains) != 3 || p.maria.domains[0].server != 888 || p.maria.domains[1].seq != 5000 {
		t.Errorf("position %s", p.gtids())
	}
}
