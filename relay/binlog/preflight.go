package binlog

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"binrelay/relay"
)

// Level says how much a finding matters.
type Level string

const (
	LevelOK      Level = "ok"
	LevelWarning Level = "warning" // works, but not for ever or not for everything
	LevelStop    Level = "stop"    // Stream refuses to begin
)

// Finding is one thing that a look at the server found, with what to do about it.
type Finding struct {
	Level  Level
	What   string // the variable, grant or fact, e.g. "binlog_format"
	Detail string
	Fix    string // a statement or a setting; empty when all is well
}

// Preflight connects and checks everything that Stream would check. What keeps it from connecting is a
// finding too.
func (s *Source) Preflight(ctx context.Context) []Finding {
	c, err := s.connect(ctx)
	if err != nil {
		return []Finding{{LevelStop, "connection", err.Error(), ""}}
	}
	defer c.Close()
	f, err := s.inspect(c)
	if err != nil {
		return []Finding{{LevelStop, "connection", plain(err).Error(), ""}}
	}
	s.judgeCascades(c, f)
	out := append([]Finding{{LevelOK, "server", flavorName(f.mariadb) + " " + f.version + " at " + s.cfg.Addr, ""}}, f.findings...)
	if start, err := ParseStart(s.cfg.Start); err != nil {
		out = append(out, Finding{LevelStop, "MYSQL_START", err.Error(), ""})
	} else if !hasStop(out) {
		if p, err := s.resolve(c, f, start); err != nil {
			out = append(out, Finding{LevelStop, "MYSQL_START", err.Error(), ""})
		} else {
			out = append(out, Finding{LevelOK, "start", "an empty log begins at " + p.String(), ""})
		}
	}
	return out
}

func hasStop(fs []Finding) bool {
	for _, f := range fs {
		if f.Level == LevelStop {
			return true
		}
	}
	return false
}

// serverFacts is what one look at a server's settings gives.
type serverFacts struct {
	mariadb   bool
	version   string
	uuid      [16]byte
	serverID  uint32
	gtidMode  string
	gtidOn    bool
	lowerCase int
	executed  string // MySQL with GTIDs
	purged    string
	findings  []Finding
}

const grantHint = "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO …"

// inspect reads the server's settings and judges them.
func (s *Source) inspect(c *conn) (*serverFacts, error) {
	const names = "'log_bin','binlog_format','binlog_row_image','binlog_row_metadata','binlog_row_value_options','gtid_mode'," +
		"'server_id','server_uuid','lower_case_table_names','version','binlog_expire_logs_seconds','expire_logs_days','log_slave_updates'"
	rows, err := c.query("SHOW GLOBAL VARIABLES WHERE Variable_name IN (" + names + ")")
	if err != nil {
		return nil, fmt.Errorf("read the server's variables: %w", plain(err))
	}
	v := make(map[string]string)
	for _, r := range rows {
		if len(r) >= 2 {
			v[strings.ToLower(r[0])] = r[1]
		}
	}
	f := &serverFacts{mariadb: c.mariadb, version: c.version, gtidMode: v["gtid_mode"]}
	if v["version"] != "" {
		f.version = v["version"]
	}
	f.uuid, _ = parseUUID(v["server_uuid"])
	if c.mariadb {
		f.uuid = [16]byte{}
	}
	id, _ := strconv.ParseUint(v["server_id"], 10, 32)
	f.serverID = uint32(id)
	f.lowerCase, _ = strconv.Atoi(v["lower_case_table_names"])
	f.gtidOn = strings.EqualFold(f.gtidMode, "ON")
	if f.gtidOn && !c.mariadb {
		rows, err := c.query("SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged")
		if err != nil {
			return nil, fmt.Errorf("read gtid_executed: %w", plain(err))
		}
		if len(rows) > 0 && len(rows[0]) > 1 {
			f.executed, f.purged = rows[0][0], rows[0][1]
		}
	}
	f.judge(v, s.cfg.ServerID)
	if err := f.judgeGrants(c); err != nil {
		return nil, err
	}
	if !f.mariadb {
		f.judgeReplicas(c, &s.cfg)
	}
	return f, nil
}

