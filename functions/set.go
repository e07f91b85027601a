package functions

import "context"

// Filter reports whether a change goes on. Returning false drops it for good.
type Filter func(ctx context.Context, c *Change) (keep bool, err error)

// Serialize turns a change into zero, one or many records.
type Serialize func(ctx context.Context, c *Change) ([]*Record, error)

// Partition chooses the partition of one record, in [0, n); n is the topic's partition count. r is
// there to be read, not changed. It is not asked where the record says its Partition itself.
type Partition func(ctx context.Context, c *Change, r *Record, n int) (int, error)

// Set is the functions of one relay. A nil field means the default of the environment
// (TABLES, FORMAT and TOPIC, PARTITION_BY). All are called concurrently for different changes,
// must not keep the Change, and honour ctx, which ends when FUNCTION_TIMEOUT has passed. Each call
// gets its own copy of the Change: setting its fields reaches nobody else. Its Table is shared by all.
type Set struct {
	Filter    Filter
	Serialize Serialize
	Partition Partition
}
