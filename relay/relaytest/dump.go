package relaytest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// dump is one running binlog dump: where it starts, and how it writes.
type dump struct {
	c        *conn
	flags    uint16
	serverID uint32
	file     string
	pos      uint32
	set      *gtidSet // what the client has; nil: by file and position

	skipped bool // transactions that the client has, just now

	w    *bufio.Writer
	seq  byte // packet sequence number
	head [4]byte
	sent int64         // events
	gone chan struct{} // closed when the client hung up
	buf  []byte        // the copy that is being patched
}

const (
	dumpNonBlock = 1 // end at the end of the log, as mysqlbinlog asks
	dumpAnnotate = 2 // MariaDB: send annotate events
	dumpBuffer   = 256 << 10
)

// errDumpOver ends the connection without an error packet.
var errDumpOver = errors.New("dump over")

func fatalDump(format string, args ...any) error {
	return mysql.NewError(1236, fmt.Sprintf(format, args...))
}

// run streams until the client goes, the server stops, or an error packet is due, which it returns.
func (d *dump) run() error {
	s := d.c.s
	s.dumps.Add(1)
	s.faults.mu.Lock()
	err := s.faults.dumps.take()
	s.faults.mu.Unlock()
	if err != nil {
		return err
	}
	f, i, err := d.begin()
	if err != nil {
		return err
	}
	nc := d.c.mc.Conn.Conn // with TLS not d.c itself
	d.w = bufio.NewWriterSize(nc, dumpBuffer)
	d.seq = d.c.mc.Sequence
	d.gone = make(chan struct{})
	if d.flags&dumpNonBlock == 0 {
		// A server that only writes would not notice a client that hung up until the next event.
		s.wg.Go(func() {
			io.Copy(io.Discard, nc)
			close(d.gone)
		})
	}
	err = d.stream(f, i)
	if d.w.Flush() != nil || errors.Is(err, errDumpOver) {
		return errDumpOver
	}
	d.c.mc.Sequence = d.seq
	if err == io.EOF { // non-blocking dump: the log's end
		p := []byte{0, 0, 0, 0, mysql.EOF_HEADER, 0, 0, 0, 0}
		d.c.mc.WritePacket(p)
		return errDumpOver
	}
	d.c.mc.WriteValue(err)
	return errDumpOver
}

// begin finds the file and the block to start with, refuses what a server refuses, and ends an older dump
// of the same replica.
func (d *dump) begin() (f *logFile, i int, err error) {
	s, c := d.c.s, d.c
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.build.Checksum && c.userVariable("@source_binlog_checksum", "@master_binlog_checksum") == "" {
		return nil, 0, fatalDump("Slave can not handle replication events with the checksum that master is configured to log; the first event '%s' at 4", s.log.files[0].name)
	}
	who := c.userVariable("@replica_uuid", "@slave_uuid")
	if who == "" || s.cfg.Flavor == MariaDB {
		who = fmt.Sprint(d.serverID)
	}
	for o := range s.conns {
		if o != c && o.dumping != "" && o.dumping == who {
			o.kick(fatalDump("A slave with the same server_uuid/server_id as this slave has connected to the master; the first event '%s' at 4", s.log.files[0].name))
		}
	}
	if f, err = s.startFile(d); err != nil {
		return nil, 0, err
	}
	c.dumping = who
	if d.set == nil && d.pos > 4 {
		if d.pos > f.size {
			return nil, 0, fatalDump("Client requested master to start replication from position > file size; the first event '%s' at %d", f.name, d.pos)
		}
		for i < len(f.blocks) && f.blocks[i].end() <= d.pos {
			i++
		}
	}
	return f, i, nil
}

// startFile chooses the file; Source.mu is held.
func (s *Source) startFile(d *dump) (*logFile, error) {
	files := s.log.files
	if d.set == nil {
		if d.pos < 4 {
			if d.pos != 0 || d.file != "" {
				return nil, fatalDump("Client requested master to start replication from impossible position; the first event '%s' at %d", d.file, d.pos)
			}
			d.pos = 4
		}
		if d.file == "" {
			return files[0], nil
		}
		if f := s.log.find(d.file); f != nil {
			return f, nil
		}
		return nil, fatalDump("Could not find first log file name in binary log index file")
	}
	if s.cfg.NoGTID && s.cfg.Flavor != MariaDB {
		return nil, fatalDump("The replication sender thread cannot start in AUTO_POSITION mode: this server has GTID_MODE = OFF instead of ON.")
	}
	if s.cfg.Flavor == MariaDB {
		for domain, g := range d.set.maria {
			if last := s.executed.maria[domain]; g.seq > last.seq {
				return nil, fatalDump("Error: connecting slave requested to start from GTID %s, which is not in the master's binlog", g)
			}
		}
		if !d.set.covers(&s.log.purged) {
			return nil, fatalDump("Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old and required binlog files have been purged.")
		}
	} else {
		own := gtidSet{mysql: map[[16]byte][]interval{s.uuid: d.set.mysql[s.uuid]}}
		if !s.executed.covers(&own) {
			return nil, fatalDump("Slave has more GTIDs than the master has, using the master's SERVER_UUID. This may indicate that the end of the binary log was truncated or that the last binary log file was lost.")
		}
		if !d.set.covers(&s.log.purged) {
			return nil, fatalDump("Cannot replicate because the source purged required binary logs. Replicate the missing transactions from elsewhere, or provision a new replica from backup. The GTID set sent by the replica is '%s', and the missing transactions are in '%s'", d.set, &s.log.purged)
		}
	}
	f := files[0]
	for _, g := range files[1:] {
		if !d.set.covers(&g.before) {
			break
		}
		f = g // everything before it is executed already
	}
	return f, nil
}

