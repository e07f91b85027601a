package cmd

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// mayImport is who may import whom inside the module; what is below a package keeps its rule and may be imported
// like it. Tests may import relay/relaytest and bench/services as well.
// Programs (cmd, bench and what is below them) know all and are imported by nobody but each other.
var mayImport = map[string][]string{
	"functions":       {},
	"wal":             {},
	"relay":           {"functions"},
	"relay/binlog":    {"functions", "relay"},
	"relay/kafka":     {"functions", "relay"},
	"relay/relaytest": {"functions", "relay"},
	"handler":         {"functions", "relay"},
}

// testsOfAll have tests only, of the parts together.
var testsOfAll = []string{"relay/relaytest/integration"}

// homes are the packages that may import a dependency, for code and for tests alike unless said
// otherwise in testHomes; "…" stands for every package below.
var homes = map[string][]string{
	"github.com/alecthomas/kong":          {"cmd"},
	"github.com/caarlos0/env":             {"cmd"},
	"github.com/docker/go-units":          {"cmd"},
	"golang.org/x/term":                   {"cmd"},
	"github.com/dgraph-io/badger":         {"wal"},
	"github.com/klauspost/compress":       {"wal", "relay/binlog", "relay/kafka", "bench/…"},
	"golang.org/x/sys":                    {"wal", "cmd", "bench/…"},
	"github.com/go-mysql-org/go-mysql":    {"relay/binlog", "relay/relaytest/…", "bench/…"},
	"github.com/hashicorp/golang-lru":     {"relay/binlog"},
	"golang.org/x/text":                   {"relay/binlog", "relay/relaytest"},
	"github.com/twmb/franz-go":            {"relay/kafka", "relay/relaytest/…", "bench/…"},
	"github.com/prometheus/client_golang": {"handler"},
	"golang.org/x/sync":                   {"relay", "relay/binlog", "relay/kafka", "handler", "cmd", "bench/…"},
}

// testHomes are what only tests import, anywhere, or more places for tests.
var testHomes = map[string][]string{
	"go.uber.org/goleak":               {"…"},
	"github.com/BurntSushi/toml":       {"cmd"},
	"github.com/go-mysql-org/go-mysql": {"cmd", "handler"},
	"github.com/twmb/franz-go":         {"cmd"},
	"github.com/prometheus/common":     {"handler"},
}

type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// TestImportRules keeps the picture of the architecture true: levels inside, and one home for each
// dependency outside, so that exchanging one touches one package.
func TestImportRules(t *testing.T) {
	const module = "binrelay"
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", module+"/...").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	seen := 0
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		pkg := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, imp := range p.Imports {
			checkImport(t, module, pkg, imp, false)
		}
		for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
			checkImport(t, module, pkg, imp, true)
		}
	}
	if seen < len(mayImport) {
		t.Errorf("go list knows %d packages, the table %d", seen, len(mayImport))
	}
}

func checkImport(t *testing.T, module, pkg, imp string, test bool) {
	t.Helper()
	in := "code"
	if test {
		in = "tests"
	}
	if inside, ok := strings.CutPrefix(imp, module+"/"); ok {
		allowed, ruled := mayImport[ruleOf(pkg)]
		switch {
		case inside == pkg, ruled && ruleOf(inside) == ruleOf(pkg): // an external test, or of one family
		case test && slices.Contains(testsOfAll, pkg):
		case test && (ruleOf(inside) == "relay/relaytest" || inside == "bench/services"):
		case top(inside) == "bench" || top(inside) == "cmd":
			if ruled || top(inside) == "bench" && top(pkg) != "bench" {
				t.Errorf("%s of %s imports the program %s", in, pkg, inside)
			}
		case !ruled || slices.Contains(allowed, ruleOf(inside)):
		default:
			t.Errorf("%s of %s imports %s; it may import %q", in, pkg, inside, allowed)
		}
		return
	}
	if !strings.Contains(top(imp), ".") {
		return // standard library
	}
	for dep, places := range homes {
		if under(imp, dep) && (contains(places, pkg) || test && contains(testHomes[dep], pkg)) {
			return
		}
	}
	if test {
		for dep, places := range testHomes {
			if under(imp, dep) && contains(places, pkg) {
				return
			}
		}
	}
	t.Errorf("%s of %s imports %s, which has its home elsewhere (the table in deps_test.go)", in, pkg, imp)
}

// ruleOf is the package in mayImport that pkg is or is below, pkg itself when there is none.
func ruleOf(pkg string) string {
	for p := pkg; p != "."; p = path.Dir(p) {
		if _, ok := mayImport[p]; ok && (p == pkg || p != "relay") {
			return p
		}
	}
	return pkg
}

func top(p string) string { first, _, _ := strings.Cut(p, "/"); return first }

func under(imp, dep string) bool { return imp == dep || strings.HasPrefix(imp, dep+"/") }

func contains(places []string, pkg string) bool {
	return slices.ContainsFunc(places, func(p string) bool {
		ok, _ := path.Match(p, pkg)
		base, all := strings.CutSuffix(p, "…")
		return ok || all && strings.HasPrefix(pkg+"/", base)
	})
}
