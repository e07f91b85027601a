package cmd

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v10"
	"github.com/docker/go-units"
)

// Config is the environment of a relay: all of its variables and no others. README's table is made
// from the tags: env is the name, envDefault the value when unset or empty, shown what the table shows
// for a default that is no constant, oneof the only values allowed, doc the meaning.
type Config struct {
	MySQLURL          ServerURL `env:"MYSQL_URL,required,notEmpty" doc:"where to read from, as mysql://user:password@host:3306 (also mariadb://); the flavour is detected"`
	MySQLPassword     Secret    `env:"MYSQL_PASSWORD" doc:"password, instead of in the URL"`
	MySQLPasswordFile string    `env:"MYSQL_PASSWORD_FILE" doc:"file with the password"`
	MySQLTLS          string    `env:"MYSQL_TLS" envDefault:"preferred" oneof:"disabled preferred required verify-ca verify-identity" doc:"encryption of the connection to MySQL"`
	MySQLTLSCAFile    string    `env:"MYSQL_TLS_CA_FILE" doc:"PEM file of the authorities that verify-ca and verify-identity trust; default: the system's"`
	MySQLTLSCertFile  string    `env:"MYSQL_TLS_CERT_FILE" doc:"PEM file of the client certificate"`
	MySQLTLSKeyFile   string    `env:"MYSQL_TLS_KEY_FILE" doc:"PEM file of the client certificate's key"`
	MySQLServerID     uint32    `env:"MYSQL_SERVER_ID" shown:"made once, kept in the log" doc:"replica id; must be unique among all replicas of the server"`
	MySQLStart        string    `env:"MYSQL_START" envDefault:"now" doc:"where an empty log begins: now, earliest, a GTID set, or file:position. Without effect once the log has a position"`
	Tables            string    `env:"TABLES" envDefault:"*.*" doc:"comma list of db.table globs; ! excludes, later wins; system schemas never"`

	KafkaBrokers       List     `env:"KAFKA_BROKERS,required,notEmpty" doc:"comma list of host:port"`
	KafkaTLS           bool     `env:"KAFKA_TLS" envDefault:"false" doc:"encrypt connections to Kafka"`
	KafkaTLSCAFile     string   `env:"KAFKA_TLS_CA_FILE" doc:"PEM file of the authorities to trust; default: the system's"`
	KafkaTLSCertFile   string   `env:"KAFKA_TLS_CERT_FILE" doc:"PEM file of the client certificate"`
	KafkaTLSKeyFile    string   `env:"KAFKA_TLS_KEY_FILE" doc:"PEM file of the client certificate's key"`
	KafkaSASLMechanism string   `env:"KAFKA_SASL_MECHANISM" oneof:"PLAIN SCRAM-SHA-256 SCRAM-SHA-512" doc:"how to log in; empty: not. PLAIN without TLS only to loopback"`
	KafkaSASLUsername  string   `env:"KAFKA_SASL_USERNAME" doc:"user name"`
	KafkaSASLPassword  Secret   `env:"KAFKA_SASL_PASSWORD" doc:"password"`
	KafkaSASLPassFile  string   `env:"KAFKA_SASL_PASSWORD_FILE" doc:"file with the password"`
	KafkaCompression   string   `env:"KAFKA_COMPRESSION" envDefault:"snappy" oneof:"none snappy lz4 zstd gzip" doc:"of record batches"`
	KafkaLinger        Duration `env:"KAFKA_LINGER" envDefault:"5ms" doc:"how long a batch may wait to fill"`
	KafkaBatchMaxBytes Size     `env:"KAFKA_BATCH_MAX_BYTES" envDefault:"1000000" doc:"largest batch; must fit the topics' max.message.bytes"`
	KafkaInFlight      int      `env:"KAFKA_IN_FLIGHT" envDefault:"5" doc:"requests in flight to a broker: 5, idempotent; or 1, acks=all without idempotence, and DELIVERY=at-least-once then"`

	Delivery         string `env:"DELIVERY" envDefault:"exactly-once" oneof:"exactly-once at-least-once" doc:"whether a crash may repeat records"`
	Topic            string `env:"TOPIC" envDefault:"{db}.{table}" doc:"topic of a change: a template of {db} and {table}, or one fixed name"`
	TopicCreate      bool   `env:"TOPIC_CREATE" envDefault:"true" doc:"make missing topics"`
	TopicPartitions  int    `env:"TOPIC_PARTITIONS" shown:"the broker's" doc:"partitions of topics made"`
	TopicReplication int    `env:"TOPIC_REPLICATION" shown:"the broker's" doc:"replication factor of topics made"`
	PartitionBy      string `env:"PARTITION_BY" envDefault:"key" oneof:"key table database single" doc:"which changes share a partition: those of one primary key (murmur2, as Java; without a key: of one table), of one table, of one database, or all (partition 0). A partition set by a function wins"`
	Format           string `env:"FORMAT" envDefault:"json" oneof:"json debezium maxwell canal drs-json drs-json-c" doc:"shape of the records"`
	Tombstones       string `env:"TOMBSTONES" envDefault:"auto" oneof:"auto on off" doc:"a null value for the key after a delete; auto: on topics that are compacted"`
	DDLTopic         string `env:"DDL_TOPIC" doc:"topic for DDL statements, in order; empty: nowhere"`
	DeadLetterTopic  string `env:"DEAD_LETTER_TOPIC" doc:"topic for changes that a function or Kafka refuses for good; empty: halt there"`

	WALDir        string   `env:"WAL_DIR" envDefault:"./data" doc:"directory of the log; one relay per directory, locked"`
	WALMaxBytes   Size     `env:"WAL_MAX_BYTES" envDefault:"8GiB" doc:"size of the log; when full, reading pauses and MySQL keeps the rest"`
	WALMinFree    Size     `env:"WAL_MIN_FREE" envDefault:"256MiB" doc:"disk space to leave free; reached, reading pauses"`
	WALKeyFile    string   `env:"WAL_ENCRYPTION_KEY_FILE" doc:"file with a 32-byte key (raw, hex or base64): the log is encrypted with AES-256-GCM"`
	FunctionLimit Duration `env:"FUNCTION_TIMEOUT" envDefault:"5s" doc:"longest call of a function"`

	HTTPAddr        string   `env:"HTTP_ADDR" envDefault:":8080" doc:"where to serve status and metrics; set to nothing: nowhere"`
	AdminToken      Secret   `env:"ADMIN_TOKEN" doc:"bearer token of the POST routes; without it they answer 403"`
	LogLevel        string   `env:"LOG_LEVEL" envDefault:"info" oneof:"debug info warn error" doc:"least level that is logged"`
	LogFormat       string   `env:"LOG_FORMAT" oneof:"text json" shown:"text on a terminal, else json" doc:"form of log lines"`
	ShutdownTimeout Duration `env:"SHUTDOWN_TIMEOUT" envDefault:"20s" doc:"how long a stop may take to drain what is in flight"`

	// Warnings are likely mistakes that are not certain enough to refuse to start.
	Warnings []string `json:"-"`
}

