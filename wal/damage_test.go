package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// segmentsOf returns the segment directories of a log, oldest first.
func segmentsOf(t testing.TB, dir string) []string {
	t.Helper()
	segs, err := filepath.Glob(filepath.Join(dir, segPrefix+"*"))
	if err != nil || len(segs) == 0 {
		t.Fatalf("no segments in %s (%v)", dir, err)
	}
	return segs
}

// flip damages one byte and returns what undoes it.
func flip(t testing.TB, path string, off int64) (undo func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x41
	f.WriteAt(b[:], off)
	return func() { flip(t, path, off) }
}

// TestDamagedByteIsFound flips bytes in every file of a sealed segment. Each one must be named by Verify,
// and either by a reader as well, or it must not matter to what the reader gets.
func TestDamagedByteIsFound(t *testing.T) {
	dir := t.TempDir()
	o := tiny()
	l := mustOpen(t, dir, o)
	fillLog(t, l, 1000, 300)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(dir, o, nil); err != nil {
		t.Fatalf("Verify of an undamaged log: %v", err)
	}
	seg := segmentsOf(t, dir)[1]
	files, err := os.ReadDir(seg)
	if err != nil {
		t.Fatal(err)
	}
	found, harmless := map[string]int{}, map[string]int{}
	for _, f := range files {
		fi, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		samples := int64(12)
		if filepath.Ext(f.Name()) == vlogExt {
			samples = 60
		}
		for i := range min(samples, fi.Size()) {
			off := i * fi.Size() / samples
			if fi.Size() <= samples {
				off = i
			}
			name := fmt.Sprintf("%s byte %d", f.Name(), off)
			undo := flip(t, filepath.Join(seg, f.Name()), off)
			var c *CorruptError
			if _, err := Verify(dir, o, nil); !errors.As(err, &c) || c.Segment != filepath.Base(seg) {
				t.Errorf("%s: Verify says %v", name, err)
			}
			l, err := Open(dir, o)
			var got []Entry
			if err == nil {
				got, err = tryReadFrom(l, 1, 64<<10)
				l.Close()
			}
			if err == nil {
				checkRun(t, got, 1, 1000, 300)
				harmless[f.Name()]++
			} else if !errors.As(err, &c) || c.Segment != filepath.Base(seg) {
				t.Errorf("%s: reading says %v", name, err)
			} else {
				found[f.Name()]++
			}
			undo()
		}
	}
	t.Logf("found by reading: %v; of no consequence, found by Verify only: %v", found, harmless)
	if _, err := Verify(dir, o, nil); err != nil {
		t.Fatalf("Verify after all was undone: %v", err)
	}
}

