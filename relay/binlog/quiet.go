package binlog

import (
	"time"

	"binrelay/relay"
)

// quietPosition holds back positions of transactions with nothing for us in them: at most one is emitted
// for each 64 KiB or 100 ms of them, and the last at the next heartbeat.
type quietPosition struct {
	pending bool
	bytes   uint64
	last    time.Time
}

const (
	quietBytes = 64 << 10
	quietTime  = 100 * time.Millisecond
)

func (q *quietPosition) moved(a *assembler, n uint64) error {
	q.pending = true
	q.bytes += n
	if a.skipTo > 0 || q.bytes < quietBytes && time.Since(q.last) < quietTime { // before the start, set and offset do not belong together
		return nil
	}
	return q.now(a)
}

func (q *quietPosition) flush(a *assembler) error {
	if !q.pending || a.trx.open || a.skipTo > 0 {
		return nil
	}
	return q.now(a)
}

// now emits the position.
func (q *quietPosition) now(a *assembler) error {
	q.clear()
	q.last = time.Now()
	return a.emit(relay.Part{Pos: a.live.bytes(), First: true})
}

func (q *quietPosition) clear() { q.pending, q.bytes = false, 0 }
