package cmd

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryTarget keeps the resident size of a relay at full speed below 128 MiB: what the Go runtime does not
// count (the log's mapped files, stacks of the kernel, the binary) needs the rest.
const memoryTarget = 80 << 20

// limitMemory sets the Go runtime's soft limit: memoryTarget, or 60 % of a smaller container or machine. It leaves
// GOMEMLIMIT, when set, alone: functions with large tables of their own want it higher.
func limitMemory(environ map[string]string) {
	if environ["GOMEMLIMIT"] == "" {
		debug.SetMemoryLimit(min(memoryTarget, memoryOf(os.ReadFile)/10*6))
	}
}

// memoryOf is the memory that this process may use: the least of its control group's limits and the machine's.
func memoryOf(readFile func(string) ([]byte, error)) int64 {
	least := int64(math.MaxInt64)
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if b, err := readFile(file); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 { // "max" is none
				least = min(least, n)
			}
		}
	}
	if b, err := readFile("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
				if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
					least = min(least, n<<10)
				}
			}
		}
	}
	return least
}
