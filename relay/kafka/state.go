package kafka

import (
	"encoding/binary"
	"fmt"
)

// state is what the journal keeps of the hand-over. It is the same after any replay of its frames.
type state struct {
	cluster string // id of the Kafka cluster that the sessions belong to; "": not yet known
	pid     int64  // producer session in which partitions begin; -1: none
	epoch   int16
	covered uint64 // last log entry handed over
	topics  []*topic
}

// topic is one topic in the order of first use; its place in state.topics names it in frames.
type topic struct {
	place int
	name  string
	parts []*partition

	// Not in the journal; guarded by Sink.mu.
	id       [16]byte // as Kafka has it now; zero where it has none
	grown    int      // partitions that Kafka has, if more than parts: taken up at a barrier
	maxBytes int      // of a batch before compression
	noted    bool     // parts are in the journal
}

// partition is the hand-over to one partition. Records are numbered from 0 in the order of the journal,
// for ever; the record n has the sequence number n-n0 in the session (pid, epoch).
//
// Invariant 6: within a session that map is fixed. Leaving a record out begins another session.
type partition struct {
	t       *topic
	num     int32
	n       uint64 // records in the journal
	acked   uint64 // records before this one are in Kafka, or were taken out as refused
	n0      uint64 // first record of the session
	pid     int64
	epoch   int16
	foreign bool     // others write to this partition too: offsets do not count our records
	off     int64    // no record from acked on has a lower offset
	id      [16]byte // of the topic in which the session began; zero where the cluster has none

	live // what is going on; not in the journal
}

func (p *partition) String() string { return fmt.Sprintf("%s/%d", p.t.name, p.num) }

func (p *partition) seq(n uint64) int32 { return int32(n - p.n0) }

func (s *state) partition(topic int, part int32) (*partition, error) {
	if topic >= len(s.topics) || s.topics[topic] == nil || part < 0 || int(part) >= len(s.topics[topic].parts) {
		return nil, fmt.Errorf("no topic %d with a partition %d", topic, part)
	}
	return s.topics[topic].parts[part], nil
}

func (s *state) appendSnapshot(dst []byte) []byte {
	dst = appendBytes(dst, []byte(s.cluster))
	dst = binary.AppendVarint(dst, s.pid)
	dst = binary.AppendVarint(dst, int64(s.epoch))
	dst = binary.AppendUvarint(dst, s.covered)
	dst = binary.AppendUvarint(dst, uint64(len(s.topics)))
	for _, t := range s.topics {
		dst = appendBytes(dst, []byte(t.name))
		dst = binary.AppendUvarint(dst, uint64(len(t.parts)))
		for _, p := range t.parts {
			dst = p.append(dst)
		}
	}
	return dst
}

