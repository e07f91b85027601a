package binlog

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestMySQLSets(t *testing.T) {
	const u, v = "11111111-aaaa-11ee-8000-000000000001", "22222222-aaaa-11ee-8000-000000000001"
	for _, x := range []struct{ in, out string }{
		{"", ""},
		{u + ":1", u + ":1"},
		{u + ":1-5", u + ":1-5"},
		{strings.ToUpper(u) + ": 1-3 :4-5:7,\n" + u + ":9", u + ":1-5:7:9"},
		{v + ":1," + u + ":3-4:1-2", u + ":1-4," + v + ":1"},
		{u + ":1-5:ops:1-3:tag2:7", u + ":1-5:ops:1-3:tag2:7"},
		{u + ":TAG:1," + u + ":2", u + ":2:tag:1"},
	} {
		s, err := parseMySQLSet(x.in)
		if err != nil || s.String() != x.out {
			t.Errorf("%q = %q, %v, want %q", x.in, s.String(), err, x.out)
			continue
		}
		wire, _ := s.appendWire(nil, nil)
		if back, err := parseMySQLWire(wire); err != nil || back.String() != x.out {
			t.Errorf("%q over the wire: %q, %v", x.in, back.String(), err)
		}
	}
	for _, bad := range []string{"x", u, u + ":", u + ":0", u + ":5-4", u + ":1:tag", u + ":tag", u + ":1-", "0-1-5", u + ":1x"} {
		if s, err := parseMySQLSet(bad); err == nil {
			t.Errorf("%q is taken for %q", bad, s.String())
		}
	}
	a, _ := parseMySQLSet(u + ":1-10:20-30:t:1-4," + v + ":5")
	b, _ := parseMySQLSet(u + ":3-4:9-22:30:t:1-4")
	if d := a.minus(&b); d.String() != u+":1-2:5-8:23-29,"+v+":5" {
		t.Errorf("minus = %s", d.String())
	}
	if d := a.minus(&a); !d.empty() {
		t.Errorf("a minus a = %s", d.String())
	}
}

// TestMySQLSetModel adds in any order and compares with a map.
func TestMySQLSetModel(t *testing.T) {
	var s mysqlSet
	have := map[uint64]bool{}
	sid := [16]byte{1}
	x := uint32(1)
	live := newLivePosition(position{SetKnown: true, File: "f"})
	for range 3000 {
		x = x*1664525 + 1013904223
		g := uint64(x>>16)%800 + 1
		s.add(&sid, nil, g)
		have[g] = true
		if !live.p.mysql.contains(&sid, nil, g) {
			live.addMySQL(&sid, nil, g)
			live.move(g)
		}
		for _, q := range []uint64{g, g + 1, g - 1, 801} {
			if s.contains(&sid, nil, q) != have[q] {
				t.Fatalf("contains(%d) = %v", q, !have[q])
			}
		}
		p, err := parsePosition(live.bytes())
		if err != nil || p.gtids() != s.String() || p.Pos != live.p.Pos {
			t.Fatalf("encoding says %s, set is %s: %v", p.gtids(), s.String(), err)
		}
	}
}

