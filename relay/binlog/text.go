package binlog

import (
	"encoding/binary"
	"unicode/utf8"
)

// Text that is no text. A byte that is no character of the column's charset becomes the private-use
// character U+10FE00 + byte, and a character of that block (U+10FE00 to U+10FEFF) that the source really
// holds becomes one such character for each of its bytes. So the source's bytes can always be had back:
// every character of the block is one byte, every other character is itself.
const (
	rawBase = 0x10fe00
	rawLast = rawBase + 0xff
)

func isRaw(r rune) bool { return r >= rawBase && r <= rawLast }

// appendRaw appends the character that stands for one byte.
func appendRaw(dst []byte, b byte) []byte {
	return append(dst, 0xf4, 0x8f, 0xb8|b>>6, 0x80|b&0x3f)
}

// level is how often text is quoted on its way out.
type level uint8

const (
	asIs   level = iota // as it is
	quoted              // content of a JSON string
	nested              // content of a JSON string inside a JSON document that is itself a JSON string
)

// escapes[l][b] is what byte b < 0x80 becomes at level l, "" for itself.
var escapes = func() (t [3][128]string) {
	const hex = "0123456789abcdef"
	for b := range 0x20 {
		t[quoted][b] = `\u00` + string(hex[b>>4]) + string(hex[b&15])
	}
	for b, s := range map[byte]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`} {
		t[quoted][b] = s
	}
	for b := range 128 {
		for _, c := range []byte(t[quoted][b]) {
			if c == '"' || c == '\\' {
				t[nested][b] += `\`
			}
			t[nested][b] += string(c)
		}
	}
	return t
}()

// appendChar appends one character.
func appendChar(dst []byte, r rune, l level) []byte {
	if r < 0x80 {
		if e := escapes[l][r]; e != "" {
			return append(dst, e...)
		}
		return append(dst, byte(r))
	}
	return utf8.AppendRune(dst, r)
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plainPrefix is how many bytes at the start of s are printable ASCII without quote and backslash.
func plainPrefix(s []byte) int {
	i := 0
	for len(s)-i >= 8 {
		// Eight at a time: a high bit survives where a byte is ≥ 0x80, < 0x20, '"' or '\\'.
		x := binary.LittleEndian.Uint64(s[i:])
		q, k := x^ones*'"', x^ones*'\\'
		if (x|(x-ones*0x20)|(q-ones)|(k-ones))&highs != 0 {
			break
		}
		i += 8
	}
	for i < len(s) && s[i] >= 0x20 && s[i] < 0x80 && s[i] != '"' && s[i] != '\\' {
		i++
	}
	return i
}

// appendUTF8 appends text that should be UTF-8 and returns how many of its bytes are no such text.
func appendUTF8(dst, s []byte, l level) (out []byte, bad int) {
	start := 0
	for i := 0; i < len(s); {
		if n := plainPrefix(s[i:]); n > 0 {
			i += n
			continue
		}
		c := s[i]
		if c < 0x80 {
			if e := escapes[l][c]; e != "" {
				dst = append(append(dst, s[start:i]...), e...)
				start = i + 1
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(s[i:])
		if (r == utf8.RuneError && n == 1) || isRaw(r) {
			dst = append(dst, s[start:i]...)
			for _, b := range s[i : i+n] {
				dst = appendRaw(dst, b)
			}
			bad += n
			start = i + n
		}
		i += n
	}
	return append(dst, s[start:]...), bad
}

// appendQuoted appends s, which is UTF-8 already, as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	dst, _ = appendUTF8(dst, []byte(s), quoted)
	return append(dst, '"')
}
