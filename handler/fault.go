package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"binrelay/functions"
	"binrelay/relay"
)

// function is what a fault is blamed on.
type function uint8

const (
	fnFilter function = iota
	fnSerialize
	fnPartition
	numFunctions // the user's; the others have no calls to count
	fnDecode
	fnKafka
)

func (f function) String() string {
	switch f {
	case fnFilter:
		return "filter"
	case fnSerialize:
		return "serialize"
	case fnPartition:
		return "partition"
	case fnKafka:
		return "kafka"
	}
	return "decode"
}

const (
	maxStack   = 8 << 10 // bytes of a stack kept in a fault
	maxMessage = 4 << 10 // bytes of a user's error kept in a fault
)

// fault says that f failed on the change at hand.
func (w *worker) fault(f function, err error) *relay.Fault {
	if own, ok := err.(*relay.Fault); ok { // from the guard, or made further down
		return w.place(own)
	}
	var de *relay.DecodeError
	if errors.As(err, &de) { // also one that a function met and passed on
		return decodeFault(de, w.seq())
	}
	return w.place(&relay.Fault{Function: f.String(), Err: clip(err.Error(), maxMessage)})
}

// place completes f with the place of the change at hand, and with what to do.
func (w *worker) place(f *relay.Fault) *relay.Fault {
	if f.Seq == 0 {
		f.Seq = w.seq()
	}
	if c := w.cur; c != nil && f.Table == "" {
		s := &c.Source
		f.Table, f.GTID, f.File, f.Pos, f.Row = tableName(c), strings.Clone(s.GTID), strings.Clone(s.File), s.Pos, s.Row
	}
	if f.Hint == "" {
		f.Hint = hints[f.Function]
	}
	return f
}

func (w *worker) seq() uint64 {
	if w.t == nil || w.t.entry >= len(w.t.job.Entries) {
		return 0
	}
	return w.t.job.Entries[w.t.entry].Seq
}

var hints = map[string]string{
	"filter":    "mend the function and restart, POST /resume to try again, or set DEAD_LETTER_TOPIC",
	"serialize": "mend the function and restart, POST /resume to try again, or set DEAD_LETTER_TOPIC",
	"partition": "mend the function and restart, POST /resume to try again, or set DEAD_LETTER_TOPIC",
	"decode":    "the log keeps the change as the server sent it; a relay that can decode it goes on from here",
	"kafka":     "see the log for what Kafka said; POST /resume tries again",
}

// decodeFault is the fault of a change that cannot be decoded.
func decodeFault(e *relay.DecodeError, seq uint64) *relay.Fault {
	f := &relay.Fault{
		Function: fnDecode.String(), Table: e.Table, GTID: strings.Clone(e.GTID), File: strings.Clone(e.File),
		Pos: e.Pos, Row: e.Row, Seq: seq, Err: clip(e.Err.Error(), maxMessage), Hint: e.Hint,
	}
	if f.Hint == "" {
		f.Hint = hints[f.Function]
	}
	return f
}

// deadLetter settles a change that failed: with a record in DEAD_LETTER_TOPIC when a function of the
// user failed and there is one, else it returns the fault.
func (w *worker) deadLetter(c *functions.Change, err error) error {
	f := w.fault(fnDecode, err)
	if w.p.opt.DeadLetterTopic == "" || c.Op == functions.DDL {
		return f
	}
	switch f.Function {
	case "filter", "serialize", "partition":
	default:
		return f
	}
	w.p.opt.Metrics.fault(f)
	a := w.t.arena
	b, has, err := functions.JSON{}.AppendKey(a.open(), c)
	if err != nil {
		return w.fault(fnDecode, err)
	}
	var key []byte
	if has {
		key = a.seal(b)
	}
	head, err := json.Marshal(f)
	if err != nil {
		return w.fault(fnDecode, err)
	}
	b = append(a.open(), `{"fault":`...)
	b = append(b, head...)
	b = append(b, `,"change":`...)
	if b, err = (functions.JSON{}).AppendValue(b, c); err != nil {
		return w.fault(fnDecode, err)
	}
	value := a.seal(append(b, '}'))
	r := w.newRecord(c)
	r.Topic, r.Key, r.Value, r.Dead = w.p.opt.DeadLetterTopic, key, value, true
	r.Headers = faultHeaders(f)
	if r.Hash = key; key == nil {
		r.Hash = w.tableInfo(c.Table).table
	}
	w.t.stats.DeadLetters++
	w.p.logDeadLetter(f)
	return nil
}

