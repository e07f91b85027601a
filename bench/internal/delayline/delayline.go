// Package delayline stands for network distance: a connection through it delivers every byte a fixed time
// later, in both directions, however many requests are under way. It is a line and not a sleep per request:
// what overlaps on a real network overlaps here.
package delayline

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// Dialer returns a dial function whose connections have this round trip time; for kgo.Dialer.
func Dialer(roundTrip time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil || roundTrip == 0 {
			return c, err
		}
		return Wrap(c, roundTrip), nil
	}
}

// A line holds this many chunks of up to chunkBytes each: 32 MB, more than 20 ms of a gigabyte a second.
const (
	lineChunks = 512
	chunkBytes = 64 << 10
)

type chunk struct {
	b   []byte
	due time.Time
}

type conn struct {
	net.Conn
	half time.Duration
	out  chan chunk
	in   chan chunk
	rest []byte
	once sync.Once
	done chan struct{}
}

// Wrap makes a delayed connection of c. Deadlines of the result do nothing.
func Wrap(c net.Conn, roundTrip time.Duration) net.Conn {
	d := &conn{Conn: c, half: roundTrip / 2, out: make(chan chunk, lineChunks), in: make(chan chunk, lineChunks), done: make(chan struct{})}
	go d.send()
	go d.receive()
	return d
}

func (d *conn) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		part := p[n:min(len(p), n+chunkBytes)]
		select {
		case d.out <- chunk{append([]byte(nil), part...), time.Now().Add(d.half)}:
			n += len(part)
		case <-d.done:
			return n, net.ErrClosed
		}
	}
	return n, nil
}

func (d *conn) send() {
	for {
		select {
		case c := <-d.out:
			time.Sleep(time.Until(c.due))
			if _, err := d.Conn.Write(c.b); err != nil {
				d.Close()
				return
			}
		case <-d.done:
			return
		}
	}
}

func (d *conn) receive() {
	defer close(d.in)
	for {
		b := make([]byte, chunkBytes)
		n, err := d.Conn.Read(b)
		if n > 0 {
			select {
			case d.in <- chunk{b[:n], time.Now().Add(d.half)}:
			case <-d.done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (d *conn) Read(p []byte) (int, error) {
	if len(d.rest) == 0 {
		c, ok := <-d.in
		if !ok {
			return 0, io.EOF
		}
		time.Sleep(time.Until(c.due))
		d.rest = c.b
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

func (d *conn) Close() error {
	d.once.Do(func() { close(d.done) })
	return d.Conn.Close()
}

func (d *conn) SetDeadline(time.Time) error      { return nil }
func (d *conn) SetReadDeadline(time.Time) error  { return nil }
func (d *conn) SetWriteDeadline(time.Time) error { return nil }
