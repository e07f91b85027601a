package cmd

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version and commit are set by the linker: make build, Dockerfile.
var version, commit string

// versionLine is version, commit and Go version. A binary that was built without the linker's flags (a
// user's own main) says what the Go tool noted.
func versionLine() string {
	v, c := version, commit
	if info, ok := debug.ReadBuildInfo(); ok {
		if v == "" {
			v = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && c == "" {
				c = s.Value
			}
		}
	}
	if v == "" {
		v = "(devel)"
	}
	if c == "" {
		c = "unknown"
	}
	return fmt.Sprintf("relay %s commit %s %s %s/%s", v, c, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
