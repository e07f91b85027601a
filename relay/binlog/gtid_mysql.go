package binlog

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// mysqlSet is an executed set of MySQL GTIDs: for each (server uuid, tag) a sorted list of disjoint,
// non-adjacent runs. The zero value is the empty set.
//
// It is made for a reader: one transaction after another, so add finds the run to extend at once, and
// the wire form kept beside it (see livePosition) is patched instead of written anew.
type mysqlSet struct {
	sources []mysqlSource // sorted by sid, then tag
	last    int           // index into sources that add touched last
}

type mysqlSource struct {
	sid  [16]byte
	tag  string
	runs []run
}

// run is the transaction numbers first..last, both included.
type run struct{ first, last uint64 }

// maxGNO is the largest transaction number MySQL gives.
const maxGNO = 1<<63 - 1

// add puts one GTID into the set. extended says that it only moved the end of the last run of
// sources[s.last], which is what nearly every transaction does.
func (s *mysqlSet) add(sid *[16]byte, tag []byte, gno uint64) (extended bool) {
	i, ok := s.find(sid, tag)
	if !ok {
		s.sources = slices.Insert(s.sources, i, mysqlSource{sid: *sid, tag: string(tag), runs: []run{{gno, gno}}})
		s.last = i
		return false
	}
	s.last = i
	src := &s.sources[i]
	if n := len(src.runs); n > 0 && src.runs[n-1].last+1 == gno {
		src.runs[n-1].last = gno
		return true
	}
	src.addRun(run{gno, gno})
	return false
}

// contains reports whether the set has the GTID.
func (s *mysqlSet) contains(sid *[16]byte, tag []byte, gno uint64) bool {
	i, ok := s.find(sid, tag)
	if !ok {
		return false
	}
	runs := s.sources[i].runs
	if n := len(runs); n > 0 && gno > runs[n-1].last {
		return false
	}
	j, ok := slices.BinarySearchFunc(runs, gno, func(r run, g uint64) int {
		switch {
		case r.last < g:
			return -1
		case r.first > g:
			return 1
		}
		return 0
	})
	_ = j
	return ok
}

func (s *mysqlSet) find(sid *[16]byte, tag []byte) (int, bool) {
	if s.last < len(s.sources) && s.sources[s.last].sid == *sid && s.sources[s.last].tag == string(tag) {
		return s.last, true
	}
	return slices.BinarySearchFunc(s.sources, 0, func(m mysqlSource, _ int) int {
		if c := bytes.Compare(m.sid[:], sid[:]); c != 0 {
			return c
		}
		return strings.Compare(m.tag, string(tag))
	})
}

func (m *mysqlSource) addRun(r run) {
	// i is the first run that r touches or comes before.
	i, _ := slices.BinarySearchFunc(m.runs, r.first, func(x run, first uint64) int {
		if x.last+1 < first {
			return -1
		}
		return 1
	})
	j := i
	for j < len(m.runs) && m.runs[j].first <= r.last+1 {
		r.first = min(r.first, m.runs[j].first)
		r.last = max(r.last, m.runs[j].last)
		j++
	}
	m.runs = slices.Replace(m.runs, i, j, r)
}

// minus returns the GTIDs of s that are not in o.
func (s *mysqlSet) minus(o *mysqlSet) mysqlSet {
	var out mysqlSet
	for i := range s.sources {
		src := &s.sources[i]
		rest := src.runs
		if j, ok := o.find(&src.sid, []byte(src.tag)); ok {
			rest = subtract(rest, o.sources[j].runs)
		}
		if len(rest) > 0 {
			out.sources = append(out.sources, mysqlSource{src.sid, src.tag, slices.Clone(rest)})
		}
	}
	return out
}

func subtract(a, b []run) []run {
	var out []run
	for _, r := range a {
		for _, x := range b {
			if x.last < r.first {
				continue
			}
			if x.first > r.last {
				break
			}
			if x.first > r.first {
				out = append(out, run{r.first, x.first - 1})
			}
			r.first = x.last + 1
			if r.first > r.last {
				break
			}
		}
		if r.first <= r.last {
			out = append(out, r)
		}
	}
	return out
}

func (s *mysqlSet) empty() bool { return len(s.sources) == 0 }

// String prints the set as the server does: "uuid:1-5:7,uuid:1-3:tag:1-2".
func (s *mysqlSet) String() string { return string(s.appendText(nil)) }

func (s *mysqlSet) appendText(dst []byte) []byte {
	for i := range s.sources {
		src := &s.sources[i]
		if i == 0 || s.sources[i-1].sid != src.sid {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendSID(dst, &src.sid)
		}
		if src.tag != "" {
			dst = append(append(dst, ':'), src.tag...)
		}
		for _, r := range src.runs {
			dst = append(dst, ':')
			dst = strconv.AppendUint(dst, r.first, 10)
			if r.last > r.first {
				dst = append(dst, '-')
				dst = strconv.AppendUint(dst, r.last, 10)
			}
		}
	}
	return dst
}

