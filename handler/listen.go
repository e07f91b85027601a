package handler

import (
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
)

// profiles adds /debug/pprof. Profiles tell much: only a listener on loopback has them, and only for
// requests that mean it by name, so that no rebound name of a web page reads them.
func profiles(mux *http.ServeMux) {
	add := func(pattern string, h http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !isLoopback(r.Host) {
				text(w, http.StatusForbidden, "this address is for localhost only")
				return
			}
			h(w, r)
		})
	}
	add("GET /debug/pprof/", pprof.Index)
	add("GET /debug/pprof/cmdline", func(w http.ResponseWriter, _ *http.Request) {
		text(w, http.StatusNotFound, "the command line may hold secrets")
	})
	add("GET /debug/pprof/profile", pprof.Profile)
	add("GET /debug/pprof/symbol", pprof.Symbol)
	add("GET /debug/pprof/trace", pprof.Trace)
}

// limit accepts at most n connections at a time; others wait in the kernel's queue.
func limit(ln net.Listener, n int) net.Listener {
	return &limited{Listener: ln, slots: make(chan struct{}, n), done: make(chan struct{})}
}

type limited struct {
	net.Listener
	slots chan struct{}
	done  chan struct{}
	once  sync.Once
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: c, slots: l.slots}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	slots chan struct{}
	once  sync.Once
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.slots })
	return err
}
