package cmd

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write generated parts of README.md")

// TestReadmeTable keeps README's table of variables that of Config. Write it anew with
// go test ./cmd -run ReadmeTable -update.
func TestReadmeTable(t *testing.T) {
	const file, begin, end = "../README.md", "<!-- variables: made by go test ./cmd -run ReadmeTable -update -->\n", "<!-- end of variables -->\n"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(b), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has lost its markers", file)
	}
	if want := variableTable(); table != want {
		if !*update {
			t.Fatalf("%s does not show the variables of Config; run go test ./cmd -run ReadmeTable -update", file)
		}
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// variableTable is Config as a Markdown table.
func variableTable() string {
	var b strings.Builder
	b.WriteString("| variable | default | meaning |\n| --- | --- | --- |\n")
	for _, f := range variables() {
		name, options, _ := strings.Cut(f.Tag.Get("env"), ",")
		def := f.Tag.Get("shown")
		if v := f.Tag.Get("envDefault"); v != "" {
			def = "`" + v + "`"
		}
		if strings.Contains(options, "required") {
			def = "**required**"
		}
		doc := f.Tag.Get("doc")
		if oneof := strings.Fields(f.Tag.Get("oneof")); len(oneof) > 0 {
			doc += ": `" + strings.Join(oneof, "` `") + "`"
		}
		b.WriteString("| `" + name + "` | " + def + " | " + strings.ReplaceAll(doc, "|", "\\|") + " |\n")
	}
	return b.String()
}

// TestReadmeLinks follows the links to files, and the names of make targets.
func TestReadmeLinks(t *testing.T) {
	readme := read(t, "../README.md")
	for _, m := range regexp.MustCompile(`\]\(([^):]+)\)`).FindAllStringSubmatch(readme, -1) {
		if _, err := os.Stat("../" + m[1]); err != nil {
			t.Errorf("README.md links to %s: %v", m[1], err)
		}
	}
	makefile := read(t, "../Makefile")
	for _, m := range regexp.MustCompile("`make ([a-z]+)").FindAllStringSubmatch(readme, -1) {
		if !strings.Contains(makefile, "\n"+m[1]+":") {
			t.Errorf("README.md says make %s, which is no target", m[1])
		}
	}
}
