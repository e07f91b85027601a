package binlog

import (
	"errors"
	"fmt"
	"math"
)

// span is where a column's value lies in its event; start is spanAbsent or spanNull where it has none.
type span struct{ start, end uint32 }

const (
	spanAbsent = math.MaxUint32 // the image leaves the column out
	spanNull   = math.MaxUint32 - 1
	// maxRowsEvent bounds a rows event so that its offsets fit a span; servers send at most 1 GiB.
	maxRowsEvent = math.MaxInt32
)

// rowsReader walks the row images of one rows event without decoding values.
type rowsReader struct {
	p       *plan
	typ     byte
	body    []byte
	pos     int
	present [2][]int32 // columns in each image, ascending
	images  int        // images of a row: 1, or 2 for updates
	// empty is set for the one row of an event without any byte of rows: MySQL's MINIMAL image of
	// INSERT INTO t VALUES () names no column and takes no space.
	empty   bool
	partial bool
	options uint64 // of the row's partial update
	// partialBits has a bit for each JSON column of the table, whether the image holds it or not.
	partialBits []byte
}

var errRowShort = errors.New("row image ends before its columns do")

// open begins a rows event of type typ.
func (r *rowsReader) open(p *plan, typ byte, body []byte) error {
	r.p, r.typ, r.body = p, typ, body
	r.partial, r.partialBits = typ == evPartialUpdate, nil
	if p.uncountable != nil {
		return p.uncountable
	}
	if len(body) > maxRowsEvent {
		return fmt.Errorf("rows event of %d bytes", len(body))
	}
	c := cursor{b: body}
	c.skip(6 + 2) // table id, flags
	r.images = 1
	switch typ {
	case evUpdateRowsV1:
		r.images = 2
	case evWriteRowsV1, evDeleteRowsV1:
	case evUpdateRows, evPartialUpdate:
		r.images = 2
		fallthrough
	case evWriteRows, evDeleteRows:
		n := int(c.u16()) // extra data, the length included
		if n < 2 {
			return errShort
		}
		c.skip(n - 2)
	default:
		return fmt.Errorf("event type %d holds no rows", typ)
	}
	if n := c.lenenc(); n != uint64(len(p.cols)) && !c.bad {
		return fmt.Errorf("rows of %d columns for a table map of %d", n, len(p.cols))
	}
	for k := 0; k < r.images; k++ {
		bits := c.bytes((len(p.cols) + 7) / 8)
		if c.bad {
			return errShort
		}
		cols := r.present[k][:0]
		for i := range p.cols {
			if bits[i>>3]&(1<<(i&7)) != 0 {
				cols = append(cols, int32(i))
			}
		}
		r.present[k] = cols
	}
	if c.bad {
		return errShort
	}
	if len(r.present[0]) == 0 && (r.images == 1 || len(r.present[1]) == 0) && !r.partial && len(c.b) > 0 {
		return errors.New("rows of no columns") // they would have no bytes and never end
	}
	r.empty = len(r.present[0]) == 0 && r.images == 1
	r.pos = len(body) - len(c.b)
	return nil
}

// more reports whether another row follows.
func (r *rowsReader) more() bool {
	if r.empty {
		r.empty = false
		return true
	}
	return r.pos < len(r.body)
}

// image walks the next image; k is 0, or 1 for the after image of an update. spans, if not nil, has one
// entry for each column of the table; those of columns that the image leaves out are not touched.
func (r *rowsReader) image(k int, spans []span) error {
	b, pos := r.body, r.pos
	if k == 1 && r.partial {
		if err := r.partialHead(); err != nil {
			return err
		}
		pos = r.pos
	}
	present := r.present[k]
	nulls := pos
	pos += (len(present) + 7) >> 3
	if pos > len(b) {
		return errRowShort
	}
	for n, i := range present {
		if b[nulls+n>>3]&(1<<(n&7)) != 0 {
			if spans != nil {
				spans[i] = span{start: spanNull}
			}
			continue
		}
		c := &r.p.cols[i]
		size := c.fixed
		if size == 0 {
			prefix := c.prefix
			if len(b)-pos < prefix {
				return errRowShort
			}
			switch prefix {
			case 1:
				size = int(b[pos])
			case 2:
				size = int(b[pos]) | int(b[pos+1])<<8
			case 3:
				size = int(b[pos]) | int(b[pos+1])<<8 | int(b[pos+2])<<16
			default:
				size = int(b[pos]) | int(b[pos+1])<<8 | int(b[pos+2])<<16 | int(b[pos+3])<<24
			}
			pos += prefix
		}
		if size > len(b)-pos {
			return errRowShort
		}
		if spans != nil {
			spans[i] = span{uint32(pos), uint32(pos + size)}
		}
		pos += size
	}
	r.pos = pos
	return nil
}

// partialHead reads what stands in front of the after image in a PARTIAL_UPDATE_ROWS_EVENT.
func (r *rowsReader) partialHead() error {
	c := cursor{b: r.body[r.pos:]}
	r.options = c.lenenc()
	r.partialBits = nil
	if r.options&1 != 0 { // PARTIAL_JSON_UPDATES
		r.partialBits = c.bytes((r.p.nJSON + 7) / 8)
	}
	if c.bad {
		return errRowShort
	}
	if r.options > 1 {
		return fmt.Errorf("partial update with options %#x, unknown to this version", r.options)
	}
	r.pos = len(r.body) - len(c.b)
	return nil
}

// countRows walks a rows event, given without its header, and returns how many rows it holds: an update
// counts as one row. It needs no names or charsets.
func countRows(p *plan, typ byte, body []byte) (int, error) {
	var r rowsReader
	if err := r.open(p, typ, body); err != nil {
		return 0, err
	}
	n := 0
	for r.more() {
		for k := 0; k < r.images; k++ {
			if err := r.image(k, nil); err != nil {
				return 0, fmt.Errorf("row %d of the event: %w", n, err)
			}
		}
		n++
	}
	return n, nil
}
