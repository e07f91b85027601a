package functions_test

import (
	"encoding/json"
	"errors"
	"testing"

	"binrelay/functions"
)

const src = `"source":{"db":"shop","table":"item","gtid":"0-1-42","file":"binlog.000003","pos":1234,"row":3,"server_id":1,"ts_ms":1760000000123}}`

func TestJSONIsByteExact(t *testing.T) {
	noKey := table("d", `we"ird`, "a")
	composite := table("d", "t", "x", "b*", "a*")
	composite.Key = []int{2, 1} // key order is not table order
	noGTID := source
	noGTID.GTID = ""
	for name, tc := range map[string]struct {
		c          functions.Change
		key, value string
	}{
		"create": {
			functions.Change{Op: functions.Create, Table: item, After: row(item, int64(7), nil, "cup"), Source: source},
			`{"id":7}`, `{"op":"c","before":null,"after":{"id":7,"qty":null,"name":"cup"},` + src,
		},
		"update": {*update(), `{"id":7}`, `{"op":"u","before":{"id":7,"qty":5,"name":"cup"},"after":{"id":7,"qty":4,"name":"cup"},` + src},
		"delete": {
			functions.Change{Op: functions.Delete, Table: item, Before: row(item, int64(7), int64(5), "cup"), Source: source},
			`{"id":7}`, `{"op":"d","before":{"id":7,"qty":5,"name":"cup"},"after":null,` + src,
		},
		"minimal image: absent columns are left out, the key comes from before": {
			functions.Change{Op: functions.Update, Table: item, Before: row(item, int64(7)), After: row(item, absent{}, int64(4)), Source: source},
			`{"id":7}`, `{"op":"u","before":{"id":7},"after":{"qty":4},` + src,
		},
		"no key, no gtid, odd name": {
			functions.Change{Op: functions.Create, Table: noKey, After: row(noKey, uint64(1<<64-1)), Source: noGTID},
			"", `{"op":"c","before":null,"after":{"a":18446744073709551615},"source":{"db":"d","table":"we\"ird","gtid":null,"file":"binlog.000003","pos":1234,"row":3,"server_id":1,"ts_ms":1760000000123}}`,
		},
		"composite key in key order": {
			functions.Change{Op: functions.Create, Table: composite, After: row(composite, int64(1), int64(2), int64(3)), Source: noGTID},
			`{"a":3,"b":2}`, `{"op":"c","before":null,"after":{"x":1,"b":2,"a":3},"source":{"db":"d","table":"t","gtid":null,"file":"binlog.000003","pos":1234,"row":3,"server_id":1,"ts_ms":1760000000123}}`,
		},
		"ddl": {
			functions.Change{Op: functions.DDL, Database: "shop", Statement: "ALTER TABLE t\n\tADD `é` INT -- \"\\\x01\xff", Source: source},
			"", `{"op":"ddl","db":"shop","statement":"ALTER TABLE t\n\tADD ` + "`é`" + ` INT -- \"\\\u0001\ufffd","source":{"db":"shop","table":null,"gtid":"0-1-42","file":"binlog.000003","pos":1234,"row":3,"server_id":1,"ts_ms":1760000000123}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			key, has, err := functions.JSON{}.AppendKey([]byte("x"), &tc.c)
			if err != nil || has != (tc.key != "") || string(key) != "x"+tc.key {
				t.Errorf("AppendKey = %s, %v, %v, want x%s", key, has, err, tc.key)
			}
			value, err := functions.JSON{}.AppendValue([]byte("x"), &tc.c)
			if err != nil || string(value) != "x"+tc.value {
				t.Errorf("AppendValue = %v\n%s, want\nx%s", err, value, tc.value)
			}
			if !json.Valid(value[1:]) {
				t.Error("the value is no JSON")
			}
			r, err := functions.NewRecord(functions.JSON{}, &tc.c)
			if err != nil || string(r.Key) != tc.key || (r.Key == nil) != (tc.key == "") || string(r.Value) != tc.value || r.Topic != "" {
				t.Errorf("NewRecord = %+v, %v", r, err)
			}
		})
	}
}

func TestJSONFailsRatherThanGuesses(t *testing.T) {
	bad := &functions.Change{Op: functions.Create, Table: item, After: row(item, int64(1), broken{}, "x")}
	if _, err := functions.NewRecord(functions.JSON{}, bad); err == nil {
		t.Error("a damaged value made a record")
	}
	partial := &functions.Change{Op: functions.Create, Table: item, After: row(item, absent{}, int64(1))}
	_, _, err := functions.JSON{}.AppendKey(nil, partial)
	var ce *functions.ColumnError
	if !errors.As(err, &ce) || ce.Column != "id" || ce.Table != "shop.item" {
		t.Errorf("AppendKey without the key column: %v", err)
	}
}

func TestJSONAllocatesNothing(t *testing.T) {
	c := update()
	var f functions.Format = functions.JSON{}
	buf := make([]byte, 0, 4096)
	n := testing.AllocsPerRun(100, func() {
		b, _, err := f.AppendKey(buf[:0], c)
		if err == nil {
			_, err = f.AppendValue(b, c)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a change, want 0", n)
	}
}

func BenchmarkJSON(b *testing.B) {
	c := update()
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf, _, _ = functions.JSON{}.AppendKey(buf[:0], c)
		buf, _ = functions.JSON{}.AppendValue(buf, c)
	}
	b.SetBytes(int64(len(buf)))
}
