// Package integration tests that the relay's own parts understand relaytest: relay/binlog reads the embedded
// source. It is a package of its own because relaytest itself must not import its siblings.
package integration
