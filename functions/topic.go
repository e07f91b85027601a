package functions

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxTopic is Kafka's limit on the length of a topic name.
const maxTopic = 249

// Topic is a parsed TOPIC template: text with {db} and {table}, e.g. "{db}.{table}" or "cdc.all".
type Topic struct {
	parts []topicPart
}

type topicPart struct {
	text string // literal, when field is 0
	kind topicField
}

type topicField byte

const (
	fieldDB topicField = iota + 1
	fieldTable
)

// ParseTopic parses a template. Its text must be legal in a topic name.
func ParseTopic(template string) (Topic, error) {
	var t Topic
	rest := template
	for rest != "" {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			i = len(rest)
		}
		if i > 0 {
			text := rest[:i]
			if j := illegal(text); j >= 0 {
				return Topic{}, fmt.Errorf("TOPIC: %q has %q, but a topic name holds only letters, digits, '.', '_' and '-'", template, runeAt(text, j))
			}
			t.parts = append(t.parts, topicPart{text: text})
			rest = rest[i:]
			continue
		}
		name, after, ok := strings.Cut(rest[1:], "}")
		switch {
		case rest[0] == '}' || !ok:
			return Topic{}, fmt.Errorf("TOPIC: %q has an unpaired brace", template)
		case name == "db":
			t.parts = append(t.parts, topicPart{kind: fieldDB})
		case name == "table":
			t.parts = append(t.parts, topicPart{kind: fieldTable})
		default:
			return Topic{}, fmt.Errorf("TOPIC: %q: unknown placeholder {%s}; there are {db} and {table}", template, name)
		}
		rest = after
	}
	fixed, fields := 0, 0
	for _, p := range t.parts {
		fixed += len(p.text)
		if p.kind != 0 {
			fields++
		}
	}
	if fields == 0 {
		if err := CheckTopic(template); err != nil {
			return Topic{}, fmt.Errorf("TOPIC: %w", err)
		}
	}
	if fixed > maxTopic-hashLen-fields {
		return Topic{}, fmt.Errorf("TOPIC: the fixed text of %q is too long for a topic name", template)
	}
	return t, nil
}

// hashLen is the length of the tail that keeps shortened names apart: "_h" and 16 hex digits.
const hashLen = 18

// Append appends the topic of a table. It is always a legal name: in the names of database and table
// letters, digits, '_' and '-' stay; any other byte becomes _x and two hex digits ("we ird" gives
// we_x20ird), dots too, so that `a.b`.`c` and `a`.`b.c` keep apart; so does a '_' that would read as
// such an escape. A name over 249 bytes is cut and ends with a hash of the whole.
func (t Topic) Append(dst []byte, db, table string) []byte {
	start := len(dst)
	for _, p := range t.parts {
		switch p.kind {
		case fieldDB:
			dst = appendTopicText(dst, db)
		case fieldTable:
			dst = appendTopicText(dst, table)
		default:
			dst = append(dst, p.text...)
		}
	}
	if name := dst[start:]; len(name) > maxTopic {
		sum := sha256.Sum256(name)
		dst = append(dst[:start+maxTopic-hashLen], "_h"...)
		dst = hex.AppendEncode(dst, sum[:8])
	}
	return dst
}

// IsZero reports whether t was not made by ParseTopic.
func (t Topic) IsZero() bool { return len(t.parts) == 0 }

// runeAt is the character that begins at byte i of s, as its writer sees it.
func runeAt(s string, i int) rune {
	r, _ := utf8.DecodeRuneInString(s[i:])
	return r
}

// CheckTopic reports why name is no legal topic name, nil when it is one.
func CheckTopic(name string) error {
	switch {
	case name == "":
		return errors.New("the topic name is empty")
	case name == "." || name == "..":
		return fmt.Errorf("a topic cannot be named %q", name)
	case len(name) > maxTopic:
		return fmt.Errorf("the topic name %.40q… has %d bytes, Kafka allows %d", name, len(name), maxTopic)
	}
	if i := illegal(name); i >= 0 {
		return fmt.Errorf("the topic name %q has %q, but a topic name holds only letters, digits, '.', '_' and '-'", name, runeAt(name, i))
	}
	return nil
}

// illegal is the index of the first byte that no topic name may hold, or -1.
func illegal(s string) int {
	for i := 0; i < len(s); i++ {
		if !legalTopicByte(s[i]) && s[i] != '.' {
			return i
		}
	}
	return -1
}

// legalTopicByte leaves the dot out: it is legal, but separates.
func legalTopicByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '-'
}

func appendTopicText(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	for i := 0; i < len(s); i++ {
		b := s[i]
		if legalTopicByte(b) && !(b == '_' && looksEscaped(s[i+1:])) {
			dst = append(dst, b)
			continue
		}
		dst = append(dst, '_', 'x', digits[b>>4], digits[b&15])
	}
	return dst
}

// looksEscaped reports whether s, after a '_', could be read as the rest of an escape.
func looksEscaped(s string) bool {
	isHex := func(b byte) bool { return b >= '0' && b <= '9' || b >= 'a' && b <= 'f' }
	return len(s) >= 3 && s[0] == 'x' && isHex(s[1]) && isHex(s[2])
}
