package relaytest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

// follow reads a source as a careful client does: GTID by GTID, over as many connections as it takes, until
// n transactions are complete. It returns their GTIDs in the order of completion.
func follow(t *testing.T, s *Source, n int) (gtids []string) {
	t.Helper()
	set := gtidSet{}
	for len(gtids) < n {
		st := startGTID(t, syncer(t, s), s.cfg.Flavor, set.String())
		for len(gtids) < n {
			_, got, err := collect(t, st, 1)
			if err != nil {
				if code := errCode(err); code == 1236 {
					t.Fatal(err)
				}
				break
			}
			g, err := parseGTIDSet(got[len(got)-1], s.cfg.Flavor == MariaDB)
			if err != nil {
				t.Fatal(err)
			}
			for u, in := range g.mysql {
				set.addInterval(u, in[0])
			}
			for _, m := range g.maria {
				set.add(m, 1)
			}
			gtids = append(gtids, got[len(got)-1])
		}
	}
	return gtids
}

func TestEveryTransactionArrivesThroughKillsAndRestarts(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f Flavor) {
		s := startSource(t, SourceConfig{Flavor: f})
		item := CreateTable("CREATE TABLE shop.item (id INT PRIMARY KEY)")
		var want []string
		for i := range 60 {
			want = append(want, s.Tx(Insert(item, i)))
		}
		s.KillEvery(40)
		if got := follow(t, s, 60); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v", got)
		}
		if s.Dumps() < 4 {
			t.Errorf("%d dumps only", s.Dumps())
		}
		s.KillEvery(0)
		s.Stop()
		if _, err := client.Connect(s.Addr(), "relay", "secret", ""); err == nil {
			t.Error("a stopped server accepted a connection")
		}
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		if got := follow(t, s, 60); len(got) != 60 {
			t.Errorf("%d transactions after a restart", len(got))
		}
	})
}

func TestErrorPackets(t *testing.T) {
	s := startSource(t, SourceConfig{})
	s.FailDumps(1, 1236, "scripted")
	if _, _, err := collect(t, startGTID(t, syncer(t, s), MySQL, ""), 1); errCode(err) != 1236 || !strings.Contains(err.Error(), "scripted") {
		t.Errorf("FailDumps: %v", err)
	}
	st := startGTID(t, syncer(t, s), MySQL, "")
	for {
		ev, err := st.GetEvent(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if ev.Header.EventType == replication.HEARTBEAT_EVENT { // the dump runs
			break
		}
	}
	s.BreakDumps(1158, "scripted end")
	if _, _, err := collect(t, st, 1); errCode(err) != 1158 {
		t.Errorf("BreakDumps: %v", err)
	}
}

func TestSecondReplicaWithTheSameIDEndsTheFirst(t *testing.T) {
	s := startSource(t, SourceConfig{Flavor: MariaDB})
	first := startGTID(t, syncer(t, s), MariaDB, "")
	if _, err := first.GetEvent(context.Background()); err != nil {
		t.Fatal(err)
	}
	second := startGTID(t, syncer(t, s), MariaDB, "")
	if _, err := second.GetEvent(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := collect(t, first, 1); errCode(err) != 1236 || !strings.Contains(err.Error(), "same server_uuid/server_id") {
		t.Errorf("first replica: %v", err)
	}
}

func TestFreezeHoldsEverythingBack(t *testing.T) {
	s := startSource(t, SourceConfig{})
	s.Freeze()
	nc, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if n, err := nc.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a frozen server answered: %d, %v", n, err)
	}
	s.Thaw()
	nc.SetReadDeadline(time.Time{})
	if _, err := nc.Read(make([]byte, 1)); err != nil { // the handshake that was held back
		t.Error(err)
	}
	connect(t, s)
	s.Slow(1 << 20)
	item := CreateTable("CREATE TABLE shop.item (id INT PRIMARY KEY, v LONGTEXT)")
	s.Tx(Insert(item, 1, strings.Repeat("x", 100000)))
	if got := follow(t, s, 1); len(got) != 1 {
		t.Error(got)
	}
}

func TestFailoverGoesOnUnderANewServer(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f Flavor) {
		s := startSource(t, SourceConfig{Flavor: f})
		item := CreateTable("CREATE TABLE shop.item (id INT PRIMARY KEY)")
		a := s.Tx(Insert(item, 1))
		if err := s.Failover(9, "5ca1ab1e-0000-4000-8000-000000000009"); err != nil {
			t.Fatal(err)
		}
		s.SetChecksum(false)
		b := s.Tx(Insert(item, 2))
		want := map[Flavor]string{MySQL: "5ca1ab1e-0000-4000-8000-000000000009:1", MariaDB: "0-9-2"}[f]
		if b != want {
			t.Errorf("first GTID of the new server is %s, want %s", b, want)
		}
		if got := follow(t, s, 2); fmt.Sprint(got) != fmt.Sprint([]string{a, b}) {
			t.Errorf("got %v", got)
		}
		if got := s.variables()["server_id"]; got != "9" {
			t.Errorf("server_id = %s", got)
		}
	})
}

func TestLogStaysWithinItsBounds(t *testing.T) {
	s := startSource(t, SourceConfig{FileBytes: 10 << 10, KeepBytes: 50 << 10})
	item := CreateTable("CREATE TABLE shop.item (id INT PRIMARY KEY, v TEXT)")
	for i := range 1000 {
		s.Tx(Insert(item, i, strings.Repeat("x", 500)))
	}
	s.mu.Lock()
	bytes := s.log.bytes
	s.mu.Unlock()
	files := s.Files()
	if bytes > 60<<10 || len(files) > 8 || files[0] < "binlog.000050" {
		t.Errorf("%d bytes in %v", bytes, files)
	}
	if _, _, err := collect(t, startGTID(t, syncer(t, s), MySQL, ""), 1); errCode(err) != 1236 {
		t.Errorf("from the beginning: %v, want error 1236", err)
	}
}

