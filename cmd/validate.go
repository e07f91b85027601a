package cmd

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"binrelay/functions"
	"binrelay/relay/binlog"
)

// validate adds every mistake that can be seen without talking to a server. A variable that could not
// be parsed is not judged again.
func (c *Config) validate(environ map[string]string, m *Mistakes) {
	set := func(name string) bool { return environ[name] != "" }
	c.validateChoices(m)
	c.validateMySQL(set, m)
	c.validateKafka(set, m)
	c.validateTopics(set, m)
	c.validateRest(m)
}

// validateChoices checks all variables that take one of a few words.
func (c *Config) validateChoices(m *Mistakes) {
	for _, f := range variables() {
		oneof := strings.Fields(f.Tag.Get("oneof"))
		v := reflect.ValueOf(c).Elem().FieldByIndex(f.Index)
		if len(oneof) == 0 || v.String() == "" || slices.Contains(oneof, v.String()) {
			continue
		}
		m.add(variable(f), "%q: want %s", v.String(), orList(oneof))
	}
}

func (c *Config) validateMySQL(set func(string) bool, m *Mistakes) {
	c.MySQLPassword = readSecret("MYSQL_PASSWORD", c.MySQLPassword, c.MySQLPasswordFile, m)
	if !c.MySQLURL.Password.IsZero() {
		for _, name := range []string{"MYSQL_PASSWORD", "MYSQL_PASSWORD_FILE"} {
			if set(name) {
				m.add(name, "MYSQL_URL has a password too: give one of them")
			}
		}
	} else {
		c.MySQLURL.Password = c.MySQLPassword
	}
	if set("MYSQL_SERVER_ID") && c.MySQLServerID == 0 {
		m.add("MYSQL_SERVER_ID", "want a number from 1 to 4294967295")
	}
	files := []string{"MYSQL_TLS_CA_FILE", "MYSQL_TLS_CERT_FILE", "MYSQL_TLS_KEY_FILE"}
	if c.MySQLTLS == "disabled" {
		for _, name := range files {
			if set(name) {
				m.add(name, "contradicts MYSQL_TLS=disabled")
			}
		}
	}
	if c.MySQLTLSCAFile != "" && c.MySQLTLS == "preferred" {
		m.add("MYSQL_TLS_CA_FILE", "MYSQL_TLS=preferred checks no certificate: set MYSQL_TLS=verify-ca or verify-identity")
	}
	if _, err := binlog.ParseTables(c.Tables); err != nil {
		m.add("TABLES", "%v", err)
	}
	if _, err := binlog.ParseStart(c.MySQLStart); err != nil {
		m.add("MYSQL_START", "%v", err)
	}
	validateTLSFiles("MYSQL_TLS", c.MySQLTLSCAFile, c.MySQLTLSCertFile, c.MySQLTLSKeyFile, m)
}

