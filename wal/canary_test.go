package wal

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// These tests pin what Badger does, not what we want. Each edge is one that this package goes round; when an
// upgrade of Badger changes one, the test that fails says which code to look at again.

func canaryStore(t *testing.T, dir string) *store {
	t.Helper()
	s, err := openStore(dir, 1<<20, false, newPoisonLogger(dir, slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func canaryChunk(n uint64) []byte {
	c := chunk{number: n}
	c.addEntry(n, content(n, 500))
	return c.encode(nil, nil)
}

// create, forget and scanSegment rely on these names and on the layout of the value log.
func TestCanaryFilesAndValueLogLayout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "seg")
	s := canaryStore(t, dir)
	for n := uint64(1); n <= 20; n++ {
		if err := s.put(n, canaryChunk(n)); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"000001.vlog", "00001.mem", "MANIFEST"} {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			t.Errorf("a fresh directory has no %s: %v", f, err)
		}
	}
	check := func(state string) {
		t.Helper()
		raw, err := scanSegment(dir, false)
		if err != nil {
			t.Fatalf("%s: %v", state, err)
		}
		defer raw.close()
		if len(raw.places) != 20 || raw.sum.firstNum != 1 || raw.torn != 0 {
			t.Fatalf("%s: %d chunks, torn %d", state, len(raw.places), raw.torn)
		}
	}
	check("open")
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	check("closed")
}

// needHeadroom and fallocate exist because these are mappings; adviseRandom finds them in /proc/self/maps.
func TestCanaryFilesAreMapped(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "seg")
	s := canaryStore(t, dir)
	defer s.close()
	adviseRandom(filepath.Join(dir, "000001.vlog"))
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		need(t, "read /proc/self/smaps", err)
	}
	_, after, ok := strings.Cut(string(b), filepath.Join(dir, "000001.vlog"))
	if !ok {
		t.Fatal("the value log is not mapped")
	}
	_, flags, _ := strings.Cut(after, "VmFlags:")
	flags, _, _ = strings.Cut(flags, "\n")
	if !strings.Contains(flags+" ", " rr ") {
		t.Errorf("MADV_RANDOM is not set: %s", flags)
	}
}

// store.view does not take an empty value for an answer.
func TestCanaryMissingValueLogReadsAsEmptyValue(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "seg")
	s := canaryStore(t, dir)
	s.put(1, canaryChunk(1))
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, "000001.vlog"))
	s = canaryStore(t, dir)
	defer s.close()
	txn := s.db.NewTransactionAt(math.MaxUint64, false)
	defer txn.Discard()
	item, err := txn.Get(chunkKey(1))
	if err != nil {
		t.Fatalf("Get now says %v: store.view and recoverSegment can be simpler", err)
	}
	var got []byte
	if err := item.Value(func(v []byte) error { got = v; return nil }); err != nil || len(got) != 0 {
		t.Errorf("Value now gives %d bytes, %v: store.view can be simpler", len(got), err)
	}
	if err := s.view(1, func([]byte) error { return nil }); err == nil {
		t.Error("store.view gave an empty chunk")
	}
}

// Sealed segments are opened read-only, and recoverSegment looks before Badger does, because of this.
func TestCanaryWritableOpenCutsADamagedValueLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "seg")
	s := canaryStore(t, dir)
	for n := uint64(1); n <= 20; n++ {
		s.put(n, canaryChunk(n))
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "000001.vlog")
	before, _ := os.Stat(path)
	flip(t, path, before.Size()/2)
	s = canaryStore(t, dir)
	s.close()
	if after, _ := os.Stat(path); after.Size() >= before.Size() {
		t.Error("Badger no longer cuts a damaged value log: recoverSegment can be simpler")
	}
}

// sweepEmpty exists because of this. In a child, as Badger leaves goroutines behind when Open fails.
func TestCanaryEmptyFileStopsOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "seg")
	canaryStore(t, dir).close()
	if err := os.WriteFile(filepath.Join(dir, "00009.mem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, out := child(t, "badger", dir, 0)
	out.Scan()
	if !strings.HasPrefix(out.Text(), "E ") {
		t.Error("Badger now opens a directory with an empty memtable: sweepEmpty is not needed")
	}
	cmd.Wait()
}