// Size is a number of bytes: "8GiB", "256MiB", "1000000".
type Size int64

func (s *Size) UnmarshalText(b []byte) error {
	n, err := units.RAMInBytes(string(b))
	if err != nil || n < 0 || n == math.MaxInt64 { // more than an int64 holds wraps to either
		return errors.New("want a size like 256MiB, 8GiB or a number of bytes")
	}
	*s = Size(n)
	return nil
}

// Duration is a time span: "5ms", "20s".
type Duration time.Duration

func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return errors.New("want a duration with its unit, like 5ms, 20s or 1m30s")
	}
	*d = Duration(v)
	return nil
}

// List is a comma list; blanks around its members are dropped.
type List []string

func (l *List) UnmarshalText(b []byte) error {
	*l = nil
	for s := range strings.SplitSeq(string(b), ",") {
		if s = strings.TrimSpace(s); s != "" {
			*l = append(*l, s)
		}
	}
	return nil
}

// Mistakes are all that is wrong with an environment: of each variable the first thing, as what follows
// from it would only confuse.
type Mistakes []Mistake

// Mistake is one thing to mend.
type Mistake struct{ Name, Text string }

func (m Mistakes) Error() string {
	var b strings.Builder
	for i, x := range m {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(x.Name + ": " + x.Text)
	}
	return b.String()
}

