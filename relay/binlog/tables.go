package binlog

import (
	"bytes"
	"fmt"
	"strings"
)

// Matcher decides which tables are read (TABLES). The zero value selects every table but those of the
// system schemas, which no rule can select.
type Matcher struct {
	rules []tableRule
	fold  bool // lower_case_table_names is not 0: names differ in more than case
}

type tableRule struct {
	exclude   bool
	db, table glob
}

// ParseTables reads a comma list of db.table globs: * stands for any letters, ? for one; ! in front
// excludes; the last rule that fits decides. A name with a dot, a comma, blanks or glob letters of its own is written
// in backticks, as in SQL: `a.b`.`c,d`.
func ParseTables(text string) (Matcher, error) {
	var m Matcher
	if strings.TrimSpace(text) == "" {
		return m, nil
	}
	p := tableParser{rest: text}
	for {
		r, err := p.rule()
		if err != nil {
			return Matcher{}, err
		}
		m.rules = append(m.rules, r)
		if p.rest == "" {
			break
		}
		p.rest = p.rest[1:] // the comma
	}
	if m.rules[0].exclude {
		return Matcher{}, fmt.Errorf("%q begins with an exclusion, so it selects nothing: begin with *.*", clip(text))
	}
	return m, nil
}

// Match reports whether rows of db.table are read.
func (m *Matcher) Match(db, table []byte) bool {
	if systemSchema(db) {
		return false
	}
	if len(m.rules) == 0 {
		return true
	}
	for i := len(m.rules) - 1; i >= 0; i-- {
		r := &m.rules[i]
		if r.db.match(db, m.fold) && r.table.match(table, m.fold) {
			return !r.exclude
		}
	}
	return false
}

// Database reports whether some table of db may be selected: where a statement does not say which table
// it changes, its database decides.
func (m *Matcher) Database(db []byte) bool {
	if systemSchema(db) {
		return false
	}
	if len(m.rules) == 0 {
		return true
	}
	for i := len(m.rules) - 1; i >= 0; i-- {
		r := &m.rules[i]
		if !r.db.match(db, m.fold) {
			continue
		}
		if !r.exclude {
			return true
		}
		if r.table.any() {
			return false
		}
	}
	return false
}

// folded is m for a server whose table names do not differ by case.
func (m Matcher) folded(fold bool) Matcher {
	m.fold = fold
	return m
}

func systemSchema(db []byte) bool {
	switch len(db) {
	case 3, 5, 18:
		return bytes.EqualFold(db, []byte("sys")) || bytes.EqualFold(db, []byte("mysql")) ||
			bytes.EqualFold(db, []byte("information_schema")) || bytes.EqualFold(db, []byte("performance_schema"))
	}
	return false
}

// glob is a pattern for one name, as literal pieces between wildcards.
type glob []globPart

type globPart struct {
	kind byte // 0: the text; '?' or '*'
	text string
}

func (g glob) any() bool { return len(g) == 1 && g[0].kind == '*' }

// match tries a star as short as it can be; when a later piece does not fit, only the last star has to
// grow, so the work is bounded by the product of the lengths.
func (g glob) match(name []byte, fold bool) bool {
	i := 0
	star, rest := -1, name // the last star, and what was left behind its shortest reach
	for {
		switch {
		case i < len(g) && g[i].kind == '*':
			star, rest = i, name
			i++
			continue
		case i == len(g) && len(name) == 0:
			return true
		case i < len(g):
			if n, ok := g[i].take(name, fold); ok {
				name = name[n:]
				i++
				continue
			}
		}
		if star < 0 || len(rest) == 0 {
			return false
		}
		rest = rest[1:]
		i, name = star+1, rest
	}
}

// take matches one piece, not a star, at the start of name.
func (p *globPart) take(name []byte, fold bool) (n int, ok bool) {
	if p.kind == '?' { // one letter, not one byte
		if len(name) == 0 {
			return 0, false
		}
		for n = 1; n < len(name) && name[n]&0xc0 == 0x80; n++ {
		}
		return n, true
	}
	if len(name) < len(p.text) || !sameName(name[:len(p.text)], p.text, fold) {
		return 0, false
	}
	return len(p.text), true
}

func sameName(name []byte, text string, fold bool) bool {
	if !fold {
		return string(name) == text
	}
	return strings.EqualFold(string(name), text)
}

type tableParser struct{ rest string }

// rule reads one rule up to the comma behind it.
func (p *tableParser) rule() (r tableRule, err error) {
	p.blanks()
	if strings.HasPrefix(p.rest, "!") {
		r.exclude = true
		p.rest = p.rest[1:]
		p.blanks()
	}
	at := p.rest
	if r.db, err = p.name(); err != nil {
		return r, err
	}
	if !strings.HasPrefix(p.rest, ".") {
		return r, fmt.Errorf("%q is not db.table", clip(strings.TrimSpace(firstRule(at))))
	}
	p.rest = p.rest[1:]
	if r.table, err = p.name(); err != nil {
		return r, err
	}
	p.blanks()
	if p.rest != "" && p.rest[0] != ',' {
		return r, fmt.Errorf("%q is not db.table: names with dots or blanks need backticks", clip(strings.TrimSpace(firstRule(at))))
	}
	return r, nil
}

func firstRule(s string) string {
	if s, _, ok := strings.Cut(s, ","); ok {
		return s
	}
	return s
}

func (p *tableParser) blanks() { p.rest = strings.TrimLeft(p.rest, " \t\r\n") }

// name reads one name or pattern; text in backticks is literal.
func (p *tableParser) name() (glob, error) {
	var g glob
	if strings.HasPrefix(p.rest, "`") {
		var b strings.Builder
		for i := 1; i < len(p.rest); i++ {
			if p.rest[i] != '`' {
				b.WriteByte(p.rest[i])
				continue
			}
			if i+1 < len(p.rest) && p.rest[i+1] == '`' {
				b.WriteByte('`')
				i++
				continue
			}
			p.rest = p.rest[i+1:]
			if b.Len() == 0 {
				return nil, fmt.Errorf("an empty name in backticks")
			}
			return glob{{text: b.String()}}, nil
		}
		return nil, fmt.Errorf("%q: the backtick is not closed", clip(p.rest))
	}
	n := strings.IndexAny(p.rest, "., \t\r\n`")
	if n < 0 {
		n = len(p.rest)
	}
	if n == 0 {
		return nil, fmt.Errorf("a name is missing before %q: want db.table", clip(p.rest))
	}
	word := p.rest[:n]
	p.rest = p.rest[n:]
	for word != "" {
		switch c := word[0]; c {
		case '*', '?':
			if c == '*' && len(g) > 0 && g[len(g)-1].kind == '*' {
				word = word[1:]
				continue // ** is *
			}
			g = append(g, globPart{kind: c})
			word = word[1:]
		default:
			k := strings.IndexAny(word, "*?")
			if k < 0 {
				k = len(word)
			}
			g = append(g, globPart{text: word[:k]})
			word = word[k:]
		}
	}
	return g, nil
}
