package cmd

import (
	"os"
	"testing"
)

func TestMemoryOfIsTheLeastLimit(t *testing.T) {
	for _, tt := range []struct {
		files map[string]string
		want  int64
	}{
		{map[string]string{"/proc/meminfo": "MemTotal:       1024 kB\nMemFree: 1 kB\n", "/sys/fs/cgroup/memory.max": "max\n"}, 1 << 20},
		{map[string]string{"/proc/meminfo": "MemTotal:  1048576 kB\n", "/sys/fs/cgroup/memory.max": "268435456\n"}, 256 << 20},
		{map[string]string{"/proc/meminfo": "MemTotal:  1048576 kB\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 1 << 30},
	} {
		got := memoryOf(func(name string) ([]byte, error) {
			if s, ok := tt.files[name]; ok {
				return []byte(s), nil
			}
			return nil, os.ErrNotExist
		})
		if got != tt.want {
			t.Errorf("memoryOf(%v) = %d, want %d", tt.files, got, tt.want)
		}
	}
}
