package relaytest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/server"
)

// SourceConfig says what server a Source plays. The zero value is a MySQL 8.4 with GTIDs.
type SourceConfig struct {
	Flavor   Flavor
	Version  string      // "" means 8.4.6 or 10.11.19-MariaDB-log
	Listen   string      // "" means a free port of 127.0.0.1
	User     string      // "" means "relay"
	Password string      // "" means "secret"
	TLS      *tls.Config // nil: the server has no TLS
	// Auth is the authentication plugin: "" means mysql_native_password, which MySQL's own clients since
	// 9.0 do not know; caching_sha2_password is theirs, and costs an RSA key.
	Auth       string
	ServerID   uint32 // 0 means 1
	UUID       string // MySQL's server_uuid; "" means a fixed one
	Domain     uint32 // MariaDB's gtid_domain_id
	NoGTID     bool   // gtid_mode=OFF (MySQL only)
	NoChecksum bool   // binlog_checksum=NONE
	// Variables replaces what SELECT @@name and SHOW VARIABLES answer, by lower-case name. A name mapped
	// to "<none>" does not exist on this server.
	Variables map[string]string
	Grants    []string         // what SHOW GRANTS answers; nil means REPLICATION SLAVE, REPLICATION CLIENT and SELECT on *.*
	FileBytes int64            // a file is rotated when it holds as much; 0 means 4 MiB
	KeepBytes int64            // memory for the whole log, older files are purged; 0 means 64 MiB
	Clock     func() time.Time // commit times; nil means time.Now
}

// Source is an embedded MySQL or MariaDB server that has nothing but a binlog: it speaks the real client
// protocol (handshake, authentication, TLS, the queries that replication clients send, binlog dump by
// position and by GTID) and is written to from Go. All methods are safe for concurrent use.
type Source struct {
	cfg    SourceConfig
	addr   string
	wg     sync.WaitGroup
	faults faults

	mu       sync.Mutex
	listener net.Listener // nil: down
	closed   bool
	server   *server.Server
	conns    map[*conn]bool
	log      eventLog
	build    Builder
	executed gtidSet
	next     uint64 // sequence number of the next GTID
	xid      uint64
	sequence int64 // MySQL's logical clock in this file
	uuid     [16]byte
	tables   map[string]*Table
	vars     map[string]string
	queries  []string
	onQuery  func(string) (*mysql.Result, error)

	dumps atomic.Int64
}

// maxQueries bounds what Queries remembers.
const maxQueries = 1000

// StartSource starts a server; Close ends it.
func StartSource(cfg SourceConfig) (*Source, error) {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def((*string)(&cfg.Flavor), string(MySQL))
	def(&cfg.Version, defaultVersion(cfg.Flavor))
	def(&cfg.Listen, "127.0.0.1:0")
	def(&cfg.User, "relay")
	def(&cfg.Password, "secret")
	def(&cfg.Auth, mysql.AUTH_NATIVE_PASSWORD)
	def(&cfg.UUID, "5ca1ab1e-0000-4000-8000-000000000001")
	if cfg.ServerID == 0 {
		cfg.ServerID = 1
	}
	if cfg.FileBytes <= 0 {
		cfg.FileBytes = 4 << 20
	}
	if cfg.KeepBytes <= 0 {
		cfg.KeepBytes = 64 << 20
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	u, err := parseUUID(cfg.UUID)
	if err != nil {
		return nil, fmt.Errorf("relaytest: source: UUID: %w", err)
	}
	s := &Source{cfg: cfg, uuid: u, next: 1, conns: map[*conn]bool{}, tables: map[string]*Table{}, addr: cfg.Listen}
	s.build = Builder{Flavor: cfg.Flavor, Version: cfg.Version, ServerID: cfg.ServerID, Checksum: !cfg.NoChecksum}
	s.vars = defaultVariables(&s.cfg)
	maps.Copy(s.vars, cfg.Variables)
	s.executed = (&gtidSet{}).clone()
	s.log.purged = s.executed.clone()
	var key *rsa.PrivateKey
	switch cfg.Auth {
	case mysql.AUTH_NATIVE_PASSWORD:
	case mysql.AUTH_CACHING_SHA2_PASSWORD:
		if key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			return nil, fmt.Errorf("relaytest: source: %w", err)
		}
	default:
		return nil, fmt.Errorf("relaytest: source: authentication plugin %q is not known here", cfg.Auth)
	}
	s.server = server.NewServer(handshakeVersion(cfg.Version), mysql.DEFAULT_COLLATION_ID, cfg.Auth, key, cfg.TLS)
	s.mu.Lock()
	s.openFile()
	s.mu.Unlock()
	if err := s.Restart(); err != nil {
		return nil, err
	}
	return s, nil
}

