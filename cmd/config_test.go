package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"binrelay/functions"
)

// least is the smallest environment without a mistake.
var least = map[string]string{"MYSQL_URL": "mysql://u:p@db", "KAFKA_BROKERS": "k1"}

func with(pairs ...string) map[string]string {
	m := maps.Clone(least)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func mistakesOf(t *testing.T, environ map[string]string) Mistakes {
	t.Helper()
	_, err := ParseConfig(environ)
	var m Mistakes
	if err != nil && !errors.As(err, &m) {
		t.Fatalf("ParseConfig: %v, want Mistakes", err)
	}
	return m
}

func TestDefaults(t *testing.T) {
	c, err := ParseConfig(least)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.MySQLURL.Addr, "db:3306"; got != want {
		t.Errorf("MySQL address = %s, want %s", got, want)
	}
	if got, want := c.MySQLURL.Password.Reveal(), "p"; got != want {
		t.Errorf("password = %s, want %s", got, want)
	}
	if got, want := strings.Join(c.KafkaBrokers, ","), "k1:9092"; got != want {
		t.Errorf("brokers = %s, want %s", got, want)
	}
	if c.WALMaxBytes != 8<<30 || c.WALMinFree != 256<<20 || c.KafkaBatchMaxBytes != 1_000_000 {
		t.Errorf("sizes = %d %d %d", c.WALMaxBytes, c.WALMinFree, c.KafkaBatchMaxBytes)
	}
	if time.Duration(c.ShutdownTimeout) != 20*time.Second || time.Duration(c.KafkaLinger) != 5*time.Millisecond {
		t.Errorf("durations = %v %v", c.ShutdownTimeout, c.KafkaLinger)
	}
	if c.Delivery != "exactly-once" || c.HTTPAddr != ":8080" || !c.TopicCreate || c.Topic != "{db}.{table}" {
		t.Errorf("defaults = %+v", c)
	}
}

func TestGoodValues(t *testing.T) {
	key := write(t, "0123456789abcdef0123456789abcdef")
	for _, environ := range []map[string]string{
		with("MYSQL_URL", "mariadb://u@[::1]:3307", "MYSQL_PASSWORD", "x"),
		with("MYSQL_URL", "mysql://u:a%40b/c#d@e@db:1"), // the last @ ends the password
		with("MYSQL_URL", "mysql://u@db", "MYSQL_PASSWORD_FILE", write(t, "secret\n")),
		with("KAFKA_IN_FLIGHT", "1"),
		with("KAFKA_IN_FLIGHT", "1", "DELIVERY", "at-least-once"),
		with("KAFKA_BROKERS", "localhost:9092, 127.0.0.1:9093", "KAFKA_SASL_MECHANISM", "PLAIN", "KAFKA_SASL_USERNAME", "u", "KAFKA_SASL_PASSWORD", "p"),
		with("KAFKA_TLS", "true", "KAFKA_SASL_MECHANISM", "PLAIN", "KAFKA_SASL_USERNAME", "u", "KAFKA_SASL_PASSWORD", "p"),
		with("TOPIC", "fixed"), with("TOPIC", "cdc-{db}"), with("TOPIC", "{table}", "DEAD_LETTER_TOPIC", "dead"),
		with("HTTP_ADDR", ""), with("HTTP_ADDR", "127.0.0.1:0"),
		with("WAL_MAX_BYTES", "64MiB", "WAL_MIN_FREE", "0", "WAL_ENCRYPTION_KEY_FILE", key),
		with("MYSQL_START", "earliest"), with("MYSQL_START", "binlog.000003:1234"), with("MYSQL_START", "0-1-100,1-2-3"),
		with("MYSQL_START", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"),
		with("TABLES", "shop.*,!shop.audit_*"),
		// what Kubernetes and Docker put beside a service called mysql or kafka
		with("MYSQL_SERVICE_HOST", "10.0.0.1", "MYSQL_PORT", "tcp://10.0.0.1:3306", "MYSQL_PORT_3306_TCP_ADDR", "10.0.0.1", "KAFKA_SERVICE_PORT_PLAIN", "9092"),
	} {
		if m := mistakesOf(t, environ); m != nil {
			t.Errorf("%v:\n%v", environ, m)
		}
	}
}

func TestMistakes(t *testing.T) {
	pem := write(t, "no certificate")
	for _, tt := range []struct {
		environ map[string]string
		want    string // "NAME: part of the text"
	}{
		{map[string]string{"KAFKA_BROKERS": "k"}, "MYSQL_URL: required, but not set"},
		{with("KAFKA_BROKERS", ""), "KAFKA_BROKERS: required, but empty"},
		{with("KAFKA_BROKERS", " , "), "KAFKA_BROKERS: names no broker"},
		{with("KAFKA_BROKERS", "a,b:x"), `KAFKA_BROKERS: "b:x": the port`},
		{with("KAFKA_BROKERS", "a\x01b"), `KAFKA_BROKERS: "a\x01b": no host`},
		{with("WAL_MIN_FREE", "99999999999999999999"), "WAL_MIN_FREE: \"99999999999999999999\": want a size"},
		{with("WAL_MAX_BYTES", "99999999999TiB"), "WAL_MAX_BYTES: \"99999999999TiB\": want a size"},
		{with("MYSQL_URL", "db:3306"), "MYSQL_URL: does not begin with mysql://"},
		{with("MYSQL_URL", "postgres://u:p@h"), "MYSQL_URL: does not begin with"},
		{with("MYSQL_URL", "mysql://db:3306"), "MYSQL_URL: no user"},
		{with("MYSQL_URL", "mysql://u:p@"), "MYSQL_URL: no host"},
		{with("MYSQL_URL", "mysql://u:p@h:0"), "MYSQL_URL: the port"},
		{with("MYSQL_URL", "mysql://u:p@h/shop"), "MYSQL_URL: something follows"},
		{with("MYSQL_URL", "mysql://u:100%@h"), "MYSQL_URL: the password has a '%'"},
		{with("MYSQL_PASSWORD", "q"), "MYSQL_PASSWORD: MYSQL_URL has a password too"},
		{with("MYSQL_URL", "mysql://u@h", "MYSQL_PASSWORD", "q", "MYSQL_PASSWORD_FILE", write(t, "q")), "MYSQL_PASSWORD_FILE: MYSQL_PASSWORD is set too"},
		{with("MYSQL_URL", "mysql://u@h", "MYSQL_PASSWORD_FILE", "/no/such"), "MYSQL_PASSWORD_FILE: open /no/such"},
		{with("MYSQL_URL", "mysql://u@h", "MYSQL_PASSWORD_FILE", write(t, "\n")), "MYSQL_PASSWORD_FILE: "},
		{with("MYSQL_SERVER_ID", "0"), "MYSQL_SERVER_ID: want a number from 1"},
		{with("MYSQL_SERVER_ID", "-1"), "MYSQL_SERVER_ID: "},
		{with("MYSQL_TLS", "yes"), `MYSQL_TLS: "yes": want disabled, preferred,`},
		{with("MYSQL_TLS", "disabled", "MYSQL_TLS_CA_FILE", "x"), "MYSQL_TLS_CA_FILE: contradicts"},
		{with("MYSQL_TLS_CA_FILE", pem), "MYSQL_TLS_CA_FILE: MYSQL_TLS=preferred checks no certificate"},
		{with("MYSQL_TLS_CERT_FILE", pem), "MYSQL_TLS_CERT_FILE: needs MYSQL_TLS_KEY_FILE"},
		{with("MYSQL_TLS_CERT_FILE", pem, "MYSQL_TLS_KEY_FILE", pem), "MYSQL_TLS_CERT_FILE: "},
		{with("MYSQL_START", "yesterday"), "MYSQL_START: "},
		{with("TABLES", "shop"), "TABLES: "},
		{with("TABLES", "!shop.x"), "TABLES: "},
		{with("KAFKA_TLS", "maybe"), `KAFKA_TLS: "maybe": want true or false`},
		{with("KAFKA_TLS_CA_FILE", pem), "KAFKA_TLS_CA_FILE: has no effect without KAFKA_TLS=true"},
		{with("KAFKA_TLS", "true", "KAFKA_TLS_CA_FILE", pem), "KAFKA_TLS_CA_FILE: " + pem + " holds no PEM"},
		{with("KAFKA_TLS", "true", "KAFKA_TLS_KEY_FILE", pem), "KAFKA_TLS_KEY_FILE: needs"},
		{with("KAFKA_SASL_MECHANISM", "SCRAM-SHA-256"), "KAFKA_SASL_USERNAME: required"},
		{with("KAFKA_SASL_MECHANISM", "SCRAM-SHA-256", "KAFKA_SASL_USERNAME", "u"), "KAFKA_SASL_PASSWORD: required"},
		{with("KAFKA_SASL_USERNAME", "u"), "KAFKA_SASL_USERNAME: has no effect"},
		{with("KAFKA_SASL_PASSWORD", "s"), "KAFKA_SASL_PASSWORD: has no effect"},
		{with("KAFKA_SASL_MECHANISM", "GSSAPI"), `KAFKA_SASL_MECHANISM: "GSSAPI": want PLAIN`},
		{with("KAFKA_SASL_MECHANISM", "PLAIN", "KAFKA_SASL_USERNAME", "u", "KAFKA_SASL_PASSWORD", "p"), "KAFKA_SASL_MECHANISM: PLAIN would send"},
		{with("KAFKA_COMPRESSION", "brotli"), "KAFKA_COMPRESSION: "},
		{with("KAFKA_LINGER", "5"), `KAFKA_LINGER: "5": want a duration`},
		{with("KAFKA_LINGER", "-5ms"), "KAFKA_LINGER: want 0s to 1m"},
		{with("KAFKA_BATCH_MAX_BYTES", "1"), "KAFKA_BATCH_MAX_BYTES: want 1KiB"},
		{with("KAFKA_IN_FLIGHT", "6"), "KAFKA_IN_FLIGHT: 6: want 5"},
		{with("KAFKA_IN_FLIGHT", "five"), "KAFKA_IN_FLIGHT: \"five\": want a whole number"},
		{with("KAFKA_IN_FLIGHT", "1", "DELIVERY", "exactly-once"), "DELIVERY: exactly-once contradicts KAFKA_IN_FLIGHT=1"},
		{with("DELIVERY", "at-most-once"), "DELIVERY: "},
		{with("TOPIC", "{schema}.{table}"), "TOPIC: "},
		{with("TOPIC", "a b"), "TOPIC: "},
		{with("TOPIC", ".."), "TOPIC: "},
		{with("TOPIC_PARTITIONS", "0"), "TOPIC_PARTITIONS: 0: want 1 to"},
		{with("TOPIC_REPLICATION", "3", "TOPIC_CREATE", "false"), "TOPIC_REPLICATION: contradicts TOPIC_CREATE=false"},
		{with("PARTITION_BY", "row"), "PARTITION_BY: "},
		{with("FORMAT", "avro"), "FORMAT: \"avro\": want json,"},
		{with("TOMBSTONES", "yes"), "TOMBSTONES: "},
		{with("DEAD_LETTER_TOPIC", "a/b"), "DEAD_LETTER_TOPIC: "},
		{with("TOPIC", "all", "DEAD_LETTER_TOPIC", "all"), "DEAD_LETTER_TOPIC: is the topic of TOPIC"},
		{with("WAL_MAX_BYTES", "8 gigs"), "WAL_MAX_BYTES: \"8 gigs\": want a size"},
		{with("WAL_MAX_BYTES", "1023KiB"), "WAL_MAX_BYTES: want at least"},
		{with("WAL_ENCRYPTION_KEY_FILE", pem), "WAL_ENCRYPTION_KEY_FILE: "},
		{with("FUNCTION_TIMEOUT", "0s"), "FUNCTION_TIMEOUT: want more"},
		{with("HTTP_ADDR", "8080"), "HTTP_ADDR: \"8080\": want"},
		{with("ADMIN_TOKEN", "a b"), "ADMIN_TOKEN: has blanks"},
		{with("LOG_LEVEL", "loud"), "LOG_LEVEL: "},
		{with("LOG_FORMAT", "xml"), "LOG_FORMAT: "},
		{with("MYSQL_URI", "x"), "MYSQL_URI: no such variable; did you mean MYSQL_URL?"},
		{with("KAFKA_BROKRES", "x"), "KAFKA_BROKRES: no such variable; did you mean KAFKA_BROKERS?"},
		{with("MYSQL_HOST", "x"), "MYSQL_HOST: no such variable; MYSQL_URL is"},
		{with("MYSQL_PORT", "3306"), "MYSQL_PORT: no such variable"},
		{with("WAL_COLOUR", "x"), "WAL_COLOUR: no such variable; names that begin with WAL_"},
		{with("FUNCTION_WORKERS", "2"), "FUNCTION_WORKERS: no such variable"},
		{with("TOPIC_NAME", "x"), "TOPIC_NAME: no such variable"},
	} {
		m := mistakesOf(t, tt.environ)
		name, _, _ := strings.Cut(tt.want, ":")
		found := 0
		for _, x := range m {
			if x.Name == name {
				found++
			}
		}
		if !strings.Contains("\n"+m.Error(), "\n"+tt.want) {
			t.Errorf("%v:\ngot  %v\nwant %s", tt.environ, m, tt.want)
		} else if found != 1 {
			t.Errorf("%v: %d mistakes of %s:\n%v", tt.environ, found, name, m)
		}
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	m := mistakesOf(t, map[string]string{
		"MYSQL_URL": "nonsense", "MYSQL_TLS": "yes", "MYSQL_FOO": "1", "KAFKA_LINGER": "x", "WAL_MAX_BYTES": "x",
		"KAFKA_IN_FLIGHT": "9", "TOPIC": "{x}", "FORMAT": "xml", "LOG_LEVEL": "x", "SHUTDOWN_TIMEOUT": "x",
	})
	var names []string
	for _, x := range m {
		names = append(names, x.Name)
	}
	slices.Sort(names)
	want := "FORMAT KAFKA_BROKERS KAFKA_IN_FLIGHT KAFKA_LINGER LOG_LEVEL MYSQL_FOO MYSQL_TLS MYSQL_URL SHUTDOWN_TIMEOUT TOPIC WAL_MAX_BYTES"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("mistakes of %s\nwant        %s\n%v", got, want, m)
	}
}

func TestNearMissesOfOtherNamesWarn(t *testing.T) {
	c, err := ParseConfig(with("TABELS", "shop.*", "PATH", "/bin", "TABLE_TENNIS", "x"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "did you mean TABLES?") {
		t.Errorf("warnings = %q", c.Warnings)
	}
}

const marker = "s3cr3t-marker"

func TestSecretsAreNeverPrinted(t *testing.T) {
	c, err := ParseConfig(with(
		"MYSQL_URL", "mysql://u:"+marker+"@h", "ADMIN_TOKEN", marker, "KAFKA_TLS", "true",
		"KAFKA_SASL_MECHANISM", "PLAIN", "KAFKA_SASL_USERNAME", "u", "KAFKA_SASL_PASSWORD", marker))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&b, verb, c)
		fmt.Fprintf(&b, verb, *c)
		fmt.Fprintf(&b, verb, c.AdminToken)
	}
	j, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	b.Write(j)
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "c", c, "token", c.AdminToken, "url", c.MySQLURL)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "c", c, "token", c.AdminToken, "url", c.MySQLURL)
	leaks(t, b.String())

	for _, url := range []string{
		marker, "mysql:/" + marker, "mysql://" + marker, "mysql://u:" + marker, "mysql://u:" + marker + "%@h", "mysql://u:" + marker + "%zz@h",
		"mysql://u@" + marker + ":x", "mysql://u:p@h/" + marker, "mysql://u:" + marker + "@h:99999999", "http://u:" + marker + "@h", "mysql://:" + marker + "@h",
		"mysql://u:x@y:" + marker, "mysql://u:x@::" + marker,
	} {
		m := mistakesOf(t, with("MYSQL_URL", url, "ADMIN_TOKEN", marker+" x", "KAFKA_SASL_PASSWORD", marker))
		if len(m) == 0 {
			t.Errorf("no mistake in %q", url)
		}
		leaks(t, m.Error()+fmt.Sprintf("%#v", m))
	}
}

