package kafka

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"binrelay/functions"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func headers(kv ...string) (h []functions.Header) {
	for i := 0; i < len(kv); i += 2 {
		h = append(h, functions.Header{Key: kv[i], Value: []byte(kv[i+1])})
	}
	return h
}

func endOffsets(t testing.TB, cl *kgo.Client, topic string) map[int32]int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		if err == nil {
			out := map[int32]int64{}
			for p, o := range ends[topic] {
				out[p] = o.Offset
			}
			return out
		}
		if ctx.Err() != nil {
			t.Fatal("end offsets: ", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// lockedBuffer collects log lines.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lockedBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// has reports whether one of the findings says text.
func (fs Findings) has(text string) bool {
	return slices.ContainsFunc(fs, func(f Finding) bool { return strings.Contains(f.String(), text) })
}
