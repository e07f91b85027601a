//go:build !linux

package kafka

import "os"

func fdatasync(f *os.File) error { return f.Sync() }
