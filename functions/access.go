package functions

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"
)

// Reasons inside a ColumnError.
var (
	ErrNoColumn = errors.New("the table has no such column")
	ErrAbsent   = errors.New("the row image does not hold this column (binlog_row_image is not FULL)")
	ErrNull     = errors.New("the value is NULL")
	ErrType     = errors.New("the column's type does not fit")
)

// ColumnError says which column could not be read, and why: one of the Err values of this package,
// or what is wrong with the value.
type ColumnError struct {
	Table  string // "db.table"; "" for an absent row
	Column string
	Err    error
}

func (e *ColumnError) Error() string {
	if e.Table == "" {
		return fmt.Sprintf("column %s of an absent row: %v", e.Column, e.Err)
	}
	return fmt.Sprintf("column %s of table %s: %v", e.Column, e.Table, e.Err)
}

func (e *ColumnError) Unwrap() error { return e.Err }

// Has reports whether the row holds the column, NULL included. It is false for a name the table does
// not have and for a column left out of a MINIMAL or NOBLOB image.
func (r Row) Has(column string) bool {
	i := r.index(column)
	return i >= 0 && r.image.Has(i)
}

// IsNull reports whether the row holds the column and its value is NULL.
func (r Row) IsNull(column string) bool {
	i := r.index(column)
	return i >= 0 && r.image.IsNull(i)
}

// Get is the column's value in the Go type of its Kind, nil where it is NULL or where Has is false.
// The value is the caller's to keep.
//
// A value that cannot be decoded panics with a *ColumnError: inside a function the relay turns that
// into a fault of this one change, so that a filter never decides on a guess.
func (r Row) Get(column string) any {
	i := r.index(column)
	if i < 0 || !r.image.Has(i) {
		return nil
	}
	v, err := r.image.Value(i)
	if err != nil {
		panic(r.fail(column, err))
	}
	return v
}

// Int is the value of an integer, YEAR or BIT column. NULL, an absent column, another type and a value
// above math.MaxInt64 are errors.
func (r Row) Int(column string) (int64, error) {
	v, err := r.value(column)
	if err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case int64:
		return v, nil
	case uint64:
		if v <= math.MaxInt64 {
			return int64(v), nil
		}
		return 0, r.fail(column, errors.New("the value is above the largest int64; use Uint"))
	}
	return 0, r.mistyped(column, v, "an integer")
}

// Uint is Int for values up to math.MaxUint64; a negative value is an error.
func (r Row) Uint(column string) (uint64, error) {
	v, err := r.value(column)
	if err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case uint64:
		return v, nil
	case int64:
		if v >= 0 {
			return uint64(v), nil
		}
		return 0, r.fail(column, errors.New("the value is negative; use Int"))
	}
	return 0, r.mistyped(column, v, "an integer")
}

// Float is the value of a FLOAT or DOUBLE column, and the nearest float64 of a DECIMAL or integer one.
func (r Row) Float(column string) (float64, error) {
	v, err := r.value(column)
	if err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case float64:
		return v, nil
	case float32:
		return float64(v), nil
	case int64:
		return float64(v), nil
	case uint64:
		return float64(v), nil
	case string:
		if i := r.index(column); r.table.Columns[i].Kind == KindDecimal {
			if f, err := strconv.ParseFloat(v, 64); err == nil {
				return f, nil
			}
		}
	}
	return 0, r.mistyped(column, v, "a number")
}

// Decimal is the exact digits of a DECIMAL or integer column, e.g. "-12.50".
func (r Row) Decimal(column string) (string, error) {
	v, err := r.value(column)
	if err != nil {
		return "", err
	}
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10), nil
	case uint64:
		return strconv.FormatUint(v, 10), nil
	case string:
		if i := r.index(column); r.table.Columns[i].Kind == KindDecimal {
			return v, nil
		}
	}
	return "", r.mistyped(column, v, "a DECIMAL")
}

// String is the value of a text, ENUM, SET, temporal, DECIMAL, JSON, UUID or INET column as
// Get gives it, and the digits of an integer one.
func (r Row) String(column string) (string, error) {
	v, err := r.value(column)
	if err != nil {
		return "", err
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case uint64:
		return strconv.FormatUint(v, 10), nil
	}
	return "", r.mistyped(column, v, "text")
}

