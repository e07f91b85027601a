package handler

import (
	"context"
	"strings"
	"testing"

	"binrelay/functions"
	"binrelay/relay"
)

// BenchmarkPool is the cost of a change in a pool of one worker; "bare" is its floor, the same
// decoder and format in a plain loop.
func BenchmarkPool(b *testing.B) {
	const changes = 1000
	entry := strings.Repeat("u 7\n", changes)
	keep := func(context.Context, *functions.Change) (bool, error) { return true, nil }
	get := func(_ context.Context, c *functions.Change) (bool, error) { return c.After.Has("id"), nil }
	perChange := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/changes, "ns/change")
	}
	b.Run("bare", func(b *testing.B) {
		var d lines
		data, buf := []byte(entry), []byte(nil)
		b.ReportAllocs()
		for b.Loop() {
			if err := d.Decode(1, data, func(c *functions.Change) error {
				var err error
				if buf, _, err = (functions.JSON{}).AppendKey(buf[:0], c); err == nil {
					buf, err = functions.JSON{}.AppendValue(buf, c)
				}
				return err
			}); err != nil {
				b.Fatal(err)
			}
		}
		perChange(b)
	})
	for _, bc := range []struct {
		name string
		set  functions.Set
	}{
		{"stock", functions.Set{}},
		{"empty filter", functions.Set{Filter: keep}},
		{"filter on a column", functions.Set{Filter: get}},
		{"serialize", functions.Set{Serialize: func(_ context.Context, c *functions.Change) ([]*functions.Record, error) {
			r, err := functions.NewRecord(functions.JSON{}, c)
			return []*functions.Record{r}, err
		}}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			p := newPool(b, Options{Set: bc.set, Workers: 1})
			j := &relay.Job{Entries: []relay.Entry{{Seq: 1, Data: []byte(entry)}}, Done: make(chan struct{}, 1)}
			b.ReportAllocs()
			for b.Loop() {
				run(p, j).Out.Release()
			}
			perChange(b)
		})
	}
}
