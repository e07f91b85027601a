package binlog

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"binrelay/relay"
)

// Config is what a Source needs to know.
type Config struct {
	Addr     string                 // host:port
	User     string                 //
	Password func() (string, error) // asked at each connect; nil: none

	TLS         TLSMode // "" is preferred
	TLSCAFile   string  // PEM; "" the system's
	TLSCertFile string  // PEM, of the client
	TLSKeyFile  string

	ServerID    uint32 // ours among the server's replicas; not 0, nobody else's
	ReplicaUUID string // stable; "" is made from ServerID

	Start  string  // where an empty log begins: now, earliest, a GTID set, file:offset
	Tables Matcher // what is read

	Heartbeat time.Duration // of a quiet server; 0 is 5 s. Three times of silence are a dead connection
	PartBytes int           // a transaction is cut into parts of about this size; 0 is 256 KiB
	ParkDir   string        // keeps prepared XA transactions; "": they halt
	Logger    *slog.Logger  // nil: silent
}

const (
	defaultHeartbeat = 5 * time.Second
	defaultPartBytes = 64 << 10 // not above relay's jobBytes: an entry is decoded in one job
)

// Source reads one server's binlog. It implements relay.Source; Stream must not run twice at a time.
type Source struct {
	cfg      Config
	stats    counters
	live     atomic.Pointer[livePosition]
	server   atomic.Pointer[serverFacts]
	oldest   atomic.Pointer[string] // oldest binlog file that the server has, for messages
	loggedIn atomic.Bool            // the password has worked once
	up       atomic.Bool            // a dump is running
	byFile   atomic.Bool            // MySQL: this position can be read by file and offset only
	warned   atomic.Bool
}

var _ relay.Source = (*Source)(nil)

// NewSource returns a Source. Nothing is connected before Stream or Preflight.
func NewSource(cfg Config) *Source {
	if cfg.Heartbeat <= 0 {
		cfg.Heartbeat = defaultHeartbeat
	}
	if cfg.PartBytes <= 0 {
		cfg.PartBytes = defaultPartBytes
	}
	if cfg.TLS == "" {
		cfg.TLS = TLSPreferred
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.ReplicaUUID == "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "binrelay replica %d", cfg.ServerID))
		cfg.ReplicaUUID = string(appendSID(nil, (*[16]byte)(sum[:16])))
	}
	return &Source{cfg: cfg}
}

// Stream implements relay.Source.
func (s *Source) Stream(ctx context.Context, pos []byte, emit func(relay.Part) error) error {
	if s.cfg.ServerID == 0 {
		return relay.Permanent(errors.New("server id 0 is no replica's"), "set MYSQL_SERVER_ID")
	}
	err := s.stream(ctx, pos, emit, asFits)
	if errors.Is(err, errFilesPassed) {
		err = s.stream(ctx, pos, emit, byFile)
		if errors.Is(err, errPlaceGone) {
			s.cfg.Logger.Warn("source: files between the saved position and where the server goes on are gone; any transactions without a GTID in them are lost")
			err = s.stream(ctx, pos, emit, byGTID)
		}
	}
	return err
}

// method is how to ask for the log.
type method byte

const (
	asFits method = iota // as the server's settings allow, see resume
	byFile
	byGTID
)

var (
	// errFilesPassed: asked for a GTID set, the server began in a later file than we had reached. All
	// transactions with GTIDs in between are ours already, but it also passes over those without
	// one, if gtid_mode was off for a while. Read by file and offset, they are all there.
	errFilesPassed = errors.New("the server passes over binlog files")
	errPlaceGone   = errors.New("the server's binlog does not have this place")
)

