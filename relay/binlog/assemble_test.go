package binlog

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"binrelay/relay"
)

func newTestReader(b []byte) *bufio.Reader { return bufio.NewReaderSize(bytes.NewReader(b), 4096) }

// trxShapes are transactions of every kind, and the changes that they mean.
var trxShapes = []struct {
	name   string
	flavor string // "" both
	build  func(s *script)
	want   []string
	tables string
	part   int    // bytes of a part
	fails  string // the permanent error that it must end with
}{
	{name: "plain", build: func(s *script) { s.one("t", "a", "x").one("t", "a", "y") },
		want: []string{`c t.a #0 {"id":1,"v":"x"}`, `c t.a #0 {"id":1,"v":"y"}`}},
	{name: "two tables and statements in one", build: func(s *script) {
		s.begin().table(7, "t", "a").table(8, "t", "b").insert(7, "1", "2").insert(8, "3").table(7, "t", "a").insert(7, "4").xid()
	}, want: []string{`c t.a #0 {"id":1,"v":"1"}`, `c t.a #1 {"id":2,"v":"2"}`, `c t.b #2 {"id":1,"v":"3"}`, `c t.a #3 {"id":1,"v":"4"}`}},
	{name: "commit query of a non-transactional table", build: func(s *script) {
		s.begin().table(7, "t", "m").insert(7, "x").query("t", "COMMIT")
	}, want: []string{`c t.m #0 {"id":1,"v":"x"}`}},
	{name: "rollback", build: func(s *script) {
		s.begin().table(7, "t", "a").insert(7, "x").query("t", "ROLLBACK").one("t", "a", "y")
	}, want: []string{`c t.a #0 {"id":1,"v":"y"}`}},
	{name: "rollback of what is out in parts", part: 64, build: func(s *script) {
		s.begin().table(7, "t", "a").insert(7, "x").insert(7, "x").insert(7, "x").query("t", "ROLLBACK").one("t", "a", "y")
	}, want: []string{`c t.a #0 {"id":1,"v":"y"}`}},
	{name: "empty transactions", build: func(s *script) { s.begin().xid().begin().query("t", "COMMIT").one("t", "a", "y").begin().xid() },
		want: []string{`c t.a #0 {"id":1,"v":"y"}`}},
	{name: "ddl", build: func(s *script) {
		s.alone().query("t", "ALTER TABLE a ADD COLUMN n INT").one("t", "a", "x").alone().query("t", "TRUNCATE a")
	}, want: []string{"ddl t ALTER TABLE a ADD COLUMN n INT", `c t.a #0 {"id":1,"v":"x"}`, "ddl t TRUNCATE a"}},
	{name: "account statements are not kept", build: func(s *script) {
		s.alone().query("t", "CREATE USER u IDENTIFIED BY 'secret'").alone().query("t", "/* x */ grant all on *.* to u").
			alone().query("t", "SET PASSWORD FOR u='secret'").alone().query("t", "ALTER USER u ACCOUNT LOCK").one("t", "a", "x")
	}, want: []string{`c t.a #0 {"id":1,"v":"x"}`}},
	{name: "create table select", flavor: "mariadb", build: func(s *script) {
		s.gtidEvent(0).query("t", "CREATE TABLE `a` (\n  `id` int)").table(7, "t", "a").insert(7, "x").query("t", "COMMIT").one("t", "a", "y")
	}, want: []string{"ddl t CREATE TABLE `a` (\n  `id` int)", `c t.a #0 {"id":1,"v":"x"}`, `c t.a #0 {"id":1,"v":"y"}`}},
	{name: "atomic create table select", flavor: "mysql", build: func(s *script) {
		s.begin().query("t", "CREATE TABLE `a` (`id` int) START TRANSACTION").table(7, "t", "a").insert(7, "x").xid()
	}, want: []string{"ddl t CREATE TABLE `a` (`id` int) START TRANSACTION", `c t.a #0 {"id":1,"v":"x"}`}},
	{name: "savepoints", build: func(s *script) {
		s.begin().table(7, "t", "a").insert(7, "1").query("t", "SAVEPOINT `s1`").table(7, "t", "a").insert(7, "2").query("t", "SAVEPOINT s2").
			table(8, "t", "b").insert(8, "3").query("t", "ROLLBACK TO `s2`").table(8, "t", "b").insert(8, "4").
			query("t", "ROLLBACK TO s1").table(8, "t", "b").insert(8, "5").xid()
	}, want: []string{`c t.a #0 {"id":1,"v":"1"}`, `c t.b #1 {"id":1,"v":"5"}`}},
	{name: "rollback to the first savepoint", build: func(s *script) {
		s.begin().query("t", "SAVEPOINT s").table(7, "t", "a").insert(7, "1").query("t", "ROLLBACK TO s").table(7, "t", "a").insert(7, "2").xid()
	}, want: []string{`c t.a #0 {"id":1,"v":"2"}`}},
	{name: "savepoint behind a cut", part: 64, fails: "savepoint", build: func(s *script) {
		s.begin().query("t", "SAVEPOINT s").table(7, "t", "a").insert(7, "1").insert(7, "1").insert(7, "1").query("t", "ROLLBACK TO s")
	}},
	{name: "excluded tables keep their ordinals", tables: "*.*,!t.b", build: func(s *script) {
		s.begin().table(8, "t", "b").insert(8, "1", "2", "3").table(7, "t", "a").insert(7, "x").table(8, "t", "b").insert(8, "4", "5").insert(8, "6").table(7, "t", "a").insert(7, "y").xid().
			begin().table(8, "t", "b").insert(8, "1").xid()
	}, want: []string{`c t.a #3 {"id":1,"v":"x"}`, `c t.a #7 {"id":1,"v":"y"}`}},
	{name: "ordinals over parts", tables: "*.*,!t.b", part: 64, build: func(s *script) {
		s.begin().table(8, "t", "b").insert(8, "1", "2", "3").table(7, "t", "a").insert(7, "w", "x").insert(7, "y").table(8, "t", "b").insert(8, "4", "5").
			table(7, "t", "a").insert(7, "z").insert(7, "1").xid()
	}, want: []string{`c t.a #3 {"id":1,"v":"w"}`, `c t.a #4 {"id":2,"v":"x"}`, `c t.a #5 {"id":1,"v":"y"}`, `c t.a #8 {"id":1,"v":"z"}`, `c t.a #9 {"id":1,"v":"1"}`}},
	{name: "system schemas", build: func(s *script) {
		s.begin().table(7, "mysql", "gtid_slave_pos").insert(7, "x").xid().alone().query("mysql", "INSERT INTO mysql.x VALUES (1)")
	}},
	{name: "temporary tables", build: func(s *script) {
		s.alone().query("t", "CREATE TEMPORARY TABLE x (i INT)").alone().query("t", "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `x`").one("t", "a", "x")
	}, want: []string{`c t.a #0 {"id":1,"v":"x"}`}},
	{name: "statement insert", fails: "statement-format change (INSERT t.a)", build: func(s *script) {
		s.one("t", "a", "x").begin().query("t", "INSERT INTO a VALUES (1,'secret')").xid()
	}, want: []string{`c t.a #0 {"id":1,"v":"x"}`}},
	{name: "statement update", fails: "statement-format change (UPDATE t.a)", build: func(s *script) {
		s.begin().query("x", "/* app */ update `t`.`a` set v='secret'").xid()
	}},
	{name: "statement delete of several tables", fails: "statement-format change (DELETE in database t)", build: func(s *script) {
		s.begin().query("t", "DELETE a, b FROM a JOIN b").xid()
	}},
	{name: "statement on an excluded table", tables: "*.*,!pt.*", build: func(s *script) {
		s.begin().query("t", "REPLACE INTO pt.checksums SELECT 1 FROM t.a").xid().begin().query("pt", "DELETE FROM x WHERE 1").xid().one("t", "a", "x")
	}, want: []string{`c t.a #0 {"id":1,"v":"x"}`}},
	{name: "load data in statement format", fails: "statement-format change (LOAD t.a)", build: func(s *script) {
		s.begin().add(evBeginLoad, 0, make([]byte, 8))
		q := queryBody("t", "LOAD DATA INFILE '/x' INTO TABLE `a`")
		s.add(evExecuteLoad, 0, slices.Insert(q, 13, make([]byte, 13)...)).xid()
	}},
	{name: "emptied memory table", build: func(s *script) {
		s.alone().query("t", "DELETE FROM `t`.`mem` /* generated by server */")
	}, want: []string{"ddl t DELETE FROM `t`.`mem` /* generated by server */"}},
	{name: "incident", fails: "incident", build: func(s *script) { s.one("t", "a", "x").begin().add(evIncident, 0, []byte{1, 0, 0}) },
		want: []string{`c t.a #0 {"id":1,"v":"x"}`}},
	{name: "unknown event", fails: "unknown type 99", build: func(s *script) { s.begin().add(99, 0, []byte{1, 0, 0}) }},
	{name: "row event of MySQL 5.1 before its release", fails: "before MySQL 5.1 was released", build: func(s *script) { s.begin().add(evPreWriteRows, 0, []byte{1, 0, 0}) }},
	{name: "unknown event that may be ignored", build: func(s *script) { s.begin().add(99, flagIgnorable, []byte{1, 0, 0}).xid().one("t", "a", "x") },
		want: []string{`c t.a #0 {"id":1,"v":"x"}`}},
	{name: "rows without a table map", fails: "no table map", build: func(s *script) { s.begin().insert(9, "x").xid() }},
	{name: "table map of an earlier transaction", fails: "no table map", build: func(s *script) { s.one("t", "a", "x").begin().insert(7, "x").xid() },
		want: []string{`c t.a #0 {"id":1,"v":"x"}`}},
	{name: "no column names", fails: "binlog_row_metadata", build: func(s *script) {
		b := tableBody(7, "t", "a")
		s.begin().add(evTableMap, 0, b[:bytes.Index(b, []byte{metaColumnName, 5, 2})]).insert(7, "x").xid()
	}},
	{name: "no column names in an excluded table", tables: "*.*,!t.a", build: func(s *script) {
		b := tableBody(7, "t", "a")
		s.begin().add(evTableMap, 0, b[:bytes.Index(b, []byte{metaColumnName, 5, 2})]).insert(7, "x").table(8, "t", "b").insert(8, "y").xid()
	}, want: []string{`c t.b #1 {"id":1,"v":"y"}`}},
	{name: "server crashed in a transaction", build: func(s *script) {
		s.begin().table(7, "t", "a").insert(7, "lost")
		s.gno--
		s.begin().table(7, "t", "a").insert(7, "x").xid()
	}, want: []string{`c t.a #0 {"id":1,"v":"x"}`}},
	{name: "server crashed in a transaction of parts, then a new file", part: 64, build: func(s *script) {
		s.begin().table(7, "t", "a").insert(7, "lost").insert(7, "lost").insert(7, "lost")
		s.gno--
		s.file("bin.000002").begin().table(7, "t", "a").insert(7, "x").xid()
	}, want: []string{`c t.a #0 {"id":1,"v":"x"}`}},
	{name: "rotation", build: func(s *script) {
		s.one("t", "a", "x").add(evRotate, 0, append(binary.LittleEndian.AppendUint64(nil, 4), "bin.000002"...)).file("bin.000002").one("t", "a", "y").heartbeat()
	}, want: []string{`c t.a #0 {"id":1,"v":"x"}`, `c t.a #0 {"id":1,"v":"y"}`}},
	{name: "no end positions", flavor: "mariadb", build: func(s *script) { s.noEnds = true; s.one("t", "a", "x").one("t", "a", "y") },
		want: []string{`c t.a #0 {"id":1,"v":"x"}`, `c t.a #0 {"id":1,"v":"y"}`}},
	{name: "payload", flavor: "mysql", build: func(s *script) {
		s.gtidEvent(0).payload(true, func(in *script) {
			in.query("", "BEGIN").table(7, "t", "a").insert(7, "x", "y").xid()
		}).one("t", "a", "z").gtidEvent(0).payload(false, func(in *script) {
			in.query("", "BEGIN").table(7, "t", "a").insert(7, strings.Repeat("w", 90)).xid()
		})
	}, want: []string{`c t.a #0 {"id":1,"v":"x"}`, `c t.a #1 {"id":2,"v":"y"}`, `c t.a #0 {"id":1,"v":"z"}`, `c t.a #0 {"id":1,"v":"` + strings.Repeat("w", 90) + `"}`}},
	{name: "compressed events", flavor: "mariadb", build: func(s *script) {
		v1 := rowsBody(false, 7, "x", "y")
		s.begin().table(7, "t", "a").add(evMariaWriteZV1, 0, append(v1[:10:10], deflated(v1[10:])...))
		v2 := rowsBody(true, 7, "z")
		s.add(evMariaWriteZ, 0, append(v2[:12:12], deflated(v2[12:])...)).xid()
		q := queryBody("t", "DROP TABLE x")
		s.alone().add(evMariaQueryZ, 0, append(q[:15:15], deflated(q[15:])...))
	}, want: []string{`c t.a #0 {"id":1,"v":"x"}`, `c t.a #1 {"id":2,"v":"y"}`, `c t.a #2 {"id":1,"v":"z"}`, "ddl t DROP TABLE x"}},
	{name: "row fragments", flavor: "mariadb", build: func(s *script) {
		s.begin().table(7, "t", "a")
		in := &script{maria: true, time: s.time}
		in.insert(7, "x", "y")
		ev := in.events[0]
		s.add(evMariaRowFragment, 0, slices.Concat([]byte{3, 0, 0, 0, 1, 0, 0, 0, 1}, binary.LittleEndian.AppendUint64(nil, uint64(len(ev))), ev[:10]))
		s.add(evMariaRowFragment, 0, slices.Concat([]byte{3, 0, 0, 0, 2, 0, 0, 0, 0}, ev[10:30]))
		s.add(evMariaRowFragment, 0, slices.Concat([]byte{3, 0, 0, 0, 3, 0, 0, 0, 0}, ev[30:])).xid()
	}, want: []string{`c t.a #0 {"id":1,"v":"x"}`, `c t.a #1 {"id":2,"v":"y"}`}},
	{name: "row fragment missing", flavor: "mariadb", fails: "fragment 3 of 3 after 1 of 3", build: func(s *script) {
		s.begin().table(7, "t", "a").add(evMariaRowFragment, 0, []byte{3, 0, 0, 0, 1, 0, 0, 0, 0, 1}).add(evMariaRowFragment, 0, []byte{3, 0, 0, 0, 3, 0, 0, 0, 0, 1})
	}},
	{name: "xa commit", build: func(s *script) {
		s.xaRows("x1", false, "p").one("t", "a", "x").xaEnd("COMMIT", "x1")
	}, want: []string{`c t.a #0 {"id":1,"v":"x"}`, `c t.a #0 {"id":1,"v":"p"}`}},
	{name: "xa rollback, and the id used again", build: func(s *script) {
		s.xaRows("x1", false, "p").one("t", "a", "x").xaEnd("ROLLBACK", "x1").xaRows("x1", false, "q").xaEnd("COMMIT", "x1")
	}, want: []string{`c t.a #0 {"id":1,"v":"x"}`, `c t.a #0 {"id":1,"v":"q"}`}},
	{name: "xa in parts", part: 64, build: func(s *script) {
		s.xaRows("x1", false, strings.Repeat("p", 90), "q")
		s.events = slices.Insert(s.events, len(s.events)-2, s.events[len(s.events)-3], s.events[len(s.events)-3]) // the same rows event twice more
		s.one("t", "a", "x").xaEnd("COMMIT", "x1")
	}, want: []string{`c t.a #0 {"id":1,"v":"x"}`,
		`c t.a #0 {"id":1,"v":"` + strings.Repeat("p", 90) + `"}`, `c t.a #1 {"id":2,"v":"q"}`,
		`c t.a #2 {"id":1,"v":"` + strings.Repeat("p", 90) + `"}`, `c t.a #3 {"id":2,"v":"q"}`,
		`c t.a #4 {"id":1,"v":"` + strings.Repeat("p", 90) + `"}`, `c t.a #5 {"id":2,"v":"q"}`}},
	{name: "xa in one phase", build: func(s *script) { s.xaRows("x1", true, "p").one("t", "a", "x") },
		want: []string{`c t.a #0 {"id":1,"v":"p"}`, `c t.a #0 {"id":1,"v":"x"}`}},
	{name: "xa of excluded tables only", tables: "t.b", build: func(s *script) {
		s.xaRows("x1", false, "p").one("t", "b", "x").xaEnd("COMMIT", "x1")
	}, want: []string{`c t.b #0 {"id":1,"v":"x"}`}},
	{name: "xa commit without its prepare", fails: "XA COMMIT of 1:7831:", build: func(s *script) { s.xaEnd("COMMIT", "x1") }},
	{name: "anonymous", flavor: "mysql", build: func(s *script) {
		for _, v := range []string{"x", "y"} {
			s.begin().table(7, "t", "a").insert(7, v).xid()
			s.events[len(s.events)-5][4] = evAnonymousGTID
		}
	}, want: []string{`c t.a #0 {"id":1,"v":"x"}`, `c t.a #0 {"id":1,"v":"y"}`}},
}

