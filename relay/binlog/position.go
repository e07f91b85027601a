package binlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// position is where reading goes on: what Part.Pos encodes and Stream decodes again.
//
// MariaDB and MySQL with gtid_mode=ON are resumed by the GTID set; MySQL without, by file and offset,
// on the same server only (its uuid). The set is kept exactly in both ways, so that a change of
// gtid_mode can be followed. Layout, little endian:
//
//	version u8 | flags u8 | server uuid 16 bytes | offset u64 | file len u16 | file | GTID set
type position struct {
	MariaDB  bool
	SetKnown bool     // the set is exactly what was read before (File, Pos)
	Server   [16]byte // server_uuid, zero on MariaDB
	File     string
	Pos      uint64 // offset in File of the next transaction, 64 bits
	mysql    mysqlSet
	maria    mariaSet
}

const (
	posVersion  = 1
	posMariaDB  = 1 << 0
	posSetKnown = 1 << 1
	posOffset   = 2 + 16 // of the offset in the encoding
)

var errPosition = errors.New("damaged source position")

func (p *position) gtids() string {
	if p.MariaDB {
		return p.maria.String()
	}
	return p.mysql.String()
}

// String is for people: "binlog.000003:1234 gtid 0-1-5".
func (p *position) String() string {
	s := p.File + ":" + strconv.FormatUint(p.Pos, 10)
	if g := p.gtids(); g != "" {
		s += " gtid " + g
	}
	return s
}

// FormatPosition prints an encoded Part.Pos for people.
func FormatPosition(b []byte) (string, error) {
	p, err := parsePosition(b)
	if err != nil {
		return "", err
	}
	return p.String(), nil
}

func parsePosition(b []byte) (p position, err error) {
	c := cursor{b: b}
	if v := c.u8(); v != posVersion && !c.bad {
		return p, fmt.Errorf("source position of version %d, this program knows %d", v, posVersion)
	}
	flags := c.u8()
	p.MariaDB = flags&posMariaDB != 0
	p.SetKnown = flags&posSetKnown != 0
	copy(p.Server[:], c.bytes(16))
	p.Pos = c.u64()
	p.File = string(c.bytes(int(c.u16())))
	if c.bad {
		return p, errPosition
	}
	if p.MariaDB {
		p.maria, err = parseMariaWire(c.b)
	} else {
		p.mysql, err = parseMySQLWire(c.b)
	}
	if err != nil {
		return p, errPosition
	}
	return p, nil
}

// livePosition is a position that moves with the stream and keeps its encoding up to date: one
// transaction costs patching 8 or 16 bytes, whatever the size of the set.
type livePosition struct {
	mu  sync.Mutex // Status reads while the stream moves on
	p   position
	enc []byte
	set int   // offset of the set in enc
	end []int // MySQL: see mysqlSet.appendWire
}

func newLivePosition(p position) *livePosition {
	l := &livePosition{p: p}
	l.encode()
	return l
}

func (l *livePosition) encode() {
	p := &l.p
	flags := byte(0)
	if p.MariaDB {
		flags |= posMariaDB
	}
	if p.SetKnown {
		flags |= posSetKnown
	}
	l.enc = append(l.enc[:0], posVersion, flags)
	l.enc = append(l.enc, p.Server[:]...)
	l.enc = binary.LittleEndian.AppendUint64(l.enc, p.Pos)
	l.enc = binary.LittleEndian.AppendUint16(l.enc, uint16(len(p.File)))
	l.enc = append(l.enc, p.File...)
	l.set = len(l.enc)
	if p.MariaDB {
		l.enc = p.maria.appendWire(l.enc)
	} else {
		l.enc, l.end = p.mysql.appendWire(l.enc, l.end)
	}
}

// bytes is the encoding; valid until the position moves again.
func (l *livePosition) bytes() []byte { return l.enc }

// move sets the offset.
func (l *livePosition) move(pos uint64) {
	l.mu.Lock()
	l.p.Pos = pos
	binary.LittleEndian.PutUint64(l.enc[posOffset:], pos)
	l.mu.Unlock()
}

// file goes to another binlog file.
func (l *livePosition) file(name string, pos uint64) {
	l.mu.Lock()
	l.p.File, l.p.Pos = name, pos
	l.encode()
	l.mu.Unlock()
}

func (l *livePosition) addMySQL(sid *[16]byte, tag []byte, gno uint64) {
	l.mu.Lock()
	if l.p.mysql.add(sid, tag, gno) {
		binary.LittleEndian.PutUint64(l.enc[l.set+l.end[l.p.mysql.last]:], gno+1)
	} else {
		l.encode()
	}
	l.mu.Unlock()
}

func (l *livePosition) addMariaDB(g mariaGTID) {
	l.mu.Lock()
	if l.p.maria.add(g) {
		g.appendWire(l.enc[:l.set+4+16*l.p.maria.last])
	} else {
		l.encode()
	}
	l.mu.Unlock()
}

// setMySQL makes the set known (from a PREVIOUS_GTIDS event).
func (l *livePosition) setMySQL(s mysqlSet) {
	l.mu.Lock()
	l.p.mysql, l.p.SetKnown = s, true
	l.encode()
	l.mu.Unlock()
}

func (l *livePosition) snapshot() (file string, pos uint64, gtid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.p.File, l.p.Pos, l.p.gtids()
}

// Start is where an empty log begins (MYSQL_START).
type Start struct {
	kind  startKind
	gtids string // as written
	File  string
	Pos   uint64
	maria bool // the set is MariaDB's
}

type startKind byte

const (
	startNow startKind = iota
	startEarliest
	startGTID
	startFile
)

// ParseStart reads "now" (or ""), "earliest", a GTID set of either flavour, or "file:offset".
func ParseStart(text string) (Start, error) {
	text = strings.TrimSpace(text)
	switch strings.ToLower(text) {
	case "", "now":
		return Start{}, nil
	case "earliest":
		return Start{kind: startEarliest}, nil
	}
	if s, err := parseMariaSet(text); err == nil && len(s.domains) > 0 {
		return Start{kind: startGTID, gtids: s.String(), maria: true}, nil
	}
	s, err := parseMySQLSet(text)
	if err == nil && !s.empty() {
		return Start{kind: startGTID, gtids: s.String()}, nil
	}
	if head, _, ok := strings.Cut(text, ":"); ok {
		if _, isUUID := parseUUID(head); isUUID {
			return Start{}, err
		}
	}
	if i := strings.LastIndexByte(text, ':'); i > 0 {
		pos, err := strconv.ParseUint(text[i+1:], 10, 63)
		if err == nil && pos >= 4 && !strings.ContainsAny(text[:i], "/\\ ,:") {
			return Start{kind: startFile, File: text[:i], Pos: pos}, nil
		}
	}
	return Start{}, fmt.Errorf("%q is not now, earliest, a GTID set (uuid:1-5 or 0-1-5) or file:offset (offset from 4)", clip(text))
}

func (s Start) String() string {
	switch s.kind {
	case startEarliest:
		return "earliest"
	case startGTID:
		return s.gtids
	case startFile:
		return s.File + ":" + strconv.FormatUint(s.Pos, 10)
	}
	return "now"
}
