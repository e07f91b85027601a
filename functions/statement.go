package functions

import "strings"

// statement is what the formats say of a DDL statement beside its text. Only the first words are looked
// at: the data path never depends on it.
type statement struct {
	verb     string // create, alter, drop, rename, truncate, …
	object   string // table, database, index, view, …
	database string // of the name, "" without
	name     string // the first name behind the object
	renamed  string // RENAME TABLE, ALTER TABLE RENAME TO: the new name
	alters   string // ALTER TABLE: the first two words behind the name, e.g. "rename to"
	indexOf  string // CREATE or DROP INDEX: the table
}

// databaseOr is the database that the statement names, or the default one.
func (s *statement) databaseOr(def string) string {
	switch {
	case s.object == "database" && s.name != "":
		return s.name
	case s.database != "":
		return s.database
	}
	return def
}

func parseStatement(text string) statement {
	l := lexer{text}
	var s statement
	s.verb = strings.ToLower(l.next())
	word := strings.ToLower(l.next())
	for {
		switch word {
		case "or", "replace", "temporary", "unique", "fulltext", "spatial", "online", "offline", "ignore":
			word = strings.ToLower(l.next())
			continue
		}
		break
	}
	switch word {
	case "schema":
		word = "database"
	case "tables":
		word = "table"
	}
	s.object = word
	if s.verb == "truncate" && word != "table" { // TRUNCATE t
		s.object = "table"
		l = lexer{text}
		l.next()
	}
	name := l.next()
	for strings.EqualFold(name, "if") || strings.EqualFold(name, "not") || strings.EqualFold(name, "exists") {
		name = l.next()
	}
	s.name = unquote(name)
	if l.peek() == '.' {
		l.next()
		s.database, s.name = s.name, unquote(l.next())
	}
	switch {
	case s.verb == "rename" && s.object == "table":
		if strings.EqualFold(l.next(), "to") {
			s.renamed = l.lastName()
		}
	case s.verb == "alter" && s.object == "table":
		s.alters = strings.ToLower(l.next() + " " + l.next())
		switch s.alters {
		case "rename to", "rename as", "rename =":
			s.renamed = l.lastName()
		}
	case s.object == "index":
		for word := l.next(); word != ""; word = l.next() {
			if strings.EqualFold(word, "on") {
				s.indexOf = unquote(l.next())
				if l.peek() == '.' {
					l.next()
					s.database, s.indexOf = s.indexOf, unquote(l.next())
				}
				break
			}
		}
	}
	return s
}

// lastName reads a name, and gives what stands behind its dot if it has one.
func (l *lexer) lastName() string {
	name := unquote(l.next())
	if l.peek() == '.' {
		l.next()
		name = unquote(l.next())
	}
	return name
}

// lexer cuts SQL into words, quoted names and single characters, without comments and blanks.
type lexer struct{ rest string }

func (l *lexer) peek() byte {
	l.skip()
	if l.rest == "" {
		return 0
	}
	return l.rest[0]
}

func (l *lexer) next() string {
	first := l.peek()
	n := 1
	switch {
	case first == 0:
		return ""
	case first == '`' || first == '"' || first == '\'':
		for n < len(l.rest) {
			if l.rest[n] == first {
				if n++; n == len(l.rest) || l.rest[n] != first { // a doubled one is one of the name
					break
				}
			}
			n++
		}
	case isWord(first):
		for n < len(l.rest) && isWord(l.rest[n]) {
			n++
		}
	}
	word := l.rest[:n]
	l.rest = l.rest[n:]
	return word
}

func (l *lexer) skip() {
	for l.rest != "" {
		switch {
		case strings.IndexByte(" \t\r\n\f\v", l.rest[0]) >= 0:
			l.rest = l.rest[1:]
		case strings.HasPrefix(l.rest, "/*!") || strings.HasPrefix(l.rest, "/*M!"): // runs on the server
			l.rest = strings.TrimLeft(l.rest[strings.IndexByte(l.rest, '!')+1:], "0123456789")
		case strings.HasPrefix(l.rest, "*/"):
			l.rest = l.rest[2:]
		case strings.HasPrefix(l.rest, "/*"):
			l.cut("*/")
		case l.rest[0] == '#' || strings.HasPrefix(l.rest, "-- "):
			l.cut("\n")
		default:
			return
		}
	}
}

func (l *lexer) cut(end string) {
	if _, rest, ok := strings.Cut(l.rest, end); ok {
		l.rest = rest
	} else {
		l.rest = ""
	}
}

func isWord(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '$' || b >= 0x80
}

func unquote(name string) string {
	if len(name) >= 2 && strings.IndexByte("`\"'", name[0]) >= 0 {
		return strings.ReplaceAll(name[1:len(name)-1], name[:1]+name[:1], name[:1])
	}
	return name
}