func (f *serverFacts) find(l Level, what, detail, fix string) {
	f.findings = append(f.findings, Finding{l, what, detail, fix})
}

// want adds a finding about one variable; a server that does not have the variable is not judged by it.
func (f *serverFacts) want(v map[string]string, name, want string, level Level, fix string) {
	got, ok := v[name]
	switch {
	case !ok:
	case strings.EqualFold(got, want):
		f.find(LevelOK, name, got, "")
	default:
		f.find(level, name, fmt.Sprintf("%s is %s on the server, needed is %s", name, got, want), fix)
	}
}

func (f *serverFacts) judge(v map[string]string, ourID uint32) {
	f.want(v, "log_bin", "ON", LevelStop, "start the server with log_bin (binary log) in its configuration")
	if strings.EqualFold(v["log_bin"], "OFF") {
		return // nothing else matters
	}
	f.want(v, "binlog_format", "ROW", LevelStop, "SET GLOBAL binlog_format=ROW, also in the server's configuration; sessions that are open keep the old format until they reconnect")
	if _, ok := v["binlog_row_metadata"]; !ok && len(v) > 0 {
		f.find(LevelStop, "binlog_row_metadata", "the server does not know binlog_row_metadata: it is older than MySQL 8.0.1 or MariaDB 10.5", "upgrade the server")
	}
	f.want(v, "binlog_row_metadata", "FULL", LevelStop, "SET GLOBAL binlog_row_metadata=FULL, also in the server's configuration")
	f.want(v, "binlog_row_image", "FULL", LevelWarning, "SET GLOBAL binlog_row_image=FULL; without it, columns that the server leaves out are missing in records")
	if o := v["binlog_row_value_options"]; o != "" {
		f.find(LevelWarning, "binlog_row_value_options", "binlog_row_value_options is "+o+": JSON updates hold differences", "SET GLOBAL binlog_row_value_options=''")
	}
	if f.serverID == ourID && ourID != 0 {
		f.find(LevelStop, "server_id", fmt.Sprintf("the server itself has our server id %d", ourID), "choose another MYSQL_SERVER_ID")
	}
	switch {
	case f.mariadb:
	case f.gtidOn:
		f.find(LevelOK, "gtid_mode", "ON", "")
	default:
		f.find(LevelWarning, "gtid_mode", "gtid_mode is "+f.gtidMode+": positions are file and offset, so a failover to another server cannot be followed, and records have no gtid", "gtid_mode=ON and enforce_gtid_consistency=ON on the server")
	}
	f.judgeRetention(v)
}

// minRetention is below what a weekend without us needs.
const minRetention = 24 * 3600

func (f *serverFacts) judgeRetention(v map[string]string) {
	secs, _ := strconv.ParseFloat(v["binlog_expire_logs_seconds"], 64)
	if days, err := strconv.ParseFloat(v["expire_logs_days"], 64); err == nil && secs == 0 {
		secs = days * 86400
	}
	if secs > 0 && secs < minRetention {
		f.find(LevelWarning, "binlog_expire_logs_seconds", fmt.Sprintf("the server keeps its binlog for %.0f s only", secs), "SET GLOBAL binlog_expire_logs_seconds=604800")
	}
}