func (c *Config) validateKafka(set func(string) bool, m *Mistakes) {
	loopback := len(c.KafkaBrokers) > 0
	for i, b := range c.KafkaBrokers {
		addr, err := withPort(b, "9092")
		if err != nil {
			m.add("KAFKA_BROKERS", "%q: %v", b, err)
			continue
		}
		c.KafkaBrokers[i] = addr
		host, _, _ := net.SplitHostPort(addr)
		ip := net.ParseIP(host)
		loopback = loopback && (host == "localhost" || ip != nil && ip.IsLoopback())
	}
	if len(c.KafkaBrokers) == 0 && set("KAFKA_BROKERS") {
		m.add("KAFKA_BROKERS", "names no broker; want host:port,host:port")
	}
	if !c.KafkaTLS {
		for _, name := range []string{"KAFKA_TLS_CA_FILE", "KAFKA_TLS_CERT_FILE", "KAFKA_TLS_KEY_FILE"} {
			if set(name) {
				m.add(name, "has no effect without KAFKA_TLS=true")
			}
		}
	}
	validateTLSFiles("KAFKA_TLS", c.KafkaTLSCAFile, c.KafkaTLSCertFile, c.KafkaTLSKeyFile, m)

	c.KafkaSASLPassword = readSecret("KAFKA_SASL_PASSWORD", c.KafkaSASLPassword, c.KafkaSASLPassFile, m)
	switch password := set("KAFKA_SASL_PASSWORD") || set("KAFKA_SASL_PASSWORD_FILE"); {
	case c.KafkaSASLMechanism == "":
		for _, name := range []string{"KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD", "KAFKA_SASL_PASSWORD_FILE"} {
			if set(name) {
				m.add(name, "has no effect without KAFKA_SASL_MECHANISM")
			}
		}
	default:
		if c.KafkaSASLUsername == "" {
			m.add("KAFKA_SASL_USERNAME", "required by KAFKA_SASL_MECHANISM=%s", c.KafkaSASLMechanism)
		}
		if !password {
			m.add("KAFKA_SASL_PASSWORD", "required by KAFKA_SASL_MECHANISM=%s (or KAFKA_SASL_PASSWORD_FILE)", c.KafkaSASLMechanism)
		}
		if c.KafkaSASLMechanism == "PLAIN" && !c.KafkaTLS && !loopback {
			m.add("KAFKA_SASL_MECHANISM", "PLAIN would send the password in clear to a broker that is not loopback: set KAFKA_TLS=true or take SCRAM-SHA-256")
		}
	}
	if c.KafkaInFlight != 1 && c.KafkaInFlight != 5 {
		m.add("KAFKA_IN_FLIGHT", "%d: want 5 (idempotent) or 1 (without idempotence)", c.KafkaInFlight)
	}
	if c.KafkaInFlight == 1 {
		if set("DELIVERY") && c.Delivery == "exactly-once" {
			m.add("DELIVERY", "exactly-once contradicts KAFKA_IN_FLIGHT=1, which gives up idempotence: take 5, or DELIVERY=at-least-once")
		}
		c.Delivery = "at-least-once"
	}
	if c.KafkaLinger < 0 || c.KafkaLinger > Duration(time.Minute) {
		m.add("KAFKA_LINGER", "want 0s to 1m")
	}
	if c.KafkaBatchMaxBytes < 1<<10 || c.KafkaBatchMaxBytes > 512<<20 {
		m.add("KAFKA_BATCH_MAX_BYTES", "want 1KiB to 512MiB")
	}
}

func (c *Config) validateTopics(set func(string) bool, m *Mistakes) {
	if _, err := functions.ParseTopic(c.Topic); err != nil {
		m.add("TOPIC", "%s", strings.TrimPrefix(err.Error(), "TOPIC: "))
	}
	for _, t := range []struct{ name, topic string }{{"DDL_TOPIC", c.DDLTopic}, {"DEAD_LETTER_TOPIC", c.DeadLetterTopic}} {
		if t.topic == "" {
			continue
		}
		if err := functions.CheckTopic(t.topic); err != nil {
			m.add(t.name, "%v", err)
		} else if t.topic == c.Topic { // only a template without braces can be
			m.add(t.name, "is the topic of TOPIC: its records could not be told from changes")
		}
	}
	if c.DDLTopic != "" && c.DDLTopic == c.DeadLetterTopic {
		m.add("DDL_TOPIC", "is the topic of DEAD_LETTER_TOPIC: take two")
	}
	for _, n := range []struct {
		name  string
		value int
		most  int
	}{{"TOPIC_PARTITIONS", c.TopicPartitions, 100_000}, {"TOPIC_REPLICATION", c.TopicReplication, 1000}} {
		switch {
		case !set(n.name):
		case n.value < 1 || n.value > n.most:
			m.add(n.name, "%d: want 1 to %d", n.value, n.most)
		case !c.TopicCreate:
			m.add(n.name, "contradicts TOPIC_CREATE=false")
		}
	}
}

