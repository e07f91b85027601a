package services

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
)

// Accounts that every database instance has.
const (
	RelayUser     = "relay" // SELECT, RELOAD, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT
	RelayPassword = "relay"
	AppUser       = "app" // everything
	AppPassword   = "app"
)

// DB is one private MySQL or MariaDB server.
type DB struct {
	Name   string
	Kind   string // as given: "mariadb", "mysql", "mariadb10.5", …
	Flavor string // "mysql" or "mariadb"
	Addr   string // host:port
	Dir    string // binlogs are in it, under data
	port   int
}

// StartDatabase starts a server of the kind with further mysqld flags and waits until it answers. Wipe ends it.
func StartDatabase(ctx context.Context, kind string, flags ...string) (*DB, error) {
	reap(ctx, srcdbScript)
	port, err := FreePorts(1)
	if err != nil {
		return nil, err
	}
	d := &DB{Name: instanceName(kind), Kind: kind, port: port, Addr: "127.0.0.1:" + strconv.Itoa(port)}
	args := []string{"up", d.Name, kind, strconv.Itoa(port)}
	if len(flags) > 0 {
		args = append(append(args, "--"), flags...)
	}
	if _, err := run(ctx, srcdbScript, nil, args...); err != nil {
		d.Wipe()
		return nil, err
	}
	out, err := run(ctx, srcdbScript, nil, "env", d.Name)
	if err != nil {
		d.Wipe()
		return nil, err
	}
	v := vars(out)
	d.Flavor, d.Dir = v["SRCDB_FLAVOR"], filepath.Dir(v["SRCDB_BINLOG_DIR"])
	return d, nil
}

// Start starts it again after Stop or Kill, with the same flags, port and data.
func (d *DB) Start(ctx context.Context) error {
	_, err := run(ctx, srcdbScript, nil, "up", d.Name, d.Kind, strconv.Itoa(d.port))
	return err
}

// Stop ends it cleanly and waits for it.
func (d *DB) Stop(ctx context.Context) error {
	_, err := run(ctx, srcdbScript, nil, "down", d.Name)
	return err
}

// Kill ends it with SIGKILL.
func (d *DB) Kill(ctx context.Context) error {
	_, err := run(ctx, srcdbScript, nil, "kill", d.Name)
	return err
}

// Wipe kills it and deletes its data.
func (d *DB) Wipe() error {
	_, err := run(context.Background(), srcdbScript, nil, "wipe", d.Name)
	return err
}

// URL is what MYSQL_URL takes, for the account that the relay should have.
func (d *DB) URL() string { return d.URLAs(RelayUser, RelayPassword) }

// URLAs is URL for another account.
func (d *DB) URLAs(user, password string) string {
	return d.Flavor + "://" + user + ":" + password + "@" + d.Addr
}

// Connect opens a session of the account that may do everything; database may be "".
func (d *DB) Connect(database string) (*client.Conn, error) {
	c, err := client.Connect(d.Addr, AppUser, AppPassword, database)
	if err != nil {
		return nil, fmt.Errorf("%s at %s: %w", d.Name, d.Addr, err)
	}
	return c, nil
}

// Exec runs statements in one new session.
func (d *DB) Exec(statements ...string) error {
	c, err := d.Connect("")
	if err != nil {
		return err
	}
	defer c.Close()
	for _, s := range statements {
		if _, err := c.Execute(s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// Value runs a query and returns the first column of its first row as text, "" when there is no row.
func (d *DB) Value(query string) (string, error) {
	c, err := d.Connect("")
	if err != nil {
		return "", err
	}
	defer c.Close()
	r, err := c.Execute(query)
	if err != nil {
		return "", fmt.Errorf("%s: %w", query, err)
	}
	if r.RowNumber() == 0 {
		return "", nil
	}
	v, err := r.GetString(0, 0)
	return strings.Clone(v), err // it points into the connection's buffer
}

// GTIDs is the set of transactions in the binlog so far, without blanks.
func (d *DB) GTIDs() (string, error) {
	q := "SELECT @@GLOBAL.gtid_executed"
	if d.Flavor == mysql.MariaDBFlavor {
		q = "SELECT @@GLOBAL.gtid_binlog_pos"
	}
	s, err := d.Value(q)
	return strings.Join(strings.Fields(s), ""), err
}

// PurgeBinlogs starts a new binlog file and removes all files before it. A server leaves a file that a replica
// still reads, and says so in a warning only: the connection of a relay that was killed lives on until the
// server writes to it. So the purge is repeated until it is done.
func (d *DB) PurgeBinlogs(ctx context.Context) error {
	c, err := d.Connect("")
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Execute("FLUSH BINARY LOGS"); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for {
		r, err := c.Execute("SHOW BINARY LOGS")
		if err != nil {
			return err
		}
		if r.RowNumber() == 1 {
			return nil
		}
		last, err := r.GetString(r.RowNumber()-1, 0)
		if err != nil {
			return err
		}
		last = strings.Clone(last) // it points into the connection's buffer
		if _, err = c.Execute("PURGE BINARY LOGS TO '" + last + "'"); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d binlog files are left after a minute of PURGE BINARY LOGS TO %s", r.RowNumber(), last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
