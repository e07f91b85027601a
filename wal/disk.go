package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// free returns what an unprivileged program may still allocate on the disk of dir.
func free(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return math.MaxInt64 // cannot tell; fallocate will
	}
	return int64(st.Bavail) * int64(st.Bsize)
}

// allocated is what the files under dir take on disk; they are sparse, so their sizes say nothing.
func allocated(dir string) int64 {
	var sum int64
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // trimmed while we look
		}
		if fi, err := d.Info(); err == nil {
			if st, ok := fi.Sys().(*syscall.Stat_t); ok {
				sum += st.Blocks * 512
			}
		}
		return nil
	})
	return sum
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// writeFile replaces dir/name: after a crash it is the old file or the new one, whole and durable.
func writeFile(dir, name string, data []byte) error {
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path+tmpExt, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(path+tmpExt, path)
	}
	if err != nil {
		os.Remove(path + tmpExt)
		return err
	}
	return syncDir(dir)
}

const (
	tmpExt      = ".tmp"
	lockFile    = "LOCKED"
	formatFile  = "FORMAT"
	reserveFile = "RESERVE"
	trashPrefix = "trash-"
	segPrefix   = "seg-"

	formatVersion = 1
	formatPrefix  = "binrelay-wal "
)

// lockDir takes the lock of the log: exclusive to write, shared to look at it. The kernel lets go of it
// when the process dies, however it dies, and it holds between containers that share the volume.
func lockDir(dir string, exclusive bool) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	flags, how := os.O_RDWR|os.O_CREATE, unix.LOCK_EX
	if !exclusive {
		flags, how = os.O_RDONLY, unix.LOCK_SH
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, dirError(dir, err)
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("wal: lock %s: %w (a local disk is needed)", path, err)
		}
		holder := ""
		if b := make([]byte, 64); true {
			n, _ := f.ReadAt(b, 0)
			if pid := strings.TrimSpace(string(b[:n])); pid != "" {
				holder = fmt.Sprintf(" (the last to open it was process %s)", pid)
			}
		}
		return nil, fmt.Errorf("%w: %s is held%s; each relay needs a directory of its own", ErrLocked, dir, holder)
	}
	if exclusive {
		// For the message above only, so a disk too full for it does not matter.
		if f.Truncate(0) == nil {
			f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
		}
	}
	return f, nil
}

// stillLocked reports ErrRemoved when lock is no longer the lock file of dir: the directory was deleted, moved
// or mounted over. Open files and mappings go on working then, so that no write would ever fail, and all that
// is written ends with the process.
func stillLocked(dir string, lock *os.File) error {
	is, err := os.Stat(filepath.Join(dir, lockFile))
	was, lockErr := lock.Stat()
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil || lockErr != nil || os.SameFile(is, was):
		return nil // a disk that does not answer fails the next write
	}
	return fmt.Errorf("wal: %s: %w while it was in use, no more entries are taken", dir, ErrRemoved)
}

// dirError says in one sentence why the directory cannot be used.
func dirError(dir string, err error) error {
	why := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "there is no log here"
	case errors.Is(err, fs.ErrPermission):
		why = fmt.Sprintf("user %d may not write here", os.Geteuid())
	case errors.Is(err, unix.EROFS):
		why = "the file system is read-only"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		why = "the disk is full"
	case errors.Is(err, unix.ENOTDIR):
		why = "not a directory"
	}
	if why == "" {
		return fmt.Errorf("wal: %s: %w", dir, err)
	}
	return fmt.Errorf("wal: %s: %s: %w", dir, why, err)
}

// checkFormat reads the marker of a log directory and makes it in a new one.
func checkFormat(dir string, create bool) error {
	b, err := os.ReadFile(filepath.Join(dir, formatFile))
	if errors.Is(err, fs.ErrNotExist) {
		if segs, _ := filepath.Glob(filepath.Join(dir, segPrefix+"*")); len(segs) > 0 {
			return &CorruptError{Dir: dir, Segment: formatFile, Err: errors.New("the file is missing")}
		}
		if !create {
			return dirError(dir, err)
		}
		if err := writeFile(dir, formatFile, fmt.Appendf(nil, "%s%d\n", formatPrefix, formatVersion)); err != nil {
			return dirError(dir, err)
		}
		return nil
	}
	if err != nil {
		return dirError(dir, err)
	}
	var v int
	if n, _ := fmt.Sscanf(string(b), formatPrefix+"%d\n", &v); n != 1 || v < 1 {
		return &CorruptError{Dir: dir, Segment: formatFile, Err: errors.New("not the marker of a log")}
	}
	if v > formatVersion {
		return fmt.Errorf("wal: %s was written in format %d by a newer version, this one knows up to %d; use the newer one",
			dir, v, formatVersion)
	}
	return nil
}
