package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"binrelay/bench/internal/relayproc"
)

func main() {
	chosen, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if err != nil {
		chosen = uint64(time.Now().UnixNano() % 1e9)
	}
	var (
		short  = flag.Bool("short", false, "the short form")
		source = flag.String("source", "both", "mysql, mariadb (or a kind of bench/services) or both")
		seed   = flag.Uint64("seed", chosen, "choices of writers and kills; or SEED=")
		rows   = flag.Int64("rows", 0, "row changes at least, beside the large transaction (0: 500,000, short 25,000)")
		kills  = flag.Int("kills", 0, "kill -9 of the relay at least (0: 30, short 8)")
		relay  = flag.String("relay", "", "the program under test; empty: build it")
		race   = flag.Bool("race", false, "build it with the race detector (its memory is not judged then)")
		keep   = flag.String("keep", "", "write the relay's logs into this directory")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c := longForm()
	if *short {
		c = shortForm()
	}
	c.seed, c.keep, c.say = *seed, *keep, func(format string, args ...any) {
		fmt.Printf(time.Now().Format("15:04:05 ")+format+"\n", args...)
	}
	if *rows > 0 {
		c.rows = *rows
	}
	if *kills > 0 {
		c.kills = *kills
	}
	c.memoryLimit = memoryLimit
	if *race {
		c.memoryLimit = 0
	}
	dir, err := os.MkdirTemp("", "binrelay-soak")
	if err != nil {
		exit(err)
	}
	defer os.RemoveAll(dir)
	if c.relay = *relay; c.relay == "" {
		var flags []string
		if *race {
			flags = []string{"-race"}
		}
		if c.relay, err = relayproc.Build(ctx, dir, flags...); err != nil {
			exit(err)
		}
	}
	kinds := []string{*source}
	if *source == "both" {
		kinds = []string{"mysql", "mariadb"}
	}
	failed := false
	for _, kind := range kinds {
		fmt.Printf("soak of %s, seed %d\n", kind, c.seed)
		r, err := run(ctx, c, kind)
		if r != nil {
			fmt.Print(r)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "soak of %s, seed %d: %v\n", kind, c.seed, err)
			failed = true
		}
	}
	if failed {
		os.RemoveAll(dir)
		os.Exit(1)
	}
}

func exit(err error) {
	fmt.Fprintln(os.Stderr, "soak:", err)
	os.Exit(1)
}
