package cmd

import (
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/docker/go-units"
)

type flyFile struct {
	App           string `toml:"app"`
	KillSignal    string `toml:"kill_signal"`
	KillTimeout   string `toml:"kill_timeout"`
	PrimaryRegion string `toml:"primary_region"`
	Build         struct{ Dockerfile string }
	Env           map[string]string
	Mounts        []flyMount
	Restart       []struct{ Policy string }
	Deploy        struct{ Strategy string }
	Checks        map[string]flyCheck
	Metrics       struct {
		Port int
		Path string
	}
	VM []struct{ Size, Memory string } `toml:"vm"`
}

type flyMount struct {
	Source, Destination string
	InitialSize         string `toml:"initial_size"`
}

type flyCheck struct {
	Type, Method, Path, Interval, Timeout string
	Port                                  int
	GracePeriod                           string `toml:"grace_period"`
}

// TestFlyFitsImageAndDefaults reads fly.toml as Fly would, and compares it with the Dockerfile and with Config.
func TestFlyFitsImageAndDefaults(t *testing.T) {
	var f flyFile
	meta, err := toml.DecodeFile("../fly.toml", &f)
	if err != nil {
		t.Fatal(err)
	}
	if keys := meta.Undecoded(); len(keys) > 0 {
		t.Errorf("keys that this test does not know (a service would let Fly stop the machine): %v", keys)
	}
	docker := read(t, "../"+f.Build.Dockerfile)

	environ := with()
	for k, v := range f.Env {
		environ[k] = v
	}
	c, err := ParseConfig(environ)
	if err != nil {
		t.Fatalf("[env]: %v", err)
	}
	if len(f.Mounts) != 1 || f.Mounts[0].Destination != c.WALDir || !path.IsAbs(c.WALDir) {
		t.Errorf("WAL_DIR = %s is not the one volume's mount: %+v", c.WALDir, f.Mounts)
	}
	if want := "ENV WAL_DIR=" + c.WALDir + "\n"; !strings.Contains(docker, want) || !strings.Contains(docker, "VOLUME "+c.WALDir+"\n") {
		t.Errorf("Dockerfile lacks %q or its VOLUME", want)
	}
	if size, err := units.FromHumanSize(f.Mounts[0].InitialSize); err != nil || size < int64(c.WALMaxBytes+c.WALMinFree) {
		t.Errorf("volume of %s does not hold WAL_MAX_BYTES + WAL_MIN_FREE (%v)", f.Mounts[0].InitialSize, err)
	}
	if got := span(t, f.KillTimeout); got < time.Duration(c.ShutdownTimeout)+5*time.Second {
		t.Errorf("kill_timeout %v leaves no time after SHUTDOWN_TIMEOUT %v", got, time.Duration(c.ShutdownTimeout))
	}
	if f.KillSignal != "SIGTERM" || len(f.Restart) != 1 || f.Restart[0].Policy != "always" {
		t.Errorf("kill_signal %s, restart %v", f.KillSignal, f.Restart)
	}

	port := strings.TrimPrefix(c.HTTPAddr, ":")
	if !strings.Contains(docker, "EXPOSE "+port+"\n") {
		t.Errorf("Dockerfile does not EXPOSE %s", port)
	}
	if strconv.Itoa(f.Metrics.Port) != port || f.Metrics.Path != "/metrics" {
		t.Errorf("metrics = %+v, the relay serves them at port %s", f.Metrics, port)
	}
	if len(f.Checks) == 0 {
		t.Error("no health check")
	}
	for name, check := range f.Checks {
		if strconv.Itoa(check.Port) != port || check.Type != "http" || check.Path != "/healthz" {
			t.Errorf("check %s = %+v", name, check)
		}
		if span(t, check.Timeout) >= span(t, check.Interval) {
			t.Errorf("check %s: timeout is not below interval", name)
		}
	}
	if len(f.VM) != 1 || f.VM[0].Memory != "256mb" {
		t.Errorf("vm = %+v", f.VM)
	}
}

// TestDockerfile checks what BuildKit's linter does not know: static, not root, the binary checks itself.
func TestDockerfile(t *testing.T) {
	docker := read(t, "../Dockerfile")
	if n := len(regexp.MustCompile(`(?m)^FROM `).FindAllString(docker, -1)); n != 2 {
		t.Errorf("%d stages, want 2", n)
	}
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))[1]
	for _, want := range []string{
		"FROM golang:" + goVersion, "CGO_ENABLED=0", "\nUSER 65532", `HEALTHCHECK`, `CMD ["/relay", "healthz"]`, `ENTRYPOINT ["/relay"]`,
		"binrelay/cmd.version=", "binrelay/cmd.commit=",
	} {
		if !strings.Contains(docker, want) {
			t.Errorf("Dockerfile lacks %q", want)
		}
	}
}

func span(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