// judgeGrants tells missing rights from a wrong password: on MariaDB both end in the same error.
func (f *serverFacts) judgeGrants(c *conn) error {
	rows, err := c.query("SHOW GRANTS")
	if e := serverError(err); e != nil || rows == nil && err == nil {
		return nil // not every server shows them; what is missing then shows itself
	}
	if err != nil {
		return fmt.Errorf("read our grants: %w", plain(err))
	}
	var all []string
	roles := false
	for _, r := range rows {
		if len(r) == 0 {
			continue
		}
		line := strings.ToUpper(r[0])
		privs, _, on := strings.Cut(line, " ON ")
		if !on {
			roles = roles || strings.HasPrefix(line, "GRANT ")
			continue
		}
		if strings.Contains(line, " ON *.* ") || strings.HasSuffix(line, " ON *.*") {
			for p := range strings.SplitSeq(strings.TrimPrefix(privs, "GRANT "), ",") {
				all = append(all, strings.TrimSpace(p))
			}
		}
	}
	has := func(names ...string) bool {
		for _, p := range all {
			for _, n := range append(names, "ALL PRIVILEGES", "ALL") {
				if p == n {
					return true
				}
			}
		}
		return false
	}
	level := LevelStop
	if roles { // a role may hold them
		level = LevelWarning
	}
	var missing []string
	if !has("REPLICATION SLAVE", "REPLICATION REPLICA") {
		missing = append(missing, "REPLICATION SLAVE")
	}
	if !has("REPLICATION CLIENT", "BINLOG MONITOR", "SUPER") {
		missing = append(missing, "REPLICATION CLIENT")
		if f.mariadb {
			missing[len(missing)-1] += " (BINLOG MONITOR)"
		}
	}
	if len(missing) > 0 {
		f.find(level, "grants", "the account lacks "+strings.Join(missing, " and "), grantHint)
	} else {
		f.find(LevelOK, "grants", "REPLICATION SLAVE, REPLICATION CLIENT", "")
	}
	if f.mariadb && !has("SELECT") {
		f.find(LevelWarning, "grants", "the account lacks SELECT on *.*: UUID, INET, JSON and VECTOR columns of tables that it cannot see come as plain binary or text", "GRANT SELECT ON *.* TO …, or on the tables that are read")
	}
	return nil
}

// judgeReplicas looks for another replica with our server id. MariaDB ends one of the two (see dumpError),
// MySQL tells them apart by their uuids, but they would be taken for one another in its lists.
func (f *serverFacts) judgeReplicas(c *conn, cfg *Config) {
	rows, err := c.query("SHOW REPLICAS")
	if err != nil {
		return // older than 8.0.22, or not allowed
	}
	for _, r := range rows { // server id, host, port, source id, uuid
		if len(r) >= 5 && r[0] == strconv.FormatUint(uint64(cfg.ServerID), 10) && !strings.EqualFold(r[4], cfg.ReplicaUUID) {
			f.find(LevelWarning, "server_id", fmt.Sprintf("another replica (uuid %s) has our server id %d", r[4], cfg.ServerID), "give each its own MYSQL_SERVER_ID")
		}
	}
}

// judgeCascades names selected tables whose rows change without a trace: foreign keys with CASCADE or SET
// NULL work below the binlog, until MySQL 9.6 began to write them.
func (s *Source) judgeCascades(c *conn, f *serverFacts) {
	if cmp, err := c.CompareServerVersion("9.6.0"); !f.mariadb && (err != nil || cmp >= 0) {
		return
	}
	rows, err := c.query("SELECT CONSTRAINT_SCHEMA, TABLE_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS" +
		" WHERE UPDATE_RULE IN ('CASCADE','SET NULL') OR DELETE_RULE IN ('CASCADE','SET NULL')")
	if err != nil {
		return // not every server has the table; it is only advice
	}
	tables := s.cfg.Tables.folded(f.lowerCase != 0)
	var names []string
	for _, r := range rows {
		if len(r) == 2 && tables.Match([]byte(r[0]), []byte(r[1])) {
			names = append(names, r[0]+"."+r[1])
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	const most = 20
	if n := len(names); n > most {
		names = append(names[:most], fmt.Sprintf("and %d more", n-most))
	}
	if len(names) > 0 {
		f.find(LevelWarning, "foreign keys", "the server does not log what foreign keys with CASCADE or SET NULL change in "+strings.Join(names, ", "), "MySQL 9.6 logs it; or change these rows in the application")
	}
}

// refuse turns findings that stop into one error, and says the warnings once.
func (s *Source) refuse(f *serverFacts) error {
	var stops, fixes []string
	warn := !s.warned.Swap(true)
	for _, x := range f.findings {
		switch x.Level {
		case LevelStop:
			stops = append(stops, x.Detail)
			fixes = append(fixes, x.Fix)
		case LevelWarning:
			if warn {
				s.cfg.Logger.Warn("source: "+x.Detail, "fix", x.Fix)
			}
		}
	}
	if stops == nil {
		return nil
	}
	return relay.Permanent(fmt.Errorf("the server at %s cannot be read: %s", s.cfg.Addr, strings.Join(stops, "; ")), strings.Join(fixes, "; "))
}
