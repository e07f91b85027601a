package binlog

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// readBuffer holds what the kernel has at once; events are handed on from it without a copy.
const readBuffer = 256 << 10

// errSequence says that a packet of the stream is missing or was read twice.
var errSequence = errors.New("packets of the binlog stream are out of sequence")

// dump asks the server for its binlog from p and calls event for each event until something fails. The
// event's bytes are valid during the call only.
func (s *Source) dump(ctx context.Context, c *conn, p *position, how resumption, event func([]byte) error) error {
	if err := s.prepareDump(c, p, how.byGTID); err != nil {
		return err
	}
	c.ResetSequence()
	if err := c.WritePacket(s.dumpCommand(p, how.byGTID, how.from)); err != nil {
		return fmt.Errorf("ask for the binlog: %w", plain(err))
	}
	nc := &patientConn{Conn: c.Conn.Conn.Conn, idle: 3 * s.cfg.Heartbeat, waiting: &s.stats.waiting}
	defer s.stats.waiting.Store(0)
	r := packetReader{br: bufio.NewReaderSize(nc, readBuffer), seq: 1}
	for {
		packet, err := r.next()
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if errors.Is(err, errSequence) {
				return err
			}
			return fmt.Errorf("read the binlog: %w", plain(err))
		}
		if len(packet) == 0 {
			return errors.New("read the binlog: empty packet")
		}
		switch packet[0] {
		case mysql.OK_HEADER:
			err = event(packet[1:])
		case mysql.ERR_HEADER:
			e := serverError(c.HandleErrorPacket(append([]byte(nil), packet...)))
			if e == nil {
				return errors.New("read the binlog: error packet that is not understood")
			}
			if p.MariaDB {
				s.noteOldestGTID(ctx)
			}
			return s.dumpError(e, p)
		case mysql.EOF_HEADER:
			return errors.New("the server ended the binlog stream")
		default:
			return fmt.Errorf("read the binlog: packet of unknown kind 0x%02x", packet[0])
		}
		if err != nil {
			return err
		}
		r.done()
	}
}