// stream makes one connection and reads until it ends.
func (s *Source) stream(ctx context.Context, pos []byte, emit func(relay.Part) error, how method) error {
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	s.stats.connects.Add(1)
	facts, err := s.inspect(c)
	if err != nil {
		return s.ended(ctx, err)
	}
	s.server.Store(facts)
	if err := s.refuse(facts); err != nil {
		return err
	}

	p, err := s.begin(c, facts, pos)
	if err != nil {
		return s.ended(ctx, err)
	}
	if pos == nil {
		// The start is durable before the first row: a crash must not choose another one.
		s.cfg.Logger.Info("reading begins", "start", s.cfg.Start, "position", p.String())
		if err := emit(relay.Part{Pos: newLivePosition(p).bytes(), First: true, Urgent: true}); err != nil {
			return err
		}
	}
	r, err := s.resume(c, facts, &p, how)
	if err != nil {
		return s.ended(ctx, err)
	}

	tables := s.cfg.Tables.folded(facts.lowerCase != 0)
	a := newAssembler(&tables, p, s.cfg.PartBytes, emit)
	a.stats = &s.stats
	a.skipTo, a.end, a.notBehind = r.skipTo, r.from, r.notBehind
	if s.cfg.ParkDir != "" {
		a.park = &parking{dir: s.cfg.ParkDir}
		defer a.park.abort()
	}
	if facts.mariadb {
		h := &columnTypes{source: s, ctx: ctx}
		defer h.close()
		a.hints = h
	}
	s.live.Store(a.live)
	s.up.Store(true)
	defer s.up.Store(false)
	return s.ended(ctx, s.dump(ctx, c, &p, r, a.event))
}

// ended prefers the reason that the context gives: closing the socket is how it ends the stream.
func (s *Source) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e := serverError(err); e != nil && !relay.IsPermanent(err) {
		return errText(e)
	}
	return err
}

// begin decodes the saved position, or resolves the configured start.
func (s *Source) begin(c *conn, f *serverFacts, pos []byte) (p position, err error) {
	if pos == nil {
		start, err := ParseStart(s.cfg.Start)
		if err != nil {
			return p, relay.Permanent(err, "MYSQL_START")
		}
		return s.resolve(c, f, start)
	}
	if p, err = parsePosition(pos); err != nil {
		return p, relay.Permanent(err, "the log was written by another version, or is damaged")
	}
	if p.MariaDB != f.mariadb {
		return p, relay.Permanent(fmt.Errorf("the log was read from %s, the server is %s", flavorName(p.MariaDB), flavorName(f.mariadb)), historyHint)
	}
	return p, nil
}

// resolve finds where a new log begins.
func (s *Source) resolve(c *conn, f *serverFacts, start Start) (p position, err error) {
	p = position{MariaDB: f.mariadb, Server: f.uuid}
	switch start.kind {
	case startNow:
		err = s.resolveNow(c, &p)
	case startEarliest:
		err = s.resolveEarliest(c, f, &p)
	case startGTID:
		if start.maria != f.mariadb {
			return p, relay.Permanent(fmt.Errorf("MYSQL_START=%s is a GTID set of %s, the server is %s", clip(start.gtids), flavorName(start.maria), flavorName(f.mariadb)), "")
		}
		if !f.mariadb && !f.gtidOn {
			return p, relay.Permanent(fmt.Errorf("MYSQL_START=%s is a GTID set, but gtid_mode is %s on the server", clip(start.gtids), f.gtidMode), "begin with now, earliest or file:offset")
		}
		p.SetKnown = true
		if p.MariaDB {
			p.maria, err = parseMariaSet(start.gtids)
		} else {
			p.mysql, err = parseMySQLSet(start.gtids)
		}
	case startFile:
		p.File, p.Pos = start.File, start.Pos
		if f.mariadb {
			p.SetKnown = true
			p.maria, err = s.mariaStateAt(c, p.File, p.Pos)
		}
	}
	return p, err
}

