package relaytest

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// selectQuery answers SELECT list [FROM table [WHERE ...] [ORDER BY ...] [LIMIT n]] over the variables
// and the few tables of virtualTable. ORDER BY is by the given columns, ascending; there are no joins.
func (c *conn) selectQuery(p *sqlParser) (*mysql.Result, error) {
	p.next()
	distinct := p.accept("DISTINCT")
	from, where := p.find("FROM"), -1
	columns, table := []string(nil), [][]any{nil}
	if from >= 0 {
		list := p.pos
		p.pos = from + 1
		schema, name := "", p.next()
		if p.accept(".") {
			schema, name = name, p.next()
		}
		p.accept("AS")
		if t := p.peek(); t.text != "" && isWord(t.text[0]) && !slices.Contains([]string{"WHERE", "ORDER", "LIMIT", "GROUP"}, strings.ToUpper(t.text)) {
			p.next() // alias; columns are found without it
		}
		var err error
		if columns, table, err = c.s.virtualTable(c, strings.ToLower(schema), strings.ToLower(name)); err != nil {
			return nil, err
		}
		if p.accept("WHERE") {
			where = p.pos
		}
		p.pos = list
	}
	var names []string
	var out [][]any
	if p.accept("COUNT", "(", "*", ")") || p.accept("COUNT", "(", "1", ")") {
		names = []string{"COUNT(*)"}
		n := 0
		for _, values := range table {
			ok, err := c.matches(p, where, columns, values)
			if err != nil {
				return nil, err
			}
			if ok {
				n++
			}
		}
		return rows(names, [][]any{{n}})
	}
	list := p.pos
	for _, values := range table {
		ok, err := c.matches(p, where, columns, values)
		if err != nil {
			return nil, err
		}
		p.pos = list
		row, rowNames, err := c.selectList(p, columns, values)
		if err != nil {
			return nil, err
		}
		names = rowNames
		if ok && !(distinct && slices.ContainsFunc(out, func(o []any) bool { return fmt.Sprint(o) == fmt.Sprint(row) })) {
			out = append(out, row)
		}
	}
	if names == nil { // an empty table: the names alone
		p.pos = list
		_, names, _ = c.selectList(p, columns, make([]any, len(columns)))
	}
	if at := p.find("LIMIT"); at >= 0 && at+1 < len(p.toks) {
		if n, err := strconv.Atoi(p.toks[at+1].text); err == nil && n < len(out) {
			out = out[:n]
		}
	}
	return rows(names, out)
}

// find returns the index of a word outside of parentheses from here on, or -1.
func (p *sqlParser) find(word string) int {
	depth := 0
	for i := p.pos; i < len(p.toks); i++ {
		switch t := p.toks[i]; {
		case t.quote != 0:
		case t.text == "(":
			depth++
		case t.text == ")":
			depth--
		case depth == 0 && strings.EqualFold(t.text, word):
			return i
		}
	}
	return -1
}

func (c *conn) matches(p *sqlParser, where int, columns []string, values []any) (bool, error) {
	if where < 0 {
		return true, nil
	}
	saved := p.pos
	defer func() { p.pos = saved }()
	p.pos = where
	v, err := (&evaluation{c: c, p: p, row: rowMap(columns, values)}).expression()
	return truth(v), err
}

func rowMap(columns []string, values []any) map[string]any {
	m := make(map[string]any, len(columns))
	for i, c := range columns {
		if i < len(values) {
			m[strings.ToLower(c)] = values[i]
		}
	}
	return m
}

func (c *conn) selectList(p *sqlParser, columns []string, values []any) (out []any, names []string, err error) {
	e := &evaluation{c: c, p: p, row: rowMap(columns, values)}
	for {
		if p.accept("*") {
			out, names = append(out, values...), append(names, columns...)
		} else {
			start := p.pos
			v, err := e.expression()
			if err != nil {
				return nil, nil, err
			}
			name := p.text(start, p.pos)
			if t := p.toks[start]; p.pos == start+1 && t.quote != 0 {
				name = t.text
			}
			if p.accept("AS") {
				name = p.next()
			} else if t := p.peek(); t.text != "" && (t.quote != 0 || isWord(t.text[0])) && !slices.Contains([]string{"FROM", "LIMIT", "WHERE", "ORDER"}, strings.ToUpper(t.text)) {
				name = p.next()
			}
			out, names = append(out, v), append(names, name)
		}
		if !p.accept(",") {
			return out, names, nil
		}
	}
}

// evaluation computes expressions; a value is nil (NULL), an int64 or a string.
type evaluation struct {
	c   *conn
	p   *sqlParser
	row map[string]any
}

func truth(v any) bool {
	n, ok := number(v)
	return ok && n != 0
}

func number(v any) (int64, bool) {
	switch v := v.(type) {
	case nil:
		return 0, false
	case int64:
		return v, true
	}
	n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
	return n, err == nil
}

