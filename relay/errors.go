package relay

import (
	"errors"
	"fmt"
	"strings"
)

// Fault is one change that cannot pass: a function failed on it, it cannot be decoded, or Kafka
// refuses it for good. It names the place so that a person can find the change.
type Fault struct {
	Function string `json:"function"` // "filter", "serialize", "partition", "decode", "kafka"
	Table    string `json:"table"`    // "db.table"
	GTID     string `json:"gtid"`
	File     string `json:"file,omitempty"`
	Pos      uint64 `json:"pos,omitempty"`
	Row      int    `json:"row"`
	Seq      uint64 `json:"seq"` // log entry
	Err      string `json:"error"`
	Hint     string `json:"hint"`            // what to do
	Stack    string `json:"stack,omitempty"` // of a panic
}

func (f *Fault) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ", f.Function)
	if f.Table != "" {
		fmt.Fprintf(&b, "table %s, ", f.Table)
	}
	if f.GTID != "" {
		fmt.Fprintf(&b, "gtid %s, ", f.GTID)
	} else if f.File != "" {
		fmt.Fprintf(&b, "%s:%d, ", f.File, f.Pos)
	}
	fmt.Fprintf(&b, "row %d, log entry %d: %s", f.Row, f.Seq, f.Err)
	if f.Hint != "" {
		fmt.Fprintf(&b, " (%s)", f.Hint)
	}
	return b.String()
}

func (e *DecodeError) Error() string {
	place := e.GTID
	if place == "" {
		place = fmt.Sprintf("%s:%d", e.File, e.Pos)
	}
	s := fmt.Sprintf("table %s at %s row %d: %v", e.Table, place, e.Row, e.Err)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *DecodeError) Unwrap() error { return e.Err }

// permanent marks an error that no retry can pass.
type permanent struct {
	err  error
	hint string
}

func (p *permanent) Error() string {
	if p.hint == "" {
		return p.err.Error()
	}
	return p.err.Error() + " (" + p.hint + ")"
}
func (p *permanent) Unwrap() error { return p.err }

// Permanent marks err as one that halts: retrying cannot help. hint says what will.
func Permanent(err error, hint string) error { return &permanent{err, hint} }

// IsPermanent reports whether err, or what it wraps, was made by Permanent.
func IsPermanent(err error) bool {
	var p *permanent
	return errors.As(err, &p)
}
