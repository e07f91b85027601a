package relaytest

import (
	"errors"
	"fmt"
	"strings"
)

// sqlParser reads the little SQL that an embedded source and CREATE TABLE need, token by token.
type sqlParser struct {
	toks []sqlToken
	pos  int
}

// sqlToken is a word, a number, a quoted text (already without quotes) or one symbol.
type sqlToken struct {
	text   string
	quote  byte // ' " ` or 0
	before bool // white space before it
}

// sqlTokens splits a statement; comments vanish, /*! ... */ is taken as its content.
func sqlTokens(s string) (toks []sqlToken) {
	space := false
	add := func(t sqlToken) {
		t.before, space = space, false
		toks = append(toks, t)
	}
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			space = true
			i++
		case c == '#', strings.HasPrefix(s[i:], "-- "):
			n := strings.IndexByte(s[i:], '\n')
			if n < 0 {
				n = len(s) - i
			}
			i += n
		case strings.HasPrefix(s[i:], "/*!"):
			for i += 3; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
			}
			space = true
		case strings.HasPrefix(s[i:], "*/"):
			i += 2
		case strings.HasPrefix(s[i:], "/*"):
			n := strings.Index(s[i:], "*/")
			if n < 0 {
				n = len(s) - i - 2
			}
			i += n + 2
			space = true
		case c == '\'' || c == '"' || c == '`':
			text, n := unquote(s[i:])
			add(sqlToken{text: text, quote: c})
			i += n
		case isWord(c):
			j := i
			for j < len(s) && isWord(s[j]) {
				j++
			}
			add(sqlToken{text: s[i:j]})
			i = j
		default:
			n := 1
			if i+1 < len(s) {
				switch s[i : i+2] {
				case "<=", ">=", "<>", "!=", "@@", ":=", "||", "&&":
					n = 2
				}
			}
			add(sqlToken{text: s[i : i+n]})
			i += n
		}
	}
	return toks
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// unquote reads the quoted text at the start of s and returns it with the length of its source.
func unquote(s string) (text string, n int) {
	q := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == q && i+1 < len(s) && s[i+1] == q:
			b.WriteByte(q)
			i++
		case c == q:
			return b.String(), i + 1
		case c == '\\' && q != '`' && i+1 < len(s):
			i++
			switch s[i] {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case 'r':
				b.WriteByte('\r')
			case '0':
				b.WriteByte(0)
			case '%', '_': // stay escaped, for LIKE
				b.WriteByte('\\')
				b.WriteByte(s[i])
			default:
				b.WriteByte(s[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), len(s)
}

func (p *sqlParser) done() bool { return p.pos >= len(p.toks) }

func (p *sqlParser) peek() sqlToken {
	if p.done() {
		return sqlToken{}
	}
	return p.toks[p.pos]
}

func (p *sqlParser) next() string {
	t := p.peek()
	p.pos++
	return t.text
}

// accept takes the words if all of them come next.
func (p *sqlParser) accept(words ...string) bool {
	for i, w := range words {
		if p.pos+i >= len(p.toks) || p.toks[p.pos+i].quote != 0 || !strings.EqualFold(p.toks[p.pos+i].text, w) {
			return false
		}
	}
	p.pos += len(words)
	return true
}

// skipExpression passes what follows DEFAULT and its like: one value, with its parentheses.
func (p *sqlParser) skipExpression() {
	for p.accept("ALWAYS") || p.accept("AS") || p.accept("UPDATE") || p.accept("-") || p.accept("+") {
	}
	if p.peek().text != "(" {
		p.pos++
	}
	if p.peek().text != "(" {
		return
	}
	for depth := 0; !p.done(); {
		switch t := p.peek(); {
		case t.quote == 0 && t.text == "(":
			depth++
		case t.quote == 0 && t.text == ")":
			depth--
		}
		p.pos++
		if depth == 0 {
			return
		}
	}
}

// text is the source of the tokens from start to end, spaces as they were (one each).
func (p *sqlParser) text(start, end int) string {
	var b strings.Builder
	for i := start; i < min(end, len(p.toks)); i++ {
		t := p.toks[i]
		if t.before && i > start {
			b.WriteByte(' ')
		}
		if t.quote != 0 {
			q := string(t.quote)
			b.WriteString(q + strings.NewReplacer(q, q+q, `\`, `\\`).Replace(t.text) + q)
		} else {
			b.WriteString(t.text)
		}
	}
	return b.String()
}

// createTable reads CREATE TABLE [db.]name (definitions) options.
func (p *sqlParser) createTable() (*Table, error) {
	p.accept("CREATE")
	p.accept("OR", "REPLACE")
	p.accept("TEMPORARY")
	if !p.accept("TABLE") {
		return nil, errors.New("it does not begin with CREATE TABLE")
	}
	p.accept("IF", "NOT", "EXISTS")
	t := &Table{Name: p.next()}
	if p.accept(".") {
		t.Database, t.Name = t.Name, p.next()
	}
	if !p.accept("(") {
		return nil, errors.New("no ( behind the name")
	}
	for {
		def := p.definition()
		if err := t.define(def); err != nil {
			return nil, err
		}
		if p.accept(",") {
			continue
		}
		if p.accept(")") {
			break
		}
		return nil, errors.New("missing )")
	}
	for !p.done() { // table options
		switch strings.ToUpper(p.next()) {
		case "CHARSET":
			p.accept("=")
			t.Charset = p.next()
		case "CHARACTER":
			p.accept("SET")
			p.accept("=")
			t.Charset = p.next()
		}
	}
	return t, nil
}

// definition takes the tokens up to the comma or the parenthesis that ends a column or key.
func (p *sqlParser) definition() *sqlParser {
	start, depth := p.pos, 0
	for ; !p.done(); p.pos++ {
		if t := p.peek(); t.quote != 0 {
			continue
		} else if t.text == "(" {
			depth++
		} else if t.text == ")" {
			if depth == 0 {
				break
			}
			depth--
		} else if t.text == "," && depth == 0 {
			break
		}
	}
	return &sqlParser{toks: p.toks[start:p.pos]}
}

func (t *Table) define(p *sqlParser) error {
	first := p.peek()
	if first.quote == 0 {
		switch strings.ToUpper(first.text) {
		case "CONSTRAINT":
			p.pos++
			switch strings.ToUpper(p.peek().text) {
			case "PRIMARY", "UNIQUE", "FOREIGN", "CHECK":
			default:
				p.pos++ // its name
			}
			if strings.EqualFold(p.peek().text, "PRIMARY") {
				return t.primaryKey(p)
			}
			return nil
		case "PRIMARY":
			return t.primaryKey(p)
		case "KEY", "INDEX", "UNIQUE", "FOREIGN", "CHECK", "FULLTEXT", "SPATIAL", "PERIOD":
			return nil
		}
	}
	name := p.next()
	if name == "" || p.done() {
		return fmt.Errorf("column %q has no type", name)
	}
	t.Columns = append(t.Columns, Column{Name: name, Type: p.text(p.pos, len(p.toks))})
	return nil
}

func (t *Table) primaryKey(p *sqlParser) error {
	p.accept("PRIMARY", "KEY")
	for !p.done() && p.peek().text != "(" {
		p.pos++ // USING BTREE
	}
	p.pos++
	for !p.done() && p.peek().text != ")" {
		switch w := p.next(); {
		case w == "(": // a prefix: KEY (name(10))
			p.pos += 2
		case w == "," || strings.EqualFold(w, "ASC") || strings.EqualFold(w, "DESC"):
		default:
			t.Key = append(t.Key, w)
		}
	}
	return nil
}
