package binlog

import (
	"bufio"
	"bytes"
	"testing"

	"binrelay/relay"
)

// BenchmarkRead takes packets off a stream (the floor), and with the assembler behind it. One operation is
// one transaction; the events of one-row transactions are five, as MySQL writes them.
func BenchmarkRead(b *testing.B) {
	for _, x := range []struct {
		name string
		rows int
		crc  bool
	}{{"1row", 1, false}, {"1row-crc", 1, true}, {"60rows", 60, false}, {"60rows-crc", 60, true}} {
		s := newScript(false, x.crc).file("bin.000001")
		var row []string
		for range x.rows {
			row = append(row, "please leave the order at the front desk, thanks; customer@example.com, 12 pieces")
		}
		const trx = 2000
		for range trx {
			s.begin().table(7, "shop", "orders").insert(7, row...).xid()
		}
		stream := s.packets()
		p := position{SetKnown: true, File: "bin.000001", Pos: 4}
		m := Matcher{}
		run := func(b *testing.B, event func([]byte) error) {
			in := bytes.NewReader(nil)
			br := bufio.NewReaderSize(in, readBuffer)
			b.ReportAllocs()
			b.SetBytes(int64(len(stream) / trx))
			for n := 0; n < b.N; n += trx {
				in.Reset(stream)
				br.Reset(in)
				r := packetReader{br: br, seq: 1}
				for {
					ev, err := r.next()
					if err != nil {
						break
					}
					if err := event(ev[1:]); err != nil {
						b.Fatal(err)
					}
					r.done()
				}
			}
		}
		b.Run(x.name+"/floor=packets", func(b *testing.B) { run(b, func([]byte) error { return nil }) })
		b.Run(x.name+"/assemble", func(b *testing.B) {
			bytes := 0
			a := newAssembler(&m, p, defaultPartBytes, func(p relay.Part) error { bytes += len(p.Data); return nil })
			run(b, func(ev []byte) error {
				if ev[4] == evRotate { // from the beginning again
					a.live.p.mysql = mysqlSet{}
					a.live.encode()
					a.end = 4
				}
				return a.event(ev)
			})
			if bytes == 0 {
				b.Fatal("nothing came out")
			}
		})
	}
}
