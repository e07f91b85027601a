package binlog

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()
	wipeServers()
	os.Exit(code)
}
