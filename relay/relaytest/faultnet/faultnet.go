// Package faultnet is a network between Kafka clients and brokers that fails when told to.
//
// It sits on the brokers' side: a response that is lost here belongs to a request that the broker HAS
// applied ("written, but the producer never learnt it"), and a request that is late here is applied when
// its sender is long dead. It wraps the listener of an in-process kfake cluster (ListenFn), or goes in
// front of a real broker (Forward).
//
//	n := faultnet.New()
//	n.OnResponse = func(f faultnet.Frame) faultnet.Action {
//		if f.Key == 0 && f.N == 2 { // the answer to the second Produce request
//			return faultnet.Cut
//		}
//		return faultnet.Pass
//	}
//	kfake.NewCluster(kfake.ListenFn(n.ListenFn))
package faultnet

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Action is what happens to one frame.
type Action int

const (
	Pass      Action = iota // forward it
	Swallow                 // forget it; the connection stays open
	Cut                     // forget it and close the connection
	CutMiddle               // requests only: give the broker half of it, then close
)

// Frame is one Kafka request, or the response to it.
type Frame struct {
	Conn int   // number of the connection, from 1
	Key  int16 // API key: 0 is Produce
	N    int   // how many frames of this key and direction there were, from 1, over all connections
	Corr int32
	Body []byte // with its header, without the length; valid during the call
}

// Net is shared by all connections of one cluster. Set its fields before the first connection; OnRequest
// and OnResponse may also be set later, under Lock.
type Net struct {
	// OnRequest and OnResponse may be nil. They are called one at a time.
	OnRequest  func(Frame) Action
	OnResponse func(Frame) Action

	// RTT is a delay line: half on the way in, half on the way out. Requests in flight overlap in it.
	RTT time.Duration
	// InDelay, if set, is asked once for each connection: how much later than RTT/2 its Produce requests
	// reach the broker. They do so even when the client is dead by then.
	InDelay func() time.Duration
	// Serial is added to each Produce before its response leaves and before the broker reads the next
	// request of that connection, as a broker does that waits for its replicas.
	Serial time.Duration

	mu    sync.Mutex
	conns int
	nreq  map[int16]int
	nresp map[int16]int
	open  map[*conn]struct{}
	wg    sync.WaitGroup
}

// New gives a network without faults.
func New() *Net {
	return &Net{nreq: map[int16]int{}, nresp: map[int16]int{}, open: map[*conn]struct{}{}}
}

// ListenFn is for kfake.ListenFn.
func (n *Net) ListenFn(network, addr string) (net.Listener, error) {
	ln, err := net.Listen(network, addr)
	if err != nil {
		return nil, err
	}
	return &listener{ln, n}, nil
}

// Forward listens on a free port and passes all on to a real broker; stop closes the port. Clients reach
// brokers by their advertised addresses: map those with kgo.Dialer.
func (n *Net) Forward(to string) (addr string, stop func(), err error) {
	ln, err := n.ListenFn("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	n.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			n.wg.Go(func() { n.forward(c, to) })
		}
	})
	return ln.Addr().String(), func() { ln.Close() }, nil
}

// forward carries one connection. What a client sent before it died reaches the broker all the same.
func (n *Net) forward(c net.Conn, to string) {
	defer c.Close()
	b, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer b.Close()
	n.wg.Go(func() {
		defer c.Close()
		for {
			var size [4]byte
			if _, err := io.ReadFull(b, size[:]); err != nil {
				return
			}
			frame := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
			copy(frame, size[:])
			if _, err := io.ReadFull(b, frame[4:]); err != nil {
				return
			}
			c.Write(frame) // the client may be dead
		}
	})
	io.Copy(b, c)
	// A broker drops what it has not read when the peer closes at once; half a close lets it read on.
	if t, ok := b.(*net.TCPConn); ok {
		t.CloseWrite()
		t.SetReadDeadline(time.Now().Add(3 * time.Second))
		io.Copy(io.Discard, b)
	}
}

// CutAll closes every open connection: what a network partition does to the requests in flight.
func (n *Net) CutAll() {
	n.mu.Lock()
	var all []*conn
	for c := range n.open {
		all = append(all, c)
	}
	n.mu.Unlock()
	for _, c := range all {
		c.Conn.Close()
	}
}

// Lock runs fn as the hooks are run: one at a time.
func (n *Net) Lock(fn func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fn()
}

// Counts is how many requests and responses of a key there were.
func (n *Net) Counts(key int16) (requests, responses int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nreq[key], n.nresp[key]
}

// Wait returns when all goroutines have ended; close the cluster, or stop the forwarders and CutAll, first.
func (n *Net) Wait() { n.wg.Wait() }

