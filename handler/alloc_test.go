//go:build !race

package handler

// Under the race detector sync.Pool forgets at random, so these tests are not part of that build; make test runs them
// without it.

import (
	"context"
	"strings"
	"testing"

	"binrelay/functions"
)

func TestStockPathAllocatesNothing(t *testing.T) {
	p := newPool(t, Options{Workers: 1, Tombstones: func(context.Context, string) (bool, error) { return true, nil }})
	j := job(strings.Repeat("c 7\nu 7\nd 7\nn 7\n", 250))
	for range 10 {
		run(p, j).Out.Release()
	}
	if n := testing.AllocsPerRun(50, func() { run(p, j).Out.Release() }); n > 5 { // a task a job
		t.Errorf("%v allocations for 1000 changes", n)
	}
}

func TestGuardsAllocateNothing(t *testing.T) {
	set := functions.Set{
		Filter:    func(context.Context, *functions.Change) (bool, error) { return true, nil },
		Partition: func(context.Context, *functions.Change, *functions.Record, int) (int, error) { return 0, nil },
	}
	p := newPool(t, Options{Workers: 1, Set: set})
	j := job(strings.Repeat("c 7\nu 7\nd 7\nn 7\n", 250))
	for range 10 {
		run(p, j).Out.Release()
	}
	if n := testing.AllocsPerRun(50, func() { run(p, j).Out.Release() }); n > 5 {
		t.Errorf("%v allocations for 1000 changes", n)
	}
}
