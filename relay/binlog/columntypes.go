package binlog

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	"binrelay/relay"
)

// columnTypes looks up declared column types for tables whose table map leaves something open (hints.go).
// It has a connection of its own, made when first needed; each answer is waited for as long as at login.
type columnTypes struct {
	source *Source
	ctx    context.Context // of the stream that owns it
	c      *conn
	types  map[string]string // of the table looked up last, by column
}

// Declared implements Hints.
func (h *columnTypes) Declared(_, _, column string) string { return h.types[column] }

// lookUp returns the hints event's body for a table. A table that is gone has none; a server that does
// not answer is an error, because without hints its values would come out wrong.
func (a *assembler) lookUp(e *tableEntry) ([]byte, error) {
	p := e.plan
	if h, ok := a.hints.(*columnTypes); ok {
		if err := h.load(p.db, p.name); err != nil {
			return nil, fmt.Errorf("look up the column types of %s: %w", e.name, err)
		}
	}
	if p.looksImplicit() && a.hints.Declared(p.db, p.name, implicitEnd) == "" {
		// As logged, its history would overwrite its rows, and none would ever be deleted.
		return nil, relay.Permanent(fmt.Errorf("table %s at %s looks system-versioned (its last columns are %s and %s), but information_schema no longer says so: it was dropped, renamed or altered since, or the relay's account may not see it",
			e.name, a.place(), implicitStart, implicitEnd),
			"GRANT SELECT on it to the relay's account, or make it anew as it was, empty, until its rows are captured, or exclude the table with TABLES")
	}
	return p.hintsEvent(a.hints), nil
}

func (h *columnTypes) load(db, table string) error {
	if h.c == nil {
		c, err := h.source.connect(h.ctx)
		if err != nil {
			return err
		}
		h.c = c
	}
	err := h.read(db, table)
	if err != nil { // the server may have closed a connection that was idle for long: once more
		h.close()
		if h.c, err = h.source.connect(h.ctx); err != nil {
			return err
		}
		err = h.read(db, table)
	}
	return plainOrNil(err)
}

func (h *columnTypes) read(db, table string) error {
	where := fmt.Sprintf(" WHERE TABLE_SCHEMA=_utf8 X'%s' AND TABLE_NAME=_utf8 X'%s'", hex.EncodeToString([]byte(db)), hex.EncodeToString([]byte(table)))
	rows, err := h.c.query("SELECT COLUMN_NAME, COLUMN_TYPE, GENERATION_EXPRESSION FROM information_schema.COLUMNS" + where)
	if err != nil {
		return err
	}
	h.types = make(map[string]string, len(rows))
	for _, r := range rows {
		if len(r) != 3 {
			continue
		}
		h.types[r[0]] = r[1]
		switch r[2] { // no expression that a user can write
		case "ROW START":
			h.types[r[0]] += declaredStart
		case "ROW END":
			h.types[r[0]] += declaredEnd
		}
	}
	if err := h.readImplicit(where); err != nil {
		return err
	}
	where = strings.Replace(where, "TABLE_SCHEMA", "CONSTRAINT_SCHEMA", 1)
	// MariaDB's JSON is LONGTEXT with a check of its own.
	rows, err = h.c.query("SELECT CONSTRAINT_NAME, CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS" + where)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if len(r) == 2 && strings.EqualFold(h.types[r[0]], "longtext") &&
			strings.EqualFold(r[1], "json_valid(`"+strings.ReplaceAll(r[0], "`", "``")+"`)") {
			h.types[r[0]] = "json"
		}
	}
	return nil
}

// readImplicit adds the columns that a versioned table has without declaring them: information_schema hides them too.
func (h *columnTypes) readImplicit(where string) error {
	rows, err := h.c.query("SELECT TABLE_TYPE FROM information_schema.TABLES" + where)
	if err != nil {
		return err
	}
	if len(rows) != 1 || len(rows[0]) != 1 || rows[0][0] != "SYSTEM VERSIONED" {
		return nil
	}
	for _, t := range h.types {
		if strings.HasSuffix(t, declaredEnd) {
			return nil
		}
	}
	h.types[implicitStart] = "timestamp(6)" + declaredStart + declaredHidden
	h.types[implicitEnd] = "timestamp(6)" + declaredEnd + declaredHidden
	return nil
}

func (h *columnTypes) close() {
	if h.c != nil {
		h.c.Close()
		h.c = nil
	}
}

func plainOrNil(err error) error {
	if err == nil {
		return nil
	}
	return plain(err)
}
