package relaytest

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// query answers one statement: what replication clients, preflight checks and command-line clients send.
func (c *conn) query(sql string) (*mysql.Result, error) {
	s := c.s
	s.mu.Lock()
	if len(s.queries) >= maxQueries {
		s.queries = append(s.queries[:0], s.queries[1:]...)
	}
	s.queries = append(s.queries, sql)
	hook := s.onQuery
	s.mu.Unlock()
	if hook != nil {
		if r, err := hook(sql); r != nil || err != nil {
			return r, err
		}
	}
	p := &sqlParser{toks: sqlTokens(sql)}
	switch word := strings.ToUpper(p.peek().text); word {
	case "SELECT":
		return c.selectQuery(p)
	case "SHOW":
		p.next()
		return c.show(p)
	case "SET":
		p.next()
		return nil, c.set(p)
	case "KILL":
		p.next()
		return nil, c.killQuery(p)
	case "FLUSH":
		p.next()
		if p.accept("BINARY") || p.accept("LOGS") {
			s.Rotate()
		}
		return nil, nil
	case "PURGE":
		return nil, s.purgeQuery(p)
	case "", "BEGIN", "START", "COMMIT", "ROLLBACK", "USE", "DO", "LOCK", "UNLOCK", "RESET":
		return nil, nil
	default:
		return nil, unsupported(word)
	}
}

func unsupported(what string) error {
	return mysql.NewError(1235, "relaytest: this server has only a binlog; it does not know "+what)
}

// rows makes a result of text columns.
func rows(names []string, values [][]any) (*mysql.Result, error) {
	for _, row := range values {
		for i, v := range row {
			if v != nil {
				row[i] = fmt.Sprint(v)
			}
		}
	}
	r, err := mysql.BuildSimpleTextResultset(names, values)
	if err != nil {
		return nil, err
	}
	return mysql.NewResult(r), nil
}

// set handles SET name = expression, ...: user variables for this connection, GLOBAL ones for the server.
func (c *conn) set(p *sqlParser) error {
	for !p.done() {
		if p.accept("NAMES") || p.accept("CHARACTER") || p.accept("TRANSACTION") {
			for !p.done() && !p.accept(",") {
				p.pos++
			}
			continue
		}
		global := p.accept("GLOBAL") || p.accept("PERSIST")
		if !global && !p.accept("SESSION") {
			p.accept("LOCAL")
		}
		name := strings.ToLower(p.next())
		if name == "@" || name == "@@" {
			mark := name
			name += strings.ToLower(p.next())
			for p.accept(".") {
				global = global || name == "@@global" || name == "@@persist"
				name = mark + strings.ToLower(p.next())
			}
		}
		if !p.accept("=") && !p.accept(":=") {
			return mysql.NewError(1064, "You have an error in your SQL syntax near SET "+name)
		}
		v, err := c.setValue(p)
		if err != nil {
			return err
		}
		if strings.HasPrefix(name, "@") && !strings.HasPrefix(name, "@@") {
			c.vars[name] = v
		} else if global {
			c.s.SetVariable(strings.TrimPrefix(name, "@@"), v)
		}
		p.accept(",")
	}
	return nil
}

// setValue is an expression, or a bare word such as ON or utf8mb4.
func (c *conn) setValue(p *sqlParser) (string, error) {
	if t := p.peek(); t.quote == 0 && t.text != "" && isWord(t.text[0]) {
		if next := p.pos + 1; next >= len(p.toks) || p.toks[next].text == "," {
			p.pos++
			return t.text, nil
		}
	}
	v, err := (&evaluation{c: c, p: p}).expression()
	if v == nil {
		return "", err
	}
	return fmt.Sprint(v), err
}

