package relaytest

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Rand is a seeded random source that the hooks of a simulation share; unlike rand.Rand it is safe for
// concurrent use.
type Rand struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// NewRand returns the random source of a seed.
func NewRand(seed uint64) *Rand { return &Rand{rng: rand.New(rand.NewPCG(seed, 0))} }

// IntN returns a number in [0, n).
func (r *Rand) IntN(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.IntN(n)
}

// OneIn reports true once in n times.
func (r *Rand) OneIn(n int) bool { return r.IntN(n) == 0 }

// UpTo returns a hook for delays in [0, d).
func (r *Rand) UpTo(d time.Duration) func() time.Duration {
	return func() time.Duration {
		r.mu.Lock()
		defer r.mu.Unlock()
		return time.Duration(r.rng.Int64N(int64(d)))
	}
}