// stream writes files from block i of f on, then tails the log.
func (d *dump) stream(f *logFile, i int) error {
	s := d.c.s
	from := d.pos
	for first := true; ; first = false {
		if !first || d.set != nil || from < 4 {
			from = 4
		}
		b := s.builderOf(f)
		if first { // before the description, the client's wish counts
			b.Checksum = strings.EqualFold(d.c.userVariable("@source_binlog_checksum", "@master_binlog_checksum"), "CRC32") && b.Checksum
		}
		if err := d.event(b.Rotate(f.name, uint64(from), true)); err != nil {
			return err
		}
		if i > 0 || from > 4 { // the description always comes; out of order it has no position
			s.mu.Lock()
			fd := append([]byte(nil), f.blocks[0].data...)
			s.mu.Unlock()
			clear(fd[13:17])
			binary.LittleEndian.PutUint32(fd[len(fd)-4:], crc32.ChecksumIEEE(fd[:len(fd)-4]))
			if err := d.event(fd); err != nil {
				return err
			}
			i = max(i, 1)
		}
		if err := d.streamFile(f, i, from); err != nil {
			return err
		}
		s.mu.Lock()
		next := s.log.after(f)
		s.mu.Unlock()
		if next == nil {
			return fatalDump("could not find next log; the first event '%s' at 4, the last event read from '%s'", f.name, f.name)
		}
		f, i = next, 0
	}
}

// builderOf is a builder for artificial events of a file: with its server's id and checksums.
func (s *Source) builderOf(f *logFile) Builder {
	s.mu.Lock()
	defer s.mu.Unlock()
	fd := f.blocks[0].data
	return Builder{Flavor: s.cfg.Flavor, ServerID: binary.LittleEndian.Uint32(fd[5:]), Checksum: fd[len(fd)-5] == 1}
}

// streamFile writes the blocks of one file from i on until the file is complete and all was sent.
func (d *dump) streamFile(f *logFile, i int, from uint32) error {
	s := d.c.s
	heartbeat := d.c.heartbeat()
	b := s.builderOf(f)
	for {
		s.mu.Lock()
		blocks, done, end := f.blocks[i:], f.done, f.size
		var wake <-chan struct{}
		if len(blocks) == 0 && !done {
			wake = s.log.wait()
		}
		s.mu.Unlock()
		for k := range blocks {
			if err := d.block(&b, &blocks[k], from); err != nil {
				return err
			}
		}
		i += len(blocks)
		if len(blocks) > 0 {
			continue
		}
		if done {
			return nil
		}
		if err := d.reached(&b, end); err != nil {
			return err
		}
		if err := d.w.Flush(); err != nil {
			return errDumpOver
		}
		if d.flags&dumpNonBlock != 0 {
			return io.EOF
		}
		idle, err := d.idle(wake, heartbeat)
		if err != nil {
			return err
		}
		if !idle {
			continue
		}
		if err := d.event(b.Heartbeat(f.name, end)); err != nil {
			return err
		}
		if err := d.w.Flush(); err != nil {
			return errDumpOver
		}
	}
}

// idle waits for the next append; it reports true when a heartbeat is due before one came.
func (d *dump) idle(wake <-chan struct{}, heartbeat time.Duration) (bool, error) {
	var tick <-chan time.Time
	if heartbeat > 0 {
		t := time.NewTimer(heartbeat)
		defer t.Stop()
		tick = t.C
	}
	select {
	case <-wake:
		return false, nil
	case <-tick:
		return true, nil
	case <-d.gone:
	case <-d.c.done:
	case <-d.c.kicked:
		return false, d.c.kickErr
	}
	return false, errDumpOver
}

// reached tells a client of MariaDB that the transactions it has were passed over.
func (d *dump) reached(b *Builder, pos uint32) error {
	if !d.skipped || b.Flavor != MariaDB {
		return nil
	}
	d.skipped = false
	return d.event(b.reached(d.set, pos))
}

// block sends what of a block lies behind the position and is not executed by the client.
func (d *dump) block(build *Builder, b *block, from uint32) error {
	select {
	case <-d.c.kicked:
		return d.c.kickErr
	case <-d.c.done:
		return errDumpOver
	default:
	}
	n := b.transactions()
	if n == 0 {
		return d.events(b.data, b.start, from)
	}
	for k := uint64(0); k < n; {
		g := b.first
		g.seq += k
		if d.set != nil && g.seq != 0 {
			if skip := d.set.executed(g); skip > 0 {
				k += min(skip, n-k)
				d.skipped = true
				continue
			}
		}
		data, pos := b.transaction(k)
		if err := d.reached(build, pos); err != nil {
			return err
		}
		k++
		if d.set == nil && pos+uint32(len(data)) <= from {
			continue
		}
		if b.copies > 1 {
			if err := d.copyOf(data, pos, g); err != nil {
				return err
			}
			continue
		}
		if err := d.events(data, pos, from); err != nil {
			return err
		}
	}
	return nil
}

// events sends events that lie from pos on, but for those before the start position.
func (d *dump) events(data []byte, pos, from uint32) error {
	annotate := d.c.s.cfg.Flavor != MariaDB || d.flags&dumpAnnotate != 0
	for len(data) > 0 {
		n := binary.LittleEndian.Uint32(data[9:])
		ev := data[:n]
		data, pos = data[n:], pos+n
		if pos <= from && d.set == nil || ev[4] == evAnnotate && !annotate {
			continue
		}
		if err := d.event(ev); err != nil {
			return err
		}
	}
	return nil
}