func logic(b bool) any {
	if b {
		return int64(1)
	}
	return int64(0)
}

func (e *evaluation) expression() (any, error) {
	v, err := e.conjunction()
	for err == nil && (e.p.accept("OR") || e.p.accept("||")) {
		var w any
		w, err = e.conjunction()
		v = logic(truth(v) || truth(w))
	}
	return v, err
}

func (e *evaluation) conjunction() (any, error) {
	v, err := e.comparison()
	for err == nil && (e.p.accept("AND") || e.p.accept("&&")) {
		var w any
		w, err = e.comparison()
		v = logic(truth(v) && truth(w))
	}
	return v, err
}

func (e *evaluation) comparison() (any, error) {
	p := e.p
	if p.accept("NOT") || p.accept("!") {
		v, err := e.comparison()
		return logic(!truth(v)), err
	}
	v, err := e.primary()
	if err != nil {
		return nil, err
	}
	if p.accept("IS") {
		not := p.accept("NOT")
		p.accept("NULL")
		return logic((v == nil) != not), nil
	}
	not := p.accept("NOT")
	switch {
	case p.accept("IN"):
		found := false
		p.accept("(")
		for !p.done() && !p.accept(")") {
			w, err := e.expression()
			if err != nil {
				return nil, err
			}
			found = found || compare(v, w) == 0
			p.accept(",")
		}
		return logic(found != not), nil
	case p.accept("LIKE"):
		w, err := e.primary()
		return logic(like(fmt.Sprint(v), fmt.Sprint(w)) != not), err
	}
	for _, op := range []string{"<=", ">=", "<>", "!=", "=", "<", ">"} {
		if !p.accept(op) {
			continue
		}
		w, err := e.primary()
		if err != nil || v == nil || w == nil {
			return nil, err
		}
		d := compare(v, w)
		return logic(map[string]bool{"<=": d <= 0, ">=": d >= 0, "<>": d != 0, "!=": d != 0, "=": d == 0, "<": d < 0, ">": d > 0}[op]), nil
	}
	return v, nil
}

// compare orders two values: as numbers if both are, else as text without regard to case.
func compare(a, b any) int {
	if a == nil || b == nil {
		return -2
	}
	x, ok := number(a)
	y, ok2 := number(b)
	if ok && ok2 {
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	return strings.Compare(strings.ToLower(fmt.Sprint(a)), strings.ToLower(fmt.Sprint(b)))
}

func (e *evaluation) primary() (any, error) {
	p := e.p
	if p.done() {
		return nil, mysql.NewError(1064, "You have an error in your SQL syntax at the end")
	}
	t := p.peek()
	p.pos++
	switch {
	case t.quote == '\'' || t.quote == '"':
		return t.text, nil
	case t.quote == 0 && t.text == "(":
		v, err := e.expression()
		p.accept(")")
		return v, err
	case t.quote == 0 && t.text == "-":
		v, err := e.primary()
		n, _ := number(v)
		return -n, err
	case t.quote == 0 && t.text == "@":
		if v, ok := e.c.vars["@"+strings.ToLower(p.next())]; ok {
			return v, nil
		}
		return nil, nil
	case t.quote == 0 && t.text == "@@":
		name := strings.ToLower(p.next())
		for p.accept(".") {
			name = strings.ToLower(p.next())
		}
		if v, ok := e.c.s.variables()[name]; ok {
			return v, nil
		}
		return nil, mysql.NewError(1193, fmt.Sprintf("Unknown system variable '%s'", name))
	}
	if next := p.peek(); t.quote == 0 && next.quote == '\'' {
		switch {
		case strings.EqualFold(t.text, "X") && !next.before: // X'6162'
			p.pos++
			b, err := hex.DecodeString(next.text)
			if err != nil {
				return nil, mysql.NewError(1064, "You have an error in your SQL syntax near X'")
			}
			return string(b), nil
		case strings.HasPrefix(t.text, "_"): // a character set before a text
			return e.primary()
		}
	}
	if next := p.peek(); t.quote == 0 && strings.HasPrefix(t.text, "_") && strings.EqualFold(next.text, "X") {
		return e.primary()
	}
	if t.quote == 0 && p.peek().text == "(" && p.peek().quote == 0 {
		return e.function(strings.ToUpper(t.text))
	}
	if n, err := strconv.ParseInt(t.text, 10, 64); err == nil && t.quote == 0 {
		return n, nil
	}
	name := t.text
	for p.accept(".") { // an alias or a table before the column
		name = p.next()
	}
	if v, ok := e.row[strings.ToLower(name)]; ok {
		return v, nil
	}
	switch strings.ToUpper(name) {
	case "NULL":
		return nil, nil
	case "TRUE":
		return int64(1), nil
	case "FALSE":
		return int64(0), nil
	case "CURRENT_USER":
		return e.c.s.cfg.User + "@%", nil
	}
	return nil, mysql.NewError(1054, fmt.Sprintf("Unknown column '%s' in 'field list'", name))
}
