package cmd

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"

	"binrelay/wal"
)

// TestLostJournalIsSaid: records that may be repeated are never repeated in silence.
func TestLostJournalIsSaid(t *testing.T) {
	c := &Config{WALDir: t.TempDir(), WALMaxBytes: 64 << 20, WALMinFree: 1}
	var out bytes.Buffer
	said := func() bool {
		t.Helper()
		l, err := openLog(c, wal.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		out.Reset()
		warnLostJournal(c, l, slog.New(slog.NewTextHandler(&out, nil)))
		if _, err := l.Append(t.Context(), []byte("entry"), []byte("pos"), false); err != nil {
			t.Fatal(err)
		}
		if err := l.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(out.String(), "may be repeated")
	}
	if said() {
		t.Errorf("a new log: %s", out.String())
	}
	if !said() {
		t.Error("a log with entries and no journal: nothing is said")
	}
	if err := os.Mkdir(stateDir(c), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stateDir(c)+"/hand-over-1.log", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if said() {
		t.Errorf("a log with its journal: %s", out.String())
	}
}
