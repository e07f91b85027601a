// Package functions is what a user of the relay imports: the change of a row as it comes from the
// binlog, the record it becomes in Kafka, and the three functions that may stand between.
//
//	Filter     does this change go on?
//	Serialize  which records does it become?
//	Partition  into which partition does a record go?
//
// Each is optional; without one the relay does what TABLES, FORMAT, TOPIC and PARTITION_BY say. A whole
// program:
//
//	package main
//
//	import (
//		"context"
//
//		"binrelay/cmd"
//		"binrelay/functions"
//	)
//
//	// Only orders that are paid go on.
//	func paid(_ context.Context, c *functions.Change) (bool, error) {
//		return c.Table.Name == "orders" && c.Get("status") == "paid", nil
//	}
//
//	// Records say who they are for.
//	func tag(_ context.Context, c *functions.Change) ([]*functions.Record, error) {
//		r, err := functions.NewRecord(functions.JSON{}, c)
//		if err != nil {
//			return nil, err
//		}
//		customer, err := c.Row().String("customer")
//		if err != nil {
//			return nil, err
//		}
//		r.Headers = append(r.Headers, functions.Header{Key: "customer", Value: []byte(customer)})
//		return []*functions.Record{r}, nil
//	}
//
//	func main() { cmd.Main(functions.Set{Filter: paid, Serialize: tag}) }
//
// # What the relay promises a function
//
//   - It is called concurrently for different changes; records keep the order of the changes.
//   - Reading a column decodes that column only. Values that Row gives are the caller's to keep; the
//     Change, its rows, and its strings are valid only during the call.
//   - A panic, an error, runtime.Goexit, and a call that takes longer than FUNCTION_TIMEOUT are a fault of
//     that one change: it goes to DEAD_LETTER_TOPIC where there is one, else delivery halts there and says
//     which change it was. Capture into the log goes on all the while.
//
// # What a function promises the relay
//
//   - It depends on the change only. After a crash, and on replay from the log, it runs again on the same
//     change; a function that looks at a clock or a counter may give another record then. (What was
//     handed to Kafka already stays as it was.)
//   - What it returns is not touched by it again.
//   - It honours ctx where it waits. Go cannot stop a goroutine: one that never returns is left behind,
//     counted, and at more than eight of them the relay stops.
//   - It starts no goroutine that can panic: nobody can recover that.
//
// # What a record may be
//
// Zero records drop the change. An empty Topic is the topic of TOPIC; any other must be a legal name. A nil
// Key goes by table to a partition; a nil Value is a tombstone and needs a Key. A nil *Record, a
// partition out of range and a tombstone without a key are faults. DDL statements never come to a function.
package functions
