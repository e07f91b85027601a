package wal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sort"
)

// This file reads Badger's value log without Badger. What a segment holds is decided here, before Badger
// opens a directory that a kill left behind, because Badger's own recovery cuts files at the first byte it
// does not like and says nothing. It is also how a log is looked at without changing a byte of it.
//
// A value log file is a header of 20 bytes and then entries:
//
//	meta u8 | user meta u8 | key length, value length, expiry: uvarint | key | value | crc32c u32 big endian
//
// where the key is ours, the chunk number, and 8 bytes of version that Badger adds.
// canary_test.go pins this for the Badger version in go.mod.
const (
	vlogExt    = ".vlog"
	vlogHeader = 20
	vlogKey    = 8 + 8
	vlogEntry  = 22 + vlogKey + 4 // at most, around a value
)

// place is where a stored chunk lies in the value log.
type place struct {
	file int // index into rawSegment.files
	off  int64
	n    int
}

// rawSegment is the value log of a segment as it lies on disk.
type rawSegment struct {
	dir    string
	files  []*os.File
	places []place // of chunks sum.firstNum and up
	sum    summary
	torn   int64 // bytes of an unfinished write found behind the last chunk
}

// scanSegment reads every chunk of dir's value log and checks it. A torn write at the end is what a crash
// leaves and is left out; anything else that is wrong is an error, and what is returned with it tells how
// far it went. fromDisk reads past the page cache.
func scanSegment(dir string, fromDisk bool) (*rawSegment, error) {
	r := &rawSegment{dir: dir}
	names, err := filepath.Glob(filepath.Join(dir, "*"+vlogExt))
	if err != nil {
		return r, err
	}
	sort.Strings(names)
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			r.close()
			return r, err
		}
		r.files = append(r.files, f)
		if fromDisk { // after a failed sync the kernel may hold pages as clean that never reached the disk
			dropCache(f)
		}
		if err := r.scanFile(len(r.files) - 1); err != nil {
			r.close()
			return r, fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
	}
	return r, nil
}

func (r *rawSegment) scanFile(file int) error {
	br := bufio.NewReaderSize(&sectionFrom{r.files[file], vlogHeader}, 64<<10)
	var buf []byte
	var c storedChunk
	off := int64(vlogHeader)
	for {
		key, head, vlen, err := entryHeader(br)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		n := head + vlogKey + vlen + 4
		if key && n <= encodedMax(2*maxChunkBytes)+vlogEntry {
			if cap(buf) < n {
				buf = make([]byte, n, n+n/4)
			}
			buf = buf[:n]
			if _, err := io.ReadFull(br, buf); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
				return err
			}
			if crc32.Checksum(buf[:n-4], castagnoli) == binary.BigEndian.Uint32(buf[n-4:]) {
				value := buf[head+vlogKey : n-4]
				err := c.decode(value)
				if err == nil && binary.BigEndian.Uint64(buf[head:]) != c.number {
					err = errChunkForm
				}
				if err == nil {
					err = r.take(&c, place{file, off + int64(head) + vlogKey, vlen})
				}
				if err != nil {
					return fmt.Errorf("at byte %d: %w", off, err)
				}
				off += int64(n)
				continue
			}
		}
		return r.tornAt(file, off)
	}
}

// take adds the next chunk. A chunk that is there twice comes from a recovery that was itself interrupted.
func (r *rawSegment) take(c *storedChunk, p place) error {
	if r.sum.firstNum != 0 && c.number <= r.sum.last.number {
		return nil
	}
	r.places = append(r.places, p)
	return r.sum.add(&c.chunk, c.keyID)
}

// tornAt decides what an entry that is not whole means. One commit is in flight at a time, so behind a
// torn write there is nothing; a whole chunk behind it proves that bytes changed after they were written.
func (r *rawSegment) tornAt(file int, off int64) error {
	b := make([]byte, encodedMax(maxChunkBytes)+64<<10)
	n, err := r.files[file].ReadAt(b, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	b = b[:n]
	if len(bytes.TrimLeft(b, "\x00")) > 0 {
		r.torn = int64(len(bytes.TrimRight(b, "\x00")))
	}
	magic := binary.LittleEndian.AppendUint32(nil, chunkMagic)
	for i := 0; ; i++ {
		k := bytes.Index(b[i:], magic)
		if k < 0 {
			return nil
		}
		i += k
		var c storedChunk
		if size := storedSize(b[i:]); size > 0 && size <= len(b)-i && c.decode(b[i:i+size]) == nil &&
			c.number > r.sum.last.number+1 {
			return fmt.Errorf("at byte %d: the chunk there is damaged, chunk %d behind it is whole", off, c.number)
		}
	}
}

// storedSize is how long the stored chunk at the beginning of b says it is, 0 when it is no chunk.
func storedSize(b []byte) int {
	if len(b) < chunkHeader {
		return 0
	}
	n := uint64(chunkHeader) + uint64(binary.LittleEndian.Uint32(b[52:])) +
		16*uint64(binary.LittleEndian.Uint32(b[56:])) + uint64(binary.LittleEndian.Uint32(b[60:]))
	if b[9]&flagEncrypted != 0 {
		n += cryptHeader
	}
	if n > uint64(encodedMax(2*maxChunkBytes)) {
		return 0
	}
	return int(n)
}

// entryHeader peeks at the header of an entry: whether its key has our length, its size, the value's size.
func entryHeader(br *bufio.Reader) (key bool, head, vlen int, err error) {
	b, err := br.Peek(22)
	if len(b) == 0 {
		return false, 0, 0, err
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, 0, 0, err
	}
	if len(b) < 2 {
		return false, 0, 0, nil
	}
	at := 2
	var v [3]uint64
	for i := range v {
		n, k := binary.Uvarint(b[at:])
		if k <= 0 {
			return false, 0, 0, nil
		}
		v[i], at = n, at+k
	}
	if v[0] != vlogKey || v[1] > 1<<30 {
		return false, 0, 0, nil
	}
	return true, at, int(v[1]), nil
}

// view calls fn with the stored chunk; the bytes are valid during the call.
func (r *rawSegment) view(number uint64, fn func([]byte) error) error {
	i := number - r.sum.firstNum
	if i >= uint64(len(r.places)) {
		return fmt.Errorf("chunk %d is missing", number)
	}
	p := r.places[i]
	b := make([]byte, p.n)
	if _, err := r.files[p.file].ReadAt(b, p.off); err != nil {
		return fmt.Errorf("read chunk %d: %w", number, err)
	}
	return fn(b)
}

func (r *rawSegment) close() error {
	for _, f := range r.files {
		f.Close()
	}
	r.files = nil
	return nil
}

// sectionFrom reads f from an offset on.
type sectionFrom struct {
	f   *os.File
	off int64
}

func (s *sectionFrom) Read(b []byte) (int, error) {
	n, err := s.f.ReadAt(b, s.off)
	s.off += int64(n)
	if n > 0 {
		return n, nil
	}
	return 0, err
}
