package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func TestMeasuredIsTheMedianBesideItsFloor(t *testing.T) {
	r := measured("p", "n", "rows/s", []float64{30, 10, 20}).over([]float64{4, 40, 5}).want("≥ 3 ×", true)
	if r.Value != 20 || r.Min != 10 || r.Max != 30 || r.Runs != 3 || *r.Floor != 5 || *r.Ratio != 4 || !*r.Met {
		t.Errorf("%+v, floor %v, ratio %v", r, *r.Floor, *r.Ratio)
	}
}

// A part that is not run keeps its lines of last time, and the keys are those that readers rely on.
func TestSaveKeepsOtherParts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results", "latest.json")
	for _, run := range [][]Result{
		{measured("a", "old", "s", []float64{1})}, {measured("b", "other", "s", []float64{2})}, {measured("a", "new", "s", []float64{3})},
	} {
		if err := save(path, run); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []map[string]any
	if err := json.Unmarshal(b, &lines); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 2 || lines[0]["name"] != "other" || lines[1]["name"] != "new" {
		t.Fatalf("saved %s", b)
	}
	for _, key := range []string{"part", "name", "value", "unit", "floor", "ratio", "target", "met", "min", "max", "runs"} {
		if _, ok := lines[0][key]; !ok {
			t.Errorf("no key %q in %v", key, lines[0])
		}
	}
}