// resolveNow takes the end of the server's log.
func (s *Source) resolveNow(c *conn, p *position) error {
	rows, err := c.query("SHOW MASTER STATUS")
	if e := serverError(err); e != nil && e.Code == erSyntax { // MySQL 8.4 dropped it
		rows, err = c.query("SHOW BINARY LOG STATUS")
	}
	if e := serverError(err); e != nil && (e.Code == erNoPrivilege || e.Code == erAccessDenied) {
		return relay.Permanent(fmt.Errorf("find the end of the binlog: %w", errText(e)), grantHint)
	}
	if err != nil {
		return fmt.Errorf("find the end of the binlog: %w", plain(err))
	}
	if len(rows) == 0 || len(rows[0]) < 2 {
		return relay.Permanent(errors.New("the server writes no binlog (SHOW MASTER STATUS is empty)"), "start it with log_bin")
	}
	p.File = rows[0][0]
	if _, err := fmt.Sscan(rows[0][1], &p.Pos); err != nil {
		return fmt.Errorf("find the end of the binlog: offset %q", clip(rows[0][1]))
	}
	p.SetKnown = true
	if p.MariaDB {
		rows, err = c.query("SELECT @@GLOBAL.gtid_binlog_pos")
		if err != nil {
			return fmt.Errorf("read gtid_binlog_pos: %w", plain(err))
		}
		p.maria, err = parseMariaSet(cell(rows))
		return err
	}
	if len(rows[0]) < 5 {
		p.SetKnown = false
		return nil
	}
	p.mysql, err = parseMySQLSet(rows[0][4])
	return err
}

// resolveEarliest takes the beginning of the oldest file that the server still has.
func (s *Source) resolveEarliest(c *conn, f *serverFacts, p *position) error {
	rows, err := c.query("SHOW BINARY LOGS")
	if e := serverError(err); e != nil && (e.Code == erNoPrivilege || e.Code == erAccessDenied) {
		return relay.Permanent(fmt.Errorf("list the binlog files: %w", errText(e)), grantHint)
	}
	if err != nil {
		return fmt.Errorf("list the binlog files: %w", plain(err))
	}
	if len(rows) == 0 {
		return relay.Permanent(errors.New("the server has no binlog files"), "start it with log_bin")
	}
	p.File, p.Pos = rows[0][0], 4
	if f.mariadb {
		p.SetKnown = true
		p.maria, err = s.mariaStateAt(c, p.File, 4)
		return err
	}
	if f.gtidOn {
		p.SetKnown = true
		p.mysql, err = parseMySQLSet(f.purged)
	}
	return err // without: the file's first event says which set it begins with
}

// mariaStateAt asks which GTID position a place in the binlog has.
func (s *Source) mariaStateAt(c *conn, file string, pos uint64) (m mariaSet, err error) {
	rows, err := c.query(fmt.Sprintf("SELECT BINLOG_GTID_POS('%s',%d), BINLOG_GTID_POS('%s',%d) IS NULL", strings.ReplaceAll(file, "'", "''"), pos, strings.ReplaceAll(file, "'", "''"), pos))
	if err != nil {
		return m, fmt.Errorf("find the GTID position of %s:%d: %w", file, pos, plain(err))
	}
	if len(rows) == 0 || len(rows[0]) < 2 || rows[0][1] == "1" {
		return m, relay.Permanent(fmt.Errorf("the server has no place %s:%d in its binlog", file, pos), "check MYSQL_START against SHOW BINARY LOGS")
	}
	return parseMariaSet(rows[0][0])
}

func cell(rows [][]string) string {
	if len(rows) == 0 || len(rows[0]) == 0 {
		return ""
	}
	return rows[0][0]
}

// resumption is how to go on from a position.
type resumption struct {
	byGTID    bool
	from      uint64 // offset to ask for
	skipTo    uint64 // events before it only complete the GTID set
	notBehind string // a file that the server must not begin behind; "": any will do
}

// resume decides how to go on from p: by GTID set, or by file and offset.
func (s *Source) resume(c *conn, f *serverFacts, p *position, how method) (r resumption, err error) {
	if p.MariaDB {
		return resumption{byGTID: true, from: 4}, nil
	}
	passed := s.byFile.Swap(false)
	if f.gtidOn && p.SetKnown {
		if err := compareSets(f, p); err != nil {
			return r, err
		}
		if !passed && how != byFile {
			r = resumption{byGTID: true, from: 4}
			if p.Server == f.uuid && how == asFits {
				r.notBehind = p.File
			}
			p.Server = f.uuid
			return r, nil
		}
	}
	if p.Server != f.uuid {
		return r, relay.Permanent(fmt.Errorf("position %s was read from server %s, this is server %s: file and offset mean nothing here", p, appendSID(nil, &p.Server), appendSID(nil, &f.uuid)),
			"connect to the server it was read from, or use gtid_mode=ON on both; "+historyHint)
	}
	s.noteOldest(c)
	r.from, r.skipTo = fileStart(p)
	return r, nil
}

