package binlog

import (
	"slices"
	"strings"
)

// MariaDB logs a system-versioned table as it stores it: an UPDATE is an update of the current row and an
// insert of the row that it was, a DELETE an update of ROW END, DELETE HISTORY a delete of rows that were.
// The decoder gives back what the statement did to the current rows. It knows ROW START and ROW END from
// hints; the table map does not mark them.
//
// Only versioning by time is logged as rows: statements on a table versioned by transaction (BIGINT) are
// logged as statements, and halt like all of these.

// Names and places of the columns that WITH SYSTEM VERSIONING adds by itself: the last two, hidden from
// SELECT * and from information_schema.
const (
	implicitStart = "row_start"
	implicitEnd   = "row_end"
)

// Behind a declared type, see Hints.
const (
	declaredStart  = " row start"
	declaredEnd    = " row end"
	declaredHidden = " hidden"
)

// hintRowStart and hintRowEnd name the two columns of a versioned table; number is 1 where they are hidden.
const (
	hintRowStart = 7
	hintRowEnd   = 8
)

// mayBePeriod reports whether a column could be ROW START or ROW END: TIMESTAMP(6) NOT NULL, and never in MariaDB's old
// format.
func (p *plan) mayBePeriod(i int) bool {
	c := &p.cols[i]
	return c.conv == convTimestamp2 && c.fsp == maxTimeFraction && !p.table.Columns[i].Nullable
}

// mayBeVersioned reports whether the table could be system-versioned: ROW END is always in its primary key.
func (p *plan) mayBeVersioned() bool {
	n, inKey := 0, len(p.table.Key) == 0
	for i := range p.cols {
		if p.mayBePeriod(i) {
			n++
			inKey = inKey || slices.Contains(p.table.Key, i)
		}
	}
	return n >= 2 && inKey
}

// looksImplicit reports whether the table has just what WITH SYSTEM VERSIONING adds by itself.
func (p *plan) looksImplicit() bool {
	n := len(p.cols)
	return n > 2 && p.table.Columns[n-2].Name == implicitStart && p.table.Columns[n-1].Name == implicitEnd && p.period(n-2, n-1)
}

// period reports whether two columns fit ROW START and ROW END.
func (p *plan) period(start, end int) bool {
	return start >= 0 && end >= 0 && start != end && p.mayBePeriod(start) && p.mayBePeriod(end) &&
		(len(p.table.Key) == 0 || slices.Contains(p.table.Key, end))
}

// periodHint translates what stands behind a declared type.
func periodHint(declared string) (hint, hidden byte) {
	declared, found := strings.CutSuffix(declared, declaredHidden)
	if found {
		hidden = 1
	}
	switch {
	case strings.HasSuffix(declared, declaredStart):
		return hintRowStart, hidden
	case strings.HasSuffix(declared, declaredEnd):
		return hintRowEnd, hidden
	}
	return 0, 0
}

// version makes the table a system-versioned one. Hidden columns leave its shape: they stay in cols, behind
// all others, because row images have them. Neither column is part of a current row's key.
func (p *plan) version(start, end int, hidden bool) {
	n := len(p.cols)
	if !p.period(start, end) || hidden && (start != n-2 || end != n-1 || n < 3) {
		return
	}
	p.versioned, p.rowEnd = true, end
	p.table.Key = slices.DeleteFunc(p.table.Key, func(i int) bool { return i == start || i == end })
	if hidden {
		p.table.Columns = p.table.Columns[: n-2 : n-2]
	}
}

// The largest TIMESTAMP(6), which is ROW END of a current row: of 2038, and from MariaDB 11.5 on of 2106.
const (
	forever2038 = "\x7f\xff\xff\xff\x0f\x42\x3f"
	forever2106 = "\xff\xff\xff\xff\x0f\x42\x3f"
)

// current reports whether an image of a versioned table is a current row; other is the answer if the image
// leaves ROW END out.
func (v *rowView) current(other bool) bool {
	s := v.spans[v.p.rowEnd]
	if s.start == spanAbsent {
		return other
	}
	end := string(v.bytesOf(s))
	return end == forever2038 || end == forever2106
}
