package binlog

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

var (
	errPatch     = errors.New("damaged partial JSON update")
	errPatchPath = errors.New("partial JSON update of a place that the document does not have")
	errNoBefore  = errors.New("partial JSON update without the document before it (binlog_row_value_options=PARTIAL_JSON with a row image that is not FULL)")
)

// Operations of a partial JSON update.
const (
	patchReplace = 0
	patchInsert  = 1
	patchRemove  = 2
)

// isPatched reports whether column i holds changes to the document of the before image. The bits count
// the table's JSON columns only, whether the image has them or not.
func (v *rowView) isPatched(i int) bool {
	if v.patched == nil || !v.p.cols[i].isJSON {
		return false
	}
	n := 0
	for k := range i {
		if v.p.cols[k].isJSON {
			n++
		}
	}
	return n>>3 < len(v.patched) && v.patched[n>>3]&(1<<(n&7)) != 0
}

// patchedDoc appends the text of the document that column i's changes make of the before image's one.
func (v *rowView) patchedDoc(dst []byte, i int, l level) ([]byte, error) {
	if v.before == nil || !v.before.Has(i) || v.before.IsNull(i) {
		return dst, errNoBefore
	}
	doc := v.before.bytesOf(v.before.spans[i])
	if len(doc) == 0 {
		doc = []byte{jsonLiteral, 0} // as in appendJSONDoc
	}
	root := &jsonNode{typ: doc[0], raw: doc[1:]}
	budget := len(doc)
	for c := (cursor{b: v.bytesOf(v.spans[i])}); len(c.b) > 0; {
		op := c.u8()
		path := c.lenencBytes()
		var n *jsonNode
		if op != patchRemove {
			b := c.lenencBytes()
			if len(b) == 0 {
				return dst, errPatch
			}
			n = &jsonNode{typ: b[0], raw: b[1:]}
			budget += len(b)
		}
		if c.bad || op > patchRemove {
			return dst, errPatch
		}
		if err := root.patch(op, path, n); err != nil {
			return dst, err
		}
	}
	// Each byte of the document and of the changes is printed once at most; what was opened for the
	// changes costs what it cost in its document.
	w := jsonWriter{dst: dst, level: l, budget: budget}
	root.print(&w)
	if w.bad {
		return w.dst, errJSON
	}
	return w.dst, nil
}

// jsonNode is a value of a document that is being changed: opened into its members where a path led
// through it, else still the bytes it came from.
type jsonNode struct {
	typ    byte
	raw    []byte
	opened bool
	object bool
	keys   []string
	values []*jsonNode
}

func (n *jsonNode) open() error {
	if n.opened {
		return nil
	}
	if n.typ > jsonLargeArray {
		return errPatchPath
	}
	c, ok := openContainer(n.typ, n.raw)
	if !ok {
		return errJSON
	}
	n.opened, n.object = true, c.object
	for i := range c.n {
		if c.object {
			key, ok := c.key(i)
			if !ok {
				return errJSON
			}
			n.keys = append(n.keys, string(key))
		}
		t, v, ok := c.value(i)
		if !ok {
			return errJSON
		}
		n.values = append(n.values, &jsonNode{typ: t, raw: v})
	}
	return nil
}

// patch makes one change. The path leads to an existing value, or for an insert to where it shall be.
func (n *jsonNode) patch(op byte, path []byte, value *jsonNode) error {
	if len(path) == 0 || path[0] != '$' {
		return errPatch
	}
	path = path[1:]
	if len(path) == 0 {
		if op != patchReplace {
			return errPatchPath
		}
		*n = *value
		return nil
	}
	for depth := 0; ; depth++ {
		key, index, rest, err := nextLeg(path)
		if err != nil {
			return err
		}
		if depth > maxJSONDepth {
			return errPatch
		}
		if err := n.open(); err != nil {
			return err
		}
		if n.object != (index < 0) {
			return errPatchPath
		}
		at, found := index, index < len(n.values)
		if n.object {
			at, found = n.find(key)
		}
		if len(rest) > 0 {
			if !found {
				return errPatchPath
			}
			n, path = n.values[at], rest
			continue
		}
		switch {
		case op == patchInsert && n.object && found, op == patchInsert && at > len(n.values), op != patchInsert && !found:
			return errPatchPath
		case op == patchInsert:
			n.insert(at, key, value)
		case op == patchReplace:
			n.values[at] = value
		default:
			n.remove(at)
		}
		return nil
	}
}

