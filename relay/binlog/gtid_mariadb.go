package binlog

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// mariaSet is a MariaDB GTID position: the last transaction of each replication domain, sorted by
// domain. The zero value is the empty position, from which the server sends its whole binlog.
type mariaSet struct {
	domains []mariaGTID
	last    int // index that add touched last
}

type mariaGTID struct {
	domain, server uint32
	seq            uint64
}

// add makes g the position of its domain, whatever was there: after a failover the server id changes,
// and without strict mode the number may even go down. known says that the domain was there already.
func (s *mariaSet) add(g mariaGTID) (known bool) {
	if s.last < len(s.domains) && s.domains[s.last].domain == g.domain {
		s.domains[s.last] = g
		return true
	}
	i, ok := slices.BinarySearchFunc(s.domains, g.domain, func(x mariaGTID, d uint32) int {
		switch {
		case x.domain < d:
			return -1
		case x.domain > d:
			return 1
		}
		return 0
	})
	s.last = i
	if ok {
		s.domains[i] = g
		return true
	}
	s.domains = slices.Insert(s.domains, i, g)
	return false
}

// String prints the position as the server does: "0-1-100,7-2-5".
func (s *mariaSet) String() string { return string(s.appendText(nil)) }

func (s *mariaSet) appendText(dst []byte) []byte {
	for i, g := range s.domains {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = g.appendText(dst)
	}
	return dst
}

func (g mariaGTID) appendText(dst []byte) []byte {
	dst = strconv.AppendUint(dst, uint64(g.domain), 10)
	dst = strconv.AppendUint(append(dst, '-'), uint64(g.server), 10)
	return strconv.AppendUint(append(dst, '-'), g.seq, 10)
}

// appendWire writes 16 bytes a domain, after their number: domain, server, sequence.
func (s *mariaSet) appendWire(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s.domains)))
	for _, g := range s.domains {
		dst = g.appendWire(dst)
	}
	return dst
}

func (g mariaGTID) appendWire(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, g.domain)
	dst = binary.LittleEndian.AppendUint32(dst, g.server)
	return binary.LittleEndian.AppendUint64(dst, g.seq)
}

func parseMariaWire(b []byte) (s mariaSet, err error) {
	c := cursor{b: b}
	n := c.u32()
	if c.bad || uint64(len(c.b)) != uint64(n)*16 {
		return s, errGTIDSet
	}
	for range n {
		g := mariaGTID{c.u32(), c.u32(), c.u64()}
		if k := len(s.domains); k > 0 && s.domains[k-1].domain >= g.domain {
			return s, errGTIDSet
		}
		s.domains = append(s.domains, g)
	}
	return s, nil
}

// parseMariaSet reads the text form: domain-server-sequence, separated by commas.
func parseMariaSet(text string) (s mariaSet, err error) {
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		f := strings.Split(part, "-")
		if len(f) != 3 {
			return s, fmt.Errorf("GTID position: %q is not domain-server-sequence", clip(part))
		}
		d, err1 := strconv.ParseUint(f[0], 10, 32)
		v, err2 := strconv.ParseUint(f[1], 10, 32)
		q, err3 := strconv.ParseUint(f[2], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			return s, fmt.Errorf("GTID position: %q is not domain-server-sequence", clip(part))
		}
		if s.add(mariaGTID{uint32(d), uint32(v), q}) {
			return s, fmt.Errorf("GTID position: domain %d twice", d)
		}
	}
	return s, nil
}