func (c *conn) killQuery(p *sqlParser) error {
	if p.accept("QUERY") {
		return nil
	}
	p.accept("CONNECTION")
	p.accept("HARD")
	p.accept("SOFT")
	id, err := strconv.Atoi(p.next())
	if err != nil {
		return mysql.NewError(1064, "You have an error in your SQL syntax near KILL")
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for o := range c.s.conns {
		if o.id == uint32(id) {
			o.Close()
			return nil
		}
	}
	return mysql.NewError(1094, fmt.Sprintf("Unknown thread id: %d", id))
}

func (s *Source) purgeQuery(p *sqlParser) error {
	for !p.done() && !p.accept("TO") {
		p.next()
	}
	to := p.next()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.log.files {
		if f.name == to {
			s.log.drop(i)
			return nil
		}
	}
	return mysql.NewError(1373, "Target log not found in binlog index")
}

// show answers the SHOW statements of replication clients.
func (c *conn) show(p *sqlParser) (*mysql.Result, error) {
	s := c.s
	p.accept("FULL")
	if !p.accept("GLOBAL") {
		p.accept("SESSION")
	}
	maria := s.cfg.Flavor == MariaDB
	switch {
	case p.accept("VARIABLES"):
		return c.showPairs(p, "Variable_name", s.variables())
	case p.accept("STATUS"):
		return c.showPairs(p, "Variable_name", map[string]string{"Uptime": "1000", "Threads_connected": strconv.Itoa(s.Connections())})
	case p.accept("GRANTS"):
		return c.showGrants()
	case p.accept("MASTER", "STATUS"):
		if !maria && s.atLeast(8, 4) {
			return nil, mysql.NewError(1064, "You have an error in your SQL syntax near 'MASTER STATUS'")
		}
		return s.showStatus()
	case p.accept("BINARY", "LOG", "STATUS"):
		if maria || !s.atLeast(8, 2) {
			return nil, mysql.NewError(1064, "You have an error in your SQL syntax near 'LOG STATUS'")
		}
		return s.showStatus()
	case p.accept("BINLOG", "STATUS"):
		if !maria || !s.atLeast(10, 5) {
			return nil, mysql.NewError(1064, "You have an error in your SQL syntax near 'STATUS'")
		}
		return s.showStatus()
	case p.accept("BINARY", "LOGS"), p.accept("MASTER", "LOGS"):
		return s.showLogs()
	case p.accept("PROCESSLIST"):
		return c.virtual("information_schema", "processlist")
	case p.accept("SLAVE", "HOSTS"), p.accept("REPLICAS"):
		return rows([]string{"Server_id", "Host", "Port", "Source_Id", "Replica_UUID"}, nil)
	case p.accept("SLAVE", "STATUS"), p.accept("REPLICA", "STATUS"), p.accept("ALL", "SLAVES", "STATUS"):
		return rows([]string{"Source_Host"}, nil)
	case p.accept("WARNINGS"), p.accept("ERRORS"):
		return rows([]string{"Level", "Code", "Message"}, nil)
	case p.accept("DATABASES"), p.accept("SCHEMAS"):
		return c.virtual("information_schema", "schemata")
	case p.accept("COLLATION"):
		return c.virtual("information_schema", "collations")
	}
	return nil, unsupported("SHOW " + p.next())
}

func (c *conn) virtual(schema, table string) (*mysql.Result, error) {
	names, values, err := c.s.virtualTable(c, schema, table)
	if err != nil {
		return nil, err
	}
	return rows(names, values)
}

// showPairs filters name and value by LIKE or WHERE.
func (c *conn) showPairs(p *sqlParser, nameColumn string, pairs map[string]string) (*mysql.Result, error) {
	names := make([]string, 0, len(pairs))
	for n := range pairs {
		names = append(names, n)
	}
	sort.Strings(names)
	pattern := ""
	if p.accept("LIKE") {
		pattern = p.next()
	}
	where := p.accept("WHERE")
	at := p.pos
	var out [][]any
	for _, n := range names {
		if pattern != "" && !like(n, pattern) {
			continue
		}
		if where {
			p.pos = at
			row := map[string]any{strings.ToLower(nameColumn): n, "value": pairs[n]}
			v, err := (&evaluation{c: c, p: p, row: row}).expression()
			if err != nil {
				return nil, err
			}
			if !truth(v) {
				continue
			}
		}
		out = append(out, []any{n, pairs[n]})
	}
	return rows([]string{nameColumn, "Value"}, out)
}

func (c *conn) showGrants() (*mysql.Result, error) {
	user := "`" + c.s.cfg.User + "`@`%`"
	grants := c.s.cfg.Grants
	if grants == nil {
		slave := "REPLICATION CLIENT"
		if c.s.cfg.Flavor == MariaDB {
			slave = "BINLOG MONITOR"
		}
		grants = []string{"GRANT SELECT, REPLICATION SLAVE, " + slave + " ON *.* TO " + user}
	}
	var out [][]any
	for _, g := range grants {
		out = append(out, []any{g})
	}
	return rows([]string{"Grants for " + c.s.cfg.User + "@%"}, out)
}

func (s *Source) showStatus() (*mysql.Result, error) {
	if s.variables()["log_bin"] == "OFF" {
		return rows([]string{"File", "Position"}, nil)
	}
	file, pos := s.Position()
	if s.cfg.Flavor == MariaDB {
		return rows([]string{"File", "Position", "Binlog_Do_DB", "Binlog_Ignore_DB"}, [][]any{{file, pos, "", ""}})
	}
	gtids := ""
	if !s.cfg.NoGTID {
		gtids = s.GTIDs()
	}
	return rows([]string{"File", "Position", "Binlog_Do_DB", "Binlog_Ignore_DB", "Executed_Gtid_Set"}, [][]any{{file, pos, "", "", gtids}})
}

func (s *Source) showLogs() (*mysql.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out [][]any
	for _, f := range s.log.files {
		row := []any{f.name, f.size}
		if s.cfg.Flavor != MariaDB {
			row = append(row, "No")
		}
		out = append(out, row)
	}
	return rows([]string{"Log_name", "File_size", "Encrypted"}[:len(out[0])], out)
}

// atLeast compares the server's version.
func (s *Source) atLeast(major, minor int) bool {
	var a, b int
	fmt.Sscanf(s.cfg.Version, "%d.%d", &a, &b)
	return a > major || a == major && b >= minor
}

// like matches SQL's LIKE without regard to case.
func like(s, pattern string) bool {
	s, pattern = strings.ToLower(s), strings.ToLower(pattern)
	for len(pattern) > 0 {
		switch c := pattern[0]; {
		case c == '%':
			for i := 0; i <= len(s); i++ {
				if like(s[i:], pattern[1:]) {
					return true
				}
			}
			return false
		case c == '\\' && len(pattern) > 1:
			pattern = pattern[1:]
			if len(s) == 0 || s[0] != pattern[0] {
				return false
			}
		case len(s) == 0 || c != '_' && c != s[0]:
			return false
		}
		s, pattern = s[1:], pattern[1:]
	}
	return len(s) == 0
}
