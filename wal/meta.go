package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// Meta values live in files meta-NAME: magic u32 | crc32c u32 of all that follows | name length u32 | name | value.
const (
	metaPrefix = "meta-"
	metaMagic  = 0x4d435242 // "BRCM"
	maxMeta    = 16 << 20
)

var metaName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// Meta returns a value saved beside the log, nil when there is none of that name.
func (l *Log) Meta(name string) ([]byte, error) {
	if !metaName.MatchString(name) {
		return nil, fmt.Errorf("wal: bad meta name %q", name)
	}
	l.metaMu.Lock()
	defer l.metaMu.Unlock()
	b, err := os.ReadFile(filepath.Join(l.dir, metaPrefix+name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wal: read meta value: %w", err)
	}
	le := binary.LittleEndian
	if len(b) < 12+len(name) || le.Uint32(b) != metaMagic || crc32.Checksum(b[8:], castagnoli) != le.Uint32(b[4:]) ||
		string(b[12:12+len(name)]) != name || int(le.Uint32(b[8:])) != len(name) {
		return nil, &CorruptError{Dir: l.dir, Segment: metaPrefix + name, Err: errChunkCRC}
	}
	return b[12+len(name):], nil
}

// SetMeta saves a small value beside the log. When it returns it is durable; after a crash it is the old or
// the new one. It is in clear also in an encrypted log. nil removes it.
func (l *Log) SetMeta(name string, v []byte) error {
	switch {
	case !metaName.MatchString(name):
		return fmt.Errorf("wal: bad meta name %q", name)
	case len(v) > maxMeta:
		return fmt.Errorf("wal: meta value %s has %d bytes, the limit is %d", name, len(v), maxMeta)
	case l.readOnly:
		return ErrReadOnly
	}
	l.metaMu.Lock()
	defer l.metaMu.Unlock()
	if l.closed.Load() {
		return ErrClosed // another process may own the directory by now
	}
	if v == nil {
		err := os.Remove(filepath.Join(l.dir, metaPrefix+name))
		if err == nil {
			err = syncDir(l.dir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("wal: remove meta value: %w", err)
		}
		return nil
	}
	le := binary.LittleEndian
	b := le.AppendUint32(make([]byte, 8, 12+len(name)+len(v)), uint32(len(name)))
	b = append(append(b, name...), v...)
	le.PutUint32(b, metaMagic)
	le.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	if err := writeFile(l.dir, metaPrefix+name, b); err != nil {
		return fmt.Errorf("wal: save meta value: %w", err)
	}
	return nil
}
