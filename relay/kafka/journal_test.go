package kafka

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"binrelay/relay"

	"github.com/twmb/franz-go/pkg/kfake"
)

// testJournal writes frames of one topic with parts partitions, one record an entry.
type testJournal struct {
	t  testing.TB
	j  *journal
	st *state
}

func newTestJournal(t testing.TB, dir string, parts int) *testJournal {
	t.Helper()
	j, st, err := openJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(st.topics) == 0 {
		tp := &topic{name: "a"}
		for i := range parts {
			tp.parts = append(tp.parts, &partition{t: tp, num: int32(i), pid: 7})
		}
		st.topics = []*topic{tp}
	}
	w := &testJournal{t, j, st}
	w.begin()
	t.Cleanup(func() { j.close() })
	return w
}

func (w *testJournal) begin() {
	w.t.Helper()
	if err := w.j.begin(w.st.appendSnapshot(nil)); err != nil {
		w.t.Fatal(err)
	}
}

// add writes a batch of n entries, to partition entry%parts.
func (w *testJournal) add(n int, sync bool) {
	w.t.Helper()
	parts := w.st.topics[0].parts
	first := w.st.covered + 1
	var raw []byte
	index := make([]partCount, len(parts))
	for i := range parts {
		index[i].part = int32(i)
	}
	for i := range uint64(n) {
		rec := num("a", first+i)
		slot := int(first+i) % len(parts)
		index[slot].count++
		raw = appendJournalRecord(raw, &rec, slot, first)
	}
	body := appendPacked(appendBatchHead(nil, first, first+uint64(n)-1, index), raw)
	w.write(kindBatch, body, sync)
	if err := w.st.applyBatch(batchHead{first: first, last: first + uint64(n) - 1, index: index}); err != nil {
		w.t.Fatal(err)
	}
	for _, p := range parts {
		w.j.grew(p, p.n)
	}
}