// find returns where a key is or belongs: keys are sorted by length, then by their bytes.
func (n *jsonNode) find(key string) (at int, found bool) {
	for at < len(n.keys) {
		k := n.keys[at]
		if len(k) > len(key) || len(k) == len(key) && k >= key {
			return at, k == key
		}
		at++
	}
	return at, false
}

func (n *jsonNode) insert(at int, key string, v *jsonNode) {
	n.values = append(n.values, nil)
	copy(n.values[at+1:], n.values[at:])
	n.values[at] = v
	if n.object {
		n.keys = append(n.keys, "")
		copy(n.keys[at+1:], n.keys[at:])
		n.keys[at] = key
	}
}

func (n *jsonNode) remove(at int) {
	n.values = append(n.values[:at], n.values[at+1:]...)
	if n.object {
		n.keys = append(n.keys[:at], n.keys[at+1:]...)
	}
}

func (n *jsonNode) print(w *jsonWriter) {
	if !n.opened {
		w.value(n.typ, n.raw)
		return
	}
	if w.depth++; w.depth > maxJSONDepth {
		w.bad = true
		return
	}
	begin, end := byte('{'), byte('}')
	if !n.object {
		begin, end = '[', ']'
	}
	w.dst = append(w.dst, begin)
	for i, v := range n.values {
		if i > 0 {
			w.dst = append(w.dst, ',', ' ')
		}
		if n.object {
			w.str([]byte(n.keys[i]))
			w.dst = append(w.dst, ':', ' ')
		}
		v.print(w)
	}
	w.dst = append(w.dst, end)
	w.depth--
}

// nextLeg takes the first leg off a path: .name, ."quoted name" or [index]. index is -1 for a name.
func nextLeg(path []byte) (key string, index int, rest []byte, err error) {
	switch {
	case path[0] == '[':
		end := 1
		for end < len(path) && isDigit(path[end]) {
			end++
		}
		index, err := strconv.Atoi(string(path[1:end]))
		if err != nil || end >= len(path) || path[end] != ']' {
			return "", 0, nil, errPatch
		}
		return "", index, path[end+1:], nil
	case path[0] == '.' && len(path) > 1 && path[1] == '"':
		key, rest, err := unquote(path[2:])
		return key, -1, rest, err
	case path[0] == '.' && len(path) > 1:
		end := 1
		for end < len(path) && path[end] != '.' && path[end] != '[' {
			end++
		}
		return string(path[1:end]), -1, path[end:], nil
	}
	return "", 0, nil, fmt.Errorf("%w: path", errPatch)
}

// unquote reads a JSON string behind its opening quotation mark.
func unquote(b []byte) (s string, rest []byte, err error) {
	var out []byte
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c == '"':
			return string(out), b[i+1:], nil
		case c != '\\':
			out = append(out, c)
			i++
		case i+1 >= len(b):
			return "", nil, errPatch
		case b[i+1] == 'u':
			r, n := unicodeEscape(b[i:])
			if n == 0 {
				return "", nil, errPatch
			}
			out = utf8.AppendRune(out, r)
			i += n
		default:
			e := b[i+1]
			if u, ok := map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', 'b': '\b', 'f': '\f'}[e]; ok {
				e = u
			}
			out = append(out, e)
			i += 2
		}
	}
	return "", nil, errPatch
}

// unicodeEscape reads \uXXXX, or two of them that are a surrogate pair; n is 0 for none.
func unicodeEscape(b []byte) (r rune, n int) {
	hex := func(b []byte) rune {
		if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
			return -1
		}
		v, err := strconv.ParseUint(string(b[2:6]), 16, 16)
		if err != nil {
			return -1
		}
		return rune(v)
	}
	r = hex(b)
	if r < 0 {
		return 0, 0
	}
	if utf16.IsSurrogate(r) {
		if r2 := utf16.DecodeRune(r, hex(b[6:])); r2 != utf8.RuneError {
			return r2, 12
		}
	}
	return r, 6
}
