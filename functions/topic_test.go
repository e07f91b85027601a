package functions_test

import (
	"strings"
	"testing"

	"binrelay/functions"
)

func TestTopicNames(t *testing.T) {
	for _, tc := range []struct{ template, db, table, want string }{
		{"{db}.{table}", "shop", "item", "shop.item"},
		{"cdc.all", "shop", "item", "cdc.all"},
		{"a-{table}_{db}", "d", "t", "a-t_d"},
		{"{db}.{table}", "a.b", "c", "a_x2eb.c"},
		{"{db}.{table}", "a", "b.c", "a.b_x2ec"},
		{"{db}.{table}", "we ird", "日", "we_x20ird._xe6_x97_xa5"},
		{"{table}", "d", "a_x20b", "a_x5fx20b"}, // reads like an escape
		{"{table}", "d", "a_x2_x", "a_x2_x"},
		{"{table}", "d", "..", "_x2e_x2e"},
		{"{table}", "d", "Mixed_Case-9", "Mixed_Case-9"},
	} {
		topic, err := functions.ParseTopic(tc.template)
		if err != nil {
			t.Errorf("ParseTopic(%q): %v", tc.template, err)
			continue
		}
		if got := string(topic.Append(nil, tc.db, tc.table)); got != tc.want {
			t.Errorf("%s of %q.%q = %q, want %q", tc.template, tc.db, tc.table, got, tc.want)
		}
	}
}

func TestLongTopicNamesStayApart(t *testing.T) {
	topic, err := functions.ParseTopic("{db}.{table}")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("日", 64)
	a, b := string(topic.Append(nil, long, long)), string(topic.Append(nil, long, long[3:]))
	if len(a) != 249 || functions.CheckTopic(a) != nil || a == b {
		t.Errorf("got %q and %q", a, b)
	}
	if got := string(topic.Append(nil, long, long)); got != a {
		t.Error("not the same name twice")
	}
}

func TestWrongTemplates(t *testing.T) {
	for _, template := range []string{"", ".", "..", "a b", "{db}.{tbl}", "{db", "db}", "{}", "{{db}}", "é", "{db}/{table}", strings.Repeat("x", 250), strings.Repeat("x", 249) + "{db}"} {
		if _, err := functions.ParseTopic(template); err == nil || !strings.HasPrefix(err.Error(), "TOPIC: ") {
			t.Errorf("ParseTopic(%q) = %v, want an error that names TOPIC", template, err)
		}
	}
}

func TestIllegalCharacterIsShownWhole(t *testing.T) {
	_, err := functions.ParseTopic("café.{table}")
	for _, err := range []error{err, functions.CheckTopic("café")} {
		if err == nil || !strings.Contains(err.Error(), "has 'é'") {
			t.Errorf("got %v", err)
		}
	}
}

func FuzzTopicIsLegalAndInjective(f *testing.F) {
	f.Add("a.b", "c", "a", "b.c")
	f.Add("a_x2e", "", "a.", "")
	topic, err := functions.ParseTopic("{db}.{table}")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, db1, t1, db2, t2 string) {
		if len(db1)+len(t1)+len(db2)+len(t2) > 1000 {
			t.Skip()
		}
		a, b := string(topic.Append(nil, db1, t1)), string(topic.Append(nil, db2, t2))
		if db1 != "" && functions.CheckTopic(a) != nil {
			t.Errorf("%q: %v", a, functions.CheckTopic(a))
		}
		if (a == b) != (db1 == db2 && t1 == t2) {
			t.Errorf("%q.%q and %q.%q give %q and %q", db1, t1, db2, t2, a, b)
		}
	})
}