// prepareDump tells the server what kind of replica we are.
func (s *Source) prepareDump(c *conn, p *position, byGTID bool) error {
	hb := s.cfg.Heartbeat.Nanoseconds()
	sets := []string{
		"SET @master_binlog_checksum='CRC32', @source_binlog_checksum='CRC32'",
		fmt.Sprintf("SET @master_heartbeat_period=%d, @source_heartbeat_period=%d", hb, hb),
		// A stable uuid lets MySQL end our own dead dump instead of seeing a second replica.
		fmt.Sprintf("SET @slave_uuid='%s', @replica_uuid='%s'", s.cfg.ReplicaUUID, s.cfg.ReplicaUUID),
		// While the log is full we read nothing: the server must not take that for a dead replica.
		fmt.Sprintf("SET SESSION net_write_timeout=%d", int(netWriteTimeout.Seconds())),
	}
	if c.mariadb {
		sets = append(sets, "SET @mariadb_slave_capability=4")
		if byGTID {
			sets = append(sets, "SET @slave_connect_state='"+p.maria.String()+"'", "SET @slave_gtid_strict_mode=1")
		}
	}
	for _, q := range sets {
		if err := c.exec(q); err != nil {
			return fmt.Errorf("%s: %w", q, plain(err))
		}
	}
	// COM_REGISTER_SLAVE makes us visible in SHOW REPLICAS: server id, three empty strings, port, rank, source id.
	pkt := append(make([]byte, 4, 32), mysql.COM_REGISTER_SLAVE)
	pkt = binary.LittleEndian.AppendUint32(pkt, s.cfg.ServerID)
	pkt = append(pkt, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	c.ResetSequence()
	if err := c.WritePacket(pkt); err != nil {
		return fmt.Errorf("register as a replica: %w", plain(err))
	}
	if _, err := c.ReadOKPacket(); err != nil {
		if e := serverError(err); e != nil {
			return s.dumpError(e, p)
		}
		return fmt.Errorf("register as a replica: %w", plain(err))
	}
	return nil
}

const netWriteTimeout = time.Hour

// dumpCommand is COM_BINLOG_DUMP_GTID on MySQL with GTIDs, else COM_BINLOG_DUMP; MariaDB takes its set
// from @slave_connect_state when no file is named.
func (s *Source) dumpCommand(p *position, byGTID bool, from uint64) []byte {
	pkt := make([]byte, 4, 64)
	if byGTID && !p.MariaDB {
		const throughGTID = 4
		set, _ := p.mysql.appendWire(nil, nil)
		pkt = append(pkt, mysql.COM_BINLOG_DUMP_GTID, throughGTID, 0)
		pkt = binary.LittleEndian.AppendUint32(pkt, s.cfg.ServerID)
		pkt = binary.LittleEndian.AppendUint32(pkt, 0)
		pkt = binary.LittleEndian.AppendUint64(pkt, 4)
		pkt = binary.LittleEndian.AppendUint32(pkt, uint32(len(set)))
		return append(pkt, set...)
	}
	file := p.File
	if byGTID {
		file, from = "", 4
	}
	pkt = append(pkt, mysql.COM_BINLOG_DUMP)
	pkt = binary.LittleEndian.AppendUint32(pkt, uint32(from))
	pkt = append(pkt, 0, 0)
	pkt = binary.LittleEndian.AppendUint32(pkt, s.cfg.ServerID)
	return append(pkt, file...)
}

// patientConn waits idle for each read at most: heartbeats come three times as often, so silence means
// that the path is dead. It notes that the reader waits.
type patientConn struct {
	net.Conn
	idle    time.Duration
	waiting interface{ Store(int64) }
}

func (p *patientConn) Read(b []byte) (int, error) {
	now := time.Now()
	if err := p.Conn.SetReadDeadline(now.Add(p.idle)); err != nil {
		return 0, err
	}
	p.waiting.Store(now.UnixNano())
	n, err := p.Conn.Read(b)
	p.waiting.Store(0)
	return n, err
}

// packetReader takes MySQL packets off a connection: length u24, sequence u8, bytes. One of the largest
// length goes on in the next.
type packetReader struct {
	br   *bufio.Reader
	seq  byte
	big  []byte // a packet that does not fit the buffer
	left int    // bytes to pass over before the next packet
}

// next returns the next packet, valid until done.
func (r *packetReader) next() ([]byte, error) {
	n, err := r.head()
	if err != nil {
		return nil, err
	}
	if n < mysql.MaxPayloadLen && 4+n <= r.br.Size() {
		p, err := r.br.Peek(4 + n) // the packet stays in the buffer
		if err != nil {
			return nil, cut(err)
		}
		r.left = 4 + n
		return p[4:], nil
	}
	r.big = r.big[:0]
	for {
		r.br.Discard(4)
		for left := n; left > 0; { // memory grows with what arrives, not with what is announced
			k := min(left, 1<<20)
			at := len(r.big)
			r.big = append(r.big, make([]byte, k)...)
			if _, err := io.ReadFull(r.br, r.big[at:]); err != nil {
				return nil, cut(err)
			}
			left -= k
		}
		if len(r.big) > maxEvent {
			return nil, fmt.Errorf("event of more than %d bytes", maxEvent)
		}
		if n < mysql.MaxPayloadLen {
			return r.big, nil
		}
		if n, err = r.head(); err != nil {
			return nil, cut(err)
		}
	}
}

func (r *packetReader) head() (int, error) {
	h, err := r.br.Peek(4)
	if err != nil {
		if len(h) > 0 {
			err = cut(err)
		}
		return 0, err
	}
	if h[3] != r.seq {
		return 0, errSequence
	}
	r.seq++
	return int(h[0]) | int(h[1])<<8 | int(h[2])<<16, nil
}

// done passes over the packet that next returned.
func (r *packetReader) done() {
	r.br.Discard(r.left)
	r.left = 0
	if cap(r.big) > 16<<20 { // one huge event must not stay in memory
		r.big = nil
	}
}

func cut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
