package functions_test

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"binrelay/functions"
)

var all = table("d", "all", "i*", "u", "f:double", "dec:decimal", "s:text", "b:blob", "d:date", "dt:datetime", "ts:timestamp", "t:time", "z:datetime", "n", "out", "bad", "neg")

func allRow() functions.Row {
	return row(all, int64(-3), uint64(math.MaxUint64), 1.5, "-12.50", "héllo", []byte{0, 1}, "2026-01-02", "2026-01-02 03:04:05.123456",
		"2026-01-02 03:04:05", "-838:59:59", "2026-00-00 00:00:00", nil, absent{}, broken{}, int64(-1))
}

func TestTypedAccess(t *testing.T) {
	r := allRow()
	type result struct {
		v   any
		err error
	}
	of := func(v any, err error) result { return result{v, err} }
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		got  result
		want any   // nil: an error
		is   error // that it must be
	}{
		"int":             {got: of(r.Int("i")), want: int64(-3)},
		"int of too much": {got: of(r.Int("u"))},
		"int of text":     {got: of(r.Int("s")), is: functions.ErrType},
		"uint":            {got: of(r.Uint("u")), want: uint64(math.MaxUint64)},
		"uint of minus":   {got: of(r.Uint("i"))},
		"float":           {got: of(r.Float("f")), want: 1.5},
		"float of dec":    {got: of(r.Float("dec")), want: -12.5},
		"float of int":    {got: of(r.Float("i")), want: -3.0},
		"float of text":   {got: of(r.Float("s")), is: functions.ErrType},
		"decimal":         {got: of(r.Decimal("dec")), want: "-12.50"},
		"decimal of int":  {got: of(r.Decimal("u")), want: "18446744073709551615"},
		"decimal of text": {got: of(r.Decimal("s")), is: functions.ErrType},
		"string":          {got: of(r.String("s")), want: "héllo"},
		"string of int":   {got: of(r.String("i")), want: "-3"},
		"string of blob":  {got: of(r.String("b")), is: functions.ErrType},
		"date":            {got: of(r.Time("d")), want: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)},
		"datetime":        {got: of(r.Time("dt")), want: at.Add(123456 * time.Microsecond)},
		"timestamp":       {got: of(r.Time("ts")), want: at},
		"time of TIME":    {got: of(r.Time("t")), is: functions.ErrType},
		"partial date":    {got: of(r.Time("z"))},
		"as it is":        {got: of(r.String("z")), want: "2026-00-00 00:00:00"},
		"null":            {got: of(r.Int("n")), is: functions.ErrNull},
		"absent":          {got: of(r.Int("out")), is: functions.ErrAbsent},
		"no such column":  {got: of(r.String("nope")), is: functions.ErrNoColumn},
		"damaged":         {got: of(r.Int("bad"))},
		"absent row":      {got: of(functions.Row{}.Int("i")), is: functions.ErrNoColumn},
	} {
		if tc.want != nil {
			if tc.got.err != nil || tc.got.v != tc.want {
				t.Errorf("%s: %v, %v, want %v", name, tc.got.v, tc.got.err, tc.want)
			}
			continue
		}
		var ce *functions.ColumnError
		if !errors.As(tc.got.err, &ce) || tc.is != nil && !errors.Is(tc.got.err, tc.is) {
			t.Errorf("%s: error %v, want a ColumnError of %v", name, tc.got.err, tc.is)
		}
	}
	if b, err := r.Bytes("b"); err != nil || !bytes.Equal(b, []byte{0, 1}) {
		t.Errorf("Bytes = %v, %v", b, err)
	}
	if b, err := r.Bytes("s"); err != nil || string(b) != "héllo" {
		t.Errorf("Bytes of text = %q, %v", b, err)
	}
}

func TestHasNullGet(t *testing.T) {
	r := allRow()
	for _, tc := range []struct {
		column    string
		has, null bool
		get       any
	}{
		{"i", true, false, int64(-3)}, {"s", true, false, "héllo"}, {"n", true, true, nil},
		{"out", false, false, nil}, {"nope", false, false, nil},
	} {
		if r.Has(tc.column) != tc.has || r.IsNull(tc.column) != tc.null || r.Get(tc.column) != tc.get {
			t.Errorf("%s: Has %v, IsNull %v, Get %v", tc.column, r.Has(tc.column), r.IsNull(tc.column), r.Get(tc.column))
		}
	}
	if (functions.Row{}).Has("i") || (functions.Row{}).Get("i") != nil {
		t.Error("an absent row has a column")
	}
	defer func() {
		if _, ok := recover().(*functions.ColumnError); !ok {
			t.Error("Get of a damaged value did not panic with a ColumnError")
		}
	}()
	r.Get("bad")
}

func TestChanged(t *testing.T) {
	minimal := &functions.Change{Op: functions.Update, Table: item, Before: row(item, int64(7)), After: row(item, absent{}, int64(4), nil)}
	nulled := &functions.Change{Op: functions.Update, Table: item, Before: row(item, int64(7), nil, nil), After: row(item, int64(7), int64(0), nil)}
	created := &functions.Change{Op: functions.Create, Table: item, After: row(item, int64(7), absent{}, "x")}
	deleted := &functions.Change{Op: functions.Delete, Table: item, Before: row(item, int64(7), absent{}, "x")}
	for name, tc := range map[string]struct {
		c      *functions.Change
		column string
		want   bool
	}{
		"other value": {update(), "qty", true}, "same value": {update(), "name", false}, "no such column": {update(), "nope", false},
		"minimal, written": {minimal, "qty", true}, "minimal, key": {minimal, "id", false}, "minimal, set to NULL": {minimal, "name", true},
		"NULL to 0": {nulled, "qty", true}, "NULL to NULL": {nulled, "name", false},
		"created": {created, "id", true}, "created without": {created, "qty", false},
		"deleted": {deleted, "id", true}, "deleted without": {deleted, "qty", false},
	} {
		if got := tc.c.Changed(tc.column); got != tc.want {
			t.Errorf("%s: Changed(%q) = %v", name, tc.column, got)
		}
	}
	if got := minimal.Get("id"); got != int64(7) {
		t.Errorf("Get of a column that only Before holds = %v", got)
	}
	if n := testing.AllocsPerRun(100, func() { update2.Changed("qty") }); n != 0 {
		t.Errorf("Changed allocates %v times", n)
	}
}

var update2 = update()

func TestKey(t *testing.T) {
	two := table("d", "t", "a*", "b:text*")
	two.Key = []int{1, 0}
	c := &functions.Change{Op: functions.Delete, Table: two, Before: row(two, int64(1), "x")}
	if k := c.Key(); len(k) != 2 || k[0] != "x" || k[1] != int64(1) {
		t.Errorf("Key = %v", k)
	}
	if k := (&functions.Change{Op: functions.Create, Table: table("d", "t", "a"), After: row(two, int64(1))}).Key(); k != nil {
		t.Errorf("Key without a primary key = %v", k)
	}
}
