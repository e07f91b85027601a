package binlog

import "sync/atomic"

// counters is what Status shows of the stream, written by the reader and read by anybody.
type counters struct {
	events, bytes, transactions atomic.Uint64
	connects                    atomic.Uint64
	commit                      atomic.Int64 // newest commit time, µs since 1970
	waiting                     atomic.Int64 // since when the reader has been waiting for the server, ns; 0: it is busy
}
