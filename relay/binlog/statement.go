package binlog

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"binrelay/relay"
)

var (
	textBegin  = []byte("BEGIN")
	textCommit = []byte("COMMIT")
)

// query takes a QUERY event: the frame of a transaction, a schema statement, or rows that nobody wrote down.
func (a *assembler) query(h eventHeader, ev []byte) error {
	db, q, err := parseQuery(ev[eventHeaderLen:], 0)
	if err != nil {
		return fmt.Errorf("query event at %s: %w", a.place(), err)
	}
	a.open(h)
	t := &a.trx
	switch { // nearly all there are
	case bytes.Equal(q, textBegin):
		t.inBegin = true
		return nil
	case bytes.Equal(q, textCommit):
		return a.commit()
	}
	st := classify(q)
	switch st.kind {
	case stBegin:
		t.inBegin = true
		return nil
	case stCommit:
		return a.commit()
	case stRollback:
		return a.rollback()
	case stSavepoint:
		t.savepoints = append(t.savepoints, savepoint{string(st.name), t.cuts, len(a.buf), t.skipped})
		return nil
	case stRollbackTo:
		return a.rollbackTo(st.name)
	case stXAStart:
		t.inBegin = true
		return a.xaStart(st.xid)
	case stXAEnd:
		return nil
	case stXACommit:
		return a.xaCommit(st.xid)
	case stXARollback:
		return a.xaRollback(st.xid)
	}
	if !t.muted {
		if st.db != nil {
			db = st.db
		}
		switch st.kind {
		case stDDL:
			if a.match.Database(db) {
				if err := a.makeRoom(); err != nil {
					return err
				}
				a.buf = appendEvent(a.buf, ev)
			}
		case stDML, stUnknown:
			if a.concerns(st, db) {
				return a.statementFormat(st, db)
			}
		}
	}
	if alone := t.standalone || !t.inBegin && (!a.mariadb || t.anonymous); !alone {
		return nil // CREATE TABLE … SELECT: its rows follow
	}
	return a.commit()
}

// loadData takes an EXECUTE_LOAD_QUERY event: LOAD DATA in statement format.
func (a *assembler) loadData(h eventHeader, body []byte) error {
	const extra = 4 + 4 + 4 + 1
	db, q, err := parseQuery(body, extra)
	if err != nil {
		return fmt.Errorf("load event at %s: %w", a.place(), err)
	}
	a.open(h)
	if st := classify(q); !a.trx.muted && a.concerns(st, db) {
		return a.statementFormat(st, db)
	}
	return nil
}

// parseQuery splits the body of a QUERY event: thread u32, seconds u32, database length u8, error u16, length of
// status variables u16, extra, variables, database, 0, text.
func parseQuery(body []byte, extra int) (db, q []byte, err error) {
	c := cursor{b: body}
	c.skip(8)
	n := int(c.u8())
	c.skip(2)
	vars := int(c.u16())
	c.skip(extra + vars)
	db = c.bytes(n)
	c.skip(1)
	return db, c.b, c.err()
}

// concerns reports whether a statement may change rows of a selected table.
func (a *assembler) concerns(st statement, db []byte) bool {
	if st.one {
		return a.match.Match(db, st.table)
	}
	return a.match.Database(db)
}

func (a *assembler) statementFormat(st statement, db []byte) error {
	what := st.verb
	if st.table != nil {
		what += " " + string(db) + "." + string(st.table)
	} else if len(db) > 0 {
		what += " in database " + string(db)
	}
	return relay.Permanent(fmt.Errorf("statement-format change (%s) at %s%s: its rows are not in the binlog", what, a.place(), a.gtidNote()),
		"SET GLOBAL binlog_format=ROW and keep sessions from changing it; what the statement changed has to be copied; then begin behind it with an empty log and "+a.startBehind()+", or exclude the table with TABLES")
}

// startBehind is the setting that begins behind the open transaction.
func (a *assembler) startBehind() string {
	t, set := &a.trx, ""
	switch p := &a.live.p; {
	case t.anonymous:
		return "MYSQL_START=file:offset of the next transaction (SHOW BINLOG EVENTS)"
	case a.mariadb:
		m := mariaSet{domains: slices.Clone(p.maria.domains)}
		m.add(t.maria)
		set = m.String()
	default:
		var m mysqlSet // the set is shared with the position: take it over the wire form
		wire, _ := p.mysql.appendWire(nil, nil)
		m, _ = parseMySQLWire(wire)
		m.add(&t.sid, t.tag, t.gno)
		set = m.String()
	}
	return "MYSQL_START=" + clipLong(set)
}

func (a *assembler) gtidNote() string {
	if len(a.gtid) == 0 {
		return ""
	}
	return " (gtid " + string(a.gtid) + ")"
}

// rollbackTo undoes the rows since a savepoint. Servers write it only where they cannot leave the rows
// out themselves (a temporary table was made in between, for example).
func (a *assembler) rollbackTo(name []byte) error {
	t := &a.trx
	if t.muted {
		return nil
	}
	for i := len(t.savepoints) - 1; i >= 0; i-- {
		s := t.savepoints[i]
		if !strings.EqualFold(s.name, string(name)) {
			continue
		}
		if s.cuts != t.cuts {
			return relay.Permanent(fmt.Errorf("transaction at %s%s goes back to a savepoint over more rows than are kept in memory", a.place(), a.gtidNote()),
				"copy what it changed, then begin behind it with MYSQL_START")
		}
		t.savepoints = t.savepoints[:i+1] // the savepoint itself stays
		a.buf = a.buf[:s.at]
		t.skipped = s.skipped
		a.serial++ // table maps behind the savepoint are gone: write them again
		return nil
	}
	return relay.Permanent(fmt.Errorf("transaction at %s%s goes back to a savepoint that it has not set", a.place(), a.gtidNote()), "")
}

func appendUint(dst []byte, v uint64) []byte { return strconv.AppendUint(dst, v, 10) }
