package binlog

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
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
	if h, ok := a.hints.(*columnTypes); ok {
		if err := h.load(e.plan.db, e.plan.name); err != nil {
			return nil, fmt.Errorf("look up the column types of %s: %w", e.name, err)
		}
	}
	return e.plan.hintsEvent(a.hints), nil
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
	rows, err := h.c.query("SELECT COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS" + where)
	if err != nil {
		return err
	}
	h.types = make(map[string]string, len(rows))
	for _, r := range rows {
		if len(r) == 2 {
			h.types[r[0]] = r[1]
		}
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