// appendWire writes the form of PREVIOUS_GTIDS events and COM_BINLOG_DUMP_GTID. ends[i] is the offset,
// from the start of the set, of the end of the last run of sources[i].
func (s *mysqlSet) appendWire(dst []byte, ends []int) ([]byte, []int) {
	base := len(dst)
	tagged := false
	for i := range s.sources {
		tagged = tagged || s.sources[i].tag != ""
	}
	n := uint64(len(s.sources))
	if tagged { // the format's number stands in the first and the last byte, the count between them
		n = 1 | n<<8 | 1<<56
	}
	dst = binary.LittleEndian.AppendUint64(dst, n)
	ends = ends[:0]
	for i := range s.sources {
		src := &s.sources[i]
		dst = append(dst, src.sid[:]...)
		if tagged {
			dst = append(dst, byte(len(src.tag)<<1))
			dst = append(dst, src.tag...)
		}
		dst = binary.LittleEndian.AppendUint64(dst, uint64(len(src.runs)))
		for _, r := range src.runs {
			dst = binary.LittleEndian.AppendUint64(dst, r.first)
			dst = binary.LittleEndian.AppendUint64(dst, r.last+1)
		}
		ends = append(ends, len(dst)-8-base)
	}
	return dst, ends
}

var errGTIDSet = errors.New("damaged GTID set")

// parseMySQLWire reads what appendWire and the server write.
func parseMySQLWire(b []byte) (s mysqlSet, err error) {
	c := cursor{b: b}
	n := c.u64()
	tagged := n>>56 == 1
	if tagged {
		n = n << 8 >> 16
	}
	if n > uint64(len(c.b)) {
		return s, errGTIDSet
	}
	for range n {
		var src mysqlSource
		copy(src.sid[:], c.bytes(16))
		if tagged {
			l := c.u8()
			if l&1 != 0 || l>>1 > maxTag { // longer tags would need two bytes: the server allows 32 letters
				return s, errGTIDSet
			}
			src.tag = string(c.bytes(int(l >> 1)))
		}
		k := c.u64()
		if c.bad || k > uint64(len(c.b))/16 {
			return s, errGTIDSet
		}
		prev := uint64(0)
		for range k {
			first, end := c.u64(), c.u64()
			if first <= prev || end <= first || end > maxGNO+1 {
				return s, errGTIDSet
			}
			src.addRun(run{first, end - 1})
			prev = end - 1
		}
		if len(src.runs) == 0 {
			continue
		}
		if i, ok := s.find(&src.sid, []byte(src.tag)); ok {
			for _, r := range src.runs {
				s.sources[i].addRun(r)
			}
		} else {
			s.sources = slices.Insert(s.sources, i, src)
		}
	}
	if c.bad || len(c.b) != 0 {
		return s, errGTIDSet
	}
	return s, nil
}

const maxTag = 32

// parseMySQLSet reads the text form: uuid:interval…[:tag:interval…], separated by commas; blanks and
// line breaks are allowed, as in @@gtid_executed.
func parseMySQLSet(text string) (s mysqlSet, err error) {
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		fields := strings.Split(part, ":")
		sid, ok := parseUUID(strings.TrimSpace(fields[0]))
		if !ok {
			return s, fmt.Errorf("GTID set: %q is not a server uuid", clip(fields[0]))
		}
		if len(fields) == 1 {
			return s, fmt.Errorf("GTID set: %s has no transaction numbers", fields[0])
		}
		tag, added := "", true
		for _, f := range fields[1:] {
			f = strings.TrimSpace(f)
			if isTag(f) {
				if !added {
					return s, fmt.Errorf("GTID set: tag %q has no transaction numbers", tag)
				}
				tag, added = strings.ToLower(f), false
				continue
			}
			r, ok := parseRun(f)
			if !ok {
				return s, fmt.Errorf("GTID set: %q is no transaction number, range or tag", clip(f))
			}
			added = true
			s.addRange(&sid, tag, r)
		}
		if !added {
			return s, fmt.Errorf("GTID set: tag %q has no transaction numbers", tag)
		}
	}
	return s, nil
}

func (s *mysqlSet) addRange(sid *[16]byte, tag string, r run) {
	i, ok := s.find(sid, []byte(tag))
	if !ok {
		s.sources = slices.Insert(s.sources, i, mysqlSource{sid: *sid, tag: tag})
	}
	s.sources[i].addRun(r)
}

func isTag(f string) bool {
	if f == "" || len(f) > maxTag || !(f[0] == '_' || f[0]|0x20 >= 'a' && f[0]|0x20 <= 'z') {
		return false
	}
	for i := range len(f) {
		c := f[i]
		if !(c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z') {
			return false
		}
	}
	return true
}

func parseRun(f string) (r run, ok bool) {
	lo, hi, isRange := strings.Cut(f, "-")
	first, err := strconv.ParseUint(strings.TrimSpace(lo), 10, 63)
	if err != nil || first == 0 {
		return r, false
	}
	r = run{first, first}
	if isRange {
		if r.last, err = strconv.ParseUint(strings.TrimSpace(hi), 10, 63); err != nil || r.last < first {
			return r, false
		}
	}
	return r, true
}

func parseUUID(text string) (id [16]byte, ok bool) {
	if len(text) == 36 {
		if text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
			return id, false
		}
		text = text[:8] + text[9:13] + text[14:18] + text[19:23] + text[24:]
	}
	if len(text) != 32 {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(text))
	return id, err == nil
}

func appendSID(dst []byte, id *[16]byte) []byte {
	for i, b := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		const digits = "0123456789abcdef"
		dst = append(dst, digits[b>>4], digits[b&15])
	}
	return dst
}

// clip shortens text that goes into an error message.
func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}
