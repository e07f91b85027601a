package kafka

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"binrelay/relay"

	"github.com/twmb/franz-go/pkg/kerr"
)

// refuse deals with the first record of p, which Kafka does not want: dead letter or halt.
func (s *Sink) refuse(p *partition) {
	s.mu.Lock()
	n, reason, off, id := p.queue[0].base, p.err, p.off, p.id
	size := len(p.queue[0].raw)
	s.mu.Unlock()
	rec, err := s.find(p, n)
	if err != nil {
		s.log.Error("kafka: read the hand-over journal", "err", err)
		s.retryLater(p)
		return
	}
	var letter *relay.Record
	ok := false
	if !rec.Dead && s.cfg.DeadLetter != nil {
		letter, ok = s.cfg.DeadLetter(rec, reason)
	}
	if !ok || letter == nil {
		f := &relay.Fault{Function: "kafka", Row: int(rec.Row), Seq: rec.Seq,
			Err:  fmt.Sprintf("%s refuses the record of %d bytes: %v", p, size, reason),
			Hint: hintFor(reason)}
		if rec.Dead {
			f.Err = "dead letter: " + f.Err
			f.Hint = strings.Replace(f.Hint, ", or set DEAD_LETTER_TOPIC", "", 1) // it is set, and this is it
		}
		s.mu.Lock()
		s.failLocked(f)
		s.mu.Unlock()
		return
	}
	l := *letter
	l.Dead, l.Seq, l.Row = true, rec.Seq, rec.Row
	err = func() error {
		t, err := s.topic(s.ctx, l.Topic)
		if err != nil {
			return err
		}
		s.mu.Lock()
		parts := t.parts
		s.mu.Unlock()
		num := l.Partition
		if num < 0 || int(num) >= len(parts) {
			num = partitionFor(l.Hash, int32(len(parts)))
		}
		pid, epoch, err := s.newProducer(s.ctx)
		if err != nil {
			return err
		}
		// The numbers of the old session from this record on are given up, its map stays what it was.
		return s.moveTo(s.ctx, []session{{p: p, pid: pid, epoch: epoch, n0: n + 1, off: off, id: id}}, &l, parts[num])
	}()
	var f *relay.Fault
	switch {
	case err == nil || s.ctx.Err() != nil:
	case errors.As(err, &f):
		f = faultOf(rec, f).(*relay.Fault)
		s.mu.Lock()
		s.failLocked(f)
		s.mu.Unlock()
	default:
		s.mu.Lock()
		s.trouble(&p.why, err.Error())
		s.mu.Unlock()
		if s.pause(s.ctx, time.Second) == nil {
			s.retryLater(p)
		}
	}
}

func hintFor(err error) string {
	switch {
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return "raise the topic's max.message.bytes, or set DEAD_LETTER_TOPIC; then resume"
	case errors.Is(err, kerr.InvalidTimestamp):
		return "the commit time is outside the topic's message.timestamp limits: correct the server's clock or the limits, or set DEAD_LETTER_TOPIC"
	case errors.Is(err, kerr.InvalidRecord):
		return "a topic with cleanup.policy=compact takes no record without a key; correct the topic, or set DEAD_LETTER_TOPIC"
	}
	return "correct the topic's settings, or set DEAD_LETTER_TOPIC; then resume"
}

// find reads record n of p from the journal.
func (s *Sink) find(p *partition, n uint64) (*relay.Record, error) {
	var out *relay.Record
	err := s.j.scan(func(h batchHead, start []uint64) error {
		for i, c := range h.index {
			if c.topic != p.t.place || c.part != p.num || n < start[i] || n >= start[i]+uint64(c.count) {
				continue
			}
			return h.records(start, func(c partCount, k uint64, r *journalRecord) error {
				if c.topic != p.t.place || c.part != p.num || k != n {
					return nil
				}
				out = &relay.Record{Topic: p.t.name, Key: r.key, Value: r.value, Headers: r.headers, Partition: p.num,
					Time: time.UnixMilli(r.ms).UTC(), Seq: r.seq, Row: r.row, Dead: r.dead}
				return errStop
			})
		}
		return nil
	})
	if err == nil && out == nil {
		err = fmt.Errorf("record %d of %s is not there", n, p)
	}
	return out, err
}
