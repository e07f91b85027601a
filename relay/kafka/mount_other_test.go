//go:build !linux

package kafka

import "errors"

func mountTmpfs(string, int) error { return errors.ErrUnsupported }
func unmount(string)               {}