func (p *partition) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, p.n)
	dst = binary.AppendUvarint(dst, p.acked)
	dst = binary.AppendUvarint(dst, p.n0)
	dst = binary.AppendVarint(dst, p.pid)
	dst = binary.AppendVarint(dst, int64(p.epoch))
	dst = binary.AppendVarint(dst, p.off)
	dst = append(dst, p.id[:]...)
	if p.foreign {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func (p *partition) read(r *reader) {
	p.n = r.uvarint()
	p.acked = r.uvarint()
	p.n0 = r.uvarint()
	p.pid = r.varint()
	p.epoch = int16(r.varint())
	p.off = r.varint()
	copy(p.id[:], r.take(16))
	p.foreign = r.byte() == 1
}

func (s *state) readSnapshot(r *reader) error {
	s.cluster = string(r.bytes())
	s.pid = r.varint()
	s.epoch = int16(r.varint())
	s.covered = r.uvarint()
	n := r.count(2)
	s.topics = make([]*topic, n)
	for i := range s.topics {
		t := &topic{place: i, name: string(r.bytes())}
		t.parts = make([]*partition, r.count(23))
		for j := range t.parts {
			t.parts[j] = &partition{t: t, num: int32(j)}
			t.parts[j].read(r)
		}
		s.topics[i] = t
	}
	return r.err
}

// appendTopic notes a topic and its partitions from number from on.
func (s *state) appendTopic(dst []byte, t *topic, from int) []byte {
	dst = binary.AppendUvarint(dst, uint64(t.place))
	dst = appendBytes(dst, []byte(t.name))
	dst = binary.AppendUvarint(dst, uint64(from))
	dst = binary.AppendUvarint(dst, uint64(len(t.parts)-from))
	for _, p := range t.parts[from:] {
		dst = p.append(dst)
	}
	return dst
}

// applyTopic takes a topic frame. One that was already known changes nothing: a snapshot may have been faster.
func (s *state) applyTopic(r *reader) error {
	place := int(r.uvarint())
	name := string(r.bytes())
	from := int(r.uvarint())
	parts := make([]*partition, r.count(23))
	if r.err != nil {
		return r.err
	}
	if place > len(s.topics)+1<<16 {
		return fmt.Errorf("topic number %d", place)
	}
	for place >= len(s.topics) {
		s.topics = append(s.topics, nil)
	}
	t := s.topics[place]
	if t == nil {
		t = &topic{place: place, name: name}
		s.topics[place] = t
	}
	if t.name != name || from > len(t.parts) {
		return fmt.Errorf("topic %q from partition %d on where %q has %d", name, from, t.name, len(t.parts))
	}
	for i := range parts {
		p := &partition{t: t, num: int32(from + i)}
		p.read(r)
		if from+i >= len(t.parts) {
			t.parts = append(t.parts, p)
		}
	}
	return r.err
}

// applyBatch counts the records of a batch frame.
func (s *state) applyBatch(h batchHead) error {
	for _, c := range h.index {
		p, err := s.partition(c.topic, c.part)
		if err != nil {
			return err
		}
		p.n += uint64(c.count)
	}
	if h.last != 0 {
		if s.covered != 0 && h.first != s.covered+1 {
			return fmt.Errorf("log entries %d to %d follow %d", h.first, h.last, s.covered)
		}
		s.covered = h.last
	}
	return nil
}

func (p *partition) appendNote(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(p.t.place))
	dst = binary.AppendUvarint(dst, uint64(p.num))
	dst = binary.AppendUvarint(dst, p.acked)
	dst = binary.AppendVarint(dst, p.off)
	if p.foreign {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func (s *state) applyNotes(r *reader) error {
	for len(r.b) > 0 {
		p, err := s.partition(int(r.uvarint()), int32(r.uvarint()))
		if err != nil {
			return err
		}
		p.acked = r.uvarint()
		p.off = r.varint()
		p.foreign = r.byte() == 1
		if p.acked > p.n {
			return fmt.Errorf("%s: %d records acknowledged of %d", p, p.acked, p.n)
		}
	}
	return r.err
}

// session is a partition that goes on in another producer session.
type session struct {
	p     *partition
	pid   int64
	epoch int16
	n0    uint64 // its first record; those before that are not acknowledged are given up
	off   int64
	id    [16]byte // of the topic
}

func appendSessions(dst []byte, ss []session) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ss)))
	for i := range ss {
		x := &ss[i]
		dst = binary.AppendUvarint(dst, uint64(x.p.t.place))
		dst = binary.AppendUvarint(dst, uint64(x.p.num))
		dst = binary.AppendVarint(dst, x.pid)
		dst = binary.AppendVarint(dst, int64(x.epoch))
		dst = binary.AppendUvarint(dst, x.n0)
		dst = binary.AppendVarint(dst, x.off)
		dst = append(dst, x.id[:]...)
	}
	return dst
}

func (s *state) applySessions(r *reader) error {
	for range r.count(22) {
		p, err := s.partition(int(r.uvarint()), int32(r.uvarint()))
		if err != nil {
			return err
		}
		x := session{p: p, pid: r.varint(), epoch: int16(r.varint()), n0: r.uvarint(), off: r.varint()}
		copy(x.id[:], r.take(16))
		if r.err != nil {
			return r.err
		}
		if x.n0 > p.n {
			return fmt.Errorf("%s: a session from record %d of %d", p, x.n0, p.n)
		}
		x.apply()
	}
	return r.err
}

func (x *session) apply() {
	p := x.p
	p.pid, p.epoch, p.n0, p.off, p.id = x.pid, x.epoch, x.n0, x.off, x.id
	p.acked = max(p.acked, x.n0)
}
