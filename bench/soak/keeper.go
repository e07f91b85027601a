package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"binrelay/bench/internal/relayproc"
)

// keeper keeps one relay running: it starts it, kills it when asked or at random, and starts it again.
type keeper struct {
	path string
	env  map[string]string
	keep string // directory for the logs, "" for none

	mu     sync.Mutex
	now    *relayproc.Process
	starts int
	kills  int
	peak   relayproc.Memory
	peakOf int   // which start took the most
	failed error // it ended by itself
}

// start begins a new process; the one before must have ended.
func (k *keeper) start() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, err := relayproc.Start(k.path, k.env)
	if err != nil {
		return err
	}
	k.now = p
	k.starts++
	return nil
}

func (k *keeper) process() *relayproc.Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now
}

// kill ends the process with SIGKILL.
func (k *keeper) kill() error {
	p := k.process()
	alone := p.Exited() // by itself: a fault, whoever wanted to kill it
	p.Kill()
	k.ended(p)
	k.mu.Lock()
	defer k.mu.Unlock()
	if alone || p.ExitCode() >= 0 {
		k.failed = fmt.Errorf("the relay ended by itself with code %d; its last lines:\n%s", p.ExitCode(), relayproc.Tail(p.Log(), 10))
		return k.failed
	}
	k.kills++
	return nil
}

func (k *keeper) ended(p *relayproc.Process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	peak := p.Peak()
	if peak.HighWater > k.peak.HighWater {
		k.peakOf = k.starts
	}
	k.peak = k.peak.Max(peak)
	if k.keep != "" {
		os.MkdirAll(k.keep, 0o755)
		os.WriteFile(filepath.Join(k.keep, fmt.Sprintf("relay-%s-%03d.log", k.env["HTTP_ADDR"][10:], k.starts)),
			fmt.Appendf([]byte(p.Log()), "peak memory: %d KiB resident, %d KiB of it not files\n", peak.HighWater, peak.Anonymous), 0o644)
	}
}

// again kills and starts.
func (k *keeper) again() error {
	if err := k.kill(); err != nil {
		return err
	}
	return k.start()
}

// rampage kills and starts at random until enough ends, at least n times, or until ctx ends. The relay runs
// when it returns.
func (k *keeper) rampage(ctx, enough context.Context, r *rand.Rand, longest time.Duration, n int) error {
	for i := 0; ctx.Err() == nil && (enough.Err() == nil || i < n); i++ {
		life := time.Duration(r.Int64N(int64(longest)))
		p := k.process()
		switch r.IntN(4) {
		case 0: // hits the start, where the dead session is settled
			life /= 8
		case 1: // anywhere
		default: // hits the middle of the work, however slow the machine is
			delivering(ctx, p, 10*longest)
			life /= 2
		}
		select {
		case <-p.Done():
		case <-time.After(life):
		}
		if err := k.again(); err != nil {
			return err
		}
	}
	return nil
}

// delivering waits until this process has had records acknowledged, or for at most most.
func delivering(ctx context.Context, p *relayproc.Process, most time.Duration) {
	ctx, stop := context.WithTimeout(ctx, most)
	defer stop()
	p.Until(ctx, "it delivers", func(s relayproc.Status) bool { return s.Sink.Records > 0 })
}

func (k *keeper) killed() int { k.mu.Lock(); defer k.mu.Unlock(); return k.kills }
