package relaytest

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// gtid identifies a transaction on either flavour. Seq 0 means "none".
type gtid struct {
	uuid   [16]byte // MySQL
	domain uint32   // MariaDB
	server uint32   // MariaDB
	seq    uint64
	maria  bool
}

func (g gtid) String() string {
	switch {
	case g.seq == 0:
		return ""
	case g.maria:
		return fmt.Sprintf("%d-%d-%d", g.domain, g.server, g.seq)
	}
	return uuidText(g.uuid) + ":" + strconv.FormatUint(g.seq, 10)
}

func uuidText(u [16]byte) string {
	h := hex.EncodeToString(u[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func parseUUID(s string) (u [16]byte, err error) {
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(s), "-", ""))
	if err != nil || len(b) != 16 {
		return u, fmt.Errorf("%q is not a UUID", s)
	}
	return [16]byte(b), nil
}

// interval is the transaction numbers from first to last, both included.
type interval struct{ first, last uint64 }

// gtidSet is a set of executed transactions: intervals by UUID on MySQL, the last transaction of each
// domain on MariaDB (where everything before it counts as executed too).
type gtidSet struct {
	mysql map[[16]byte][]interval
	maria map[uint32]gtid
}

func (s *gtidSet) clone() gtidSet {
	c := gtidSet{mysql: map[[16]byte][]interval{}, maria: map[uint32]gtid{}}
	for k, v := range s.mysql {
		c.mysql[k] = slices.Clone(v)
	}
	for k, v := range s.maria {
		c.maria[k] = v
	}
	return c
}

// add adds n consecutive transactions that begin with g.
func (s *gtidSet) add(g gtid, n uint64) {
	if g.seq == 0 || n == 0 {
		return
	}
	if g.maria {
		if s.maria == nil {
			s.maria = map[uint32]gtid{}
		}
		g.seq += n - 1
		s.maria[g.domain] = g
		return
	}
	s.addInterval(g.uuid, interval{g.seq, g.seq + n - 1})
}

func (s *gtidSet) addInterval(u [16]byte, in interval) {
	if s.mysql == nil {
		s.mysql = map[[16]byte][]interval{}
	}
	list := s.mysql[u]
	if k := len(list); k > 0 && list[k-1].last+1 == in.first { // the usual case: the next one
		list[k-1].last = in.last
		return
	}
	list = append(list, in)
	sort.Slice(list, func(i, j int) bool { return list[i].first < list[j].first })
	merged := list[:1]
	for _, in := range list[1:] {
		if top := &merged[len(merged)-1]; in.first <= top.last+1 {
			top.last = max(top.last, in.last)
		} else {
			merged = append(merged, in)
		}
	}
	s.mysql[u] = merged
}

// executed returns how many consecutive transactions from g on are in the set: 0 when g is not.
func (s *gtidSet) executed(g gtid) uint64 {
	if g.maria {
		if last := s.maria[g.domain]; last.seq >= g.seq {
			return last.seq - g.seq + 1
		}
		return 0
	}
	for _, in := range s.mysql[g.uuid] {
		if in.first <= g.seq && g.seq <= in.last {
			return in.last - g.seq + 1
		}
	}
	return 0
}

// covers reports whether all of o is in s (MySQL; on MariaDB: every domain of o is as far in s).
func (s *gtidSet) covers(o *gtidSet) bool {
	for u, list := range o.mysql {
		for _, in := range list {
			if s.executed(gtid{uuid: u, seq: in.first}) < in.last-in.first+1 {
				return false
			}
		}
	}
	for d, g := range o.maria {
		if s.maria[d].seq < g.seq {
			return false
		}
	}
	return true
}

// String prints the set as the server does.
func (s *gtidSet) String() string {
	var out []string
	for u, list := range s.mysql {
		b := uuidText(u)
		for _, in := range list {
			b += fmt.Sprintf(":%d", in.first)
			if in.last != in.first {
				b += fmt.Sprintf("-%d", in.last)
			}
		}
		out = append(out, b)
	}
	sort.Strings(out)
	var domains []uint32
	for d := range s.maria {
		domains = append(domains, d)
	}
	slices.Sort(domains)
	for _, d := range domains {
		out = append(out, s.maria[d].String())
	}
	return strings.Join(out, ",")
}

// encode is the body of MySQL's previous-GTIDs event and of COM_BINLOG_DUMP_GTID.
func (s *gtidSet) encode() []byte {
	uuids := make([][16]byte, 0, len(s.mysql))
	for u := range s.mysql {
		uuids = append(uuids, u)
	}
	sort.Slice(uuids, func(i, j int) bool { return string(uuids[i][:]) < string(uuids[j][:]) })
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(uuids)))
	for _, u := range uuids {
		b = append(b, u[:]...)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(s.mysql[u])))
		for _, in := range s.mysql[u] {
			b = binary.LittleEndian.AppendUint64(b, in.first)
			b = binary.LittleEndian.AppendUint64(b, in.last+1)
		}
	}
	return b
}

// encodeList is the body of MariaDB's GTID list event.
func (s *gtidSet) encodeList() []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(s.maria)))
	for _, g := range s.maria {
		b = binary.LittleEndian.AppendUint32(b, g.domain)
		b = binary.LittleEndian.AppendUint32(b, g.server)
		b = binary.LittleEndian.AppendUint64(b, g.seq)
	}
	return b
}

// parseGTIDSet reads a set of either flavour from its text. Tags of MySQL 8.3+ are not known here.
func parseGTIDSet(text string, maria bool) (gtidSet, error) {
	s := gtidSet{mysql: map[[16]byte][]interval{}, maria: map[uint32]gtid{}}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		if maria {
			g := gtid{maria: true}
			if n, err := fmt.Sscanf(part, "%d-%d-%d", &g.domain, &g.server, &g.seq); n != 3 || err != nil {
				return s, fmt.Errorf("%q is not a MariaDB GTID", part)
			}
			s.maria[g.domain] = g
			continue
		}
		name, ranges, ok := strings.Cut(part, ":")
		u, err := parseUUID(name)
		if err != nil || !ok {
			return s, fmt.Errorf("%q is not a MySQL GTID set", part)
		}
		for r := range strings.SplitSeq(ranges, ":") {
			a, b, two := strings.Cut(r, "-")
			first, err := strconv.ParseUint(strings.TrimSpace(a), 10, 63)
			last := first
			if err == nil && two {
				last, err = strconv.ParseUint(strings.TrimSpace(b), 10, 63)
			}
			if err != nil || first == 0 || last < first {
				return s, fmt.Errorf("%q is not an interval of a MySQL GTID set", r)
			}
			s.addInterval(u, interval{first, last})
		}
	}
	return s, nil
}