func TestSecretNamesAreAllSecrets(t *testing.T) {
	if got, want := strings.Join(SecretNames(), " "), "MYSQL_URL MYSQL_PASSWORD KAFKA_SASL_PASSWORD ADMIN_TOKEN"; got != want {
		t.Errorf("SecretNames = %s, want %s", got, want)
	}
}

func leaks(t *testing.T, out string) {
	t.Helper()
	if i := strings.Index(out, marker); i >= 0 {
		t.Errorf("a secret is printed: …%s", out[max(0, i-80):i+len(marker)])
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add("MYSQL_URL", "mysql://u:p@h:1", "TOPIC", "{db}")
	f.Add("KAFKA_BROKERS", "[::1]:9,", "WAL_MAX_BYTES", "1e300GiB")
	f.Add("MYSQL_START", "0-1-2", "TABLES", "!*.*,a[.b")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		for _, k := range []string{k1, k2} {
			if strings.HasSuffix(k, "_FILE") {
				return // would read what the fuzzer names
			}
		}
		if c, err := ParseConfig(with(k1, v1, k2, v2)); err == nil && (c.WALMaxBytes < minWALBytes || len(c.KafkaBrokers) == 0) {
			t.Errorf("accepted %q=%q %q=%q: %+v", k1, v1, k2, v2, c)
		}
	})
}

func write(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Every format that FORMAT may name is there.
func TestFormats(t *testing.T) {
	for _, f := range variables() {
		if variable(f) != "FORMAT" {
			continue
		}
		for _, name := range strings.Fields(f.Tag.Get("oneof")) {
			if m := mistakesOf(t, with("FORMAT", name)); len(m) > 0 {
				t.Errorf("FORMAT=%s: %v", name, m)
			}
			if _, ok := functions.FormatNamed(name); !ok {
				t.Errorf("FORMAT=%s: no such format", name)
			}
		}
		return
	}
	t.Error("no FORMAT")
}
