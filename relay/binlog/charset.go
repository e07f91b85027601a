package binlog

import "unicode/utf8"

// charset is a character set of the servers: it turns a column's bytes into UTF-8.
type charset struct {
	name  string
	kind  charsetKind
	ascii bool // bytes below 0x80 are ASCII wherever a character begins
	tables
}

type charsetKind uint8

const (
	charsetUTF8  charsetKind = iota // utf8mb3 and utf8mb4
	charsetTable                    // one to four bytes, by tables
	charsetUCS2
	charsetUTF16
	charsetUTF16LE
	charsetUTF32
)

// tables map codes to characters of the basic plane; 0 is "no character".
type tables struct {
	one   *[256]uint16
	two   []uint16   // [lead-0x80][trail]
	lead  [256]bool  // first bytes of two-byte codes
	trail [256]bool  // their second bytes
	three []uint16   // codes 8F xx xx with xx in A1..FE (ujis, eucjpms)
	four  *gb18030x4 // codes of four bytes (gb18030)
}

// append appends s as UTF-8 at a level of quoting and returns how many of its bytes are no text.
func (cs *charset) append(dst, s []byte, l level) (out []byte, bad int) {
	switch cs.kind {
	case charsetUTF8:
		return appendUTF8(dst, s, l)
	case charsetTable:
		return cs.appendTable(dst, s, l)
	default:
		return cs.appendWide(dst, s, l)
	}
}

// utf8 converts s for places that are no column values: names of members, statements.
func (cs *charset) utf8(s []byte) string {
	out, _ := cs.append(nil, s, asIs)
	return string(out)
}

func (cs *charset) appendTable(dst, s []byte, l level) ([]byte, int) {
	bad := 0
	for len(s) > 0 {
		if cs.ascii {
			if n := plainPrefix(s); n > 0 {
				dst = append(dst, s[:n]...)
				s = s[n:]
				continue
			}
		}
		r, n := cs.char(s)
		if r < 0 {
			for _, b := range s[:n] {
				dst = appendRaw(dst, b)
			}
			bad += n
		} else {
			dst = appendChar(dst, r, l)
		}
		s = s[n:]
	}
	return dst, bad
}

// char decodes the first character of s: r < 0 when its first n bytes are none.
func (cs *charset) char(s []byte) (r rune, n int) {
	b := s[0]
	if v := cs.one[b]; v != 0 || b == 0 {
		return rune(v), 1
	}
	if b == 0x8f && cs.three != nil && len(s) >= 3 && isGraphic94(s[1]) && isGraphic94(s[2]) {
		if v := cs.three[int(s[1]-0xa1)*94+int(s[2]-0xa1)]; v != 0 {
			return rune(v), 3
		}
		return -1, 3
	}
	if !cs.lead[b] || len(s) < 2 {
		return -1, 1
	}
	if cs.four != nil && isDigit(s[1]) {
		return cs.four.char(s)
	}
	if v := cs.two[int(b-0x80)<<8|int(s[1])]; v != 0 {
		return rune(v), 2
	}
	// A code that looks right and means nothing is skipped whole, or what follows would be read from its middle.
	if cs.trail[s[1]] {
		return -1, 2
	}
	return -1, 1
}

func isGraphic94(b byte) bool { return b >= 0xa1 && b <= 0xfe }
func isDigit(b byte) bool     { return b >= '0' && b <= '9' }

// gb18030x4 maps the four-byte codes of the basic plane by their ordinal from 81308130 on.
type gb18030x4 [gb18030Basic]uint16

const (
	gb18030Basic = 39420  // 81308130 to 8431A439
	gb18030Supp  = 189000 // 90308130: from here on the ordinal is the character, less U+10000
)

func (t *gb18030x4) char(s []byte) (rune, int) {
	if len(s) < 4 || s[2] < 0x81 || s[2] == 0xff || !isDigit(s[3]) {
		return -1, 1
	}
	i := ((int(s[0]-0x81)*10+int(s[1]-'0'))*126+int(s[2]-0x81))*10 + int(s[3]-'0')
	r := rune(-1)
	switch {
	case i < gb18030Basic && t[i] != 0:
		r = rune(t[i])
	case i >= gb18030Supp && i-gb18030Supp+0x10000 <= utf8.MaxRune:
		r = rune(i - gb18030Supp + 0x10000)
	}
	if isRaw(r) {
		r = -1
	}
	return r, 4
}

// appendWide reads ucs2, utf16, utf16le and utf32.
func (cs *charset) appendWide(dst, s []byte, l level) ([]byte, int) {
	bad := 0
	for len(s) > 0 {
		r, n := cs.wide(s)
		if r < 0 || !utf8.ValidRune(r) || isRaw(r) {
			for _, b := range s[:n] {
				dst = appendRaw(dst, b)
			}
			bad += n
		} else {
			dst = appendChar(dst, r, l)
		}
		s = s[n:]
	}
	return dst, bad
}

func (cs *charset) wide(s []byte) (r rune, n int) {
	if cs.kind == charsetUTF32 {
		if len(s) < 4 {
			return -1, len(s)
		}
		if s[0] != 0 {
			return -1, 4
		}
		return rune(beUint(s[:4])), 4
	}
	if len(s) < 2 {
		return -1, 1
	}
	unit := func(b []byte) rune {
		if cs.kind == charsetUTF16LE {
			return rune(b[0]) | rune(b[1])<<8
		}
		return rune(b[0])<<8 | rune(b[1])
	}
	r = unit(s)
	const high, low, end = 0xd800, 0xdc00, 0xe000
	if r >= high && r < low && cs.kind != charsetUCS2 && len(s) >= 4 {
		if r2 := unit(s[2:]); r2 >= low && r2 < end {
			return 0x10000 + (r-high)<<10 + (r2 - low), 4
		}
	}
	return r, 2 // a surrogate without its partner is no character
}
