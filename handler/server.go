package handler

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"binrelay/relay"
)

// Relay is what the server shows and steers; *relay.Relay is one.
type Relay interface {
	Status() relay.Status
	Pause()
	Resume()
}

var _ Relay = (*relay.Relay)(nil)

// ServerOptions configure a Server.
type ServerOptions struct {
	Relay     Relay        // required
	Metrics   *Metrics     // nil: a new one; a Metrics serves one Server
	Abandoned func() int   // Pool.Abandoned; nil: 0
	Token     string       // ADMIN_TOKEN; "": POST routes answer 403
	Version   string       // of relay_build_info
	Commit    string       // of relay_build_info
	Logger    *slog.Logger // nil: slog.Default()
}

const (
	maxBody        = 64 << 10 // no route reads more
	maxHeaderBytes = 16 << 10
	maxConns       = 256 // more wait to be accepted
	headerTimeout  = 5 * time.Second
	requestTimeout = 15 * time.Second
	idleTimeout    = 60 * time.Second
)

// Server answers HTTP. It never holds a lock that the data path wants: it reads one Status snapshot.
type Server struct {
	opt   ServerOptions
	token [sha256.Size]byte
	page  page
}

// NewServer makes a Server. Serve starts it.
func NewServer(o ServerOptions) *Server {
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if o.Abandoned == nil {
		o.Abandoned = func() int { return 0 }
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Metrics.registry.MustRegister(newStatusCollector(o.Relay, o.Abandoned, o.Version, o.Commit))
	s := &Server{opt: o, token: sha256.Sum256([]byte(o.Token)), page: newPage()}
	s.opt.Token = ""
	if o.Token == "" {
		s.token = [sha256.Size]byte{}
	}
	return s
}

// Serve answers on ln until ctx ends, then gives open requests a moment and closes ln.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s.handler(isLoopback(ln.Addr().String())),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.opt.Logger.Handler(), slog.LevelDebug),
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		end, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(end) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(limit(ln, maxConns))
	if !stop() {
		<-ended
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("HTTP on %s: %w", ln.Addr(), err)
	}
	return nil
}

// handler is the mux behind its guards. local says that only this machine can connect.
func (s *Server) handler(local bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page.serve)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /status", s.status)
	mux.Handle("GET /metrics", s.opt.Metrics.handler())
	mux.HandleFunc("POST /pause", s.admin(local, func() { s.opt.Relay.Pause() }))
	mux.HandleFunc("POST /resume", s.admin(local, func() { s.opt.Relay.Resume() }))
	if local {
		profiles(mux)
	}
	return guarded(mux)
}

// ready answers 200 when the relay streams or is paused on purpose; else 503, and why.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	st := s.opt.Relay.Status()
	body, code := string(st.State), http.StatusOK
	if st.Reason != "" {
		body += ": " + st.Reason
	}
	if !st.State.Ready() {
		code = http.StatusServiceUnavailable
	}
	text(w, code, body)
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	b, err := json.Marshal(s.opt.Relay.Status())
	if err != nil {
		text(w, http.StatusInternalServerError, "the status cannot be written as JSON: "+err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(b, '\n'))
}

// admin guards a route that changes state: ADMIN_TOKEN, and no page of another origin.
func (s *Server) admin(local bool, do func()) http.HandlerFunc {
	origin := http.NewCrossOriginProtection() // Sec-Fetch-Site and Origin
	return func(w http.ResponseWriter, r *http.Request) {
		if s.token == ([sha256.Size]byte{}) {
			text(w, http.StatusForbidden, "ADMIN_TOKEN is not set: this route is off")
			return
		}
		if err := origin.Check(r); err != nil {
			text(w, http.StatusForbidden, "a request from another origin is refused")
			return
		}
		// A name that was rebound to this machine's loopback address is not ours.
		if local && !isLoopback(r.Host) {
			text(w, http.StatusForbidden, "this address is for localhost only")
			return
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		sum := sha256.Sum256([]byte(token)) // equal lengths, so that the comparison tells nothing
		if subtle.ConstantTimeCompare(sum[:], s.token[:]) != 1 || !strings.EqualFold(scheme, "Bearer") {
			w.Header().Set("WWW-Authenticate", `Bearer realm="relay"`)
			text(w, http.StatusUnauthorized, "send the header Authorization: Bearer <ADMIN_TOKEN>")
			return
		}
		do()
		s.opt.Logger.Info("admin request", "path", r.URL.Path, "remote", r.RemoteAddr)
		s.status(w, r)
	}
}

// guarded puts the headers and limits of every route around h.
func guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Cache-Control", "no-store")
		head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		head.Set("Cross-Origin-Resource-Policy", "same-origin")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("X-Content-Type-Options", "nosniff")
		if r.ContentLength > maxBody {
			head.Set("Connection", "close")
			text(w, http.StatusRequestEntityTooLarge, "the body is too large")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		h.ServeHTTP(w, r)
	})
}

func text(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	w.Write(bytes.ToValidUTF8([]byte(body+"\n"), []byte("\ufffd")))
}

// isLoopback reports whether addr, a host with or without a port, is this machine's own.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]")
	}
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
