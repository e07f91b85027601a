package cmd

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// prefixes are ours alone: an unknown variable that begins with one is a mistake, as a mistyped one would
// otherwise be ignored in silence.
var prefixes = []string{"MYSQL_", "KAFKA_", "WAL_", "TOPIC_", "FUNCTION_"}

// instead says where to put what other tools read from variables with our prefixes.
var instead = map[string]string{
	"MYSQL_HOST": "MYSQL_URL", "MYSQL_TCP_PORT": "MYSQL_URL", "MYSQL_PORT": "MYSQL_URL", "MYSQL_USER": "MYSQL_URL",
	"MYSQL_USERNAME": "MYSQL_URL", "MYSQL_DSN": "MYSQL_URL", "MYSQL_ADDR": "MYSQL_URL", "MYSQL_PWD": "MYSQL_PASSWORD",
	"MYSQL_DATABASE": "TABLES", "MYSQL_TABLES": "TABLES", "MYSQL_SSL_MODE": "MYSQL_TLS",
	"KAFKA_BOOTSTRAP_SERVERS": "KAFKA_BROKERS", "KAFKA_BROKER": "KAFKA_BROKERS", "KAFKA_URL": "KAFKA_BROKERS",
	"KAFKA_TOPIC": "TOPIC", "KAFKA_DELIVERY": "DELIVERY", "KAFKA_FORMAT": "FORMAT",
	"KAFKA_USERNAME": "KAFKA_SASL_USERNAME", "KAFKA_PASSWORD": "KAFKA_SASL_PASSWORD",
}

// Kubernetes and Docker links put such variables into every container beside a service called mysql or
// kafka; nobody typed them.
var (
	injected      = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)
	injectedValue = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

// unknown adds a mistake for every variable with one of our prefixes that is none of ours, and a warning for
// one that is so near to another of our names that it is probably meant.
func (c *Config) unknown(environ map[string]string, m *Mistakes) {
	var known []string
	for _, f := range variables() {
		known = append(known, variable(f))
	}
	for _, name := range slices.Sorted(maps.Keys(environ)) {
		if slices.Contains(known, name) {
			continue
		}
		ours := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		near := nearest(name, known)
		switch {
		case ours && (injected.MatchString(name) || strings.HasSuffix(name, "_PORT") && injectedValue.MatchString(environ[name])):
		case ours && instead[name] != "":
			m.add(name, "no such variable; %s is the place for it", instead[name])
		case ours && near != "":
			m.add(name, "no such variable; did you mean %s?", near)
		case ours:
			m.add(name, "no such variable; names that begin with %s are ours, and README lists them", prefixOf(name))
		case near != "" && environ[near] == "":
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s: not a variable of relay; did you mean %s?", name, near))
		}
	}
}

func prefixOf(name string) string { p, _, _ := strings.Cut(name, "_"); return p + "_" }

// nearest is the known name that differs from name by the fewest slips, "" when none is near.
func nearest(name string, known []string) string {
	best, least := "", 1+len(name)/6 // one slip in a short name, a few in a long one
	for _, k := range known {
		if d := slips(name, k); d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// slips counts the letters inserted, left out, replaced or swapped with their neighbour between a and b
// (optimal string alignment distance).
func slips(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			d := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				d++
			}
			d = min(d, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
