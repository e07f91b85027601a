package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
)

// serveVariable makes this program an embedded broker that lives until its standard input ends. A broker in a
// process of its own leaves the CPU time of this one to the floor that is measured here.
const serveVariable = "BENCH_SERVE_BROKER"

func serveBroker() error {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Println(strings.Join(c.ListenAddrs(), ","))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// embeddedBroker starts one; stop ends it.
func embeddedBroker(ctx context.Context) (b broker, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return b, nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), serveVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return b, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return b, nil, err
	}
	if err := cmd.Start(); err != nil {
		return b, nil, err
	}
	stop = func() { in.Close(); cmd.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return b, nil, fmt.Errorf("embedded broker: %w", err)
	}
	return broker{"embedded", strings.Split(strings.TrimSpace(line), ",")}, stop, nil
}
