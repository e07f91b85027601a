package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// summary is all that must be known of a segment without opening it. For a sealed segment it is the file
// SEALED; for the active one it grows with each commit.
type summary struct {
	firstNum uint64 // number of the first chunk, 0: the segment is empty
	first    uint64 // its first sequence number
	head     bool   // its first record goes on with an entry of an earlier segment
	last     chunk  // header of the last chunk; pos is the position as of then
	voids    []span // declared by its chunks, in order
	keyID    uint64 // of the encrypted chunks, 0: none is
	files    []fileSum
}

// fileSum pins a file of a sealed segment, byte by byte.
type fileSum struct {
	name string
	size int64
	crc  uint32
}

// add takes the next chunk in; it keeps nothing of c.
func (s *summary) add(c *chunk, keyID uint64) error {
	if s.firstNum == 0 {
		s.firstNum, s.first, s.head = c.number, c.first, c.head
	} else if err := c.follows(&s.last); err != nil {
		return err
	}
	if keyID != 0 {
		if s.keyID != 0 && s.keyID != keyID {
			return fmt.Errorf("chunk %d changes the encryption key inside a segment", c.number)
		}
		s.keyID = keyID
	}
	s.voids = append(s.voids, c.voids...)
	pos := s.last.pos
	s.last = chunk{number: c.number, first: c.first, count: c.count, head: c.head, tail: c.tail,
		visible: c.visible, micros: c.micros}
	if c.pos != nil {
		s.last.pos = append(pos[:0], c.pos...)
		if s.last.pos == nil {
			s.last.pos = []byte{}
		}
	}
	return nil
}

// begins is the first sequence number whose entry begins in the segment.
func (s *summary) begins() uint64 {
	if s.head {
		return s.first + 1
	}
	return s.first
}

const (
	sealedFile    = "SEALED"
	sealedMagic   = 0x53435242 // "BRCS"
	sealedVersion = 1
)

// SEALED, little endian: magic u32 | crc32c u32 of all that follows | version u32 | flags u32 (1 head, 2 tail,
// 4 position) | first number, last number, first seq, seq of the last chunk's first record, records of the
// last chunk, visible, unix µs, key id: u64 each | position u32 | voids u32 | files u32 | position |
// (from u64, to u64)* | (size u64, crc32c u32, name length u32, name)*
func (s *summary) marshal() []byte {
	var flags uint32
	if s.head {
		flags |= 1
	}
	if s.last.tail {
		flags |= 2
	}
	if s.last.pos != nil {
		flags |= 4
	}
	le := binary.LittleEndian
	b := le.AppendUint32(make([]byte, 8, 256), sealedVersion)
	b = le.AppendUint32(b, flags)
	for _, v := range []uint64{s.firstNum, s.last.number, s.first, s.last.first, uint64(s.last.count),
		s.last.visible, s.last.micros, s.keyID} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint32(b, uint32(len(s.last.pos)))
	b = le.AppendUint32(b, uint32(len(s.voids)))
	b = le.AppendUint32(b, uint32(len(s.files)))
	b = append(b, s.last.pos...)
	for _, v := range s.voids {
		b = le.AppendUint64(b, v.From)
		b = le.AppendUint64(b, v.To)
	}
	for _, f := range s.files {
		b = le.AppendUint64(b, uint64(f.size))
		b = le.AppendUint32(b, f.crc)
		b = le.AppendUint32(b, uint32(len(f.name)))
		b = append(b, f.name...)
	}
	le.PutUint32(b, sealedMagic)
	le.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return b
}

var errSealed = errors.New("not what was written")

func (s *summary) unmarshal(b []byte) error {
	const fixed = 16 + 8*8 + 12
	le := binary.LittleEndian
	if len(b) < fixed || le.Uint32(b) != sealedMagic || crc32.Checksum(b[8:], castagnoli) != le.Uint32(b[4:]) {
		return errSealed
	}
	if v := le.Uint32(b[8:]); v != sealedVersion {
		return fmt.Errorf("version %d, this program knows %d", v, sealedVersion)
	}
	flags := le.Uint32(b[12:])
	u := func(i int) uint64 { return le.Uint64(b[16+8*i:]) }
	*s = summary{firstNum: u(0), first: u(2), head: flags&1 != 0, keyID: u(7),
		last: chunk{number: u(1), first: u(3), count: uint32(u(4)), tail: flags&2 != 0, visible: u(5), micros: u(6)}}
	if s.firstNum == 0 || s.first == 0 || s.last.number < s.firstNum || s.last.first < s.first {
		return errSealed
	}
	posLen, voids, files := int(le.Uint32(b[80:])), int(le.Uint32(b[84:])), int(le.Uint32(b[88:]))
	b = b[fixed:]
	if posLen+16*voids > len(b) {
		return errSealed
	}
	if flags&4 != 0 {
		s.last.pos = append([]byte{}, b[:posLen]...)
	}
	b = b[posLen:]
	for ; voids > 0; voids-- {
		s.voids = append(s.voids, span{le.Uint64(b), le.Uint64(b[8:])})
		b = b[16:]
	}
	for ; files > 0; files-- {
		if len(b) < 16 || int(le.Uint32(b[12:])) > len(b)-16 {
			return errSealed
		}
		n := int(le.Uint32(b[12:]))
		s.files = append(s.files, fileSum{string(b[16 : 16+n]), int64(le.Uint64(b)), le.Uint32(b[8:])})
		b = b[16+n:]
	}
	return nil
}

// readSealed reads a segment's summary; os.ErrNotExist when it was never sealed. A SEALED that is there
// and unreadable is damage: it was renamed into place whole.
func readSealed(dir string) (*summary, error) {
	b, err := os.ReadFile(filepath.Join(dir, sealedFile))
	if err != nil {
		return nil, err
	}
	s := new(summary)
	if err := s.unmarshal(b); err != nil {
		return nil, fmt.Errorf("%s: %w", sealedFile, err)
	}
	return s, nil
}

// sumFiles checksums every file of a segment directory but SEALED.
func sumFiles(dir string) ([]fileSum, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []fileSum
	buf := make([]byte, 256<<10)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), sealedFile) {
			continue
		}
		f, err := sumFile(filepath.Join(dir, e.Name()), buf)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out, nil
}

func sumFile(path string, buf []byte) (fileSum, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileSum{}, err
	}
	defer f.Close()
	s := fileSum{name: filepath.Base(path)}
	for {
		n, err := f.Read(buf)
		s.crc = crc32.Update(s.crc, castagnoli, buf[:n])
		s.size += int64(n)
		if err == io.EOF {
			return s, nil
		}
		if err != nil {
			return s, err
		}
	}
}

// checkFiles compares the files of a sealed segment with its seal. Value logs are left out where their
// chunks are going to be checked one by one anyway.
func (s *summary) checkFiles(dir string, valueLogs bool) error {
	buf := make([]byte, 64<<10)
	for _, want := range s.files {
		if !valueLogs && strings.HasSuffix(want.name, vlogExt) {
			continue
		}
		got, err := sumFile(filepath.Join(dir, want.name), buf)
		switch {
		case err != nil:
			return err
		case got.size != want.size:
			return fmt.Errorf("%s has %d bytes, %d were written", want.name, got.size, want.size)
		case got.crc != want.crc:
			return fmt.Errorf("%s: checksum mismatch", want.name)
		}
	}
	return nil
}