// TestCrashedSegmentWithDamagedIndex damages what Badger trusts after a crash. The value log is whole, so
// nothing may be missing; Badger alone drops half of the keys here and says nothing.
func TestCrashedSegmentWithDamagedIndex(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, seg string){
		"memtable bytes": func(t *testing.T, seg string) {
			path := filepath.Join(seg, "00001.mem")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			used := len(bytes.TrimRight(b, "\x00"))
			for i := range 64 {
				b[used/2+i] ^= 0x55
			}
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"memtable gone": func(t *testing.T, seg string) { os.Remove(filepath.Join(seg, "00001.mem")) },
		"manifest gone": func(t *testing.T, seg string) { os.Remove(filepath.Join(seg, "MANIFEST")) },
		"empty files": func(t *testing.T, seg string) {
			for _, f := range []string{"00009.mem", "000009.vlog"} {
				if err := os.WriteFile(filepath.Join(seg, f), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := tiny()
			o.SegmentBytes = 4 << 20
			l := mustOpen(t, t.TempDir(), o)
			for range 50 {
				fillLog(t, l, 20, 300)
			}
			dir := crash(t, l)
			damage(t, segmentsOf(t, dir)[0])
			l = mustOpen(t, dir, o)
			checkRun(t, readFrom(t, l, 1, 64<<10), 1, 1000, 300)
			if string(l.Position()) != "p1000" {
				t.Errorf("position %q", l.Position())
			}
			l.Close()
			if _, err := Verify(dir, o, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCrashedSegmentWithDamagedValues: bytes of acknowledged chunks changed. That must never look like the
// torn end of a crash, neither in the middle nor in the last chunk.
func TestCrashedSegmentWithDamagedValues(t *testing.T) {
	o := tiny()
	o.SegmentBytes = 4 << 20
	for _, where := range []string{"middle", "last chunk", "only chunk"} {
		t.Run(where, func(t *testing.T) {
			l := mustOpen(t, t.TempDir(), o)
			rounds := 50
			if where == "only chunk" {
				rounds = 1
			}
			for range rounds {
				fillLog(t, l, 10, 300)
			}
			dir := crash(t, l)
			path := filepath.Join(segmentsOf(t, dir)[0], "000001.vlog")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			off := int64(len(bytes.TrimRight(b, "\x00")))
			if where == "middle" {
				off /= 2
			} else {
				off -= 100
			}
			flip(t, path, off)
			var c *CorruptError
			for range 2 { // and the first try must not have hidden it from the second
				if _, err := Open(dir, o); !errors.As(err, &c) {
					t.Fatalf("Open says %v", err)
				}
			}
			t.Log(c)
		})
	}
}

func TestMissingSegmentIsDamage(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, tiny())
	fillLog(t, l, 1000, 300)
	l.Close()
	seg := segmentsOf(t, dir)[1]
	if err := os.RemoveAll(seg); err != nil {
		t.Fatal(err)
	}
	var c *CorruptError
	if _, err := Open(dir, tiny()); !errors.As(err, &c) {
		t.Errorf("Open says %v", err)
	}
	if _, err := Verify(dir, tiny(), nil); !errors.As(err, &c) {
		t.Errorf("Verify says %v", err)
	}
}

func TestCutFileIsDamage(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, tiny())
	fillLog(t, l, 1000, 300)
	l.Close()
	path := filepath.Join(segmentsOf(t, dir)[1], "000001.vlog")
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, fi.Size()/2); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, tiny())
	got, err := tryReadFrom(l, 1, 64<<10)
	var c *CorruptError
	if !errors.As(err, &c) || c.Seq <= got[len(got)-1].Seq || c.Seq > got[len(got)-1].Seq+1 {
		t.Fatalf("after entry %d reading says %v", got[len(got)-1].Seq, err)
	}
	if again, _ := os.Stat(path); again.Size() != fi.Size()/2 {
		t.Error("the damaged file was changed")
	}
	// Damage stops readers, not the source.
	fillLog(t, l, 10, 300)
	checkRun(t, readFrom(t, l, 1001, 1<<20), 1001, 1010, 300)
}

// TestUnreadableMappingIsDamage cuts a file under its mapping, which is what a bad block looks like to the
// reader: a SIGBUS. It must cost an error, not the process.
func TestUnreadableMappingIsDamage(t *testing.T) {
	if !alone(t, "") {
		return // Badger may hold a lock after it, so the handle is left open to the end of the process
	}
	dir := t.TempDir()
	o := tiny()
	o.RingBytes = 1
	l := mustOpen(t, dir, o)
	fillLog(t, l, 1000, 300)
	eventually(t, "the old segments are sealed", func() bool { return keeperIdle(l) })
	b, err := l.Read(context.Background(), 1, 1) // opens the first segment
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	if err := os.Truncate(filepath.Join(segmentsOf(t, dir)[0], "000001.vlog"), 8<<10); err != nil {
		t.Fatal(err)
	}
	var c *CorruptError
	if _, err := tryReadFrom(l, 1, 1<<10); !errors.As(err, &c) {
		t.Fatalf("reading says %v", err)
	}
	t.Log(c)
	fillLog(t, l, 10, 300)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestFormatMarker(t *testing.T) {
	dir := t.TempDir()
	mustOpen(t, dir, tiny()).Close()
	path := filepath.Join(dir, formatFile)
	for content, want := range map[string]string{
		"binrelay-wal 2\n": "newer version",
		"something else":   "not the marker",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, tiny()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: Open says %v", content, err)
		}
	}
}

func TestMeta(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, tiny())
	if v, err := l.Meta("session"); v != nil || err != nil {
		t.Fatalf("Meta of nothing: %q, %v", v, err)
	}
	for _, v := range [][]byte{[]byte("one"), {}, bytes.Repeat([]byte("x"), 1<<20)} {
		if err := l.SetMeta("session", v); err != nil {
			t.Fatal(err)
		}
		if got, err := l.Meta("session"); err != nil || got == nil || !bytes.Equal(got, v) {
			t.Fatalf("Meta = %d bytes, %v; want %d", len(got), err, len(v))
		}
	}
	if err := l.SetMeta("../evil", nil); err == nil {
		t.Error("a name with a path was taken")
	}
	l.Close()
	if err := l.SetMeta("session", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("SetMeta on a closed log: %v", err)
	}
	l = mustOpen(t, dir, tiny())
	if got, _ := l.Meta("session"); len(got) != 1<<20 {
		t.Fatalf("after reopening: %d bytes", len(got))
	}
	undo := flip(t, filepath.Join(dir, "meta-session"), 1000)
	var c *CorruptError
	if _, err := l.Meta("session"); !errors.As(err, &c) {
		t.Errorf("damaged value: %v", err)
	}
	undo()
	if err := l.SetMeta("session", nil); err != nil {
		t.Fatal(err)
	}
	if v, err := l.Meta("session"); v != nil || err != nil {
		t.Fatalf("removed value: %q, %v", v, err)
	}
}

func TestEncryption(t *testing.T) {
	dir := t.TempDir()
	o := tiny()
	o.Key = bytes.Repeat([]byte{1}, 32)
	l := mustOpen(t, dir, o)
	secret := bytes.Repeat([]byte("top secret row "), 30)
	for range 300 {
		mustAppend(t, l, secret, []byte("p"), false)
	}
	mustSync(t, l)
	l.Close()
	for _, seg := range segmentsOf(t, dir) {
		files, _ := filepath.Glob(filepath.Join(seg, "*"))
		for _, f := range files {
			if b, _ := os.ReadFile(f); bytes.Contains(b, secret[:15]) {
				t.Errorf("%s holds plain text", f)
			}
		}
	}
	other := o
	other.Key = bytes.Repeat([]byte{2}, 32)
	for name, bad := range map[string]Options{"another key": other, "no key": tiny()} {
		_, err := Open(dir, bad)
		if !errors.Is(err, ErrKey) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l = mustOpen(t, dir, o)
	if got := readFrom(t, l, 1, 1<<20); len(got) != 300 || !bytes.Equal(got[299].Data, secret) {
		t.Errorf("%d entries with the right key", len(got))
	}
	// Authenticated: a byte changed by someone who can also mend the checksum is found all the same.
	var stored []byte
	l.mu.Lock()
	s := l.segs[0]
	l.mu.Unlock()
	l.readMu.Lock()
	if err := l.view(s, s.sum.firstNum, func(v []byte) error { stored = bytes.Clone(v); return nil }); err != nil {
		t.Fatal(err)
	}
	l.readMu.Unlock()
	stored[len(stored)-20] ^= 1
	var c storedChunk
	if err := c.decode(mendCRC(stored)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.payload(nil, l.readKeys); err == nil {
		t.Error("a changed ciphertext was decrypted")
	}
	if _, err := l.Append(context.Background(), []byte("x"), nil, false); err != nil {
		t.Error(err)
	}
}
