// Package blackbox runs the built relay as a process against real servers that are set up wrongly, and checks
// what a person gets to see: one clear message, the right exit code (design A2), and no secret. Things that an
// operator mends outside must be waited for, and go on by themselves.
//
// It holds tests only. What the relay does right is checked by bench/soak.
package blackbox
