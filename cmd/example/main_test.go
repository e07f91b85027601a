package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestMain lets the test binary be the program that main makes.
func TestMain(m *testing.M) {
	if os.Getenv("BE_EXAMPLE") != "" {
		os.Unsetenv("BE_EXAMPLE")
		main()
	}
	os.Exit(m.Run())
}

func TestFunctionsInTheDemo(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "demo", "--for", "4s", "--rate", "200")
	cmd.Env = []string{"BE_EXAMPLE=1", "HTTP_ADDR=127.0.0.1:0", "TMPDIR=" + t.TempDir()}
	b, err := cmd.CombinedOutput()
	out := string(b)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"  customers.masked  ", "  sold  ", "update     shop.orders  ", "insert     shop.items  "} {
		if !strings.Contains(out, want) {
			t.Errorf("no line with %q in\n%s", want, out)
		}
	}
	for _, bad := range []string{"shop.customers", "shop.order_lines", "insert     shop.orders", "halted"} {
		if strings.Contains(out, bad) {
			t.Errorf("%q in\n%s", bad, out)
		}
	}
}
