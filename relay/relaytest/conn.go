package relaytest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/server"
)

// conn is one client connection. It is the net.Conn that go-mysql's server writes to, so that the faults
// reach handshake and queries too.
type conn struct {
	net.Conn
	s    *Source
	id   uint32
	done chan struct{} // closed by Close
	once sync.Once
	mc   *server.Conn
	vars map[string]string // user variables, by lower-case name with @

	kicked   chan struct{} // closed by kick
	kickOnce sync.Once
	kickErr  error
	dumping  string // replica uuid or server id of a running dump; guarded by Source.mu
}

func newConn(s *Source, nc net.Conn) *conn {
	return &conn{Conn: nc, s: s, done: make(chan struct{}), kicked: make(chan struct{}), vars: map[string]string{}}
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}

// kick ends a running dump with an error packet.
func (c *conn) kick(err error) {
	c.kickOnce.Do(func() {
		c.kickErr = err
		close(c.kicked)
	})
}

// Write passes the faults: freeze, pace, cut.
func (c *conn) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		if !c.s.faults.gate(c.done) {
			return n, net.ErrClosed
		}
		k := len(b)
		if rate := c.s.faults.rate.Load(); rate > 0 { // small steps, so that a slow stream flows
			k = min(k, max(1, int(rate/20)))
		}
		if !c.s.faults.pace(k, c.done) {
			return n, net.ErrClosed
		}
		w, err := c.Conn.Write(b[:k])
		n += w
		if err != nil {
			return n, err
		}
		b = b[k:]
	}
	return n, nil
}

// credentials is the one account of a Source, for go-mysql's server.
type credentials struct{ s *Source }

func (a credentials) GetCredential(user string) (server.Credential, bool, error) {
	a.s.faults.mu.Lock()
	err := a.s.faults.logins.take()
	a.s.faults.mu.Unlock()
	if err != nil {
		return server.Credential{}, false, err
	}
	if user != a.s.cfg.User {
		return server.Credential{}, true, fmt.Errorf("%w: %s", server.ErrAccessDenied, user)
	}
	return server.Credential{Passwords: []string{a.s.cfg.Password}, AuthPluginName: a.s.cfg.Auth}, true, nil
}

func (credentials) OnAuthSuccess(*server.Conn) error  { return nil }
func (credentials) OnAuthFailure(*server.Conn, error) {}

// serve runs the connection: handshake, then commands until it ends.
func (c *conn) serve() {
	defer c.Close()
	mc, err := c.s.server.NewCustomizedConn(c, credentials{c.s}, handler{server.EmptyHandler{}})
	if err != nil {
		return
	}
	c.mc = mc
	c.s.mu.Lock()
	c.id = mc.ConnectionID()
	c.s.mu.Unlock()
	for {
		data, err := mc.ReadPacket()
		if err != nil || len(data) == 0 || data[0] == mysql.COM_QUIT {
			return
		}
		v, err := c.command(data[0], data[1:])
		if err != nil {
			v = err
		}
		if errors.Is(err, errDumpOver) || mc.WriteValue(v) != nil {
			return
		}
		mc.ResetSequence()
	}
}

// handler satisfies go-mysql's server, which we use for the handshake only: it parses dump commands
// without their flags, so that commands are read here.
type handler struct{ server.EmptyHandler }

func (handler) UseDB(string) error { return nil }

// command answers one command: nil is OK, a *mysql.Result rows, an error an error packet.
func (c *conn) command(cmd byte, data []byte) (any, error) {
	switch cmd {
	case mysql.COM_PING, mysql.COM_INIT_DB, mysql.COM_REGISTER_SLAVE:
		return nil, nil
	case mysql.COM_QUERY:
		r, err := c.query(string(data))
		if r == nil {
			return nil, err
		}
		return r, err
	case mysql.COM_BINLOG_DUMP:
		if len(data) < 10 {
			return nil, mysql.ErrMalformPacket
		}
		d := dump{c: c, flags: binary.LittleEndian.Uint16(data[4:]), serverID: binary.LittleEndian.Uint32(data[6:])}
		d.pos, d.file = binary.LittleEndian.Uint32(data), string(data[10:])
		if state, ok := c.vars["@slave_connect_state"]; ok && c.s.cfg.Flavor == MariaDB && d.file == "" {
			set, err := parseGTIDSet(state, true)
			if err != nil {
				return nil, mysql.NewError(1236, "Could not parse slave_connect_state: "+err.Error())
			}
			d.set = &set
		}
		return nil, d.run()
	case mysql.COM_BINLOG_DUMP_GTID:
		d := dump{c: c}
		if err := d.parseGTID(data); err != nil {
			return nil, err
		}
		return nil, d.run()
	}
	return nil, mysql.NewError(1047, fmt.Sprintf("relaytest: command %d is not known here", cmd))
}

// parseGTID reads COM_BINLOG_DUMP_GTID: flags, server id, file, position, set.
func (d *dump) parseGTID(b []byte) error {
	if len(b) < 10 {
		return mysql.ErrMalformPacket
	}
	d.flags, d.serverID = binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint32(b[2:])
	name := uint64(binary.LittleEndian.Uint32(b[6:]))
	b = b[10:]
	if uint64(len(b)) < name+12 {
		return mysql.ErrMalformPacket
	}
	b = b[name+8:]
	size := binary.LittleEndian.Uint32(b)
	if b = b[4:]; uint64(len(b)) < uint64(size) {
		return mysql.ErrMalformPacket
	}
	set, err := mysql.DecodeMysqlGTIDSet(b[:size])
	if err != nil {
		return mysql.NewError(1236, "Malformed GTID set: "+err.Error())
	}
	ours, err := parseGTIDSet(set.String(), false)
	if err != nil {
		return mysql.NewError(1236, err.Error())
	}
	d.set = &ours
	return nil
}

// userVariable is a user variable's text, by any of the names that servers accept for it.
func (c *conn) userVariable(names ...string) string {
	for _, n := range names {
		if v, ok := c.vars[n]; ok {
			return v
		}
	}
	return ""
}

func (c *conn) heartbeat() time.Duration {
	var ns int64
	fmt.Sscan(strings.TrimSpace(c.userVariable("@source_heartbeat_period", "@master_heartbeat_period")), &ns)
	return time.Duration(ns)
}
