package functions

// Record is what a change becomes in Kafka.
type Record struct {
	Topic     string // "": the topic of TOPIC's template
	Key       []byte // nil: no key
	Value     []byte // nil: a tombstone
	Headers   []Header
	Partition PartitionID // zero: decided by Set.Partition or PARTITION_BY
}

// Header is one Kafka record header.
type Header struct {
	Key   string
	Value []byte
}

// PartitionID is an explicit partition, made by At. The zero value means "not set".
type PartitionID int32

// At asks for partition n of the record's topic.
func At(n int) PartitionID { return PartitionID(n + 1) }

// Get returns the partition and whether one was set.
func (p PartitionID) Get() (n int, ok bool) { return int(p) - 1, p != 0 }
