package relaytest

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// copyOf sends one copy of a repeated transaction: positions and GTID are this copy's own.
func (d *dump) copyOf(data []byte, pos uint32, g gtid) error {
	d.buf = append(d.buf[:0], data...)
	checksum := hasChecksum(data)
	for b := d.buf; len(b) > 0; {
		n := binary.LittleEndian.Uint32(b[9:])
		ev := b[:n]
		b = b[n:]
		pos += n
		binary.LittleEndian.PutUint32(ev[13:], pos)
		switch ev[4] {
		case evGTID:
			binary.LittleEndian.PutUint64(ev[eventHeader+17:], g.seq)
		case evMariaGTID:
			binary.LittleEndian.PutUint64(ev[eventHeader:], g.seq)
		}
		if checksum {
			binary.LittleEndian.PutUint32(ev[n-4:], crc32.ChecksumIEEE(ev[:n-4]))
		}
		if err := d.event(ev); err != nil {
			return err
		}
	}
	return nil
}

// hasChecksum tells whether events carry a checksum, by looking at the first one.
func hasChecksum(data []byte) bool {
	n := binary.LittleEndian.Uint32(data[9:])
	return binary.LittleEndian.Uint32(data[n-4:]) == crc32.ChecksumIEEE(data[:n-4])
}

// event writes one event as packets of at most 16 MiB, and cuts the connection when a fault says so.
func (d *dump) event(ev []byte) error {
	f := &d.c.s.faults
	d.sent++
	if every := f.cutEvery.Load(); every > 0 && d.sent > every {
		return d.cut()
	}
	if left := f.cutBytes.Load(); left > 0 {
		if after := f.cutBytes.Add(-int64(len(ev))); after <= 0 {
			d.packet(ev[:max(0, min(len(ev)-1, int(left)))], len(ev))
			f.cutBytes.Store(0)
			return d.cut()
		}
	}
	if err := d.packet(ev, len(ev)); err != nil {
		return err
	}
	if f.cutEvents.Load() > 0 && f.cutEvents.Add(-1) == 0 {
		return d.cut()
	}
	return nil
}

func (d *dump) cut() error {
	d.w.Flush()
	d.c.Close()
	return errDumpOver
}

// packet frames an event of the given size; less of it may be written, for a cut inside.
func (d *dump) packet(ev []byte, size int) error {
	for rest, first := size+1, true; ; first = false {
		n := min(rest, mysql.MaxPayloadLen)
		d.head = [4]byte{byte(n), byte(n >> 8), byte(n >> 16), d.seq}
		d.w.Write(d.head[:])
		d.seq++
		body := n
		if first {
			d.w.WriteByte(mysql.OK_HEADER)
			body--
		}
		body = min(body, len(ev))
		if _, err := d.w.Write(ev[:body]); err != nil {
			return errDumpOver
		}
		ev = ev[body:]
		if rest -= n; n < mysql.MaxPayloadLen {
			return nil
		}
	}
}
