package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// suite is what the parts share.
type suite struct {
	length time.Duration // of one measurement
	runs   int           // measurements of each kind, in turns with the floor's
	real   bool          // real servers too
	emit   func(Result)
}

var parts = []struct {
	name string
	run  func(*suite, context.Context) error
}{
	{"inflight", (*suite).inflight},
	{"drain", (*suite).drain},
}

func part(name string) (func(*suite, context.Context) error, bool) {
	for _, p := range parts {
		if p.name == name {
			return p.run, true
		}
	}
	return nil, false
}

func main() {
	if os.Getenv(serveVariable) != "" {
		if err := serveBroker(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	seconds, _ := strconv.ParseFloat(os.Getenv("BENCH_SECONDS"), 64)
	if seconds == 0 {
		seconds = 1
	}
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	var (
		only    = flag.String("part", os.Getenv("BENCH"), "comma list of "+strings.Join(names, ", ")+"; empty: all")
		length  = flag.Float64("seconds", seconds, "length of one measurement")
		runs    = flag.Int("runs", 3, "measurements of each kind")
		real    = flag.Bool("kafka", true, "the parts on real Kafka and databases too")
		results = flag.String("results", "bench/results/latest.json", "where the table goes as JSON; empty: nowhere")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if *only != "" {
		names = strings.Split(*only, ",")
	}
	fmt.Printf("%s, %d CPUs, %s, load %s; %g s a measurement, %d in turns with the floor\n%s\n", machine(), runtime.NumCPU(), runtime.Version(), load(), *length, *runs, heading)
	var all []Result
	s := &suite{length: time.Duration(*length * float64(time.Second)), runs: *runs, real: *real, emit: func(r Result) {
		all = append(all, r)
		fmt.Println(r)
	}}
	failed := false
	for _, n := range names {
		run, ok := part(n)
		if !ok {
			fmt.Fprintf(os.Stderr, "bench: no part %q\n", n)
			os.Exit(2)
		}
		if err := run(s, ctx); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", n, err)
			failed = true
		}
	}
	if *results != "" && len(all) > 0 {
		if err := save(*results, all); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			failed = true
		} else {
			p, _ := filepath.Abs(*results)
			fmt.Println("as JSON:", p)
		}
	}
	if failed {
		os.Exit(1)
	}
}

func machine() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, _ := strings.Cut(string(b), "model name")
	line, _, _ := strings.Cut(rest, "\n")
	if name := strings.TrimLeft(line, " \t:"); name != "" {
		return name
	}
	return runtime.GOARCH
}

func load() string {
	b, _ := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(b))
	if len(f) == 0 {
		return "?"
	}
	return f[0]
}
