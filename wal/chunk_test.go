package wal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"reflect"
	"testing"
)

// mendCRC makes a stored chunk's checksum right again, as only a test or an attacker would.
func mendCRC(b []byte) []byte {
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return b
}

func testRing(t testing.TB, key []byte) (*keyring, *sealer) {
	t.Helper()
	k, err := newKeyring(key)
	if err != nil {
		t.Fatal(err)
	}
	s, err := k.sealer()
	if err != nil {
		t.Fatal(err)
	}
	return k, s
}

func sampleChunks() []chunk {
	plain := chunk{number: 7, visible: 41, micros: 1_760_000_000_000_000, pos: []byte("binlog.000003:4")}
	plain.addEntry(41, []byte("hello"))
	plain.addEntry(42, nil)
	plain.addEntry(43, bytes.Repeat([]byte("compressible "), 500))
	first := chunk{number: 8, visible: 43}
	first.addEntry(44, content(44, 100))
	first.addFragment(45, content(45, 3000)[:1000], 0, 3000)
	middle := chunk{number: 9, visible: 43, voids: []span{{44, 44}}}
	middle.addFragment(45, content(45, 3000)[1000:2000], 1000, 3000)
	last := chunk{number: 10, visible: 46, pos: []byte{}}
	last.addFragment(45, content(45, 3000)[2000:], 2000, 3000)
	last.addEntry(46, []byte("x"))
	idle := chunk{number: 11, first: 47, visible: 46, pos: []byte("moved on")}
	return []chunk{plain, first, middle, last, idle}
}

func TestChunkRoundTrip(t *testing.T) {
	for _, key := range [][]byte{nil, bytes.Repeat([]byte{3}, 32)} {
		k, s := testRing(t, key)
		var prev *chunk
		for _, want := range sampleChunks() {
			b := want.encode(nil, s)
			var got storedChunk
			if err := got.decode(b); err != nil {
				t.Fatal(err)
			}
			if _, err := got.payload(nil, k); err != nil {
				t.Fatal(err)
			}
			if len(got.voids) == 0 {
				got.voids = nil
			}
			if len(got.raw) == 0 {
				got.raw = nil
			}
			if !reflect.DeepEqual(got.chunk, want) {
				t.Errorf("got %+v\nwant %+v", got.chunk, want)
			}
			if prev != nil {
				if err := want.follows(prev); err != nil {
					t.Error(err)
				}
			}
			prev = &want
			for i := range b { // any byte
				b[i] ^= 1
				if err := got.decode(b); err == nil {
					t.Errorf("byte %d changed and nobody noticed", i)
				}
				b[i] ^= 1
			}
		}
	}
}

func TestChunkFollows(t *testing.T) {
	c := sampleChunks()
	for _, bad := range [][2]int{{0, 2}, {1, 3}, {1, 0}, {2, 2}, {3, 3}} {
		if err := c[bad[1]].follows(&c[bad[0]]); err == nil {
			t.Errorf("chunk %d may follow chunk %d", bad[1], bad[0])
		}
	}
	given := chunk{number: 9, visible: 43} // entry 45 was given up: the next one is 46
	given.addEntry(46, nil)
	if err := given.follows(&c[1]); err != nil {
		t.Error(err)
	}
}

// FuzzChunk: whatever the bytes, decoding ends with an error or a chunk whose records can be walked.
func FuzzChunk(f *testing.F) {
	key := bytes.Repeat([]byte{3}, 32)
	k, s := testRing(f, key)
	for _, c := range sampleChunks() {
		f.Add(c.encode(nil, nil), false)
		f.Add(c.encode(nil, s), false)
		f.Add(c.encode(nil, nil), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, mend bool) {
		if mend && len(b) >= chunkHeader { // reach behind the checksum
			b = mendCRC(bytes.Clone(b))
			binary.LittleEndian.PutUint32(b, chunkMagic)
			b = mendCRC(b)
		}
		var c storedChunk
		if c.decode(b) != nil {
			return
		}
		raw, err := c.payload(nil, k)
		if err != nil {
			return
		}
		if len(raw) > 2*maxChunkBytes || len(c.voids) > maxVoids {
			t.Fatalf("%d bytes, %d voids from %d bytes", len(raw), len(c.voids), len(b))
		}
		for it := (records{c: &c.chunk}); it.i < c.count; {
			if _, err := it.next(); err != nil {
				return
			}
		}
		// What decodes can be encoded, and is the same then.
		var again storedChunk
		if err := again.decode(c.chunk.encode(nil, nil)); err != nil {
			t.Fatalf("encoded again: %v", err)
		}
		if _, err := again.payload(nil, k); err != nil || !bytes.Equal(again.raw, c.raw) {
			t.Fatalf("encoded again, the records differ (%v)", err)
		}
	})
}

// FuzzSummary: whatever is in SEALED, reading it ends with an error or a summary.
func FuzzSummary(f *testing.F) {
	var s summary
	for _, c := range sampleChunks() {
		if err := s.add(&c, 0); err != nil {
			f.Fatal(err)
		}
	}
	s.files = []fileSum{{"000001.vlog", 4711, 42}, {"MANIFEST", 1, 2}}
	f.Add(s.marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 8 {
			b = bytes.Clone(b)
			binary.LittleEndian.PutUint32(b, sealedMagic)
			binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
		}
		var s summary
		if s.unmarshal(b) == nil && len(s.voids)*16+len(s.files)*16+len(s.last.pos) > len(b) {
			t.Fatal("more than there was")
		}
	})
}