// handshakeVersion is the version as it is said in the handshake: MariaDB before 11 hides behind 5.5.5.
func handshakeVersion(v string) string {
	if strings.Contains(v, "MariaDB") && strings.HasPrefix(v, "10.") {
		return "5.5.5-" + v
	}
	return v
}

// Addr is the server's host:port; it stays the same over Stop and Restart.
func (s *Source) Addr() string { return s.addr }

// URL is the server's address with user and password, as MYSQL_URL takes it.
func (s *Source) URL() string {
	u := url.URL{Scheme: string(s.cfg.Flavor), User: url.UserPassword(s.cfg.User, s.cfg.Password), Host: s.addr}
	return u.String()
}

// Close ends the server and all its connections, and waits for its goroutines.
func (s *Source) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Stop()
	s.wg.Wait()
	return nil
}

// Stop closes the listener and every connection, as a server that went down: connecting is refused until
// Restart. The log stays.
func (s *Source) Stop() {
	s.mu.Lock()
	if s.listener != nil {
		s.listener.Close()
		s.listener = nil
	}
	s.mu.Unlock()
	s.KillAll()
}

// Restart listens again at the same address.
func (s *Source) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return nil
	}
	if s.closed {
		return errors.New("relaytest: source is closed")
	}
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		return fmt.Errorf("relaytest: source: %w", err)
	}
	s.addr = l.Addr().String()
	s.listener = l
	s.wg.Go(func() { s.accept(l) })
	return nil
}

func (s *Source) accept(l net.Listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		c := newConn(s, nc)
		s.mu.Lock()
		live := s.listener == l
		if live {
			s.conns[c] = true
		}
		s.mu.Unlock()
		if !live {
			nc.Close()
			return
		}
		s.wg.Go(func() {
			c.serve()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

// Rotate ends the current binlog file and begins the next, as FLUSH BINARY LOGS does.
func (s *Source) Rotate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rotate(nil)
}

// Purge drops all but the newest keep files, as PURGE BINARY LOGS does.
func (s *Source) Purge(keep int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.drop(len(s.log.files) - max(1, keep))
}

// Files lists the binlog files, oldest first.
func (s *Source) Files() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.log.files {
		names = append(names, f.name)
	}
	return names
}

// Position is the end of the log.
func (s *Source) Position() (file string, pos uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.current().name, uint64(s.build.Pos)
}

// GTIDs is the set of executed transactions: gtid_executed or gtid_binlog_pos.
func (s *Source) GTIDs() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.executed.String()
}

// SetVariable changes what SELECT @@name answers; "<none>" removes it. binlog_row_metadata and
// binlog_row_event_max_size work on the transactions that follow.
func (s *Source) SetVariable(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vars[strings.ToLower(name)] = value
}

// Failover makes another server of it, behind the same address: server id and UUID change, all
// connections drop, a new file begins; the executed set stays.
func (s *Source) Failover(serverID uint32, uuid string) error {
	u, err := parseUUID(uuid)
	if err != nil {
		return fmt.Errorf("relaytest: failover: %w", err)
	}
	s.mu.Lock()
	s.rotate(func() { s.uuid, s.build.ServerID = u, serverID })
	if s.cfg.Flavor != MariaDB { // numbers of the new server's own
		s.next = 1
		for _, in := range s.executed.mysql[u] {
			s.next = in.last + 1
		}
	}
	s.vars["server_id"] = strconv.Itoa(int(serverID))
	s.vars["server_uuid"] = uuidText(u)
	s.mu.Unlock()
	s.KillAll()
	return nil
}

// SetChecksum switches the events' CRC32 from the next file on, which begins at once.
func (s *Source) SetChecksum(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rotate(func() {
		s.build.Checksum = on
		s.vars["binlog_checksum"] = map[bool]string{true: "CRC32", false: "NONE"}[on]
	})
}
