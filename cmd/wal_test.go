package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binrelay/relay/relaytest"
)

// shopLog runs a relay on an embedded shop until it has delivered rows changes, and returns its environment. The
// log keeps its last segment, so there is something to look at.
func shopLog(t *testing.T, extra ...string) map[string]string {
	t.Helper()
	source, err := relaytest.StartSource(relaytest.SourceConfig{Flavor: relaytest.MariaDB})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	broker, err := relaytest.StartKafka(relaytest.KafkaConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	shop := relaytest.NewShop(source, relaytest.ShopConfig{})
	rows := 8
	for rows < 100 {
		rows += shop.Step()
	}
	environ := with("MYSQL_URL", source.URL(), "MYSQL_START", "earliest", "KAFKA_BROKERS", broker.Brokers(),
		"WAL_DIR", filepath.Join(t.TempDir(), "wal"), "HTTP_ADDR", "")
	for i := 0; i < len(extra); i += 2 {
		environ[extra[i]] = extra[i+1]
	}
	p := start(t, environ)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() { // a relay that ends, ends the waiting
		select {
		case <-p.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	got := 0
	broker.Tail(ctx, func(relaytest.KafkaRecord) error {
		if got++; got == rows {
			return io.EOF
		}
		return nil
	})
	if got < rows {
		t.Fatalf("%d of %d changes have arrived:\n%s", got, rows, p.out)
	}
	p.Process.Signal(os.Interrupt)
	if code := p.ends(t); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, p.out)
	}
	return environ
}

func TestWALCommands(t *testing.T) {
	environ := shopLog(t)
	code, stdout, stderr := run(t, environ, "wal", "stat")
	if code != 0 || !strings.Contains(stdout, "entries    1 to ") || !strings.Contains(stdout, "gtid 0-1-") {
		t.Errorf("wal stat = %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = run(t, environ, "wal", "verify")
	if code != 0 || !strings.Contains(stdout, "\nall sound: entries 1 to ") {
		t.Errorf("wal verify = %d\n%s%s", code, stdout, stderr)
	}
	code, all, stderr := run(t, environ, "wal", "dump")
	if code != 0 {
		t.Fatalf("wal dump = %d\n%s", code, stderr)
	}
	lines := strings.Split(strings.TrimSpace(all), "\n")
	for _, line := range lines {
		var d struct {
			Seq    uint64
			Change struct{ Op string }
		}
		if err := json.Unmarshal([]byte(line), &d); err != nil || d.Seq == 0 || d.Change.Op == "" {
			t.Fatalf("not a change: %s (%v)", line, err)
		}
	}
	_, some, _ := run(t, environ, "wal", "dump", "--from", "6", "--limit", "3")
	if got := strings.Split(strings.TrimSpace(some), "\n"); len(got) != 3 || !strings.HasPrefix(got[0], `{"seq":6,`) || !strings.Contains(all, some) {
		t.Errorf("wal dump --from 6 --limit 3:\n%s", some)
	}
}

func TestWALVerifyNamesDamage(t *testing.T) {
	environ := shopLog(t)
	files, err := filepath.Glob(filepath.Join(environ["WAL_DIR"], "seg-*", "*.vlog"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no value log: %v", err)
	}
	f, err := os.OpenFile(files[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, _ := f.Stat()
	at := info.Size() / 2
	b := make([]byte, 1)
	f.ReadAt(b, at)
	b[0] ^= 0x10
	f.WriteAt(b, at)
	f.Close()
	code, stdout, stderr := run(t, environ, "wal", "verify")
	if out := stdout + stderr; code != 1 || !strings.Contains(out, "is damaged at entry") {
		t.Errorf("wal verify of a damaged log = %d\n%s", code, out)
	}
}

func TestEncryptedLogNeedsItsKey(t *testing.T) {
	key := write(t, fmt.Sprintf("%064x\n", 7))
	environ := shopLog(t, "WAL_ENCRYPTION_KEY_FILE", key)
	if code, stdout, stderr := run(t, environ, "wal", "verify"); code != 0 {
		t.Errorf("with the key: %d\n%s%s", code, stdout, stderr)
	}
	delete(environ, "WAL_ENCRYPTION_KEY_FILE")
	if code, _, stderr := run(t, environ, "wal", "verify"); code != 1 || !strings.Contains(stderr, "key") {
		t.Errorf("without the key: %d\n%s", code, stderr)
	}
}
