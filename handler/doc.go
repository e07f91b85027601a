// Package handler is the relay's guarded edge: everything that touches code or requests that we did
// not write, with the same guards (recover, time limit, size limit, counter).
//
// Data plane: Pool implements relay.Handler. It decodes log entries on a few workers, runs the user's
// functions on their changes and builds the records, in order.
//
//	entry ─▶ Decode ─▶ Filter ─▶ Serialize or FORMAT ─▶ tombstone ─▶ Partition or PARTITION_BY ─▶ Batch
//	             └──── panic, error, Goexit, timeout, bad record: a relay.Fault of exactly that change,
//	                   to DEAD_LETTER_TOPIC or a halt there
//
// Control plane: Server answers /healthz, /readyz, /status, /metrics, / and the POST routes.
//
// Goroutines: Pool starts its workers and, when there are user functions, one watchdog; Close ends them.
// A function that never returns cannot be ended: its goroutine is left behind, counted, and replaced.
// Server starts one goroutine in Serve and ends with it.
//
// What it does not promise: a user's function that starts a goroutine of its own which panics, calls
// os.Exit or writes a map concurrently ends the process; nothing in Go can contain that.
package handler
