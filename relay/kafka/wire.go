package kafka

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"binrelay/functions"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A record batch of Kafka's format 2 (KIP-98): a header of 61 bytes and the records, perhaps compressed.
const batchHeader = 61

func varintLen(v int64) int { return (bits.Len64(uint64(v<<1)^uint64(v>>63)|1) + 6) / 7 }

// wireSize is the size of the body of a record, without its own length.
func wireSize(key, value []byte, headers []functions.Header, tsDelta, offDelta int64) int {
	n := 1 + varintLen(tsDelta) + varintLen(offDelta) + bytesLen(key) + bytesLen(value) + varintLen(int64(len(headers)))
	for i := range headers {
		n += varintLen(int64(len(headers[i].Key))) + len(headers[i].Key) + bytesLen(headers[i].Value)
	}
	return n
}

func bytesLen(b []byte) int {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + len(b)
}

// appendWireRecord adds a record as a batch holds it.
func appendWireRecord(dst, key, value []byte, headers []functions.Header, tsDelta, offDelta int64) []byte {
	dst = binary.AppendVarint(dst, int64(wireSize(key, value, headers, tsDelta, offDelta)))
	dst = append(dst, 0)
	dst = binary.AppendVarint(dst, tsDelta)
	dst = binary.AppendVarint(dst, offDelta)
	dst = appendWireBytes(dst, key)
	dst = appendWireBytes(dst, value)
	dst = binary.AppendVarint(dst, int64(len(headers)))
	for i := range headers {
		dst = binary.AppendVarint(dst, int64(len(headers[i].Key)))
		dst = append(dst, headers[i].Key...)
		dst = appendWireBytes(dst, headers[i].Value)
	}
	return dst
}

func appendWireBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // -1
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

// eachWireRecord takes the records of a batch apart: what follows the two deltas is the same in any batch.
func eachWireRecord(raw []byte, fn func(tsDelta int64, tail []byte)) {
	for len(raw) > 0 {
		n, k := binary.Varint(raw)
		body := raw[k : k+int(n)]
		raw = raw[k+int(n):]
		ts, k := binary.Varint(body[1:])
		_, l := binary.Varint(body[1+k:])
		fn(ts, body[1+k+l:])
	}
}

func appendWireTail(dst, tail []byte, tsDelta, offDelta int64) []byte {
	dst = binary.AppendVarint(dst, int64(1+varintLen(tsDelta)+varintLen(offDelta)+len(tail)))
	dst = append(dst, 0)
	dst = binary.AppendVarint(dst, tsDelta)
	dst = binary.AppendVarint(dst, offDelta)
	return append(dst, tail...)
}

// appendWireBatch adds the whole batch, compressed where that makes it smaller.
func appendWireBatch(dst []byte, comp kgo.Compressor, scratch *bytes.Buffer, raw []byte, count int32, firstMS, maxMS, pid int64, epoch int16, seq int32) []byte {
	var codec kgo.CompressionCodecType
	if comp != nil {
		scratch.Reset()
		if packed, c := comp.Compress(scratch, raw); c > 0 && len(packed) < len(raw) {
			raw, codec = packed, c
		}
	}
	at := len(dst)
	dst = append(dst, make([]byte, batchHeader)...)
	dst = append(dst, raw...)
	h := dst[at:]
	be := binary.BigEndian
	be.PutUint32(h[8:], uint32(len(h)-12))
	be.PutUint32(h[12:], 0xffffffff) // leader epoch: the broker's
	h[16] = 2
	be.PutUint16(h[21:], uint16(codec))
	be.PutUint32(h[23:], uint32(count-1))
	be.PutUint64(h[27:], uint64(firstMS))
	be.PutUint64(h[35:], uint64(maxMS))
	be.PutUint64(h[43:], uint64(pid))
	be.PutUint16(h[51:], uint16(epoch))
	be.PutUint32(h[53:], uint32(seq))
	be.PutUint32(h[57:], uint32(count))
	be.PutUint32(h[17:], crc32.Checksum(h[21:], castagnoli))
	return dst
}

// batchInfo is the header of a batch read back.
type batchInfo struct {
	base   int64 // offset
	last   int64 // offset of its last record, also after compaction
	pid    int64
	epoch  int16
	seq    int32
	length int // in bytes
}

// parseBatchInfo reads the header at the beginning of b; the records behind it need not be there.
func parseBatchInfo(b []byte) (i batchInfo, ok bool) {
	if len(b) < batchHeader || b[16] != 2 {
		return i, false
	}
	be := binary.BigEndian
	i.base = int64(be.Uint64(b))
	i.length = 12 + int(be.Uint32(b[8:]))
	i.last = i.base + int64(be.Uint32(b[23:]))
	i.pid = int64(be.Uint64(b[43:]))
	i.epoch = int16(be.Uint16(b[51:]))
	i.seq = int32(be.Uint32(b[53:]))
	return i, true
}
