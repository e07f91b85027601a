package binlog

import (
	"errors"
	"fmt"

	"github.com/go-mysql-org/go-mysql/replication"

	"binrelay/relay"
)

// open begins a transaction if none is open: only an old server or a test writes one without a GTID event.
func (a *assembler) open(h eventHeader) {
	if a.trx.open {
		return
	}
	a.start(h)
	a.trx.anonymous = true
	a.mute()
}

func (a *assembler) start(h eventHeader) {
	a.drop()
	t := &a.trx
	*t = trx{open: true, number: t.number + 1, start: a.begin, serverID: h.ServerID, micros: uint64(h.Time) * 1e6,
		tag: t.tag[:0], savepoints: t.savepoints[:0], emitted: t.emitted}
	a.gtid = a.gtid[:0]
	a.frags.reset()
}

// drop forgets what was received of a transaction. Parts of it that are out already are dropped by the
// next part, which is a first one.
func (a *assembler) drop() {
	a.buf = a.buf[:0]
	if a.trx.open && a.trx.xa {
		a.park.abort()
	}
	a.trx.open = false
	a.trx.emitted = false
}

// mute decides whether the open transaction is only counted.
func (a *assembler) mute() {
	if a.skipTo > 0 {
		a.trx.early = a.begin < a.skipTo
		a.trx.muted = a.trx.early
		if !a.trx.early {
			a.skipTo = 0
		}
	}
}

// begins takes any of the GTID events.
func (a *assembler) begins(h eventHeader, body []byte) error {
	if (h.Type == evMariaGTID) != a.mariadb {
		return relay.Permanent(fmt.Errorf("GTID event of the other flavour at %s: this file was not written by this kind of server", a.place()), "begin behind it with MYSQL_START")
	}
	a.start(h)
	t := &a.trx
	var err error
	switch h.Type {
	case evMariaGTID:
		err = a.beginsMaria(h, body)
	case evGTIDTagged:
		err = a.beginsTagged(body)
	default:
		err = a.beginsMySQL(h.Type, body)
	}
	if err != nil {
		t.open = false
		return fmt.Errorf("GTID event at %s: %w", a.place(), err)
	}
	a.mute()
	if !a.mariadb && !t.anonymous && a.live.p.mysql.contains(&t.sid, t.tag, t.gno) {
		t.muted = true // resumed by file and offset: what the set has is delivered
	}
	return nil
}

// beginsTagged reads a GTID event of MySQL 8.3, which has an encoding of its own that the library knows.
func (a *assembler) beginsTagged(body []byte) (err error) {
	defer func() {
		if recover() != nil { // of the library, on damaged bytes
			err = errors.New("tagged GTID is not understood")
		}
	}()
	var e replication.GtidTaggedLogEvent
	t := &a.trx
	if e.Decode(body) != nil || len(e.SID) != len(t.sid) || e.GNO <= 0 {
		return errors.New("tagged GTID is not understood")
	}
	tag := e.Tag.String()
	if tag != "" && !isTag(tag) {
		return errors.New("tagged GTID is not understood")
	}
	copy(t.sid[:], e.SID)
	t.tag = append(t.tag[:0], tag...)
	t.gno = uint64(e.GNO)
	if v := e.OriginalCommitTimestamp; v != 0 {
		t.micros = v
	}
	a.textMySQL()
	return nil
}

// beginsMySQL reads flags u8, sid 16 bytes, gno i64, then typ u8, last committed i64, sequence i64, and
// since 8.0 the commit times: immediate u56, whose top bit says that the original one follows, u56.
func (a *assembler) beginsMySQL(typ byte, body []byte) error {
	t := &a.trx
	c := cursor{b: body}
	c.skip(1)
	copy(t.sid[:], c.bytes(16))
	t.gno = c.u64()
	if c.bad {
		return errShort
	}
	if len(c.b) >= 1+16+7 {
		c.skip(1 + 16)
		v := c.uint(7)
		if v>>55 != 0 {
			v = c.uint(7)
		}
		if c.bad {
			return errShort
		}
		if v != 0 {
			t.micros = v
		}
	}
	if typ == evAnonymousGTID {
		t.anonymous = true
		return nil
	}
	if t.gno == 0 || t.gno > maxGNO {
		return fmt.Errorf("transaction number %d", t.gno)
	}
	a.textMySQL()
	return nil
}

func (a *assembler) textMySQL() {
	t := &a.trx
	a.gtid = appendSID(a.gtid[:0], &t.sid)
	if len(t.tag) > 0 {
		a.gtid = append(append(a.gtid, ':'), t.tag...)
	}
	a.gtid = appendUint(append(a.gtid, ':'), t.gno)
}

// MariaDB's GTID flags.
const (
	mariaStandalone  = 1
	mariaGroupCommit = 2
	mariaPreparedXA  = 64
	mariaCompletedXA = 128
)

// beginsMaria reads seq u64, domain u32, flags u8, then a commit id u64 if bit 2 is set, then the xid if
// it belongs to an XA transaction: format u32, two lengths u8, data.
func (a *assembler) beginsMaria(h eventHeader, body []byte) error {
	t := &a.trx
	c := cursor{b: body}
	seq, domain, flags := c.u64(), c.u32(), c.u8()
	if c.bad {
		return errShort
	}
	t.maria = mariaGTID{domain, h.ServerID, seq}
	t.standalone = flags&mariaStandalone != 0
	a.gtid = t.maria.appendText(a.gtid[:0])
	if flags&(mariaPreparedXA|mariaCompletedXA) != 0 {
		if flags&mariaGroupCommit != 0 {
			c.skip(8)
		}
		format := c.u32()
		g, b := int(c.u8()), int(c.u8())
		t.xid = xidKey(format, c.bytes(g), c.bytes(b))
		if c.bad {
			return errShort
		}
		if flags&mariaPreparedXA != 0 {
			return a.xaStart(t.xid)
		}
	}
	return nil
}
