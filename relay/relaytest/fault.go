package relaytest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// faults is what a Source does to its connections on request.
type faults struct {
	cutEvents atomic.Int64 // dump events until the connection is cut; 0: off
	cutBytes  atomic.Int64 // dump bytes until then; 0: off
	cutEvery  atomic.Int64 // events after which each dump is cut; 0: off
	rate      atomic.Int64 // bytes a second of each connection; 0: no limit

	mu     sync.Mutex
	frozen chan struct{} // closed by Thaw; nil: not frozen
	logins failures
	dumps  failures
}

// failures is an error to be answered n times.
type failures struct {
	n   int
	err error
}

func (f *failures) take() error {
	if f.n == 0 {
		return nil
	}
	f.n--
	return f.err
}

// KillAfter cuts a dump connection after n more events were sent, all dumps counted together. It happens
// once; 0 switches it off.
func (s *Source) KillAfter(n int) { s.faults.cutEvents.Store(int64(n)) }

// KillAfterBytes is KillAfter by bytes of the dump stream, so that the cut falls inside an event.
func (s *Source) KillAfterBytes(n int64) { s.faults.cutBytes.Store(n) }

// KillEvery cuts each dump connection after n events, again and again; 0 switches it off. n must let at
// least one transaction through, or a reader never gets on.
func (s *Source) KillEvery(n int) { s.faults.cutEvery.Store(int64(n)) }

// KillAll drops every connection now.
func (s *Source) KillAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

// Freeze makes the server silent: connections stay open, nothing is sent any more, as behind a dead
// network path. Thaw lets it speak again.
func (s *Source) Freeze() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	if s.faults.frozen == nil {
		s.faults.frozen = make(chan struct{})
	}
}

// Thaw ends Freeze.
func (s *Source) Thaw() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	if s.faults.frozen != nil {
		close(s.faults.frozen)
		s.faults.frozen = nil
	}
}

// Slow limits each connection to so many bytes a second; 0 removes the limit.
func (s *Source) Slow(bytesPerSecond int) { s.faults.rate.Store(int64(bytesPerSecond)) }

// FailLogins answers the next n logins with an error packet, e.g. 1045 "Access denied", 1040 "Too many
// connections".
func (s *Source) FailLogins(n int, code uint16, message string) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.logins = failures{n, mysql.NewError(code, message)}
}

// FailDumps answers the next n dump commands with an error packet, e.g. 1236.
func (s *Source) FailDumps(n int, code uint16, message string) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.dumps = failures{n, mysql.NewError(code, message)}
}

// BreakDumps ends the dumps that run now with an error packet.
func (s *Source) BreakDumps(code uint16, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.kick(mysql.NewError(code, message))
	}
}

// Dumps is how many dump commands were received.
func (s *Source) Dumps() int { return int(s.dumps.Load()) }

// Connections is how many connections are open.
func (s *Source) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Queries returns the statements received, oldest first, the last 1000 of them.
func (s *Source) Queries() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.queries...)
}

// OnQuery lets fn answer statements before the source does. A result or an error is sent; nil, nil leaves
// the answer to the source. fn runs on the connection's goroutine.
func (s *Source) OnQuery(fn func(sql string) (*mysql.Result, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onQuery = fn
}

// gate blocks while the source is frozen; it reports whether the connection is still open.
func (f *faults) gate(done <-chan struct{}) bool {
	for {
		f.mu.Lock()
		ch := f.frozen
		f.mu.Unlock()
		if ch == nil {
			return true
		}
		select {
		case <-ch:
		case <-done:
			return false
		}
	}
}

// pace waits as long as n bytes take at the configured rate.
func (f *faults) pace(n int, done <-chan struct{}) bool {
	rate := f.rate.Load()
	if rate <= 0 {
		return true
	}
	t := time.NewTimer(time.Duration(n) * time.Second / time.Duration(rate))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}
