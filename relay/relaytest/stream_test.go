package relaytest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"binrelay/bench/services"
)

// opening asks for a dump from a file and position (or by GTID when set is not nil) and describes the
// first n events by what is told apart: type, header fields, and whether a checksum follows.
func opening(t *testing.T, c *client.Conn, f Flavor, checksum, file string, pos uint32, set mysql.GTIDSet, n int) (out []string) {
	t.Helper()
	defer c.Close()
	queries := []string{fmt.Sprintf("SET @master_binlog_checksum='%s', @source_binlog_checksum='%s', @master_heartbeat_period=1000000000, @source_heartbeat_period=1000000000", checksum, checksum)}
	pkt := []byte{0, 0, 0, 0}
	switch {
	case set != nil && f == MySQL:
		g := set.Encode()
		pkt = append(pkt, mysql.COM_BINLOG_DUMP_GTID, 4, 0, 77, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0)
		pkt = append(binary.LittleEndian.AppendUint32(pkt, uint32(len(g))), g...)
	default:
		if set != nil {
			queries = append(queries, "SET @mariadb_slave_capability=4, @slave_connect_state='"+set.String()+"'")
			file, pos = "", 0
		} else {
			queries = append(queries, "SET @mariadb_slave_capability=4")
		}
		pkt = binary.LittleEndian.AppendUint32(append(pkt, mysql.COM_BINLOG_DUMP), pos)
		pkt = append(append(pkt, 0, 0, 77, 0, 0, 0), file...)
	}
	for _, q := range queries {
		if _, err := c.Execute(q); err != nil {
			t.Fatal(err)
		}
	}
	c.ResetSequence()
	if err := c.WritePacket(pkt); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c.Conn.Conn)
	for len(out) < n {
		var h [4]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, int(h[0])|int(h[1])<<8|int(h[2])<<16)
		if _, err := io.ReadFull(r, p); err != nil {
			t.Fatal(err)
		}
		if p[0] != mysql.OK_HEADER {
			return append(out, fmt.Sprintf("packet %x: %.80s", p[0], p[9:]))
		}
		ev := p[1:]
		time := "now"
		if binary.LittleEndian.Uint32(ev) == 0 {
			time = "0"
		}
		if ev[4] == evCheckpoint { // a server writes them when it likes
			continue
		}
		place := "0"
		if p := binary.LittleEndian.Uint32(ev[13:]); p != 0 {
			place = "end"
		}
		body := ev[eventHeader:]
		crc := hasChecksum(ev)
		if crc {
			body = body[:len(body)-4]
		}
		s := fmt.Sprintf("type %d time %s place %s flags %x crc %t", ev[4], time, place, binary.LittleEndian.Uint16(ev[17:]), crc)
		switch ev[4] {
		case evRotate:
			s += fmt.Sprintf(" to the start: %t", body[0] == 4)
		case evFormat:
			s += fmt.Sprintf(" created %t", binary.LittleEndian.Uint32(body[52:]) != 0)
		case evHeartbeat:
			s += fmt.Sprintf(" %d bytes", len(body)) // the file's name
		}
		out = append(out, s)
	}
	return out
}

func TestStreamOpensAsServersDo(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f Flavor) {
		t.Parallel()
		db := services.Database(t, string(f))
		if err := db.Exec("FLUSH BINARY LOGS", "CREATE DATABASE d", "USE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		src := startSource(t, SourceConfig{Flavor: f})
		src.DDL("d", "CREATE DATABASE d")
		src.Tx(Insert(src.CreateTable("CREATE TABLE d.t (id INT PRIMARY KEY)"), 1))
		realSet, err := db.GTIDs()
		if err != nil {
			t.Fatal(err)
		}
		status := "SHOW MASTER STATUS"
		if f == MySQL {
			status = "SHOW BINARY LOG STATUS"
		}
		for _, checksum := range []string{"NONE", "CRC32"} {
			for _, from := range []string{"start", "end", "gtid"} {
				n := map[string]int{"start": 6, "end": 3, "gtid": 5}[from]
				ask := func(c *client.Conn, set string) []string {
					r, err := c.Execute(status)
					if err != nil {
						t.Fatal(err)
					}
					file, _ := r.GetString(0, 0)
					file = strings.Clone(file)
					pos := uint32(4)
					if from == "end" {
						p, _ := r.GetInt(0, 1)
						pos = uint32(p)
					}
					var g mysql.GTIDSet
					if from == "gtid" {
						if g, err = mysql.ParseGTIDSet(string(f), set); err != nil {
							t.Fatal(err)
						}
					}
					return opening(t, c, f, checksum, file, pos, g, n)
				}
				c, err := db.Connect("")
				if err != nil {
					t.Fatal(err)
				}
				want := strings.Join(ask(c, realSet), "\n")
				got := strings.Join(ask(connect(t, src), src.GTIDs()), "\n")
				if got != want {
					t.Errorf("checksum %s, from %s:\n%s\nserver\n%s", checksum, from, got, want)
				}
			}
		}
	})
}
