package binlog

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"binrelay/relay"
)

// connectTimeout bounds dialling, and each answer until the dump begins.
const connectTimeout = 10 * time.Second

// conn is a connection to the server, logged in.
type conn struct {
	*client.Conn
	version string
	mariadb bool
}

// connect logs in. The connection dies with ctx.
func (s *Source) connect(ctx context.Context) (*conn, error) {
	password := ""
	if s.cfg.Password != nil {
		var err error
		if password, err = s.cfg.Password(); err != nil { // read anew each time: it may have been changed
			return nil, fmt.Errorf("password of %s: %w", s.cfg.User, err)
		}
	}
	cfg, err := s.tlsConfig()
	if err != nil {
		return nil, relay.Permanent(err, "")
	}
	cl, err := s.dial(ctx, password, cfg)
	if err != nil && cfg != nil && s.cfg.TLS == TLSPreferred && strings.Contains(err.Error(), "does not support TLS") {
		cl, err = s.dial(ctx, password, nil)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, s.loginError(err)
	}
	s.loggedIn.Store(true)
	c := &conn{Conn: cl, version: cl.GetServerVersion()}
	c.mariadb = strings.Contains(strings.ToLower(c.version), "mariadb")
	if v, ok := strings.CutPrefix(c.version, "5.5.5-"); ok && c.mariadb { // how MariaDB 10 hides from old replicas
		c.version = v
	}
	return c, nil
}

// dial makes one attempt. Closing the socket is all that it takes to end it, and whatever follows.
func (s *Source) dial(ctx context.Context, password string, cfg *tls.Config) (cl *client.Conn, err error) {
	defer func() {
		// The library dereferences nil when a server of caching_sha2_password sends no key.
		if r := recover(); r != nil {
			cl, err = nil, errors.New("the server's login answer is not understood (caching_sha2_password without a key?): use MYSQL_TLS=required")
		}
	}()
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := net.Dialer{Timeout: connectTimeout}
		nc, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		g := &guardedConn{Conn: nc}
		g.stop = context.AfterFunc(ctx, func() { nc.Close() })
		return g, nil
	}
	timeouts := func(c *client.Conn) error {
		c.ReadTimeout, c.WriteTimeout = connectTimeout, connectTimeout
		if cfg != nil {
			c.SetTLSConfig(cfg)
		}
		return nil
	}
	return client.ConnectWithDialer(ctx, "tcp", s.cfg.Addr, s.cfg.User, password, "", dial, timeouts)
}

// guardedConn is closed when its context ends.
type guardedConn struct {
	net.Conn
	stop func() bool
}

func (g *guardedConn) Close() error {
	g.stop()
	return g.Conn.Close()
}

// TLSMode is how much TLS is asked for, as MySQL's own clients name it.
type TLSMode string

const (
	TLSDisabled       TLSMode = "disabled"
	TLSPreferred      TLSMode = "preferred"       // if the server can; the certificate is not checked
	TLSRequired       TLSMode = "required"        // the certificate is not checked, unless a CA file is given
	TLSVerifyCA       TLSMode = "verify-ca"       // signed by the CA
	TLSVerifyIdentity TLSMode = "verify-identity" // and for this host
)

func (s *Source) tlsConfig() (*tls.Config, error) {
	c := &s.cfg
	mode := c.TLS
	switch mode {
	case TLSDisabled:
		return nil, nil
	case TLSPreferred, TLSRequired, TLSVerifyCA, TLSVerifyIdentity:
	default:
		return nil, fmt.Errorf("TLS mode %q is none of disabled, preferred, required, verify-ca, verify-identity", string(mode))
	}
	if mode == TLSRequired && c.TLSCAFile != "" {
		mode = TLSVerifyCA
	}
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		host = c.Addr
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if c.TLSCAFile != "" {
		pem, err := os.ReadFile(c.TLSCAFile)
		if err != nil {
			return nil, fmt.Errorf("TLS CA file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("TLS CA file %s has no certificate in it", c.TLSCAFile)
		}
	}
	if c.TLSCertFile != "" || c.TLSKeyFile != "" {
		pair, err := tls.LoadX509KeyPair(c.TLSCertFile, c.TLSKeyFile)
		if err != nil {
			return nil, fmt.Errorf("TLS client certificate: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	if mode != TLSVerifyIdentity {
		t.InsecureSkipVerify = true
	}
	if mode == TLSVerifyCA { // the chain, but not the name
		roots := t.RootCAs
		t.VerifyConnection = func(cs tls.ConnectionState) error {
			opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
			for _, cert := range cs.PeerCertificates[1:] {
				opts.Intermediates.AddCert(cert)
			}
			_, err := cs.PeerCertificates[0].Verify(opts)
			return err
		}
	}
	return t, nil
}

// query runs a statement and returns its rows as text; NULL is "".
func (c *conn) query(sql string) (rows [][]string, err error) {
	r, err := c.Execute(sql)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if r.Resultset == nil {
		return nil, nil
	}
	for i := range r.Values {
		row := make([]string, len(r.Values[i]))
		for k := range row {
			v, err := r.GetString(i, k)
			if err != nil {
				return nil, err
			}
			row[k] = strings.Clone(v) // it aliases the packet, which Close gives to the next result
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// exec runs a statement without rows.
func (c *conn) exec(sql string) error {
	_, err := c.Execute(sql)
	return err
}
