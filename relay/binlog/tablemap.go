package binlog

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"binrelay/functions"
)

// plan is everything needed to read the rows of one table map: it is compiled once for each distinct
// table map, never changes, and is shared by all goroutines.
type plan struct {
	db, name string
	mariadb  bool
	table    *functions.Table
	cols     []column // as in row images; table.Columns is shorter where the last ones are hidden
	raw      []byte   // what the plan was compiled from, see planCache
	nJSON    int      // columns of MySQL's JSON type: each has a bit in partial updates

	// uncountable says why rows of this table cannot even be walked (a column type whose size is unknown).
	uncountable error
	// unreadable says why rows can be walked but not turned into values; hint is the way out.
	unreadable error
	hint       string
	versioned  bool // MariaDB's system versioning, see versioned.go
	rowEnd     int  // its ROW END column
	untold     int  // a column of an old temporal type that no hint says the fraction of, -1 for none
}

// column is one column of a plan.
type column struct {
	conv     conv // how its bytes become a value
	fixed    int  // size of a value in bytes, 0 for values with a length prefix
	prefix   int  // bytes of the length prefix
	fsp      uint8
	scale    uint8
	prec     uint8
	typ      byte
	unsigned bool
	isJSON   bool   // MySQL's JSON type
	pad      int    // BINARY(n): n
	told     bool   // an old temporal type whose fraction a hint has told
	key      []byte // `,"name":`
	name     string
	owner    string // "db.table"
	warned   *atomic.Bool
	cs       *charset // text; nil for values that are no text
	values   []string // ENUM and SET members in UTF-8
	quoted   [][]byte // the same as JSON strings (ENUM) or as their content (SET)
}

// parseTableMapName reads what a filter needs from a table map's body, without looking at the columns.
func parseTableMapName(body []byte) (id uint64, db, table []byte, err error) {
	c := cursor{b: body}
	id = c.uint(6)
	c.skip(2)
	db = c.bytes(int(c.u8()))
	c.skip(1)
	table = c.bytes(int(c.u8()))
	c.skip(1)
	return id, db, table, c.err()
}

// planCacheSize bounds the plans kept: a table of 20 columns takes about 6 KB, so this is some 6 MB.
const planCacheSize = 1024

// planCache finds the plan of a table map by the map's bytes. The table id in front is left out of the
// comparison: servers give a table a new id whenever it is opened again. Safe for concurrent use.
type planCache struct {
	seed  maphash.Seed
	plans *lru.Cache[uint64, *plan]
}

func newPlanCache() *planCache {
	plans, _ := lru.New[uint64, *plan](planCacheSize) // fails for sizes below 1 only
	return &planCache{maphash.MakeSeed(), plans}
}

// plan returns the plan of a table map. An error means that the map itself is damaged; what rows of the
// table cannot be counted or read for is in the plan.
//
// It is for counting, and for asking MariaDB for hints; values need hinted.
func (c *planCache) plan(tableMapBody []byte) (*plan, error) {
	return c.hinted(tableMapBody, nil, true)
}

// hinted returns the plan with the hints that stand behind the table map in a part (see hints.go).
func (c *planCache) hinted(body, hints []byte, mariadb bool) (*plan, error) {
	if len(body) < 8 {
		return nil, errShort
	}
	shape := body[8:]
	var h maphash.Hash
	h.SetSeed(c.seed)
	h.Write(shape)
	h.Write(hints)
	if mariadb {
		h.WriteByte(0)
	}
	sum := h.Sum64()
	if p, ok := c.plans.Get(sum); ok && p.compiledFrom(shape, hints, mariadb) {
		return p, nil
	}
	p, err := compile(body, hints, mariadb)
	if err != nil {
		return nil, err
	}
	p.raw = append(append(make([]byte, 0, len(shape)+len(hints)), shape...), hints...)
	c.plans.Add(sum, p)
	return p, nil
}

func (p *plan) compiledFrom(shape, hints []byte, mariadb bool) bool {
	return p.mariadb == mariadb && len(p.raw) == len(shape)+len(hints) &&
		bytes.Equal(p.raw[:len(shape)], shape) && bytes.Equal(p.raw[len(shape):], hints)
}

// Optional metadata of a table map, by type.
const (
	metaSignedness     = 1
	metaDefaultCharset = 2
	metaColumnCharset  = 3
	metaColumnName     = 4
	metaSetValues      = 5
	metaEnumValues     = 6
	metaPrimaryKey     = 8
	metaPrefixKey      = 9
	metaEnumDefault    = 10 // charsets of ENUM and SET columns
	metaEnumCharset    = 11
)

