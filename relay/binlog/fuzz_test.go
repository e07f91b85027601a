package binlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"binrelay/functions"
	"binrelay/relay"
)

// FuzzDecode: whatever a part holds, decoding ends with changes that are valid JSON or with a DecodeError,
// never with a panic; it does not read the same bytes more than once for the output.
func FuzzDecode(f *testing.F) {
	for _, flavor := range serverKinds {
		for _, p := range partsOf(f, filepath.Join("testdata", flavor+".binlog"), nil) {
			f.Add(p)
		}
	}
	for _, s := range rowShapes {
		f.Add(synthPart(s.cols, evUpdateRows, s.row(1), s.row(2)))
	}
	f.Fuzz(func(t *testing.T, part []byte) {
		d := NewDecoders(nil).New()
		out := make([]byte, 0, 1024)
		n := 0
		err := d.Decode(1, part, func(c *functions.Change) error {
			if n++; n > 1<<16 {
				return errors.New("enough")
			}
			if c.Op == functions.DDL {
				return nil
			}
			for _, r := range []functions.Row{c.Before, c.After} {
				if r.IsZero() {
					continue
				}
				var err error
				out, err = r.Image().AppendRowJSON(out[:0])
				checkDecodeError(t, err)
				if err == nil && !json.Valid(out) {
					t.Fatalf("no JSON: %q", out)
				}
				_, err = r.Image().AppendColumnsJSON(nil, c.Table.Key)
				checkDecodeError(t, err)
				for i := range c.Table.Columns {
					_, err := r.Image().Value(i)
					checkDecodeError(t, err)
				}
			}
			return nil
		})
		if err != nil && err.Error() != "enough" {
			checkDecodeError(t, err)
		}
	})
}

func checkDecodeError(t *testing.T, err error) {
	if err == nil {
		return
	}
	var e *relay.DecodeError
	if !errors.As(err, &e) {
		t.Fatalf("%T is no DecodeError: %v", err, err)
	}
	if bytes.Contains([]byte(err.Error()), []byte("mistake in the decoder")) {
		t.Fatal(err)
	}
}

// FuzzTableMap: a table map of any bytes becomes a plan or an error, and a plan can count and read rows.
func FuzzTableMap(f *testing.F) {
	for _, s := range rowShapes {
		f.Add(synthTableMap(7, "shop", "orders", s.cols), []byte{}, synthRows(evWriteRows, 7, len(s.cols), s.row(1)))
	}
	f.Fuzz(func(t *testing.T, body, hints, rows []byte) {
		for _, mariadb := range []bool{false, true} {
			p, err := compile(body, hints, mariadb)
			if err != nil {
				continue
			}
			p.hintsEvent(mapHints{"shop.orders.id": "uuid"})
			for _, typ := range []byte{evWriteRows, evUpdateRowsV1, evPartialUpdate} {
				n, err := countRows(p, typ, rows)
				if err == nil && n > len(rows)+1 {
					t.Fatalf("%d rows in %d bytes", n, len(rows))
				}
			}
		}
	})
}

// FuzzJSON: any bytes as a binary JSON document, and as changes to one.
func FuzzJSON(f *testing.F) {
	f.Add([]byte{0, 1, 0, 12, 0, 11, 0, 1, 0, 5, 1, 0, 'x'}, []byte{0, 3, '$', '.', 'x', 3, 5, 9, 0})
	f.Add([]byte{2, 3, 0, 13, 0, 5, 1, 0, 5, 2, 0, 5, 3, 0}, []byte{2, 4, '$', '[', '1', ']'})
	f.Add([]byte{15, 246, 4, 3, 2, 0x81, 5}, []byte{1, 5, '$', '.', '"', 'q', '"', 3, 4, 1, 0})
	f.Fuzz(func(t *testing.T, doc, patch []byte) {
		text, err := appendJSONDoc(nil, doc, asIs)
		if err == nil && !json.Valid(text) {
			t.Fatalf("no JSON: %q", text)
		}
		if len(text) > 40*len(doc)+400 {
			t.Fatalf("%d bytes of text for %d", len(text), len(doc))
		}
		inner, err2 := appendJSONDoc([]byte{'"'}, doc, quoted)
		if (err == nil) != (err2 == nil) {
			t.Fatal(err, err2)
		}
		if err == nil {
			var s string
			if e := json.Unmarshal(append(inner, '"'), &s); e != nil || s != string(text) {
				t.Fatalf("quoted %q is not %q: %v", s, text, e)
			}
		}
		p := &plan{cols: []column{{isJSON: true}}, table: &functions.Table{}, nJSON: 1}
		before := &rowView{p: p, body: doc, spans: []span{{0, uint32(len(doc))}}}
		after := &rowView{p: p, body: patch, spans: []span{{0, uint32(len(patch))}}, before: before, patched: []byte{1}}
		changed, err := after.patchedDoc(nil, 0, asIs)
		if err == nil && !json.Valid(changed) {
			t.Fatalf("no JSON: %q", changed)
		}
	})
}
