package relaytest

import "testing"

// FuzzStatement: whatever a client sends is answered or refused; it must not take the process down.
func FuzzStatement(f *testing.F) {
	for _, q := range []string{
		"SELECT @@GLOBAL.gtid_executed, @@version AS v, 'it''s', -1, X'6162', _utf8 X'61'", "SET @a := 'b', NAMES utf8mb4, GLOBAL x = ON",
		"SELECT a.COLUMN_NAME FROM information_schema.columns a WHERE NOT (x IN (1,2) OR y LIKE '%\\_') ORDER BY 1 LIMIT 3",
		"SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin')", "/*!40101 SET NAMES x */; -- end", "SHOW BINARY LOGS", "KILL 7", "PURGE BINARY LOGS TO 'x'",
		"SELECT COUNT(*) FROM information_schema.processlist", "SELECT BINLOG_GTID_POS('binlog.000001', 4), GTID_SUBSET('a','b')",
	} {
		f.Add(q)
	}
	s := startSource(f, SourceConfig{Flavor: MariaDB})
	s.CreateTable("CREATE TABLE d.t (id INT PRIMARY KEY, v ENUM('a','b'), j JSON)")
	f.Fuzz(func(t *testing.T, q string) {
		if r, err := newConn(s, nil).query(q); r != nil && err != nil {
			t.Errorf("%q: both a result and %v", q, err)
		}
	})
}

// FuzzCreateTable: any text is a table or an error, and what is a table has a map.
func FuzzCreateTable(f *testing.F) {
	for _, q := range []string{
		"CREATE TABLE a.b (id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY COMMENT 'x, (y', `n``m` DECIMAL(10,2) DEFAULT 0.5, e ENUM('a','it''s') CHARACTER SET latin1, KEY k (id))",
		"CREATE TABLE t (v VARCHAR(3), g INT GENERATED ALWAYS AS (v * (2 + 1)) STORED, CONSTRAINT p PRIMARY KEY USING BTREE (v(2) DESC)) DEFAULT CHARSET=gbk",
	} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, q string) {
		table, err := ParseTable(q)
		if err != nil {
			return
		}
		for _, flavor := range flavors {
			b := Builder{Flavor: flavor}
			b.TableMap(table)
		}
	})
}
