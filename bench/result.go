package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Result is one line of the table. The unit says what Value, Floor, Min and Max are; Ratio is Value/Floor.
type Result struct {
	Part   string   `json:"part"`
	Name   string   `json:"name"`
	Value  float64  `json:"value"`
	Unit   string   `json:"unit"`
	Floor  *float64 `json:"floor"`  // the bare library, measured in turns with Value; null: none
	Ratio  *float64 `json:"ratio"`  // null: no floor
	Target string   `json:"target"` // in words, "" where there is none
	Met    *bool    `json:"met"`    // null: no target
	Min    float64  `json:"min"`
	Max    float64  `json:"max"`
	Runs   int      `json:"runs"`
}

// measured makes a Result of the runs' values; its Value is their median.
func measured(part, name, unit string, values []float64) Result {
	v := slices.Sorted(slices.Values(values))
	return Result{Part: part, Name: name, Unit: unit, Value: v[len(v)/2], Min: v[0], Max: v[len(v)-1], Runs: len(v)}
}

// over sets the floor and the ratio.
func (r Result) over(floors []float64) Result {
	f := slices.Sorted(slices.Values(floors))[len(floors)/2]
	if f == 0 {
		return r
	}
	ratio := r.Value / f
	r.Floor, r.Ratio = &f, &ratio
	return r
}

// want sets a target.
func (r Result) want(target string, met bool) Result {
	r.Target, r.Met = target, &met
	return r
}

func number(f float64) string {
	switch {
	case f >= 1e6:
		return fmt.Sprintf("%.2f M", f/1e6)
	case f >= 1e4:
		return fmt.Sprintf("%.0f k", f/1e3)
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	default:
		return fmt.Sprintf("%.2f", f)
	}
}

func (r Result) String() string {
	floor, ratio, met := "", "", ""
	if r.Floor != nil {
		floor, ratio = number(*r.Floor), fmt.Sprintf("%.2f", *r.Ratio)
	}
	if r.Met != nil {
		met = map[bool]string{true: "met: ", false: "MISSED: "}[*r.Met] + r.Target
	}
	return strings.TrimRight(fmt.Sprintf("%-60s %10s %-14s %10s %6s   %10s … %-10s %2d  %s", r.Name, number(r.Value), r.Unit, floor, ratio,
		number(r.Min), number(r.Max), r.Runs, met), " ")
}

const heading = "name                                                              value unit                floor  ratio          min … max      runs  target"

// save writes the JSON file; a part that was not run this time keeps its lines of last time.
func save(path string, results []Result) error {
	ran := map[string]bool{}
	for _, r := range results {
		ran[r.Part] = true
	}
	var all []Result
	if b, err := os.ReadFile(path); err == nil {
		var old []Result
		if json.Unmarshal(b, &old) == nil {
			all = slices.DeleteFunc(old, func(r Result) bool { return ran[r.Part] })
		}
	}
	all = append(all, results...)
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
