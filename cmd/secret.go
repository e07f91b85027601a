package cmd

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

const hidden = "***"

// Secret is a value that no way of printing shows: fmt with any verb, JSON, slog.
type Secret struct{ value string }

// Reveal returns the secret itself, for the one place that sends it.
func (s Secret) Reveal() string { return s.value }

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.value == "" }

func (s *Secret) UnmarshalText(b []byte) error { s.value = string(b); return nil }

func (s Secret) String() string               { return hidden }
func (s Secret) GoString() string             { return hidden }
func (s Secret) Format(f fmt.State, _ rune)   { io.WriteString(f, hidden) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(hidden) }

// ServerURL is MYSQL_URL taken apart. Its password is a Secret, and no error of parsing repeats any
// part of the text, as a mistyped password may stand anywhere in it.
type ServerURL struct {
	User     string
	Password Secret
	Addr     string // host:port
	Flavor   string // "mysql" or "mariadb", as the user wrote it; the server itself is asked
}

// UnmarshalText parses mysql://user:password@host:port. The last '@' ends the password, so that one
// with '/', '#' or '@' in it works unescaped; '%' must be written %25.
func (u *ServerURL) UnmarshalText(b []byte) error {
	const want = "want mysql://user:password@host:3306"
	scheme, rest, ok := strings.Cut(string(b), "://")
	if !ok || scheme != "mysql" && scheme != "mariadb" {
		return errors.New("does not begin with mysql:// or mariadb://; " + want)
	}
	at := strings.LastIndexByte(rest, '@')
	if at <= 0 {
		return errors.New("no user; " + want)
	}
	userinfo, addr := rest[:at], rest[at+1:]
	user, password, _ := strings.Cut(userinfo, ":")
	user, err := url.PathUnescape(user)
	if err != nil || user == "" {
		return errors.New("no readable user; " + want)
	}
	if password, err = url.PathUnescape(password); err != nil {
		return errors.New("the password has a '%' that begins no %XX escape: write %25 for it, or give the password in MYSQL_PASSWORD")
	}
	addr = strings.TrimSuffix(addr, "/")
	if strings.ContainsAny(addr, "/?#") {
		return errors.New("something follows the host and port: tables are chosen with TABLES, TLS with MYSQL_TLS; " + want)
	}
	addr, err = withPort(addr, "3306")
	if err != nil {
		return fmt.Errorf("%w; %s", err, want)
	}
	*u = ServerURL{User: user, Password: Secret{password}, Addr: addr, Flavor: scheme}
	return nil
}

func (u ServerURL) String() string {
	if u.Addr == "" {
		return ""
	}
	return fmt.Sprintf("%s://%s@%s", u.Flavor, url.PathEscape(u.User), u.Addr)
}

// withPort gives addr as host:port, with port where addr has none. Its errors do not repeat addr.
func withPort(addr, port string) (string, error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil { // no port, or not an address at all
		if strings.Count(addr, ":") > 1 && !strings.HasPrefix(addr, "[") {
			return "", errors.New("an IPv6 address needs brackets, [::1]:" + port)
		}
		host, p = strings.Trim(addr, "[]"), port
	}
	if host == "" || strings.ContainsFunc(host, func(r rune) bool { return r == '"' || r == '\'' || unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return "", errors.New("no host")
	}
	if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
		return "", errors.New("the port is not a number from 1 to 65535")
	}
	return net.JoinHostPort(host, p), nil
}
