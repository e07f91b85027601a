package services

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestDatabasesComeBackAfterKill(t *testing.T) {
	for _, kind := range []string{"mariadb", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			d := Database(t, kind, "--max-connections=33")
			if err := d.Exec("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (7)"); err != nil {
				t.Fatal(err)
			}
			if err := d.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := d.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			for query, want := range map[string]string{"SELECT id FROM d.t": "7", "SELECT @@max_connections": "33"} {
				if got, err := d.Value(query); err != nil || got != want {
					t.Errorf("%s = %q, %v; want %s", query, got, err, want)
				}
			}
			if g, err := d.GTIDs(); err != nil || g == "" {
				t.Errorf("GTIDs = %q, %v", g, err)
			}
			if err := d.PurgeBinlogs(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestKafkaKeepsRecordsOverKill(t *testing.T) {
	k := Broker(t, KafkaOptions{FastStart: true, Properties: []string{"auto.create.topics.enable=true"}})
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Seeds()...), kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	produce := func(v string) {
		t.Helper()
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce("1")
	if err := k.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if err := k.Start(ctx); err != nil {
		t.Fatal(err)
	}
	produce("2")
	rd, err := kgo.NewClient(kgo.SeedBrokers(k.Seeds()...), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	var got []string
	for len(got) < 2 && ctx.Err() == nil {
		rd.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	if len(got) != 2 || got[0] != "1" || got[1] != "2" {
		t.Errorf("read %q, want 1 and 2", got)
	}
}

func TestFreePortsAreNotGivenTwice(t *testing.T) {
	seen := map[int]bool{}
	for range 5 {
		p, err := FreePorts(50)
		if err != nil {
			t.Fatal(err)
		}
		if seen[p] {
			t.Fatalf("port %s was given twice", strconv.Itoa(p))
		}
		seen[p] = true
	}
}
