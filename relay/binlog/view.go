package binlog

import (
	"fmt"

	"binrelay/functions"
)

// rowView is one row image: offsets into the event's bytes. Columns are decoded when somebody asks.
type rowView struct {
	d     *Decoder
	p     *plan
	body  []byte
	spans []span // by column
	// before is the other image of an update, for an after image: it has the key columns that a MINIMAL
	// image does not repeat, and the documents that partial JSON updates build on.
	before *rowView
	// patched has a bit for each JSON column whose bytes are not the document but changes to it.
	patched []byte
}

var _ functions.Image = (*rowView)(nil)

// begin makes the view one of p's rows; all columns are absent until the row is read.
func (v *rowView) begin(p *plan, body []byte) {
	v.p, v.body, v.patched = p, body, nil
	if cap(v.spans) < len(p.cols) {
		v.spans = make([]span, len(p.cols))
	}
	v.spans = v.spans[:len(p.cols)]
	for i := range v.spans {
		v.spans[i].start = spanAbsent
	}
}

// Has implements functions.Image.
func (v *rowView) Has(i int) bool {
	return uint(i) < uint(len(v.spans)) && v.spans[i].start != spanAbsent
}

// IsNull implements functions.Image.
func (v *rowView) IsNull(i int) bool {
	return uint(i) < uint(len(v.spans)) && v.spans[i].start == spanNull
}

// Value implements functions.Image.
func (v *rowView) Value(i int) (value any, err error) {
	defer v.guard(i, &err)
	if !v.Has(i) || v.spans[i].start == spanNull {
		return nil, nil
	}
	if v.isPatched(i) {
		doc, err := v.patchedDoc(nil, i, asIs)
		return string(doc), err
	}
	s := v.spans[i]
	return v.p.cols[i].value(v.body[s.start:s.end], v.d)
}

// AppendJSON implements functions.Image.
func (v *rowView) AppendJSON(dst []byte, i int) (out []byte, err error) {
	out = dst
	defer v.guard(i, &err)
	if !v.Has(i) {
		return append(dst, "null"...), nil
	}
	return v.appendColumn(dst, i)
}

// AppendText implements functions.Image.
func (v *rowView) AppendText(dst []byte, i int) (out []byte, err error) {
	out = dst
	defer v.guard(i, &err)
	if !v.Has(i) || v.spans[i].start == spanNull {
		return dst, nil
	}
	if v.isPatched(i) {
		return v.patchedDoc(dst, i, asIs)
	}
	s := v.spans[i]
	return v.p.cols[i].appendBare(dst, v.body[s.start:s.end], v.d)
}

// appendColumn appends a column that the image has.
func (v *rowView) appendColumn(dst []byte, i int) ([]byte, error) {
	s := v.spans[i]
	if s.start == spanNull {
		return append(dst, "null"...), nil
	}
	if v.patched != nil && v.isPatched(i) {
		dst, err := v.patchedDoc(append(dst, '"'), i, quoted)
		return append(dst, '"'), err
	}
	return v.p.cols[i].appendJSON(dst, v.body[s.start:s.end], v.d)
}

// AppendRowJSON implements functions.Image.
func (v *rowView) AppendRowJSON(dst []byte) (out []byte, err error) {
	i := 0
	out = dst
	defer v.guardAt(&i, &err)
	start := len(dst)
	for i = range v.p.table.Columns { // not the spans: the last columns may be hidden
		if v.spans[i].start == spanAbsent {
			continue
		}
		if out, err = v.appendColumn(append(out, v.p.cols[i].key...), i); err != nil {
			return out, err
		}
	}
	return closeObject(out, start), nil
}

// AppendColumnsJSON implements functions.Image. Columns that an update's after image leaves out, because
// they did not change, are taken from its before image: a key is always whole.
func (v *rowView) AppendColumnsJSON(dst []byte, columns []int) (out []byte, err error) {
	i := 0
	out = dst
	defer v.guardAt(&i, &err)
	start := len(dst)
	for _, i = range columns {
		from := v
		if !v.Has(i) {
			if v.before == nil || !v.before.Has(i) {
				continue
			}
			from = v.before
		}
		if out, err = from.appendColumn(append(out, v.p.cols[i].key...), i); err != nil {
			return out, err
		}
	}
	return closeObject(out, start), nil
}

// closeObject ends an object whose members, each with a comma in front, begin at start.
func closeObject(dst []byte, start int) []byte {
	if len(dst) == start {
		return append(dst, '{', '}')
	}
	dst[start] = '{'
	return append(dst, '}')
}

// guard turns an error about column i, and a panic, which would be a mistake in this package, into a
// DecodeError that says where.
func (v *rowView) guard(i int, err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("mistake in the decoder: %v", r)
	}
	v.locate(i, err)
}

func (v *rowView) guardAt(i *int, err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("mistake in the decoder: %v", r)
	}
	v.locate(*i, err)
}

func (v *rowView) locate(i int, err *error) {
	if *err == nil {
		return
	}
	name := "?"
	if uint(i) < uint(len(v.p.table.Columns)) {
		name = v.p.table.Columns[i].Name
	}
	*err = v.d.fail(v.p, fmt.Errorf("column %s: %w", name, *err), "")
}
