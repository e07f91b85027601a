package relaytest

import (
	"errors"
	"fmt"
	"slices"
)

// Change is one thing that a transaction does: a row inserted, updated or deleted, or a statement logged
// as text. Make it by Insert, Update, Delete or Statement.
type Change struct {
	kind          byte // 'c', 'u', 'd', 's' statement, 'q' rows query
	table         *Table
	before, after []any
	db, sql       string
}

// Absent as a value leaves the column out of the row's image, as binlog_row_image=MINIMAL does.
var Absent any = absent{}

type absent struct{}

func isAbsent(v any) bool { _, ok := v.(absent); return ok }

// Insert is a new row: one value for each column, in the table's order. What a value may be depends on
// the column's type:
//
//	integers, YEAR, BIT   any integer, bool, decimal text
//	DECIMAL               text ("12.50"), any integer, float64
//	FLOAT, DOUBLE         any number
//	text                  string, []byte (bytes as they are, not converted to the column's charset)
//	bytes                 []byte, string
//	ENUM                  the member's name, or its number from 1 (0: the empty error value)
//	SET                   "a,b", or the bits as an integer
//	DATE, DATETIME        text as SELECT prints it ("0000-00-00" too), time.Time (its wall clock)
//	TIMESTAMP             the same; text is UTC, of a time.Time the instant counts
//	TIME                  text ("-838:59:59.5"), time.Duration
//	JSON                  text of a document, json.RawMessage, or a Go value to be marshalled
//	GEOMETRY              functions.Geo, or []byte: SRID (4 bytes) and WKB
//	VECTOR                []float32
//	all                   nil for NULL, Absent
func Insert(t *Table, row ...any) Change { return Change{kind: 'c', table: t, after: row} }

// Update is a row changed from before to after.
func Update(t *Table, before, after []any) Change {
	return Change{kind: 'u', table: t, before: before, after: after}
}

// Delete is a row removed.
func Delete(t *Table, row ...any) Change { return Change{kind: 'd', table: t, before: row} }

// Row makes the argument of Update readable: Update(t, Row(1, "a"), Row(1, "b")).
func Row(values ...any) []any { return values }

// Statement is a statement logged as text inside the transaction: DML in statement format, SAVEPOINT.
func Statement(db, sql string) Change { return Change{kind: 's', db: db, sql: sql} }

// RowsQuery is the comment event with the statement that made the changes after it.
func RowsQuery(sql string) Change { return Change{kind: 'q', sql: sql} }

// maxRowsEventDefault is binlog_row_event_max_size's default.
const maxRowsEventDefault = 8192

// Changes makes the events of a transaction's body, between BEGIN and commit. Neighbours of one table and
// one kind are one statement: one table map, rows events of at most MaxRowsEvent bytes (a larger row has
// its own), the last with the end-of-statement flag.
func (b *Builder) Changes(changes ...Change) (events [][]byte, err error) {
	for len(changes) > 0 {
		c := &changes[0]
		switch c.kind {
		case 's':
			events = append(events, b.Query(c.db, c.sql))
			changes = changes[1:]
			continue
		case 'q':
			events = append(events, b.RowsQuery(c.sql))
			changes = changes[1:]
			continue
		case 0:
			return events, errors.New("empty Change; make it by Insert, Update, Delete or Statement")
		}
		if err := c.table.compile(); err != nil {
			return events, err
		}
		n := 1
		for n < len(changes) && changes[n].kind == c.kind && changes[n].table == c.table && sameImages(&changes[n], c) {
			n++
		}
		if events, err = b.statement(events, changes[:n]); err != nil {
			return events, err
		}
		changes = changes[n:]
	}
	return events, nil
}