type listener struct {
	net.Listener
	n *Net
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if t, ok := c.(*net.TCPConn); ok {
		t.SetNoDelay(true)
	}
	n := l.n
	n.mu.Lock()
	n.conns++
	fc := &conn{Conn: c, n: n, id: n.conns, keys: map[int32]int16{},
		in: make(chan chunk, 64), out: make(chan chunk, 64), done: make(chan struct{})}
	n.open[fc] = struct{}{}
	n.mu.Unlock()
	if n.InDelay != nil {
		fc.inDelay = n.InDelay()
	}
	n.wg.Go(fc.pumpIn)
	n.wg.Go(fc.pumpOut)
	return fc, nil
}

type chunk struct {
	b   []byte
	due time.Time
	cut bool
}

type conn struct {
	net.Conn
	n       *Net
	id      int
	mu      sync.Mutex
	keys    map[int32]int16 // API keys of the requests not yet answered, by correlation id
	in      chan chunk
	out     chan chunk
	rest    []byte
	inDelay time.Duration

	once sync.Once
	done chan struct{}
}

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.done)
		c.n.mu.Lock()
		delete(c.n.open, c)
		c.n.mu.Unlock()
	})
	return c.Conn.Close()
}

func (c *conn) pumpIn() {
	defer close(c.in)
	for {
		var size [4]byte
		if _, err := io.ReadFull(c.Conn, size[:]); err != nil {
			return
		}
		l := int(binary.BigEndian.Uint32(size[:]))
		if l < 8 || l > 256<<20 {
			return
		}
		b := make([]byte, 4+l)
		copy(b, size[:])
		if _, err := io.ReadFull(c.Conn, b[4:]); err != nil {
			return
		}
		key, corr := int16(binary.BigEndian.Uint16(b[4:])), int32(binary.BigEndian.Uint32(b[8:]))
		c.mu.Lock()
		c.keys[corr] = key
		c.mu.Unlock()
		act := c.ask(c.n.nreq, true, key, corr, b[4:])
		ch := chunk{b: b, due: time.Now().Add(c.n.RTT / 2)}
		if key == 0 {
			ch.due = ch.due.Add(c.inDelay)
		}
		switch act {
		case Swallow:
			continue
		case Cut:
			c.Conn.Close()
			return
		case CutMiddle:
			ch.b, ch.cut = b[:4+l/2], true
		}
		select {
		case c.in <- ch:
		case <-c.done:
			return
		}
		if ch.cut { // nothing may follow the half request: the broker would read it as the other half
			return
		}
	}
}

func (c *conn) ask(count map[int16]int, request bool, key int16, corr int32, body []byte) Action {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	count[key]++
	fn := c.n.OnResponse
	if request {
		fn = c.n.OnRequest
	}
	if fn == nil {
		return Pass
	}
	return fn(Frame{Conn: c.id, Key: key, N: count[key], Corr: corr, Body: body})
}

func (c *conn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		ch, ok := <-c.in
		if !ok {
			return 0, io.EOF
		}
		c.sleepUntil(ch.due)
		c.rest = ch.b
		if ch.cut {
			defer c.Conn.Close()
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *conn) sleepUntil(t time.Time) {
	if d := time.Until(t); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.done:
		}
	}
}

// Write gets one whole response: kfake and forward write each in one call.
func (c *conn) Write(p []byte) (int, error) {
	if len(p) < 8 {
		return 0, errors.New("faultnet: not a whole response")
	}
	corr := int32(binary.BigEndian.Uint32(p[4:]))
	c.mu.Lock()
	key := c.keys[corr]
	delete(c.keys, corr)
	c.mu.Unlock()
	if key == 0 && c.n.Serial > 0 {
		time.Sleep(c.n.Serial)
	}
	switch c.ask(c.n.nresp, false, key, corr, p[4:]) {
	case Swallow:
		return len(p), nil
	case Cut: // after the responses still in the delay line
		if c.n.RTT == 0 {
			c.Close()
			return 0, io.ErrClosedPipe
		}
		select {
		case c.out <- chunk{due: time.Now().Add(c.n.RTT / 2), cut: true}:
		case <-c.done:
		}
		return 0, io.ErrClosedPipe // the broker serves nothing more of this connection
	}
	if c.n.RTT == 0 && c.inDelay == 0 {
		return c.Conn.Write(p)
	}
	select {
	case c.out <- chunk{b: append([]byte(nil), p...), due: time.Now().Add(c.n.RTT / 2)}:
		return len(p), nil
	case <-c.done:
		return 0, io.ErrClosedPipe
	}
}

func (c *conn) pumpOut() {
	for {
		select {
		case ch := <-c.out:
			c.sleepUntil(ch.due)
			if ch.cut {
				c.Close()
				return
			}
			c.Conn.Write(ch.b) // the client may be dead: the broker goes on with what it was sent
		case <-c.done:
			return
		}
	}
}
