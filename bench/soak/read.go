package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"binrelay/bench/internal/history"
	"binrelay/bench/services"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ends returns the end offsets of the topics and their sum: how many records Kafka holds.
func ends(ctx context.Context, k *services.Kafka, topics []string) (kadm.ListedOffsets, int64, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Seeds()...))
	if err != nil {
		return nil, 0, err
	}
	defer cl.Close()
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	offsets, err := kadm.NewClient(cl).ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, 0, err
	}
	var sum int64
	offsets.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			sum += o.Offset
		}
	})
	return offsets, sum, nil
}

// readAll gives every record of the topics to fn, as a consumer without transactions sees them.
func readAll(ctx context.Context, k *services.Kafka, topics []string, fn func(history.Record)) error {
	end, left, err := ends(ctx, k, topics)
	if err != nil {
		return err
	}
	from := map[string]map[int32]kgo.Offset{}
	end.Each(func(o kadm.ListedOffset) {
		if o.Err != nil || o.Offset == 0 {
			return
		}
		if from[o.Topic] == nil {
			from[o.Topic] = map[int32]kgo.Offset{}
		}
		from[o.Topic][o.Partition] = kgo.NewOffset().At(0)
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Seeds()...), kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadUncommitted()))
	if err != nil {
		return err
	}
	defer cl.Close()
	for left > 0 {
		quiet, stop := context.WithTimeout(ctx, time.Minute)
		f := cl.PollFetches(quiet)
		stop()
		if err := f.Err0(); err != nil {
			return fmt.Errorf("%d records are left to read: %w", left, err)
		}
		f.EachRecord(func(r *kgo.Record) {
			left--
			fn(history.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value})
		})
	}
	return nil
}

// selectAll reads a table as text, by id.
func selectAll(db *services.DB, t *table) (map[string][]string, error) {
	c, err := db.Connect(database)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := c.Execute("SET time_zone='+00:00'"); err != nil {
		return nil, err
	}
	if err := c.SetCharset("utf8mb4"); err != nil {
		return nil, err
	}
	var list []string
	for _, col := range t.all() {
		e := col.name
		switch col.kind {
		case number:
			e += "+0"
		case float32bits:
			e = "CAST(" + e + " AS DOUBLE)" // printing a FLOAT rounds it to six digits
		case binaryHex:
			e = "HEX(" + e + ")"
		}
		if col.kind == text && strings.Contains(col.decl, "latin1") {
			e = "CONVERT(" + e + " USING utf8mb4)"
		}
		list = append(list, "CAST("+e+" AS CHAR)")
	}
	rows := map[string][]string{}
	var result mysql.Result
	err = c.ExecuteSelectStreaming("SELECT "+strings.Join(list, ", ")+" FROM "+t.fullName(), &result, func(fields []mysql.FieldValue) error {
		row := make([]string, len(fields))
		for i, f := range fields {
			if row[i] = null; f.Value() != nil {
				row[i] = string(f.AsString())
			}
		}
		rows[row[0]] = row
		return nil
	}, nil)
	return rows, err
}

const null = "\x00NULL" // no column holds it

// sameRow compares an image of design A4 with a row of selectAll.
func sameRow(t *table) func(image []byte, row []string) error {
	cols := t.all()
	return func(image []byte, row []string) error {
		var got map[string]json.RawMessage
		if err := json.Unmarshal(image, &got); err != nil {
			return err
		}
		if len(got) != len(cols) {
			return fmt.Errorf("%d columns in the topics, %d in the table: %.200s", len(got), len(cols), image)
		}
		for i, col := range cols {
			if !sameValue(col.kind, got[col.name], row[i]) {
				return fmt.Errorf("%s is %.100s in the topics, SELECT says %.100q", col.name, got[col.name], row[i])
			}
		}
		return nil
	}
}

func sameValue(k kind, got json.RawMessage, want string) bool {
	if want == null || string(got) == "null" {
		return want == null && string(got) == "null"
	}
	switch k {
	case number:
		return string(got) == want
	case float32bits:
		g, err := strconv.ParseFloat(string(got), 32)
		w, err2 := strconv.ParseFloat(want, 64)
		return err == nil && err2 == nil && float32(g) == float32(w)
	case float64bits:
		g, err := strconv.ParseFloat(string(got), 64)
		w, err2 := strconv.ParseFloat(want, 64)
		return err == nil && err2 == nil && g == w
	}
	var s string
	if json.Unmarshal(got, &s) != nil {
		return false
	}
	if k == binaryHex {
		b, err := base64.StdEncoding.DecodeString(s)
		return err == nil && strings.EqualFold(hex.EncodeToString(b), want)
	}
	return s == want
}
