package relaytest

import (
	"encoding/binary"
	"io"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// BenchmarkDump is how fast the embedded source sends: transactions of one and of 60 rows, repeated under
// new GTIDs. The other end only counts, so that this is the floor of every benchmark that reads from it.
func BenchmarkDump(b *testing.B) {
	for _, c := range []struct {
		name       string
		rows       int
		noChecksum bool
	}{{"1row", 1, false}, {"60rows", 60, false}, {"1row-nocrc", 1, true}} {
		b.Run(c.name, func(b *testing.B) {
			src := startSource(b, SourceConfig{NoChecksum: c.noChecksum})
			t := CreateTable("CREATE TABLE shop.item (id BIGINT UNSIGNED PRIMARY KEY, name VARCHAR(60), email VARCHAR(120), price DECIMAL(12,2), at DATETIME(3), note TEXT)")
			var tx []Change
			for i := range c.rows {
				tx = append(tx, Insert(t, i, "a name", "somebody@example.com", "12345.67", "2026-01-02 03:04:05.678", "please leave it at the front desk"))
			}
			_, from := src.Position()
			if err := src.Repeat(b.N, tx); err != nil {
				b.Fatal(err)
			}
			conn := connect(b, src)
			if _, err := conn.Execute("SET @source_binlog_checksum='CRC32'"); err != nil {
				b.Fatal(err)
			}
			conn.ResetSequence()
			pkt := binary.LittleEndian.AppendUint32([]byte{0, 0, 0, 0, mysql.COM_BINLOG_DUMP}, uint32(from))
			pkt = append(binary.LittleEndian.AppendUint32(append(pkt, dumpNonBlock, 0), 99), "binlog.000001"...)
			b.ResetTimer()
			if err := conn.WritePacket(pkt); err != nil {
				b.Fatal(err)
			}
			n, err := io.Copy(io.Discard, conn.Conn.Conn)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(n / int64(b.N))
			b.ReportMetric(float64(5*b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(c.rows*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
