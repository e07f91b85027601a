package binlog

import (
	"strconv"
	"strings"

	"binrelay/functions"
)

// Hints knows what information_schema says of a column and the binlog does not: MariaDB sends UUID, INET4
// and INET6 as BINARY, JSON as LONGTEXT, VECTOR as VARBINARY, and its old temporal types without their
// fraction; it does not mark the columns of system versioning. Hints only say more about a column; names,
// order and number come from the table map alone.
type Hints interface {
	// Declared returns the declared type of a column as information_schema spells it ("uuid",
	// "inet6", "json", "vector(3)", "time(3)"), "" where it does not know. Behind it stands " row start" or
	// " row end" for the two columns of a system-versioned table, and then " hidden" where the table has them
	// without declaring them.
	Declared(db, table, column string) string
}

// eventHints is our own event inside a part. It stands right behind a table map and holds, for each
// column that a hint says more of, column u16 | hint u8 | number u8. Being in the part, a hint is as old as the rows:
// what information_schema says when they are decoded, perhaps much later, has no influence.
const eventHints = 0xf1

// What a hint says of a column.
const (
	hintUUID    = 1
	hintInet4   = 2
	hintInet6   = 3
	hintJSON    = 4 // MariaDB: LONGTEXT with a check
	hintVector  = 5
	hintFsp     = 6 // old temporal types: number is the digits of the fraction, 0 included
	hintEntry   = 4 // bytes
	uuidBytes   = 16
	inet4Bytes  = 4
	inet6Bytes  = 16
	longtextLen = 4 // length bytes of a LONGTEXT
)

// wantsHints reports whether information_schema could say more of any column; most tables need none.
func (p *plan) wantsHints() bool {
	for i := range p.cols {
		if p.cols[i].hintable() {
			return true
		}
	}
	return p.mayBeVersioned()
}

func (c *column) hintable() bool {
	switch c.conv {
	case convBinary:
		return c.pad == uuidBytes || c.pad == inet4Bytes || c.typ == typeVarchar
	case convText:
		return c.typ == typeBlob && c.prefix == longtextLen && c.cs == utf8mb4
	case convTimeOld, convDateTimeOld, convTimestampOld:
		return true
	}
	return false
}

// hintsEvent returns the body of the hints event that belongs behind p's table map; empty: none is needed.
func (p *plan) hintsEvent(h Hints) []byte {
	var body []byte
	versioned := p.mayBeVersioned()
	for i := range p.cols {
		c := &p.cols[i]
		period := versioned && p.mayBePeriod(i)
		if !period && !c.hintable() {
			continue
		}
		declared := strings.ToLower(h.Declared(p.db, p.name, p.table.Columns[i].Name))
		if hint, n, ok := c.hintOf(declared); ok {
			body = append(body, byte(i), byte(i>>8), hint, n)
		}
		if hint, n := periodHint(declared); period && hint != 0 {
			body = append(body, byte(i), byte(i>>8), hint, n)
		}
	}
	return body
}

// hintOf translates a declared type, in lower case, if it fits what the table map says.
func (c *column) hintOf(declared string) (hint, number byte, ok bool) {
	declared, _, _ = strings.Cut(declared, " ") // "time(3) /* mariadb-5.3 */"
	name, rest, _ := strings.Cut(declared, "(")
	switch c.conv {
	case convBinary:
		switch {
		case name == "uuid" && c.pad == uuidBytes:
			return hintUUID, 0, true
		case name == "inet4" && c.pad == inet4Bytes:
			return hintInet4, 0, true
		case name == "inet6" && c.pad == inet6Bytes:
			return hintInet6, 0, true
		case name == "vector" && c.typ == typeVarchar:
			return hintVector, 0, true
		}
	case convText:
		return hintJSON, 0, name == "json"
	case convTimeOld, convDateTimeOld, convTimestampOld:
		want := map[conv]string{convTimeOld: "time", convDateTimeOld: "datetime", convTimestampOld: "timestamp"}[c.conv]
		if name != want {
			return 0, 0, false
		}
		digits, _, _ := strings.Cut(rest, ")")
		n, err := strconv.Atoi(digits)
		if err != nil {
			n = 0
		}
		return hintFsp, byte(n), n <= maxTimeFraction
	}
	return 0, 0, false
}

// applyHints makes columns what their hints say. A hint that does not fit the column is not believed.
func (p *plan) applyHints(body []byte) {
	start, end, hidden := -1, -1, false
	for ; len(body) >= hintEntry; body = body[hintEntry:] {
		i := int(body[0]) | int(body[1])<<8
		hint, n := body[2], body[3]
		switch {
		case i >= len(p.cols):
			continue
		case hint == hintRowStart:
			start = i
			continue
		case hint == hintRowEnd:
			end, hidden = i, n == 1
			continue
		case !p.cols[i].hintable():
			continue
		}
		c, fc := &p.cols[i], &p.table.Columns[i]
		switch {
		case hint == hintUUID && c.pad == uuidBytes:
			c.conv, fc.Kind = convUUID, functions.KindUUID
		case hint == hintInet4 && c.pad == inet4Bytes:
			c.conv, fc.Kind = convInet4, functions.KindInet
		case hint == hintInet6 && c.pad == inet6Bytes:
			c.conv, fc.Kind = convInet6, functions.KindInet
		case hint == hintVector && c.typ == typeVarchar:
			c.conv, fc.Kind = convVector, functions.KindVector
		case hint == hintJSON && c.conv == convText:
			fc.Kind = functions.KindJSON
		case hint == hintFsp && n <= maxTimeFraction:
			c.hires(n)
			fc.Length = int(n)
		}
	}
	p.version(start, end, hidden)
}

// hires gives an old temporal column of MariaDB its fraction. Sizes by digits: time 3 4 4 5 5 5 6,
// datetime 8 (another format) 6 6 7 7 7 8, timestamp 4 5 5 6 6 7 7.
func (c *column) hires(n byte) {
	c.told = true
	if n == 0 {
		return
	}
	c.fsp = n
	switch c.conv {
	case convTimeOld:
		c.conv, c.fixed = convTimeHires, int("\x03\x04\x04\x05\x05\x05\x06"[n])
	case convDateTimeOld:
		c.conv, c.fixed = convDateTimeHires, int("\x08\x06\x06\x07\x07\x07\x08"[n])
	case convTimestampOld:
		c.conv, c.fixed = convTimestampHires, int("\x04\x05\x05\x06\x06\x07\x07"[n])
	}
}
