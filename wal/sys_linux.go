package wal

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// fallocate gives the first size bytes of f blocks without changing its length. Writing to them through a
// mapping then never needs a block, which on a full disk would be a SIGBUS.
func fallocate(f *os.File, size int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return writeZeros(f, size)
	}
	return err
}

// writeZeros is fallocate by hand, behind what Badger has already put at the head of the file.
func writeZeros(f *os.File, size int64) error {
	zeros := make([]byte, 64<<10)
	for off := int64(4096); off < size; off += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros, off); err != nil {
			return err
		}
	}
	return f.Sync()
}

// punchHole gives the blocks of a mapped file back; what is in it must not be needed any more.
func punchHole(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, fi.Size())
}

// adviseRandom turns read-ahead off for this process's mappings of path. With it, a write fault brings in
// folios of up to 2 MiB on ext4 and XFS, and the sync after each commit writes them back whole: 130 KB to
// 2 MB written for a commit of 2 KB, against 16 KB without.
func adviseRandom(path string) { advise(path, unix.MADV_RANDOM, 1<<62) }

// forget takes the first n bytes of path's mappings out of this process's resident memory. They are synced
// and stay in the page cache; without it the last 30 MB written would count against a small machine.
// The mapping is looked up each time: an address kept from earlier might by now be someone else's.
func forget(path string, n int64) { advise(path, unix.MADV_DONTNEED, n) }

func advise(path string, advice int, n int64) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return // advice only
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		// 7f3c00000000-7f3c05000000 rw-s 00000000 fe:00 1234   /data/seg-000000000001/000001.vlog
		line := sc.Bytes()
		if !bytes.HasSuffix(line, []byte(path)) || !bytes.HasSuffix(line[:len(line)-len(path)], []byte(" ")) {
			continue
		}
		fields := bytes.Fields(line)
		lo, hi, ok := bytes.Cut(fields[0], []byte("-"))
		from, err1 := strconv.ParseUint(string(lo), 16, 64)
		to, err2 := strconv.ParseUint(string(hi), 16, 64)
		off, err3 := strconv.ParseUint(string(fields[2]), 16, 64)
		if !ok || err1 != nil || err2 != nil || err3 != nil || off != 0 || len(fields[1]) < 4 || fields[1][3] != 's' {
			continue
		}
		size := min(to-from, uint64(n)&^4095)
		if size > 0 {
			unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(size), uintptr(advice))
		}
	}
}

// dropCache makes the next read of f come from the disk, where it can.
func dropCache(f *os.File) { unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