// compile reads a TABLE_MAP_EVENT's body.
func compile(body, hints []byte, mariadb bool) (*plan, error) {
	_, db, name, err := parseTableMapName(body)
	if err != nil {
		return nil, err
	}
	p := &plan{db: string(db), name: string(name), mariadb: mariadb, untold: -1}
	p.table = &functions.Table{Database: p.db, Name: p.name}
	c := cursor{b: body[8+1+len(db)+1+1+len(name)+1:]}
	n := c.count()
	types := c.bytes(n)
	meta := cursor{b: c.lenencBytes()}
	nullable := c.bytes((n + 7) / 8)
	if c.bad || n == 0 {
		return nil, errShort
	}
	p.cols = make([]column, n)
	p.table.Columns = make([]functions.Column, n)
	for i := range p.cols {
		fc := &p.table.Columns[i]
		fc.Nullable = nullable[i>>3]&(1<<(i&7)) != 0
		if p.uncountable != nil {
			continue // the metadata of later columns cannot be found behind one of unknown size
		}
		if err := p.cols[i].layout(fc, types[i], &meta); err != nil {
			p.uncountable = fmt.Errorf("column %d: %w", i+1, err)
		}
		if p.cols[i].isJSON {
			p.nJSON++
		}
	}
	if p.uncountable != nil {
		return p, nil
	}
	if meta.bad {
		return nil, fmt.Errorf("column metadata: %w", errShort)
	}
	if err := p.optional(c.b); err != nil {
		return nil, err
	}
	if p.unreadable == nil {
		p.applyHints(hints)
	}
	for i := range p.cols {
		switch c := &p.cols[i]; c.conv {
		case convTimeOld, convDateTimeOld, convTimestampOld:
			if !c.told {
				p.untold = i
			}
		}
	}
	return p, nil
}

// optional reads the optional metadata behind the null bitmap.
func (p *plan) optional(b []byte) error {
	c := cursor{b: b}
	var cs charsets
	named := false
	for len(c.b) > 0 && !c.bad {
		typ := c.u8()
		v := cursor{b: c.lenencBytes()}
		if c.bad {
			break
		}
		switch typ {
		case metaSignedness:
			p.signedness(v.b)
		case metaDefaultCharset:
			cs.text.readDefault(&v)
		case metaColumnCharset:
			cs.text.readAll(&v)
		case metaEnumDefault:
			cs.enum.readDefault(&v)
		case metaEnumCharset:
			cs.enum.readAll(&v)
		case metaColumnName:
			named = true
			for i := range p.cols {
				name := string(v.lenencBytes())
				p.table.Columns[i].Name = name
				p.cols[i].name, p.cols[i].owner, p.cols[i].warned = name, p.fullName(), new(atomic.Bool)
				p.cols[i].key = append(appendQuoted([]byte{','}, name), ':')
			}
		case metaSetValues, metaEnumValues:
			p.members(&v, typ)
		case metaPrimaryKey, metaPrefixKey:
			for len(v.b) > 0 {
				i := v.lenenc()
				if typ == metaPrefixKey {
					v.lenenc() // length of the prefix: the key that we publish is the whole column
				}
				if i >= uint64(len(p.cols)) {
					return fmt.Errorf("primary key column %d of %d", i, len(p.cols))
				}
				p.table.Key = append(p.table.Key, int(i))
			}
		}
		if v.bad {
			return fmt.Errorf("optional metadata %d: %w", typ, errShort)
		}
	}
	if c.bad {
		return fmt.Errorf("optional metadata: %w", errShort)
	}
	if !named {
		p.unreadable = errors.New("the table map names no columns: it was written without binlog_row_metadata=FULL")
		p.hint = "on the source, as an administrator and in its configuration: SET GLOBAL binlog_row_metadata=FULL; " +
			"rows already written without it cannot be read, begin behind them"
		return nil
	}
	p.text(&cs)
	return nil
}

// signedness reads one bit for each numeric column, highest bit first.
func (p *plan) signedness(bits []byte) {
	k := 0
	for i := range p.cols {
		if !isNumeric(p.cols[i].typ) {
			continue
		}
		if k>>3 < len(bits) && bits[k>>3]&(0x80>>(k&7)) != 0 {
			p.cols[i].unsigned = true
			p.table.Columns[i].Unsigned = p.cols[i].conv != convYear
		}
		k++
	}
}

