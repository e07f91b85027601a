package binlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"binrelay/relay"
)

// Error numbers of the servers that we tell apart.
const (
	erAccessDenied     = 1045
	erDBAccessDenied   = 1044
	erSyntax           = 1064
	erHostNotAllowed   = 1130
	erNoPrivilege      = 1227
	erFatalBinlog      = 1236
	erAccessDeniedNoPw = 1698
	erAccountLocked    = 3118
	erMustChangePw     = 1820
	erPwExpired        = 1862
	erMariaSameSlave   = 4052 // MariaDB: another replica with our server id has connected
)

// serverError finds the error packet in err; nil where there is none. The library wraps errors in a way
// that errors.As does not always see through.
func serverError(err error) *mysql.MyError {
	for err != nil {
		var e *mysql.MyError
		if errors.As(err, &e) {
			return e
		}
		c, ok := err.(interface{ Cause() error })
		if !ok {
			return nil
		}
		next := c.Cause()
		if next == err {
			return nil
		}
		err = next
	}
	return nil
}

// loginError sorts an error of connecting: what is wrong at start exits at once, but a password that
// worked before is being changed.
func (s *Source) loginError(err error) error {
	e := serverError(err)
	if e == nil {
		return fmt.Errorf("connect to %s: %w", s.cfg.Addr, plain(err))
	}
	hint := ""
	switch e.Code {
	case erAccessDenied, erAccessDeniedNoPw:
		hint = "check MYSQL_URL and MYSQL_PASSWORD, and from which hosts the account may log in"
	case erHostNotAllowed, erDBAccessDenied:
		hint = "the account may not log in from this host: CREATE USER … @'%'"
	case erAccountLocked:
		hint = "ALTER USER … ACCOUNT UNLOCK"
	case erMustChangePw, erPwExpired:
		hint = "the password has expired: ALTER USER … IDENTIFIED BY …"
	default:
		return fmt.Errorf("connect to %s: %w", s.cfg.Addr, errText(e))
	}
	out := fmt.Errorf("login of user %s at %s failed: %w", s.cfg.User, s.cfg.Addr, errText(e))
	if s.loggedIn.Load() {
		return out
	}
	return relay.Permanent(out, hint)
}

// errText is a server's message without the library's stack and wrapping.
func errText(e *mysql.MyError) error {
	return fmt.Errorf("server error %d: %s", e.Code, clipLong(e.Message))
}

// plain gives the text of a library error, which would print its stack with %+v and more than wanted
// with %v, and keeps what callers ask for.
func plain(err error) error {
	if e := serverError(err); e != nil {
		return errText(e)
	}
	var ne net.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &ne) && ne.Timeout(), errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("no answer in time")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the server closed the connection")
	case errors.Is(err, net.ErrClosed):
		return errors.New("the connection was closed")
	}
	return errors.New(clipLong(err.Error()))
}

func clipLong(s string) string {
	if len(s) > 600 {
		return s[:600] + "…"
	}
	return s
}

// dumpError sorts an error packet that ended a dump, or refused it. The number says little: 1236 is
// purged logs, a second replica with our id and a damaged file alike; the text decides.
func (s *Source) dumpError(e *mysql.MyError, p *position) error {
	text := strings.ToLower(e.Message)
	has := func(parts ...string) bool {
		for _, x := range parts {
			if strings.Contains(text, x) {
				return true
			}
		}
		return false
	}
	err := fmt.Errorf("reading the binlog from %s: %w", p, errText(e))
	switch {
	case e.Code == erMariaSameSlave, has("same server_uuid/server_id", "same server_id", "same server id"):
		return fmt.Errorf("another replica with server id %d has connected to the server, which ended our connection: give each its own MYSQL_SERVER_ID: %w", s.cfg.ServerID, errText(e))
	case e.Code == erAccessDenied, e.Code == erNoPrivilege:
		return relay.Permanent(err, "the account needs REPLICATION SLAVE: GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO …")
	case e.Code != erFatalBinlog:
		return err
	case has("purged", "could not find gtid state"):
		return relay.Permanent(fmt.Errorf("the server has purged binary logs that hold transactions after %s%s: %w", p, s.oldestNote(), errText(e)), purgedHint)
	case has("could not find first log file"):
		return relay.Permanent(fmt.Errorf("%w: file %s was purged, or the binlog was reset%s: %w", errPlaceGone, p.File, s.oldestNote(), errText(e)), purgedHint)
	case has("position > file size"), has("bogus data"), has("is not a valid binlog"):
		return relay.Permanent(fmt.Errorf("%w: its history is another one than that of position %s (it was reset, restored, or is another server): %w", errPlaceGone, p, errText(e)), historyHint)
	case has("more gtids than the"), has("not in the master's binlog"), has("is missing the gtid"), has("the start position is not"):
		return relay.Permanent(fmt.Errorf("the server's binlog has another history than position %s (it was reset, restored, or is another server): %w", p, errText(e)), historyHint)
	case has("cannot replicate anonymous transaction") && has("auto_position"):
		s.byFile.Store(true) // gtid_mode was off for a while: this stretch can be read by file and offset only
		return err
	case has("cannot replicate anonymous transaction"):
		// An operator mends it, and reading goes on by itself.
		return fmt.Errorf("%w (SET GLOBAL gtid_mode=ON_PERMISSIVE until the relay has read past the transactions without GTIDs)", err)
	case has("cannot replicate gtid-transaction"):
		return fmt.Errorf("%w (SET GLOBAL gtid_mode=OFF_PERMISSIVE until the relay has read past the transactions with GTIDs)", err)
	case has("max_allowed_packet"):
		return relay.Permanent(err, "an event is larger than the server's max_allowed_packet: SET GLOBAL max_allowed_packet=1073741824")
	case has("binary log is not open", "binary logging"):
		return relay.Permanent(err, "start the server with log_bin")
	}
	return err
}

const (
	purgedHint  = "the changes in between cannot be read any more: copy them, then begin anew with an empty WAL_DIR and MYSQL_START; keep logs longer with binlog_expire_logs_seconds"
	historyHint = "check which server this is; to take its data as a new beginning, empty WAL_DIR and set MYSQL_START"
)