func TestMariaSets(t *testing.T) {
	for _, x := range []struct{ in, out string }{{"", ""}, {"0-1-5", "0-1-5"}, {"7-399-1, 0-399-10,3-399-5000", "0-399-10,3-399-5000,7-399-1"}} {
		s, err := parseMariaSet(x.in)
		if err != nil || s.String() != x.out {
			t.Errorf("%q = %q, %v", x.in, s.String(), err)
		}
	}
	for _, bad := range []string{"0-1", "0-1-x", "0-1-5,0-2-7", "-1-1-1", "a"} {
		if _, err := parseMariaSet(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	live := newLivePosition(position{MariaDB: true, SetKnown: true, File: "f"})
	for i, g := range []mariaGTID{{0, 1, 5}, {7, 1, 1}, {3, 2, 9}, {0, 2, 4}, {7, 1, 2}, {0, 2, 6}} {
		live.addMariaDB(g)
		live.move(uint64(i))
		p, err := parsePosition(live.bytes())
		if err != nil || p.gtids() != live.p.gtids() || p.Pos != uint64(i) {
			t.Fatalf("encoding says %s, position is %s: %v", p.gtids(), live.p.gtids(), err)
		}
	}
	if g := live.p.gtids(); g != "0-2-6,3-2-9,7-1-2" {
		t.Errorf("position %s", g)
	}
}

func TestParseStart(t *testing.T) {
	for in, want := range map[string]string{
		"": "now", " NOW ": "now", "earliest": "earliest", "0-1-5": "0-1-5", "binlog.000003:1234": "binlog.000003:1234",
		"11111111-aaaa-11ee-8000-000000000001:1-5": "11111111-aaaa-11ee-8000-000000000001:1-5",
		"11111111-aaaa-11ee-8000-000000000001:5":   "11111111-aaaa-11ee-8000-000000000001:5",
	} {
		if s, err := ParseStart(in); err != nil || s.String() != want {
			t.Errorf("%q = %s, %v", in, s, err)
		}
	}
	for _, bad := range []string{"later", "binlog.000003", "binlog.000003:3", "/etc/x:100", "11111111-aaaa-11ee-8000-000000000001:x-y", "a b:5", ":7"} {
		if s, err := ParseStart(bad); err == nil {
			t.Errorf("%q is taken for %s", bad, s)
		}
	}
}

func TestTables(t *testing.T) {
	for _, x := range []struct {
		rules    string
		yes, no  []string
		dbs      []string
		fold     bool
		otherDBs []string
	}{
		{rules: "", yes: []string{"a.b"}, no: []string{"mysql.user", "SYS.x", "information_schema.tables", "performance_schema.y"}, dbs: []string{"a"}, otherDBs: []string{"mysql"}},
		{rules: "*.*", yes: []string{"a.b"}, no: []string{"mysql.user"}},
		{rules: "shop.*, !shop.log_*", yes: []string{"shop.item"}, no: []string{"shop.log_1", "shopx.item", "sho.p"}, dbs: []string{"shop"}, otherDBs: []string{"x"}},
		{rules: "*.*,!t.*,t.a?", yes: []string{"t.a1", "t.aé", "x.y"}, no: []string{"t.a", "t.a12", "t.b"}, dbs: []string{"t"}},
		{rules: "*.*,!t.*", no: []string{"t.a"}, otherDBs: []string{"t"}, dbs: []string{"x"}},
		{rules: "t.*_x*y", yes: []string{"t._xy", "t.a_xb_xcy"}, no: []string{"t.xy", "t._xya"}},
		{rules: "`a.b`.`c,d`,`we``ird`.*, *.`*`", yes: []string{"a.b|c,d", "we`ird|x", "q.*"}, no: []string{"a|b.c,d", "q.x"}},
		{rules: "t.CASE1", yes: []string{"t.CASE1"}, no: []string{"t.case1", "T.CASE1"}},
		{rules: "T.Case1", fold: true, yes: []string{"t.case1", "t.CASE1"}},
		{rules: "mysql.*", no: []string{"mysql.x"}, otherDBs: []string{"mysql"}},
	} {
		m, err := ParseTables(x.rules)
		if err != nil {
			t.Errorf("%q: %v", x.rules, err)
			continue
		}
		m = m.folded(x.fold)
		check := func(names []string, want bool) {
			for _, n := range names {
				sep := "."
				if strings.Contains(n, "|") {
					sep = "|"
				}
				db, table, _ := strings.Cut(n, sep)
				if m.Match([]byte(db), []byte(table)) != want {
					t.Errorf("%q matches %s: %v", x.rules, n, !want)
				}
			}
		}
		check(x.yes, true)
		check(x.no, false)
		for _, d := range x.dbs {
			if !m.Database([]byte(d)) {
				t.Errorf("%q: nothing of database %s", x.rules, d)
			}
		}
		for _, d := range x.otherDBs {
			if m.Database([]byte(d)) {
				t.Errorf("%q: something of database %s", x.rules, d)
			}
		}
	}
	for _, bad := range []string{"a", "a.b.c", "!a.b", "a.b,,c.d", "a.b,", ",", ".b", "a.", "`a.b", "``.x", "a b.c", "a.b c", "a.b!c.d,"} {
		if _, err := ParseTables(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestClassify(t *testing.T) {
	for _, x := range []struct {
		q    string
		kind statementKind
		what string // verb db.table
		one  bool
	}{
		{"BEGIN", stBegin, "BEGIN", false},
		{"/* x */ begin", stBegin, "BEGIN", false},
		{"START TRANSACTION", stBegin, "START TRANSACTION", false},
		{"COMMIT /* y */", stCommit, "COMMIT", false},
		{"ROLLBACK", stRollback, "ROLLBACK", false},
		{"ROLLBACK TO `a`", stRollbackTo, "ROLLBACK TO SAVEPOINT", false},
		{"ROLLBACK WORK TO SAVEPOINT a", stRollbackTo, "ROLLBACK TO SAVEPOINT", false},
		{"SAVEPOINT `a`", stSavepoint, "SAVEPOINT", false},
		{"/* lead ; comment */ alter table c add column a int comment 'x; drop table c -- y'", stDDL, "ALTER TABLE c", false},
		{"aLtEr /*!40000 table */ `c` /* ` */ add column b int", stDDL, "ALTER TABLE c", false},
		{"ALTER TABLE `t` . `c` ADD d INT", stDDL, "ALTER TABLE t.c", false},
		{"CREATE OR REPLACE TABLE IF NOT EXISTS a.b (i int)", stDDL, "CREATE TABLE a.b", false},
		{"CREATE UNIQUE INDEX i ON a.b (c)", stDDL, "CREATE INDEX a.b", false},
		{"-- c\n# d\ndrop table if exists `a``b`", stDDL, "DROP TABLE a`b", false},
		{"RENAME TABLE a TO b", stDDL, "RENAME TABLE a", false},
		{"TRUNCATE a.b", stDDL, "TRUNCATE a.b", false},
		{"DROP DATABASE IF EXISTS x", stDDL, "DROP DATABASE x.", false},
		{"CREATE DEFINER=`r`@`%` PROCEDURE p() INSERT INTO a VALUES (1)", stDDL, "CREATE PROCEDURE p", false},
		{"CREATE ALGORITHM=UNDEFINED DEFINER=r@h SQL SECURITY DEFINER VIEW v AS SELECT 1", stDDL, "CREATE VIEW v", false},
		{"DROP TEMPORARY TABLE IF EXISTS `x`", stOther, "DROP TEMPORARY TABLE", false},
		{"CREATE USER u@localhost IDENTIFIED BY 'Secret-1'", stOther, "CREATE USER", false},
		{"CREATE OR REPLACE USER u", stOther, "CREATE USER", false},
		{"grant select on t.* to u", stOther, "GRANT", false},
		{"SET PASSWORD FOR u = 'x'", stOther, "SET", false},
		{"INSERT INTO a VALUES (1)", stDML, "INSERT a", true},
		{"insert low_priority ignore `d`.`a` set x=1", stDML, "INSERT d.a", true},
		{"REPLACE INTO d.a SELECT 1", stDML, "REPLACE d.a", true},
		{"UPDATE a SET x=1", stDML, "UPDATE a", true},
		{"UPDATE a, b SET x=1", stDML, "UPDATE a", false},
		{"UPDATE a JOIN b SET x=1", stDML, "UPDATE a", false},
		{"DELETE FROM a", stDML, "DELETE a", true},
		{"DELETE FROM d.a WHERE x", stDML, "DELETE d.a", true},
		{"DELETE FROM a, b USING a JOIN b", stDML, "DELETE a", false},
		{"DELETE a FROM a JOIN b", stDML, "DELETE", false},
		{"DELETE FROM `t`.`m` /* generated by server */", stDDL, "DELETE t.m", true},
		{"LOAD DATA INFILE 'x' REPLACE INTO TABLE d.a", stDML, "LOAD d.a", true},
		{"WITH x AS (SELECT 1) UPDATE a SET b=1", stDML, "WITH", false},
		{"XA START X'78',X'',1", stXAStart, "XA START", false},
		{"XA COMMIT X'78',X'',1", stXACommit, "XA COMMIT", false},
		{"FROBNICATE a", stUnknown, "FROBNICATE", false},
		{"", stOther, "(empty)", false},
		{"/* unfinished", stOther, "(empty)", false},
	} {
		st := classify([]byte(x.q))
		what := st.verb
		switch {
		case st.db != nil:
			what += " " + string(st.db) + "." + string(st.table)
		case st.table != nil:
			what += " " + string(st.table)
		}
		if st.kind != x.kind || what != x.what || st.one != x.one {
			t.Errorf("%q = %d %q %v, want %d %q %v", x.q, st.kind, what, st.one, x.kind, x.what, x.one)
		}
	}
	for _, q := range []string{"XA COMMIT X'7831',X'62',7", "XA COMMIT 'x1','b',7", "xa rollback X'7831' , X'62' , 7"} {
		if st := classify([]byte(q)); st.xid != xidKey(7, []byte("x1"), []byte("b")) {
			t.Errorf("%q has xid %q", q, st.xid)
		}
	}
	if st := classify([]byte("XA START X'7831',X'',1")); st.xid != xidKey(1, []byte("x1"), nil) {
		t.Errorf("xid %q", st.xid)
	}
}

func FuzzGTIDSets(f *testing.F) {
	f.Add("11111111-aaaa-11ee-8000-000000000001:1-5:ops:1-3:tag2:7,22222222-aaaa-11ee-8000-000000000001:9")
	f.Add("0-1-5,7-2-9")
	f.Add("binlog.000003:1234")
	f.Fuzz(func(t *testing.T, in string) {
		if s, err := parseMySQLSet(in); err == nil {
			again, err := parseMySQLSet(s.String())
			if err != nil || again.String() != s.String() {
				t.Errorf("%q prints as %q, which is %q, %v", in, s.String(), again.String(), err)
			}
			wire, _ := s.appendWire(nil, nil)
			if back, err := parseMySQLWire(wire); err != nil || back.String() != s.String() {
				t.Errorf("%q over the wire: %q, %v", in, back.String(), err)
			}
			if d := s.minus(&again); !d.empty() {
				t.Errorf("%q minus itself: %s", in, d.String())
			}
		}
		if s, err := parseMariaSet(in); err == nil {
			if again, err := parseMariaSet(s.String()); err != nil || again.String() != s.String() {
				t.Errorf("%q prints as %q", in, s.String())
			}
		}
		if s, err := ParseStart(in); err == nil {
			if again, err := ParseStart(s.String()); err != nil || again != s {
				t.Errorf("%q prints as %q", in, s)
			}
		}
		parseMySQLWire([]byte(in))
		if p, err := parsePosition([]byte(in)); err == nil {
			if b := newLivePosition(p).bytes(); len(b) == len(in) && !bytes.Equal(b, []byte(in)) {
				if again, err := parsePosition(b); err != nil || again.String() != p.String() {
					t.Errorf("position %q comes back as %q", p.String(), again.String())
				}
			}
		}
		classify([]byte(in))
		if m, err := ParseTables(in); err == nil {
			m.Match([]byte(in), []byte(in))
		}
	})
}

// FuzzAssembler feeds damaged streams: it must end with an error or with parts that are whole.
func FuzzAssembler(f *testing.F) {
	for _, sh := range trxShapes {
		for _, maria := range []bool{false, true} {
			if sh.flavor == "" || sh.flavor == flavorName(maria) {
				s := newScript(maria, false).file("bin.000001")
				sh.build(s)
				f.Add(bytes.Join(s.events, nil), maria)
			}
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, maria bool) {
		var events [][]byte
		for b := in; len(b) >= eventHeaderLen; {
			n := int(leUint(b[9:13]))
			if n < eventHeaderLen || n > len(b) {
				n = len(b)
			}
			events = append(events, b[:n])
			b = b[n:]
		}
		c := newCollector(t)
		c.undecode = true
		play(packets(events), maria, nil, func(a *assembler) { a.partBytes = 100 }, c.emit)
		if c.bad != nil {
			t.Error(c.bad)
		}
	})
}

func TestDamageIsFoundByChecksums(t *testing.T) {
	s := newScript(false, true).file("bin.000001").one("t", "a", "x").one("t", "a", "y")
	whole := s.packets()
	want := []string{`c t.a #0 {"id":1,"v":"x"}`, `c t.a #0 {"id":1,"v":"y"}`}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x10
		c := newCollector(t)
		err := play(b, false, nil, nil, c.emit)
		got := c.snapshot()
		if err == nil || len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("byte %d damaged: %v, %q", i, err, got)
		}
	}
}