func (c *Config) validateRest(m *Mistakes) {
	for _, d := range []struct {
		name  string
		value Duration
	}{{"FUNCTION_TIMEOUT", c.FunctionLimit}, {"SHUTDOWN_TIMEOUT", c.ShutdownTimeout}} {
		if d.value <= 0 {
			m.add(d.name, "want more than 0s")
		}
	}
	if c.WALMaxBytes < minWALBytes {
		m.add("WAL_MAX_BYTES", "want at least 1MiB")
	}
	if c.WALKeyFile != "" {
		if _, err := readKey(c.WALKeyFile); err != nil {
			m.add("WAL_ENCRYPTION_KEY_FILE", "%v", err)
		}
	}
	if c.HTTPAddr != "" {
		if _, port, err := net.SplitHostPort(c.HTTPAddr); err != nil || port == "" {
			m.add("HTTP_ADDR", "%q: want :8080 or host:8080, or nothing for no HTTP", c.HTTPAddr)
		}
	}
	if strings.ContainsAny(c.AdminToken.Reveal(), " \t\r\n") {
		m.add("ADMIN_TOKEN", "has blanks in it, which no HTTP header carries")
	}
}

// minWALBytes is the smallest log that wal opens.
const minWALBytes = 1 << 20

// readSecret is a secret given as a variable, or in the file that the variable NAME_FILE names.
func readSecret(name string, value Secret, file string, m *Mistakes) Secret {
	if file == "" {
		return value
	}
	if !value.IsZero() {
		m.add(name+"_FILE", "%s is set too: give one of them", name)
	}
	s, err := secretFile(file)
	if err != nil {
		m.add(name+"_FILE", "%v", err)
	}
	return s
}

// secretFile reads a file that holds one secret.
func secretFile(file string) (Secret, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return Secret{}, err
	}
	s := strings.TrimRight(string(b), "\r\n") // editors end a file with a newline, no password does
	if s == "" {
		return Secret{}, fmt.Errorf("%s is empty", file)
	}
	return Secret{s}, nil
}

// mysqlPassword is asked at each login: a file may hold another password than at start.
func (c *Config) mysqlPassword() (string, error) {
	return fresh(c.MySQLURL.Password, c.MySQLPasswordFile)
}

// kafkaPassword is mysqlPassword for Kafka.
func (c *Config) kafkaPassword() (string, error) {
	return fresh(c.KafkaSASLPassword, c.KafkaSASLPassFile)
}

func fresh(s Secret, file string) (string, error) {
	if file != "" {
		var err error
		if s, err = secretFile(file); err != nil {
			return "", err
		}
	}
	return s.Reveal(), nil
}

// validateTLSFiles reads the PEM files of one connection, so that a bad one is found now.
func validateTLSFiles(prefix, ca, cert, key string, m *Mistakes) {
	if ca != "" {
		if _, err := readCA(ca); err != nil {
			m.add(prefix+"_CA_FILE", "%v", err)
		}
	}
	switch {
	case cert == "" && key == "":
	case key == "":
		m.add(prefix+"_CERT_FILE", "needs %s_KEY_FILE", prefix)
	case cert == "":
		m.add(prefix+"_KEY_FILE", "needs %s_CERT_FILE", prefix)
	default:
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			m.add(prefix+"_CERT_FILE", "%v", err)
		}
	}
}

// orList writes a choice as people do: "a, b or c".
func orList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// readKey reads a 32-byte key: the bytes themselves, or hex or base64 of them.
func readKey(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if len(b) == keyBytes {
		return b, nil
	}
	text := strings.TrimSpace(string(b))
	if key, err := hex.DecodeString(text); err == nil && len(key) == keyBytes {
		return key, nil
	}
	if key, err := base64.StdEncoding.DecodeString(text); err == nil && len(key) == keyBytes {
		return key, nil
	}
	return nil, fmt.Errorf("%s holds no 32-byte key, raw, in hex or in base64; make one with: openssl rand -base64 32", file)
}

const keyBytes = 32 // AES-256