func (w *testJournal) write(kind frameKind, body []byte, sync bool) {
	w.t.Helper()
	if err := w.j.write(appendFrame(nil, kind, w.j.synced, body)); err != nil {
		w.t.Fatal(err)
	}
	if sync {
		if err := w.j.sync(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// content is every record of the journal, in order of partitions.
func content(t testing.TB, j *journal) map[string][]uint64 {
	t.Helper()
	out, from := map[string][]uint64{}, map[string]uint64{}
	err := j.scan(func(h batchHead, start []uint64) error {
		return h.records(start, func(c partCount, n uint64, rec *journalRecord) error {
			k := fmt.Sprint(c.topic, "/", c.part)
			if len(out[k]) == 0 {
				from[k] = n
			}
			if from[k]+uint64(len(out[k])) != n {
				t.Errorf("%s: record %d at place %d", k, n, len(out[k]))
			}
			if rec.seq != be(rec.value) {
				t.Errorf("record %d says entry %d", be(rec.value), rec.seq)
			}
			out[k] = append(out[k], rec.seq)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func lastFile(t testing.TB, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "hand-over-*.log"))
	if err != nil || len(names) == 0 {
		t.Fatal("no journal file")
	}
	return names[len(names)-1]
}

// TestJournalTornAtEveryByte: whatever is left of what was not synced, all that was synced is read back,
// and only whole frames are.
func TestJournalTornAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	w := newTestJournal(t, dir, 3)
	w.add(5, true)
	w.add(4, true)
	synced, covered := w.j.synced, w.st.covered
	w.add(3, false)
	mid, covered2 := w.j.size, w.st.covered
	w.add(2, false)
	w.j.close()
	whole, err := os.ReadFile(lastFile(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	for cut := synced; cut <= int64(len(whole)); cut++ {
		for _, junk := range []string{"", "\xff\xff\xff\xff\xff\xff\xff\xff", "some other file's bytes, more than a header of them"} {
			d := t.TempDir()
			if err := os.WriteFile(filepath.Join(d, "hand-over-1.log"), append(whole[:cut:cut], junk...), 0o600); err != nil {
				t.Fatal(err)
			}
			j, st, err := openJournal(d)
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			want := covered
			if cut >= mid {
				want = covered2
			}
			if cut == int64(len(whole)) {
				want = w.st.covered
			}
			if st.covered != want {
				t.Errorf("cut at %d: covered %d, want %d", cut, st.covered, want)
			}
			// What is begun after it continues it, and the torn tail counts for nothing.
			if err := j.begin(st.appendSnapshot(nil)); err != nil {
				t.Fatal(err)
			}
			j.close()
			if _, st2, err := openJournal(d); err != nil || st2.covered != want {
				t.Errorf("cut at %d: reopened: covered %v, %v", cut, st2, err)
			}
		}
	}
}

// TestJournalDamage: a changed byte in what was synced before something later was written is an error that
// no retry passes, never a shorter journal.
func TestJournalDamage(t *testing.T) {
	dir := t.TempDir()
	w := newTestJournal(t, dir, 3)
	w.add(5, true)
	w.add(4, true)
	before := w.j.synced
	w.add(3, true)
	w.j.close()
	whole, err := os.ReadFile(lastFile(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	d := t.TempDir()
	for at := range before {
		b := append([]byte(nil), whole...)
		b[at] ^= 0x10
		if err := os.WriteFile(filepath.Join(d, "hand-over-1.log"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openJournal(d); !relay.IsPermanent(err) {
			t.Fatalf("byte %d changed: %v, want a permanent error", at, err)
		}
	}
	// In a file with another behind it, every byte.
	os.Remove(filepath.Join(d, "hand-over-1.log"))
	w = newTestJournal(t, d, 3)
	w.add(5, true)
	w.begin()
	w.j.close()
	first, err := os.ReadFile(filepath.Join(d, "hand-over-1.log"))
	if err != nil {
		t.Fatal(err)
	}
	for at := range first {
		b := append([]byte(nil), first...)
		b[at] ^= 0x10
		if err := os.WriteFile(filepath.Join(d, "hand-over-1.log"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openJournal(d); !relay.IsPermanent(err) {
			t.Fatalf("first file: byte %d changed: %v, want a permanent error", at, err)
		}
	}
}

// TestJournalModel: random batches, notes, sessions, new files and reopenings read back as written.
func TestJournalModel(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		w := newTestJournal(t, dir, 4)
		for range 60 {
			parts := w.st.topics[0].parts
			switch p := parts[r.IntN(4)]; r.IntN(6) {
			case 0, 1:
				w.add(1+r.IntN(20), true)
			case 2:
				p.acked += r.Uint64N(p.n - p.acked + 1)
				p.off += 3
				w.write(kindNotes, p.appendNote(nil), false)
			case 3:
				x := session{p: p, pid: r.Int64N(1000), epoch: 3, n0: p.acked + r.Uint64N(p.n-p.acked+1), off: 9}
				w.write(kindSession, appendSessions(nil, []session{x}), true)
				x.apply()
			case 4:
				if w.j.sync() == nil {
					w.begin()
				}
				removeAll(w.j.drop())
			case 5:
				w.j.sync()
				w.j.close()
				j, st, err := openJournal(dir)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if got, want := st.appendSnapshot(nil), w.st.appendSnapshot(nil); !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d: read back %+v, want %+v", seed, *st.topics[0].parts[0], *w.st.topics[0].parts[0])
				}
				w.j, w.st = j, st
				w.begin()
			}
		}
		for k, l := range content(t, w.j) {
			for i := 1; i < len(l); i++ {
				if l[i] != l[i-1]+4 {
					t.Fatalf("seed %d: %s: entry %d after %d", seed, k, l[i], l[i-1])
				}
			}
		}
		w.j.close()
	}
}

// TestJournalDropsFiles: files go when their records are acknowledged, and not before.
func TestJournalDropsFiles(t *testing.T) {
	w := newTestJournal(t, t.TempDir(), 2)
	for range keepFiles + 3 {
		w.add(10, true)
		w.begin()
	}
	if gone := w.j.drop(); len(gone) != 0 {
		t.Fatalf("dropped %v with nothing acknowledged", gone)
	}
	p := w.st.topics[0].parts
	p[0].acked, p[1].acked = 100, 10
	if gone := w.j.drop(); len(gone) != 2 {
		t.Errorf("dropped %d files, want the 2 whose records are acknowledged in both partitions", len(gone))
	}
}

// TestJournalFileComesBack: a removed file that a power cut brought back is not mistaken for damage; a missing
// one with records that are not acknowledged is.
func TestJournalFileComesBack(t *testing.T) {
	dir := t.TempDir()
	w := newTestJournal(t, dir, 2)
	for range 4 {
		w.add(10, true)
		for _, p := range w.st.topics[0].parts {
			p.acked = p.n
		}
		w.begin()
	}
	w.add(10, true)
	w.j.close()
	os.Remove(filepath.Join(dir, "hand-over-2.log"))
	j, st, err := openJournal(dir)
	if err != nil || st.covered != 50 || len(j.files) != 3 {
		t.Fatalf("covered %+v, %v, want 50 from 3 files", st, err)
	}
	os.Remove(filepath.Join(dir, "hand-over-4.log"))
	os.Remove(filepath.Join(dir, "hand-over-5.log"))
	os.Remove(filepath.Join(dir, "hand-over-1.log"))
	w = newTestJournal(t, dir, 2) // file 3 and a new one, 4
	w.add(10, true)               // not acknowledged
	w.begin()                     // 5
	w.begin()                     // 6
	w.j.close()
	os.Remove(filepath.Join(dir, "hand-over-4.log"))
	cfg := testConfig(t, []string{"127.0.0.1:1"})
	cfg.StateDir = dir
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(ctxFor(t)); !relay.IsPermanent(err) || !strings.Contains(err.Error(), "are not there") {
		t.Errorf("Start = %v, want a permanent error", err)
	}
}

func FuzzJournal(f *testing.F) {
	dir := f.TempDir()
	w := newTestJournal(f, dir, 2)
	w.add(5, true)
	w.write(kindNotes, w.st.topics[0].parts[0].appendNote(nil), true)
	w.write(kindSession, appendSessions(nil, []session{{p: w.st.topics[0].parts[1], pid: 1, n0: 1}}), true)
	w.write(kindTopic, w.st.appendTopic(nil, w.st.topics[0], 1), true)
	b, err := os.ReadFile(lastFile(f, dir))
	if err != nil {
		f.Fatal(err)
	}
	// The fuzzer changes bodies; the frames around them are sound, as a checksum would stop it at once.
	for len(b) > 0 {
		kind, _, body, rest, ok := parseFrame(b)
		if !ok {
			f.Fatal("damaged seed")
		}
		f.Add(byte(kind), body, byte(kindBatch), body)
		b = rest
	}
	snap := append(preamble(nil, 0, 0), w.st.appendSnapshot(nil)...)
	f.Fuzz(func(t *testing.T, k1 byte, b1 []byte, k2 byte, b2 []byte) {
		d := t.TempDir()
		file := appendFrame(nil, kindSnapshot, 0, snap)
		file = appendFrame(file, frameKind(k1), 0, b1)
		file = appendFrame(file, frameKind(k2), 0, b2)
		if err := os.WriteFile(filepath.Join(d, "hand-over-1.log"), file, 0o600); err != nil {
			t.Fatal(err)
		}
		j, st, err := openJournal(d)
		if err != nil {
			return
		}
		for _, tp := range st.topics {
			for _, p := range tp.parts {
				if p.acked > p.n || p.n0 > p.n {
					t.Fatalf("%+v", p)
				}
			}
		}
		j.scan(func(h batchHead, start []uint64) error {
			return h.records(start, func(partCount, uint64, *journalRecord) error { return nil })
		})
	})
}

// TestFullDisk: nothing goes to Kafka that is not in the journal; Send says so, and Start goes on when there is room.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := mountTmpfs(dir, 64<<10); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("mount a tmpfs: %v", err)
		}
		t.Skipf("NOT TESTED: cannot mount a tmpfs: %v", err)
	}
	defer unmount(dir)
	c := cluster(t, kfake.SeedTopics(1, "a"))
	cfg := testConfig(t, c.ListenAddrs())
	cfg.StateDir = filepath.Join(dir, "session")
	s, _ := start(t, cfg)
	defer closeSink(t, s)
	ctx := ctxFor(t)
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 48<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	next := uint64(1)
	for ; err == nil; next += 50 {
		b := run("a", next, next+49)
		for i := range b.Records {
			b.Records[i] = big("a", next+uint64(i), noise(100+i))
		}
		if err = s.Send(ctx, b); next > 100_000 {
			t.Fatal("the disk is never full")
		}
	}
	if !strings.Contains(err.Error(), "hand-over journal") || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("Send = %v", err)
	}
	if _, err := s.Start(ctx); err == nil {
		t.Error("Start on the full disk succeeded")
	}
	if w := s.Status().Waiting; !strings.Contains(w, "no space left") {
		t.Errorf("Waiting = %q", w)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	next, err = s.Start(ctx)
	if err != nil {
		t.Fatal("Start with room again: ", err)
	}
	for i := range uint64(3) {
		if err := s.Send(ctx, run("a", next+10*i, next+10*i+9)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	once(t, c.ListenAddrs(), "a", 1, next+29)
}
