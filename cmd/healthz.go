package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// healthTimeout is below the timeout of the Dockerfile's HEALTHCHECK, so that the reason is printed.
const healthTimeout = 3 * time.Second

// healthz asks the relay on this machine for /healthz.
func (p *program) healthz(ctx context.Context) error {
	addr, ok := p.environ["HTTP_ADDR"]
	if !ok {
		addr = ":8080"
	}
	if addr == "" {
		fmt.Fprintln(p.stdout, "HTTP_ADDR is empty: nothing to ask")
		return nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return Mistakes{{"HTTP_ADDR", "want :8080 or host:8080"}}
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost" // where a server on all addresses is found
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("not alive: %w", err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	text := strings.TrimSpace(string(body))
	if resp.StatusCode != http.StatusOK {
		return errors.New("not alive: " + resp.Status + " " + text)
	}
	fmt.Fprintln(p.stdout, text)
	return nil
}