// fileStart is the offset to ask for, and the one up to which events only count: the set is known at the
// beginning of a file only, and offsets are asked for in 32 bits.
func fileStart(p *position) (from, skipTo uint64) {
	if !p.SetKnown && p.Pos > 4 || p.Pos > 1<<32-1 {
		return 4, p.Pos
	}
	return p.Pos, 0
}

// compareSets finds out before the dump what the server would refuse it for, and names it.
func compareSets(f *serverFacts, p *position) error {
	purged, err := parseMySQLSet(f.purged)
	if err != nil {
		return err
	}
	if missing := purged.minus(&p.mysql); !missing.empty() {
		return relay.Permanent(fmt.Errorf("the server has purged transactions that were not read yet: %s (position %s)", clipLong(missing.String()), p), purgedHint)
	}
	executed, err := parseMySQLSet(f.executed)
	if err != nil {
		return err
	}
	if extra := p.mysql.minus(&executed); !extra.empty() {
		return relay.Permanent(fmt.Errorf("the server lacks transactions that were read already: %s; its history is another one (binlog reset, restored, or a replica that was behind was promoted)", clipLong(extra.String())), historyHint)
	}
	return nil
}

func (s *Source) noteOldest(c *conn) {
	if rows, err := c.query("SHOW BINARY LOGS"); err == nil {
		if name := cell(rows); name != "" {
			s.oldest.Store(&name)
		}
	}
}

// noteOldestGTID finds out, over a new connection, behind which GTIDs the oldest file of a MariaDB server begins.
func (s *Source) noteOldestGTID(ctx context.Context) {
	c, err := s.connect(ctx)
	if err != nil {
		return
	}
	defer c.Close()
	rows, err := c.query("SHOW BINARY LOGS")
	if err != nil || cell(rows) == "" {
		return
	}
	name := cell(rows)
	if m, err := s.mariaStateAt(c, name, 4); err == nil {
		name += ", which begins behind " + m.String()
	}
	s.oldest.Store(&name)
}

func (s *Source) oldestNote() string {
	if p := s.oldest.Load(); p != nil {
		return "; the oldest it has is " + *p
	}
	return ""
}

// Status implements relay.Source.
func (s *Source) Status() relay.SourceStatus {
	st := relay.SourceStatus{
		Connected: s.up.Load(), Events: s.stats.events.Load(), Transactions: s.stats.transactions.Load(),
		Bytes: s.stats.bytes.Load(), Connects: s.stats.connects.Load(),
	}
	if f := s.server.Load(); f != nil {
		st.Flavor, st.Version, st.ServerID = flavorName(f.mariadb), f.version, f.serverID
	}
	if l := s.live.Load(); l != nil {
		st.File, st.Pos, st.GTID = l.snapshot()
	}
	st.LagSeconds = s.lag(time.Now())
	return st
}

// endOfLog is how long the reader must have been waiting for the server to be at the end of its log: a
// read that finds bytes returns in microseconds.
const endOfLog = 50 * time.Millisecond

func (s *Source) lag(now time.Time) float64 {
	if w := s.stats.waiting.Load(); w != 0 && now.UnixNano()-w > int64(endOfLog) {
		return 0
	}
	commit := s.stats.commit.Load()
	if commit == 0 {
		return 0
	}
	return max(0, now.Sub(time.UnixMicro(commit)).Seconds()) // clocks differ, and sessions set their own
}

func flavorName(mariadb bool) string {
	if mariadb {
		return "mariadb"
	}
	return "mysql"
}
