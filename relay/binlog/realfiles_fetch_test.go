package binlog

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	command "os/exec"
	"path"
	"path/filepath"
	"regexp"
	"testing"

	"binrelay/bench/services"
)

var mysqlFiles = flag.Bool("mysqlfiles", false, "TestRealBinlogFiles: read the files of MySQL's test suite too, a package of 338 MB")

// realFile is a binlog file of a server's test suite. They are GPL: fetched for the test, never committed.
type realFile struct {
	name    string
	data    []byte
	printed int // rows that mariadb-binlog prints, -1 where it was not asked
}

const mostRealFile = 64 << 20

// realFiles are the files with the binlog magic in Debian's mariadb-test-data, and with -mysqlfiles in mysql-testsuite.
func realFiles(t *testing.T) (files []realFile) {
	t.Helper()
	if services.Off() {
		t.Skip("BENCH_SERVICES=off: this test fetches Debian's mariadb-test-data")
	}
	deb, err := debianPackage("mariadb-test-data", nil)
	if err != nil {
		noRealFiles(t, err)
	}
	files, err = binlogsOf(deb)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 30 {
		t.Fatalf("%s: only %d binlog files", deb, len(files))
	}
	printer, err := mariadbBinlog(t)
	if err != nil {
		noRealFiles(t, err)
	}
	dir := t.TempDir()
	for i := range files {
		file := filepath.Join(dir, "f")
		if err := os.WriteFile(file, files[i].data, 0o600); err != nil {
			t.Fatal(err)
		}
		files[i].printed = printedRows(printer, file)
	}
	if *mysqlFiles {
		fs, err := binlogsOf(mysqlTestsuite(t))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, fs...)
	}
	return files
}

// noRealFiles ends a test that cannot have its files: loudly, and in CI as a failure.
func noRealFiles(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skipf("NOT TESTED, real binlog files cannot be had: %v", err)
}

func cacheDir() (string, error) {
	if d := os.Getenv("SRCDB_CACHE"); d != "" {
		return d, nil
	}
	d, err := os.UserCacheDir()
	return filepath.Join(d, "binrelay"), err
}

// debianPackage returns the path of a package's file, from the cache or fetched by apt with env.
func debianPackage(name string, env []string) (string, error) {
	root, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, name)
	if have, _ := filepath.Glob(filepath.Join(dir, "*.deb")); len(have) > 0 {
		return have[0], nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(dir, "fetch")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := runIn(tmp, env, "apt-get", "-q", "download", name); err != nil {
		update := []string{"apt-get", "-qq", "update"}
		if env == nil && os.Getuid() != 0 {
			update = append([]string{"sudo", "-n"}, update...)
		}
		if err := runIn(tmp, env, update...); err != nil {
			return "", err
		}
		if err := runIn(tmp, env, "apt-get", "-q", "download", name); err != nil {
			return "", err
		}
	}
	have, _ := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if len(have) == 0 {
		return "", fmt.Errorf("apt-get download %s left no file", name)
	}
	to := filepath.Join(dir, filepath.Base(have[0]))
	return to, os.Rename(have[0], to) // whole, or not there
}

func runIn(dir string, env []string, args ...string) error {
	cmd := command.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %.400s", args, err, out)
	}
	return nil
}

// mysqlTestsuite is the path of MySQL's test suite.
func mysqlTestsuite(t *testing.T) string {
	t.Helper()
	root, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	server(t, "mysql") // its apt.conf knows where unstable is
	conf := filepath.Join(root, "mysql", "apt.conf")
	for _, d := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(root, "mysql", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	deb, err := debianPackage("mysql-testsuite", []string{"APT_CONFIG=" + conf})
	if err != nil {
		t.Fatal(err)
	}
	return deb
}

// binlogsOf returns the binlog files in a package.
func binlogsOf(deb string) (files []realFile, err error) {
	cmd := command.Command("dpkg-deb", "--fsys-tarfile", deb)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cmd.Wait()) }()
	defer io.Copy(io.Discard, out)
	r := tar.NewReader(out)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", deb, err)
		}
		if h.Typeflag != tar.TypeReg || h.Size < 4 || h.Size > mostRealFile {
			continue
		}
		magic := make([]byte, 4)
		if _, err := io.ReadFull(r, magic); err != nil {
			return nil, err
		}
		if string(magic) != "\xfebin" {
			continue
		}
		rest, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		files = append(files, realFile{name: path.Base(h.Name), data: append(magic, rest...), printed: -1})
	}
}

// mariadbBinlog returns MariaDB's own reader of binlog files, from its package.
func mariadbBinlog(t *testing.T) (string, error) {
	t.Helper()
	if p, err := command.LookPath("mariadb-binlog"); err == nil {
		return p, nil
	}
	deb, err := debianPackage("mariadb-client", nil)
	if err != nil {
		return "", err
	}
	dir := t.TempDir()
	if err := runIn(dir, nil, "dpkg-deb", "-x", deb, dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, "usr/bin/mariadb-binlog"), nil
}

var printedRow = regexp.MustCompile("(?m)^### (INSERT INTO|UPDATE|DELETE FROM) `(\\w+)`")

// printedRows counts the rows that mariadb-binlog shows of a file, -1 where it does not read it.
func printedRows(printer, file string) int {
	cmd := command.Command(printer, "--no-defaults", "-v", "--base64-output=decode-rows", file)
	var out bytes.Buffer
	cmd.Stdout = &out
	if cmd.Run() != nil {
		return -1
	}
	n := 0
	for _, m := range printedRow.FindAllSubmatch(out.Bytes(), -1) {
		n += b2i(string(m[2]) != "mysql") // never selected
	}
	return n
}
