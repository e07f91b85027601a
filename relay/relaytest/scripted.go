package relaytest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"

	"binrelay/relay"
)

// ScriptedSource is a relay.Source without a server: a numbered history of transactions, read from any
// position, cut into parts, with connections that break. StreamFunc and StatusFunc, where set, replace it
// altogether. The same seed gives the same cuts. All methods are safe for concurrent use.
//
// Transaction n (from 1) has Rows(n) rows; its entries hold them as text, one line each: "n row\n". Its
// position is n in decimal. A transaction without rows comes as a part without data.
type ScriptedSource struct {
	Seed     uint64
	Rows     func(n int) int // nil: 1
	PartRows int             // rows a part at most, 0: a transaction is one part
	// Break is asked before each part is emitted; an error ends Stream there, perhaps inside a
	// transaction. It may block, to script an order of events.
	Break func(n int) error

	StreamFunc func(ctx context.Context, pos []byte, emit func(relay.Part) error) error
	StatusFunc func() relay.SourceStatus

	mu       sync.Mutex
	more     chan struct{} // closed when last has grown
	last     int
	read     int
	connects uint64
}

var _ relay.Source = (*ScriptedSource)(nil)

// ErrBroken is a connection that broke; a source's script may return it.
var ErrBroken = errors.New("relaytest: connection broken")

// Extend lets the history reach up to transaction n.
func (s *ScriptedSource) Extend(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last, n)
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
}

// Stream implements relay.Source. Behind the last transaction it waits for Extend.
func (s *ScriptedSource) Stream(ctx context.Context, pos []byte, emit func(relay.Part) error) error {
	if s.StreamFunc != nil {
		return s.StreamFunc(ctx, pos, emit)
	}
	s.mu.Lock()
	s.connects++
	rng := rand.New(rand.NewPCG(s.Seed, s.connects))
	s.mu.Unlock()
	n := 0
	if pos == nil { // an empty log learns where it began before anything else
		if err := emit(relay.Part{Pos: []byte("0"), First: true, Urgent: true}); err != nil {
			return err
		}
	} else {
		var err error
		if n, err = strconv.Atoi(string(pos)); err != nil {
			return relay.Permanent(fmt.Errorf("position %q is not of this source", pos), "")
		}
	}
	for {
		n++
		if err := s.await(ctx, n); err != nil {
			return err
		}
		if err := s.transaction(rng, n, emit); err != nil {
			return err
		}
		s.mu.Lock()
		s.read = n
		s.mu.Unlock()
	}
}

// await waits until transaction n exists.
func (s *ScriptedSource) await(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		if n <= s.last {
			s.mu.Unlock()
			return ctx.Err()
		}
		if s.more == nil {
			s.more = make(chan struct{})
		}
		more := s.more
		s.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *ScriptedSource) transaction(rng *rand.Rand, n int, emit func(relay.Part) error) error {
	rows := 1
	if s.Rows != nil {
		rows = s.Rows(n)
	}
	pos := strconv.Itoa(n)
	for row, first := 0, true; first || row < rows; first = false {
		k := rows - row
		if s.PartRows > 0 && k > 0 {
			k = min(k, 1+rng.IntN(s.PartRows))
		}
		p := relay.Part{First: first, More: row+k < rows}
		for ; k > 0; k-- {
			p.Data = fmt.Appendf(p.Data, "%d %d\n", n, row)
			row++
		}
		if !p.More {
			p.Pos = []byte(pos)
		}
		if s.Break != nil {
			if err := s.Break(n); err != nil {
				return err
			}
		}
		if err := emit(p); err != nil {
			return err
		}
		clear(p.Data) // valid during emit only
	}
	return nil
}

// Status implements relay.Source.
func (s *ScriptedSource) Status() relay.SourceStatus {
	if s.StatusFunc != nil {
		return s.StatusFunc()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return relay.SourceStatus{Connected: true, Flavor: string(MySQL), GTID: strconv.Itoa(s.read), Transactions: uint64(s.read), Connects: s.connects}
}

// ScriptedRow is one row of a ScriptedSource's entry.
type ScriptedRow struct{ Transaction, Row int }

// ScriptedRows reads the data of an entry that came from a ScriptedSource.
func ScriptedRows(data []byte) (rows []ScriptedRow, err error) {
	for len(data) > 0 {
		var r ScriptedRow
		n := 0
		for n < len(data) && data[n] != '\n' {
			n++
		}
		if _, err := fmt.Sscanf(string(data[:n]), "%d %d", &r.Transaction, &r.Row); err != nil || n == len(data) {
			return nil, fmt.Errorf("%q is no entry of a ScriptedSource", data)
		}
		rows = append(rows, r)
		data = data[n+1:]
	}
	return rows, nil
}