func (m *Mistakes) add(name, format string, args ...any) {
	if !slices.ContainsFunc(*m, func(x Mistake) bool { return x.Name == name }) {
		*m = append(*m, Mistake{name, fmt.Sprintf(format, args...)})
	}
}

// ParseConfig reads and checks environ, the pairs of os.Environ as a map. Its error is Mistakes, and
// lists every one. Files that variables name are read here, so that a missing one is a mistake too.
func ParseConfig(environ map[string]string) (*Config, error) {
	c := &Config{}
	var m Mistakes
	err := env.ParseWithOptions(c, env.Options{Environment: environ})
	var all env.AggregateError
	if errors.As(err, &all) {
		for _, e := range all.Errors {
			m.addParse(e, environ)
		}
	} else if err != nil {
		return nil, fmt.Errorf("parse environment: %w", err)
	}
	if v, ok := environ["HTTP_ADDR"]; ok && v == "" {
		c.HTTPAddr = "" // the one variable where "set to nothing" differs from unset
	}
	c.unknown(environ, &m)
	c.validate(environ, &m)
	if len(m) > 0 {
		return nil, m
	}
	return c, nil
}

// addParse words an error of the env package in terms of the variable, not of the struct's field.
func (m *Mistakes) addParse(err error, environ map[string]string) {
	var (
		unset env.EnvVarIsNotSetError
		empty env.EmptyEnvVarError
		parse env.ParseError
	)
	switch {
	case errors.As(err, &unset):
		m.add(unset.Key, "required, but not set")
	case errors.As(err, &empty):
		m.add(empty.Key, "required, but empty")
	case errors.As(err, &parse):
		f, _ := reflect.TypeFor[Config]().FieldByName(parse.Name)
		name := variable(f)
		if secret(f) { // the parser's own text is safe, the value is not
			m.add(name, "%v", parse.Err)
			return
		}
		text := parse.Err.Error()
		switch f.Type.Kind() {
		case reflect.Bool:
			text = "want true or false"
		case reflect.Int, reflect.Uint32:
			text = "want a whole number"
			if name == "MYSQL_SERVER_ID" {
				text = "want a number from 1 to 4294967295"
			}
		}
		m.add(name, "%q: %s", environ[name], text)
	default:
		m.add("environment", "%v", err)
	}
}

// variable is the name of the variable of a field, "" for a field that is none.
func variable(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("env"), ",")
	return name
}

// secret reports whether a field's value must never be printed.
func secret(f reflect.StructField) bool {
	return f.Type == reflect.TypeFor[Secret]() || f.Type == reflect.TypeFor[ServerURL]()
}

// variables are all variables in the order of the struct.
func variables() []reflect.StructField {
	var fs []reflect.StructField
	for f := range reflect.TypeFor[Config]().Fields() {
		if variable(f) != "" {
			fs = append(fs, f)
		}
	}
	return fs
}

// SecretNames are the variables that hold secrets. Main takes them out of the process's environment
// once they are read, so that functions and child processes cannot see them.
func SecretNames() []string {
	var names []string
	for _, f := range variables() {
		if secret(f) {
			names = append(names, variable(f))
		}
	}
	return names
}