func (c *collector) setup(sh string, part int, dir string) func(*assembler) {
	return func(a *assembler) {
		m, err := ParseTables(sh)
		if err != nil {
			c.t.Fatal(err)
		}
		a.match = &m
		if part > 0 {
			a.partBytes = part
		}
		a.park = &parking{dir: dir}
	}
}

// TestShapes plays every kind of transaction whole, then cut off at every byte and resumed: whatever is
// delivered, it is never half a transaction, and in the end each change once.
func TestShapes(t *testing.T) {
	for _, sh := range trxShapes {
		for _, maria := range []bool{false, true} {
			for _, crc := range []bool{false, true} {
				if sh.flavor != "" && sh.flavor != flavorName(maria) || crc && sh.name == "anonymous" {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/crc=%v", sh.name, flavorName(maria), crc), func(t *testing.T) {
					s := newScript(maria, crc).file("bin.000001")
					sh.build(s)
					s.heartbeat()
					if sh.name == "xa in parts" && crc {
						return // its copied events have end positions of their own
					}
					c := newCollector(t)
					check := func(err error) {
						t.Helper()
						switch {
						case sh.fails == "" && err != errPlayed:
							t.Fatalf("ended with %v", err)
						case sh.fails != "" && (err == nil || !strings.Contains(err.Error(), sh.fails) || !relay.IsPermanent(err)):
							t.Fatalf("ended with %v, want a permanent error with %q", err, sh.fails)
						case err != nil && strings.Contains(err.Error(), "secret"):
							t.Fatalf("a value is in the error: %v", err)
						}
						if got := c.snapshot(); !slices.Equal(got, sh.want) {
							t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(sh.want, "\n"))
						}
						p, err := parsePosition(c.pos)
						if want := s.executed(); sh.fails == "" && sh.name != "anonymous" && (err != nil || p.gtids() != want) {
							t.Fatalf("position %v, want the set %s", p.gtids(), want)
						}
					}
					dir := t.TempDir()
					check(play(s.packets(), maria, nil, c.setup(sh.tables, sh.part, dir), c.emit))

					if sh.name == "anonymous" {
						return // resumed by offset, which the script cannot do
					}
					whole := s.packets()
					step := 1
					switch {
					case strings.HasPrefix(sh.name, "xa"):
						step = 43 // each PREPARE waits for the disk
					case crc:
						step = 7
					}
					for n := 0; n < len(whole); n += step {
						c = newCollector(t)
						err := play(whole[:n], maria, nil, c.setup(sh.tables, sh.part, dir), c.emit)
						if err != io.EOF && err != io.ErrUnexpectedEOF && !relay.IsPermanent(err) {
							t.Fatalf("cut at byte %d: %v", n, err)
						}
						p := position{MariaDB: maria}
						if c.pos != nil {
							p, _ = parsePosition(c.pos)
						}
						check(play(packets(s.from(p)), maria, c.pos, c.setup(sh.tables, sh.part, dir), c.emit))
					}
				})
			}
		}
	}
}
