package binlog

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"binrelay/functions"
)

// TestJSONValues stores each kind of JSON value alone, in an array and in an object, and compares with the
// server's own text. It needs a real MySQL: MariaDB has no binary JSON.
func TestJSONValues(t *testing.T) {
	s := server(t, "mysql")
	c := s.session(t)
	for _, q := range []string{"DROP DATABASE IF EXISTS jsonvalues", "CREATE DATABASE jsonvalues", "USE jsonvalues", "FLUSH BINARY LOGS",
		"CREATE TABLE t (id INT PRIMARY KEY, j JSON)"} {
		if _, err := c.Execute(q); err != nil {
			t.Fatal(err)
		}
	}
	var exprs []string
	for _, e := range jsonScalars {
		exprs = append(exprs, "JSON_EXTRACT(JSON_ARRAY("+e+"), '$[0]')", "JSON_ARRAY("+e+")", "JSON_OBJECT('k', "+e+", '', JSON_ARRAY())")
	}
	want := map[string]string{}
	for i, e := range exprs {
		if _, err := c.Execute(fmt.Sprintf("INSERT INTO t VALUES (%d, %s)", i, e)); err != nil {
			t.Fatalf("%s: %v", e, err)
		}
		r, err := c.Execute(fmt.Sprintf("SELECT HEX(CAST(j AS CHAR)) FROM t WHERE id=%d", i))
		if err != nil {
			t.Fatal(err)
		}
		h, _ := r.GetString(0, 0)
		b, _ := hex.DecodeString(h)
		want[fmt.Sprint(i)] = string(b)
	}
	file, err := s.Value("SHOW BINARY LOG STATUS")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	decodeAll(t, NewDecoders(nil).New(), partsOf(t, filepath.Join(s.Dir, "data", file), nil), func(ch *functions.Change) {
		if ch.Op == functions.DDL {
			return
		}
		e := exprs[n]
		w := want[fmt.Sprint(n)]
		n++
		js, err := ch.After.Image().AppendJSON(nil, 1)
		if err != nil {
			t.Errorf("%s: %v (the server says %s)", e, err, w)
			return
		}
		if ch.After.Image().IsNull(1) {
			return
		}
		var text string
		if err := json.Unmarshal(js, &text); err != nil {
			t.Errorf("%s: %s: %v", e, js, err)
		}
		v, err := ch.After.Image().Value(1)
		if text != w || v != w || err != nil {
			t.Errorf("%s:\n %q, value %v %v,\n the server says %q", e, text, v, err, w)
		}
	})
	if n != len(exprs) {
		t.Errorf("%d rows, want %d", n, len(exprs))
	}
}