// logDeadLetter logs one a second at most and says how many it left out: a bad function can fail on every row.
func (p *Pool) logDeadLetter(f *relay.Fault) {
	now, last := time.Now().UnixNano(), p.logged.Load()
	if now-last < int64(time.Second) || !p.logged.CompareAndSwap(last, now) {
		p.unlogged.Add(1)
		return
	}
	p.opt.Logger.Warn("dead letter: "+f.Error(), "function", f.Function, "table", f.Table, "gtid", f.GTID, "row", f.Row, "seq", f.Seq,
		"not_logged", p.unlogged.Swap(0))
}

func faultHeaders(f *relay.Fault) []functions.Header {
	return []functions.Header{
		{Key: "relay-function", Value: []byte(f.Function)},
		{Key: "relay-table", Value: []byte(f.Table)},
		{Key: "relay-error", Value: []byte(clip(f.Err, 256))},
	}
}

// DeadLetterRecord is the dead letter of a record that Kafka refuses for good, nil without a
// DEAD_LETTER_TOPIC or when r is a dead letter itself. Its value is
//
//	{"fault":{…},"record":{"topic":…,"partition":…,"key":base64|null,"value":base64|null,"headers":[{"key":…,"value":base64},…]}}
//
// and nothing in it is shortened: one that DEAD_LETTER_TOPIC refuses too halts delivery.
func (p *Pool) DeadLetterRecord(r relay.Record, refusal error) *relay.Record {
	if p.opt.DeadLetterTopic == "" || r.Dead {
		return nil
	}
	f := relay.Fault{Function: fnKafka.String(), Row: int(r.Row), Seq: r.Seq, Err: clip(refusal.Error(), maxMessage)}
	var own *relay.Fault
	if errors.As(refusal, &own) {
		f = *own
	}
	if f.Hint == "" {
		f.Hint = "the record is here as it was meant for its topic"
	}
	type header struct {
		Key   string `json:"key"`
		Value []byte `json:"value"`
	}
	var e struct {
		Fault  relay.Fault `json:"fault"`
		Record struct {
			Topic     string   `json:"topic"`
			Partition int32    `json:"partition"` // -1: by hash
			Key       []byte   `json:"key"`
			Value     []byte   `json:"value"`
			Headers   []header `json:"headers"`
		} `json:"record"`
	}
	e.Fault = f
	e.Record.Topic, e.Record.Partition, e.Record.Key, e.Record.Value = r.Topic, r.Partition, r.Key, r.Value
	e.Record.Headers = []header{}
	for _, h := range r.Headers {
		e.Record.Headers = append(e.Record.Headers, header(h))
	}
	value, err := json.Marshal(e)
	if err != nil {
		return nil // cannot be: strings and bytes only
	}
	p.opt.Metrics.fault(&f)
	p.opt.Metrics.deadLetters.Add(1)
	d := &relay.Record{
		Topic: p.opt.DeadLetterTopic, Key: bytes.Clone(r.Key), Value: value, Headers: faultHeaders(&f),
		Partition: -1, Hash: bytes.Clone(r.Hash), Time: r.Time, Seq: r.Seq, Row: r.Row, Dead: true,
	}
	if d.Key != nil {
		d.Hash = d.Key
	} else if d.Hash == nil {
		d.Hash = []byte(r.Topic)
	}
	return d
}

func tableName(c *functions.Change) string {
	if c.Table == nil {
		return c.Database
	}
	return c.Table.Database + "." + c.Table.Name
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// trimStack drops the "goroutine 12 [running]:" line, which differs in every run, and bounds the rest.
func trimStack(b []byte) string {
	if _, rest, ok := bytes.Cut(b, []byte("\n")); ok {
		b = rest
	}
	return clip(string(b), maxStack)
}
