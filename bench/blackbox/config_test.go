package blackbox

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"binrelay/bench/internal/relayproc"
)

func addr(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// Every mistake is listed at once, by the variable's name.
func TestConfigurationMistakesAreListedAtOnce(t *testing.T) {
	tests := []struct {
		name string
		env  map[string]string
		want []string
	}{
		{"nothing is set", map[string]string{}, []string{"MYSQL_URL", "KAFKA_BROKERS"}},
		{"unknown variables", map[string]string{"MYSQL_URL": "mysql://u:" + secret + "@127.0.0.1:1", "KAFKA_BROKERS": "127.0.0.1:1", "KAFKA_BROKER": "x", "WAL_DIRECTORY": "y"},
			[]string{"KAFKA_BROKER", "WAL_DIRECTORY"}},
		{"values of the wrong kind", map[string]string{"MYSQL_URL": "postgres://x", "KAFKA_BROKERS": "127.0.0.1:1", "KAFKA_IN_FLIGHT": "many", "WAL_MAX_BYTES": "8 potatoes", "FORMAT": "xml"},
			[]string{"MYSQL_URL", "KAFKA_IN_FLIGHT", "WAL_MAX_BYTES", "FORMAT"}},
		{"a contradiction", map[string]string{"MYSQL_URL": "mysql://u:" + secret + "@127.0.0.1:1", "KAFKA_BROKERS": "127.0.0.1:1", "KAFKA_IN_FLIGHT": "1", "DELIVERY": "exactly-once"},
			[]string{"KAFKA_IN_FLIGHT", "DELIVERY"}},
		{"two passwords", map[string]string{"MYSQL_URL": "mysql://u@127.0.0.1:1", "KAFKA_BROKERS": "127.0.0.1:1", "MYSQL_PASSWORD": secret, "MYSQL_PASSWORD_FILE": "/tmp/x"},
			[]string{"MYSQL_PASSWORD"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.env["HTTP_ADDR"], tt.env["WAL_DIR"] = "127.0.0.1:0", filepath.Join(t.TempDir(), "wal")
			p, err := relayproc.Start(shared.relay, tt.env)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Kill()
			select {
			case <-p.Done():
			case <-time.After(patience):
				t.Fatalf("the relay runs with a bad configuration:\n%s", p.Log())
			}
			if p.ExitCode() != 2 {
				t.Errorf("exit code %d, want 2", p.ExitCode())
			}
			for _, w := range tt.want {
				if !strings.Contains(p.Log(), w) {
					t.Errorf("%s is not named in:\n%s", w, p.Log())
				}
			}
			if strings.Contains(p.Log(), secret) {
				t.Errorf("the password is in:\n%s", p.Log())
			}
		})
	}
}
