package handler

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"binrelay/functions"
)

// headed is a format with headers.
type headed struct{ functions.JSON }

func (headed) AppendHeaders(dst []functions.Header, c *functions.Change) ([]functions.Header, error) {
	id, err := c.Row().Int("id")
	if err != nil || id < 8 {
		return dst, err
	}
	return append(dst, functions.Header{Key: "id", Value: strconv.AppendInt(nil, id, 10)}), nil
}

func (headed) AppendKey(dst []byte, c *functions.Change) ([]byte, bool, error) {
	if c.Op == functions.DDL {
		return append(dst, `"ddl key"`...), true, nil
	}
	return functions.JSON{}.AppendKey(dst, c)
}

func TestFormatWithHeaders(t *testing.T) {
	p := newPool(t, Options{Format: headed{}, Tombstones: func(context.Context, string) (bool, error) { return true, nil }, DDLTopic: "ddl"})
	j := run(p, job("c 7\nc 8\nd 9\nddl X"))
	if j.Fault != nil || len(j.Out.Records) != 5 {
		t.Fatalf("%d records, %v", len(j.Out.Records), j.Fault)
	}
	for i, want := range []string{"[]", "[{id 8}]", "[{id 9}]", "[{id 9}]", "[]"} { // the tombstone of 9 has them too
		got := []string{}
		for _, h := range j.Out.Records[i].Headers {
			got = append(got, fmt.Sprintf("{%s %s}", h.Key, h.Value))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("record %d: headers %v, want %s", i, got, want)
		}
	}
	if k := string(j.Out.Records[4].Key); k != `"ddl key"` {
		t.Errorf("key of the statement: %s", k)
	}
}
