package relaytest

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// kafkaNet stands between kfake and its clients: listeners that can go down and come back at the same
// address, and connections that can lose an answer.
type kafkaNet struct {
	lose atomic.Int64 // answers to Produce to be lost

	mu        sync.Mutex
	listeners []*kafkaListener
	conns     map[*kafkaConn]bool
}

func (n *kafkaNet) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	k := &kafkaListener{n: n, addr: l.Addr(), l: l, up: make(chan struct{})}
	close(k.up)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners = append(n.listeners, k)
	if n.conns == nil {
		n.conns = map[*kafkaConn]bool{}
	}
	return k, nil
}

func (n *kafkaNet) stop() {
	n.mu.Lock()
	for _, k := range n.listeners {
		if k.l != nil {
			k.l.Close()
			k.l = nil
			k.up = make(chan struct{})
		}
	}
	n.mu.Unlock()
	n.cut()
}

func (n *kafkaNet) restart() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range n.listeners {
		if k.l != nil || k.closed {
			continue
		}
		l, err := net.Listen("tcp", k.addr.String())
		if err != nil {
			return fmt.Errorf("relaytest: kafka: %w", err)
		}
		k.l = l
		close(k.up)
	}
	return nil
}

func (n *kafkaNet) close() {
	n.mu.Lock()
	list := n.listeners
	n.mu.Unlock()
	for _, k := range list {
		k.Close()
	}
	n.cut()
}

func (n *kafkaNet) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.Conn.Close()
	}
}

// kafkaListener is one broker's address. While it is down, l is nil and up is open.
type kafkaListener struct {
	n      *kafkaNet
	addr   net.Addr
	l      net.Listener
	up     chan struct{}
	closed bool
}

func (k *kafkaListener) Addr() net.Addr { return k.addr }

func (k *kafkaListener) Accept() (net.Conn, error) {
	for {
		k.n.mu.Lock()
		l, up, closed := k.l, k.up, k.closed
		k.n.mu.Unlock()
		if closed {
			return nil, errKafkaClosed
		}
		if l == nil {
			<-up
			continue
		}
		nc, err := l.Accept()
		k.n.mu.Lock()
		live := k.l == l
		if err == nil && live {
			c := &kafkaConn{Conn: nc, n: k.n}
			k.n.conns[c] = true
			k.n.mu.Unlock()
			return c, nil
		}
		k.n.mu.Unlock()
		if err == nil { // it came in while the listener went down
			nc.Close()
		} else if live && !k.isClosed() {
			return nil, err
		}
	}
}

func (k *kafkaListener) isClosed() bool {
	k.n.mu.Lock()
	defer k.n.mu.Unlock()
	return k.closed
}

func (k *kafkaListener) Close() error {
	k.n.mu.Lock()
	defer k.n.mu.Unlock()
	if k.closed {
		return nil
	}
	k.closed = true
	if k.l != nil {
		return k.l.Close()
	}
	close(k.up)
	return nil
}

// kafkaConn follows the requests of one connection to know which answer belongs to a Produce.
type kafkaConn struct {
	net.Conn
	n *kafkaNet

	// Of the request that is being read; only the reader touches these.
	head [12]byte // size, key, version, correlation id
	have int
	rest int // bytes of its body that are still to come

	produces sync.Map // correlation id → true
}

func (c *kafkaConn) Close() error {
	c.n.mu.Lock()
	delete(c.n.conns, c)
	c.n.mu.Unlock()
	return c.Conn.Close()
}

func (c *kafkaConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for p := b[:n]; len(p) > 0; {
		if c.rest > 0 {
			k := min(c.rest, len(p))
			c.rest -= k
			p = p[k:]
			continue
		}
		k := copy(c.head[c.have:], p)
		p = p[k:]
		if c.have += k; c.have < len(c.head) {
			break
		}
		c.have = 0
		c.rest = int(binary.BigEndian.Uint32(c.head[:])) - 8
		const produce = 0
		if binary.BigEndian.Uint16(c.head[4:]) == produce {
			c.produces.Store(binary.BigEndian.Uint32(c.head[8:]), true)
		}
	}
	return n, err
}

// Write gets one whole answer: kfake writes each in one call.
func (c *kafkaConn) Write(b []byte) (int, error) {
	if len(b) >= 8 {
		if _, ok := c.produces.LoadAndDelete(binary.BigEndian.Uint32(b[4:])); ok && c.n.lose.Load() > 0 && c.n.lose.Add(-1) >= 0 {
			c.Conn.Close()
			return 0, net.ErrClosed
		}
	}
	return c.Conn.Write(b)
}