func TestLoginsOfAllKinds(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secure := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	for _, cfg := range []SourceConfig{{Auth: mysql.AUTH_CACHING_SHA2_PASSWORD}, {TLS: secure}, {TLS: secure, Flavor: MariaDB}, {User: "me", Password: "p w:/@"}} {
		s := startSource(t, cfg)
		c, err := client.Connect(s.Addr(), s.cfg.User, s.cfg.Password, "", func(c *client.Conn) error {
			if cfg.TLS != nil {
				c.SetTLSConfig(&tls.Config{InsecureSkipVerify: true})
			}
			return nil
		})
		if err != nil {
			t.Errorf("%+v: %v", cfg, err)
			continue
		}
		if r, err := c.Execute("SELECT 1"); err != nil || r.RowNumber() != 1 {
			t.Errorf("%+v: %v", cfg, err)
		}
		c.Close()
	}
	if got := startSource(t, SourceConfig{User: "me", Password: "p w:/@"}).URL(); !strings.HasPrefix(got, "mysql://me:p%20w%3A%2F%40@127.0.0.1:") {
		t.Errorf("URL = %s", got)
	}
	if _, err := StartSource(SourceConfig{Auth: "sha0"}); err == nil {
		t.Error("an unknown plugin was accepted")
	}
}

func TestValuesThatDoNotFit(t *testing.T) {
	s := startSource(t, SourceConfig{})
	item := CreateTable("CREATE TABLE d.t (id INT NOT NULL PRIMARY KEY, n TINYINT UNSIGNED, d DECIMAL(4,2), v VARCHAR(2), e ENUM('a'), at DATETIME, j JSON)")
	before := s.GTIDs()
	_, pos := s.Position()
	for _, c := range []struct {
		row  []any
		want string
	}{
		{Row(1), "1 values for 7 columns"},
		{Row(nil, 1, nil, nil, nil, nil, nil), "column id is NOT NULL"},
		{Row(1, 256, nil, nil, nil, nil, nil), "column n (tinyint unsigned): 256 does not fit"},
		{Row(1, -1, nil, nil, nil, nil, nil), "-1 is negative"},
		{Row(1, 1, "100", nil, nil, nil, nil), `"100" does not fit`},
		{Row(1, 1, "1.234", nil, nil, nil, nil), `"1.234" does not fit`},
		{Row(1, 1, nil, "123456789", nil, nil, nil), "9 bytes, at most 8"},
		{Row(1, 1, nil, nil, "b", nil, nil), `there is no member "b"`},
		{Row(1, 1, nil, nil, nil, "noon", nil), `"noon" is no date`},
		{Row(1, 1, nil, nil, nil, nil, "{"), "JSON"},
		{Row(1, 1, nil, nil, nil, struct{}{}, nil), "a struct {} has no place here"},
	} {
		if _, err := s.Commit(Insert(item, c.row...)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.row, err, c.want)
		}
	}
	if _, at := s.Position(); s.GTIDs() != before || at != pos {
		t.Error("a transaction that failed left a trace")
	}
	for _, sql := range []string{"SELECT 1", "CREATE TABLE t", "CREATE TABLE t (id WHAT)", "CREATE TABLE t (id INT", "CREATE TABLE t (id INT, PRIMARY KEY (x))", "CREATE TABLE t (v VARCHAR(3) CHARACTER SET klingon)"} {
		if _, err := ParseTable(sql); err == nil {
			t.Errorf("%s was accepted", sql)
		}
	}
}

func TestMinimalImagesAndSplitStatements(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f Flavor) {
		s := startSource(t, SourceConfig{Flavor: f})
		s.SetVariable("binlog_row_event_max_size", "1000")
		item := CreateTable("CREATE TABLE shop.item (id INT PRIMARY KEY, v VARCHAR(200))")
		var many []Change
		for i := range 50 {
			many = append(many, Insert(item, i, strings.Repeat("v", 100)))
		}
		s.Tx(append(many, Update(item, Row(1, Absent), Row(Absent, "w")), Statement("shop", "SAVEPOINT a"), RowsQuery("delete from item"), Delete(item, 2, Absent))...)
		st := startGTID(t, syncer(t, s), f, "")
		kinds := map[string]int{}
		var ends int
		for {
			ev, err := st.GetEvent(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			kinds[ev.Header.EventType.String()]++
			if e, ok := ev.Event.(*replication.RowsEvent); ok {
				if e.Flags&replication.RowsEventStmtEndFlag != 0 {
					ends++
				}
				if strings.HasPrefix(ev.Header.EventType.String(), "Update") && (len(e.SkippedColumns[0]) != 1 || len(e.SkippedColumns[1]) != 1) {
					t.Errorf("skipped columns %v", e.SkippedColumns)
				}
			}
			if _, ok := ev.Event.(*replication.XIDEvent); ok {
				break
			}
		}
		writes := kinds["WriteRowsEventV2"] + kinds["WriteRowsEventV1"]
		if writes != 6 || ends != 3 || kinds["TableMapEvent"] != 3 {
			t.Errorf("%d statements end in %v", ends, kinds)
		}
	})
}

func TestPanicNamesTheMistake(t *testing.T) {
	s := startSource(t, SourceConfig{})
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "table d.t: column id (int): ") {
			t.Errorf("panic %q", got)
		}
	}()
	s.Tx(Insert(CreateTable("CREATE TABLE d.t (id INT)"), errors.New("x")))
}
