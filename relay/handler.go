package relay

import "context"

// Handler decodes entries and runs the user's functions on their changes, guarded. handler
// implements it with a pool of workers.
type Handler interface {
	// Go starts work on job and returns at once; job.Done receives exactly one value when job.Out,
	// job.Covered and job.Fault are final. The relay keeps the number of unfinished jobs bounded.
	Go(job *Job)
}

// Job is a run of log entries to be turned into one batch.
type Job struct {
	// Ctx ends when nobody wants the outcome any more; nil: never. The handler still answers. It bounds
	// what a job may wait for outside, such as a topic's partition count while Kafka is down.
	Ctx     context.Context
	Entries []Entry // in order; valid until Done. Nothing in Out may point into them
	Out     Batch   // First/Last cover the entries before a fault, or all
	// Covered is how many of Entries are wholly in Out.
	Covered int
	// Fault is why entry Entries[Covered] could not be handled. nil: all are in Out.
	Fault *Fault
	Done  chan struct{} // capacity 1
	Stats JobStats

	release func() // gives Entries back to the log
}

// finish gives the entries back; the job's records do not point into them.
func (j *Job) finish() {
	if j.release != nil {
		j.release()
		j.release = nil
	}
}

// JobStats counts the changes of a job.
type JobStats struct {
	Changes, Filtered, DeadLetters int
}

// Entry is one entry of the log: a transaction or a part of a large one.
type Entry struct {
	Seq  uint64
	Data []byte
}
