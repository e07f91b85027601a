package binlog

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
)

var errCompressed = errors.New("damaged value of a COMPRESSED column")

// inflater reads MariaDB's COMPRESSED values one after the other into the same memory.
type inflater struct {
	src     bytes.Reader
	zlib    io.ReadCloser
	deflate io.ReadCloser
	out     []byte
}

// keepInflated bounds the memory that an inflater keeps between values.
const keepInflated = 1 << 20

// uncompress returns what a value of a COMPRESSED column holds, valid until the next call. The value begins with a
// byte: method in the upper half (0: stored, 8: zlib), then a bit for bare deflate, then how
// many bytes of length follow, big endian.
func (d *Decoder) uncompress(v []byte) ([]byte, error) {
	if len(v) == 0 {
		return nil, nil
	}
	head, v := v[0], v[1:]
	const stored, deflated = 0, 8
	switch head >> 4 {
	case stored:
		return v, nil
	case deflated:
	default:
		return nil, fmt.Errorf("COMPRESSED by method %d, unknown to this version", head>>4)
	}
	n := int(head & 7)
	if n == 0 || n > 4 || n > len(v) {
		return nil, errCompressed
	}
	size := int(beUint(v[:n]))
	// Deflate makes at most 1032 bytes of one: a length beyond that is damage, not a reason to allocate.
	if size > len(v)*1032 {
		return nil, errCompressed
	}
	return d.zip.read(v[n:], size, head&8 != 0)
}

func (z *inflater) read(v []byte, size int, bare bool) ([]byte, error) {
	z.src.Reset(v)
	r, err := z.reader(bare)
	if err != nil {
		return nil, errCompressed
	}
	if cap(z.out) < size || cap(z.out) > keepInflated {
		z.out = make([]byte, size)
	}
	z.out = z.out[:size]
	if _, err := io.ReadFull(r, z.out); err != nil {
		return nil, errCompressed
	}
	var more [1]byte
	if n, err := r.Read(more[:]); n != 0 || err != io.EOF { // for zlib this also checks the sum
		return nil, errCompressed
	}
	return z.out, nil
}

func (z *inflater) reader(bare bool) (io.Reader, error) {
	if bare {
		if z.deflate == nil {
			z.deflate = flate.NewReader(&z.src)
			return z.deflate, nil
		}
		return z.deflate, z.deflate.(flate.Resetter).Reset(&z.src, nil)
	}
	if z.zlib == nil {
		r, err := zlib.NewReader(&z.src)
		if err != nil {
			return nil, err
		}
		z.zlib = r
		return r, nil
	}
	return z.zlib, z.zlib.(zlib.Resetter).Reset(&z.src, nil)
}