// Bytes is the value of a BINARY, VARBINARY or BLOB column, and the UTF-8 bytes of a text one.
func (r Row) Bytes(column string) ([]byte, error) {
	v, err := r.value(column)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case []byte:
		return v, nil
	case string:
		return []byte(v), nil
	}
	return nil, r.mistyped(column, v, "bytes or text")
}

// Time is the value of a DATE, DATETIME or TIMESTAMP column. A TIMESTAMP is an instant; the others
// have no zone in MySQL and are given as if they were UTC. Zero and partial dates ("0000-00-00",
// "2026-00-00") are no time: they are errors here, and String has them as they are.
func (r Row) Time(column string) (time.Time, error) {
	v, err := r.value(column)
	if err != nil {
		return time.Time{}, err
	}
	s, _ := v.(string)
	var layout string
	switch r.table.Columns[r.index(column)].Kind {
	case KindDate:
		layout = time.DateOnly
	case KindDateTime, KindTimestamp:
		layout = time.DateTime // takes fraction digits too
	default:
		return time.Time{}, r.mistyped(column, v, "DATE, DATETIME or TIMESTAMP")
	}
	t, err := time.ParseInLocation(layout, s, time.UTC)
	if err != nil {
		return time.Time{}, r.fail(column, fmt.Errorf("%q is not a time of the calendar; String gives it as it is", s))
	}
	return t, nil
}

// Get is the column's value as the change leaves it: that of After, or, where a MINIMAL or NOBLOB image
// left it out there, that of Before; on Delete that of Before. See Row.Get.
func (c *Change) Get(column string) any {
	if c.Op == Update && !c.After.Has(column) {
		return c.Before.Get(column)
	}
	return c.Row().Get(column)
}

// Changed reports whether the change gave the column another value: for an Update whether Before and
// After differ byte for byte (a column that only After holds counts as changed, one that After leaves
// out does not), for a Create or Delete whether the row holds the column at all.
func (c *Change) Changed(column string) bool {
	if c.Op != Update {
		return c.Row().Has(column)
	}
	if !c.After.Has(column) {
		return false
	}
	if !c.Before.Has(column) {
		return true
	}
	i, j := c.Before.index(column), c.After.index(column)
	if n := c.After.image.IsNull(j); n || c.Before.image.IsNull(i) {
		return n != c.Before.image.IsNull(i)
	}
	// The JSON forms of two values of one column are equal exactly when the values are.
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	b, err := c.Before.image.AppendJSON((*buf)[:0], i)
	n := len(b)
	if err == nil {
		b, err = c.After.image.AppendJSON(b, j)
	}
	if err != nil {
		panic(c.After.fail(column, err))
	}
	if cap(b) <= maxScratch {
		*buf = b
	}
	return !bytes.Equal(b[:n], b[n:])
}

// Key is the values of the primary key columns in key order, nil for a table without a primary key.
func (c *Change) Key() []any {
	if c.Table == nil || len(c.Table.Key) == 0 {
		return nil
	}
	key := make([]any, len(c.Table.Key))
	for n, i := range c.Table.Key {
		key[n] = c.Get(c.Table.Columns[i].Name)
	}
	return key
}

const maxScratch = 64 << 10

var scratch = sync.Pool{New: func() any { return new([]byte) }}

func (r Row) index(column string) int {
	if r.image == nil || r.table == nil {
		return -1
	}
	return r.table.Column(column)
}

// value is Get with an error for all that is no value.
func (r Row) value(column string) (any, error) {
	i := r.index(column)
	if i < 0 {
		return nil, r.fail(column, ErrNoColumn)
	}
	if !r.image.Has(i) {
		return nil, r.fail(column, ErrAbsent)
	}
	if r.image.IsNull(i) {
		return nil, r.fail(column, ErrNull)
	}
	v, err := r.image.Value(i)
	if err != nil {
		return nil, r.fail(column, err)
	}
	return v, nil
}

func (r Row) fail(column string, err error) *ColumnError {
	e := &ColumnError{Column: column, Err: err}
	if r.table != nil {
		e.Table = r.table.Database + "." + r.table.Name
	}
	return e
}

func (r Row) mistyped(column string, v any, want string) error {
	return r.fail(column, fmt.Errorf("%w: Get gives %T, asked was %s", ErrType, v, want))
}