// isNumeric reports whether a column type has a bit in the signedness metadata.
func isNumeric(typ byte) bool {
	switch typ {
	case typeDecimal, typeTiny, typeShort, typeLong, typeFloat, typeDouble, typeLongLong, typeInt24, typeYear, typeNewDecimal:
		return true
	}
	return false
}

// members reads the names of ENUM or SET columns; they are converted once the charsets are known.
func (p *plan) members(v *cursor, typ byte) {
	want := byte(typeSet)
	if typ == metaEnumValues {
		want = typeEnum
	}
	for i := range p.cols {
		if p.cols[i].typ != want {
			continue
		}
		n := v.count()
		values := make([]string, 0, n)
		for ; n > 0 && !v.bad; n-- {
			values = append(values, string(v.lenencBytes()))
		}
		p.cols[i].values = values
	}
}

// charsets gathers the collation ids of a table map: text columns and ENUM and SET columns are told
// apart, each either as a default with exceptions or one by one.
type charsets struct{ text, enum collations }

type collations struct {
	known      bool
	def        uint64
	exceptions map[uint64]uint64
	all        []uint64
}

func (c *collations) readDefault(v *cursor) {
	c.known = true
	c.def = v.lenenc()
	for len(v.b) > 0 && !v.bad {
		i := v.lenenc()
		if c.exceptions == nil {
			c.exceptions = make(map[uint64]uint64)
		}
		c.exceptions[i] = v.lenenc()
	}
}

func (c *collations) readAll(v *cursor) {
	c.known = true
	for len(v.b) > 0 && !v.bad {
		c.all = append(c.all, v.lenenc())
	}
}

// of returns the collation of the k-th column of its group.
func (c *collations) of(k int) (id uint64, ok bool) {
	if c.all != nil {
		if k >= len(c.all) {
			return 0, false
		}
		return c.all[k], true
	}
	if id, ok := c.exceptions[uint64(k)]; ok {
		return id, true
	}
	return c.def, c.known
}

const collationBinary = 63

// text gives each text column its charset, and ENUM and SET columns their members in UTF-8.
func (p *plan) text(cs *charsets) {
	nText, nEnum := 0, 0
	also := p.alsoCollated(&cs.text)
	for i := range p.cols {
		c := &p.cols[i]
		fc := &p.table.Columns[i]
		var id uint64
		var ok bool
		switch {
		case isText(c.typ):
			id, ok = cs.text.of(nText)
			nText++
		case c.typ == also:
			nText++
			continue
		case c.typ == typeEnum || c.typ == typeSet:
			id, ok = cs.enum.of(nEnum)
			nEnum++
		default:
			continue
		}
		if !ok {
			p.refuse(fmt.Errorf("column %s: the table map gives no charset", fc.Name), "SET GLOBAL binlog_row_metadata=FULL on the source")
			return
		}
		if id == collationBinary && isText(c.typ) {
			c.binary(fc)
			continue
		}
		c.cs = charsetOf(id)
		if c.cs == nil {
			p.refuse(fmt.Errorf("column %s: collation %d is unknown to this version", fc.Name, id), "a newer version of the relay may know it; exclude the table with TABLES until then")
			return
		}
		fc.Charset = c.cs.name
		if isText(c.typ) {
			continue
		}
		if len(c.values) == 0 {
			p.refuse(fmt.Errorf("column %s: the table map gives no members", fc.Name), "SET GLOBAL binlog_row_metadata=FULL on the source")
			return
		}
		fc.Values = make([]string, len(c.values))
		c.quoted = make([][]byte, len(c.values))
		for k, v := range c.values {
			s := c.cs.utf8([]byte(v))
			fc.Values[k] = s
			q := appendQuoted(nil, s)
			if c.typ == typeSet {
				q = q[1 : len(q)-1]
			}
			c.quoted[k] = q
		}
		c.values = fc.Values
	}
}

// alsoCollated is the type that has entries among the text columns' collations without being text: GEOMETRY
// on MariaDB, VECTOR on MySQL. 0 where a list is too short for that.
func (p *plan) alsoCollated(c *collations) byte {
	also := byte(typeVector)
	if p.mariadb {
		also = typeGeometry
	}
	if c.all == nil {
		return also
	}
	n := 0
	for i := range p.cols {
		if isText(p.cols[i].typ) || p.cols[i].typ == also {
			n++
		}
	}
	if len(c.all) < n {
		return 0
	}
	return also
}

func (p *plan) refuse(err error, hint string) { p.unreadable, p.hint = err, hint }

// fullName is "db.table" as it appears in faults.
func (p *plan) fullName() string {
	if p.name == "" { // a table map that could not be read
		return p.db
	}
	return p.db + "." + p.name
}
