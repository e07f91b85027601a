package binlog

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"

	"binrelay/bench/services"
)

// Real servers, started when the first test asks for one and kept until the package's tests end.
var serverKinds = []string{"mysql", "mariadb"}

// mariadbKind lets other versions take part: -mariadb mariadb10.5 or mariadb11.8.
var mariadbKind = flag.String("mariadb", "mariadb", "the MariaDB to test against, see bench/services/srcdb")

type testServer struct{ *services.DB }

var started struct {
	sync.Mutex
	servers map[string]testServer
}

func server(t testing.TB, kind string) testServer {
	t.Helper()
	if services.Off() {
		t.Skip("BENCH_SERVICES=off: this test needs a real " + kind)
	}
	started.Lock()
	defer started.Unlock()
	if s, ok := started.servers[kind]; ok {
		return s
	}
	start := kind
	if kind == "mariadb" {
		start = *mariadbKind
	}
	db, err := services.StartDatabase(context.Background(), start)
	if err != nil {
		t.Fatalf("a real %s is needed here: %v", kind, err)
	}
	if started.servers == nil {
		started.servers = make(map[string]testServer)
	}
	s := testServer{db}
	started.servers[kind] = s
	return s
}

// session is a connection of its own, in UTC and without SQL modes.
func (s testServer) session(t testing.TB) *client.Conn {
	t.Helper()
	c, err := s.Connect("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	for _, q := range []string{"SET NAMES utf8mb4", "SET SESSION sql_mode=''", "SET SESSION time_zone='+00:00'"} {
		if _, err := c.Execute(q); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func wipeServers() {
	for kind, s := range started.servers {
		if err := s.Wipe(); err != nil {
			fmt.Fprintln(os.Stderr, kind, err)
		}
	}
}