// statement writes the table map and the rows events of changes of one kind to one table.
func (b *Builder) statement(events [][]byte, changes []Change) ([][]byte, error) {
	limit := b.MaxRowsEvent
	if limit <= 0 {
		limit = maxRowsEventDefault
	}
	c := &changes[0]
	t := c.table
	head := t.rowsHead(b.Flavor, c)
	body := slices.Clone(head)
	encode := func(c *Change, dst []byte) (_ []byte, err error) {
		for _, row := range [][]any{c.before, c.after} {
			if row != nil {
				if dst, err = t.appendImage(dst, b.Flavor, row); err != nil {
					return nil, fmt.Errorf("table %s: %w", t, err)
				}
			}
		}
		return dst, nil
	}
	// Encode before the map is written: a bad value must leave no trace in the log.
	var bodies [][]byte
	for i := range changes {
		before := len(body)
		var err error
		if body, err = encode(&changes[i], body); err != nil {
			return events, err
		}
		if before > len(head) && len(body)-len(head) > limit {
			row := slices.Clone(body[before:])
			bodies = append(bodies, body[:before:before])
			body = append(slices.Clone(head), row...)
		}
	}
	bodies = append(bodies, body)
	events = append(events, b.TableMap(t))
	typ := rowsType(b.Flavor, c.kind)
	for i, body := range bodies {
		if i == len(bodies)-1 {
			body[6] |= stmtEndFlag
		}
		events = append(events, b.Event(typ, 0, body))
	}
	return events, nil
}

func rowsType(f Flavor, kind byte) byte {
	typ := map[byte]byte{'c': 30, 'u': 31, 'd': 32}[kind]
	if f == MariaDB {
		typ -= 7 // MariaDB writes version 1: 23, 24, 25
	}
	return typ
}

// rowsHead is what stands before the row images of a rows event: table id, flags, columns present.
func (t *Table) rowsHead(f Flavor, c *Change) []byte {
	b := append(t.appendID(nil), 0, 0)
	if f != MariaDB {
		b = append(b, 2, 0) // version 2: length of the extra data, itself included
	}
	b = appendLenEnc(b, len(t.cols))
	for _, row := range [][]any{c.before, c.after} {
		if row == nil {
			continue
		}
		bits := make([]byte, (len(t.cols)+7)/8)
		for i := range t.cols {
			if i >= len(row) || !isAbsent(row[i]) {
				bits[i/8] |= 1 << (i % 8)
			}
		}
		if r := len(t.cols) % 8; r != 0 && f != MariaDB {
			bits[len(bits)-1] |= 0xff << r // MySQL sets the bits beyond the last column, MariaDB does not
		}
		b = append(b, bits...)
	}
	return b
}

// appendImage adds one row image: the bitmap of NULLs among the columns present, then the values.
func (t *Table) appendImage(dst []byte, f Flavor, row []any) ([]byte, error) {
	if len(row) != len(t.cols) {
		return nil, fmt.Errorf("%d values for %d columns", len(row), len(t.cols))
	}
	present := 0
	for _, v := range row {
		if !isAbsent(v) {
			present++
		}
	}
	nulls := len(dst)
	dst = append(dst, make([]byte, (present+7)/8)...)
	k := 0
	var err error
	for i := range t.cols {
		c, v := &t.cols[i], row[i]
		if isAbsent(v) {
			continue
		}
		if v == nil {
			if c.notNull {
				return nil, fmt.Errorf("column %s is NOT NULL", c.name)
			}
			dst[nulls+k/8] |= 1 << (k % 8)
		} else if dst, err = c.appendValue(dst, f, v); err != nil {
			return nil, fmt.Errorf("column %s (%s): %w", c.name, c.fullType, err)
		}
		k++
	}
	if r := present % 8; r != 0 && f == MariaDB {
		dst[nulls+(present-1)/8] |= 0xff << r // here it is MariaDB that sets the bits beyond
	}
	return dst, nil
}

func sameImages(a, b *Change) bool {
	return sameColumns(a.before, b.before) && sameColumns(a.after, b.after)
}

func sameColumns(a, b []any) bool {
	for i := range min(len(a), len(b)) { // a wrong length is for appendImage to report
		if isAbsent(a[i]) != isAbsent(b[i]) {
			return false
		}
	}
	return true
}
