package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"binrelay/functions"

	"github.com/alecthomas/kong"
)

// Exit codes of every command.
const (
	exitOK      = 0 // done, or asked to stop
	exitFault   = 1 // halted by a fault, or the command found something wrong
	exitMistake = 2 // wrong configuration or arguments
)

// commands is the command line; kong reads the tags.
type commands struct {
	Run   struct{}    `cmd:"" default:"1" help:"Copy row changes from MySQL to Kafka until told to stop (the default). Configured by environment variables only; README lists them."`
	Check struct{}    `cmd:"" help:"Check the configuration, then the live MySQL and Kafka; say what to do about each finding."`
	Demo  demoOptions `cmd:"" help:"Run the whole relay on an embedded MySQL and an embedded Kafka. Needs nothing."`
	Wal   struct {
		Stat   walOptions     `cmd:"" help:"Show size, bounds and position of a log."`
		Dump   walDumpOptions `cmd:"" help:"Print changes in a log as JSON, one a line."`
		Verify walOptions     `cmd:"" help:"Read all of a log and name the first damage."`
	} `cmd:"" help:"Look at a log directory. The relay that owns it must be stopped."`
	Healthz struct{} `cmd:"" help:"Ask the relay on this machine whether it is alive (for a container's HEALTHCHECK)."`
	Version struct{} `cmd:"" help:"Print version, commit and Go version."`
}

// Main runs the relay's command line with the user's functions and exits the process. A nil function
// means the default that the environment chooses.
func Main(set functions.Set) {
	p := &program{
		set: set, args: os.Args[1:], environ: environMap(os.Environ()),
		stdout: os.Stdout, stderr: os.Stderr, exit: os.Exit,
	}
	forget()
	ctx, stop := p.untilSignal()
	code := p.main(ctx)
	stop()
	os.Exit(code)
}

// program is one run of the command line; tests make their own.
type program struct {
	set            functions.Set
	args           []string
	environ        map[string]string
	stdout, stderr io.Writer
	exit           func(code int) // at a second signal
}

// forget takes the secrets, which have been read, out of the process's environment: functions and child
// processes need not see them.
func forget() {
	for _, name := range SecretNames() {
		os.Unsetenv(name)
	}
}

// main runs one command and returns its exit code.
func (p *program) main(ctx context.Context) int {
	args := p.args
	if len(args) > 0 && args[0] == "help" { // "help wal dump" as well as "wal dump --help"
		args = append(args[1:len(args):len(args)], "--help")
	}
	var c commands
	exited, code := false, exitOK
	parser, err := kong.New(&c, kong.Name("relay"),
		kong.Description("Binrelay copies row changes from MySQL or MariaDB to Kafka: none lost, none twice, in order."),
		kong.UsageOnError(), kong.Writers(p.stdout, p.stderr), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Exit(func(n int) { exited, code = true, n }))
	if err != nil {
		panic(err) // the command line itself is malformed: a bug
	}
	parsed, err := parser.Parse(args)
	if exited { // --help
		return code
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "relay: %v; see \"relay help\"\n", err)
		return exitMistake
	}
	switch strings.Fields(parsed.Command())[0] {
	case "check":
		err = p.check(ctx)
	case "demo":
		err = p.demo(ctx, c.Demo)
	case "wal":
		err = p.wal(ctx, parsed.Command(), &c)
	case "healthz":
		err = p.healthz(ctx)
	case "version":
		fmt.Fprintln(p.stdout, versionLine())
	default:
		err = p.run(ctx)
	}
	return p.report(err)
}

// report prints what ended a command and turns it into an exit code.
func (p *program) report(err error) int {
	var mistakes Mistakes
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &mistakes):
		fmt.Fprintf(p.stderr, "relay: mistakes in the configuration: %d\n", len(mistakes))
		for _, m := range mistakes {
			fmt.Fprintf(p.stderr, "  %s: %s\n", m.Name, m.Text)
		}
		return exitMistake
	case errors.Is(err, errSaid):
		return exitFault
	}
	fmt.Fprintf(p.stderr, "relay: %v\n", err)
	return exitFault
}

// errSaid is the failure of a command that has printed why.
var errSaid = errors.New("said already")

// untilSignal ends its context at SIGTERM or SIGINT; a second signal ends the process at once, which the
// log makes safe.
func (p *program) untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case s := <-signals:
				if n > 0 {
					fmt.Fprintf(p.stderr, "relay: second %v, leaving at once\n", s)
					p.exit(exitFault)
					return
				}
				cancel()
			}
		}
	}()
	return ctx, func() { signal.Stop(signals); close(done); cancel() }
}

// environMap is os.Environ as a map.
func environMap(pairs []string) map[string]string {
	m := make(map[string]string, len(pairs))
	for _, kv := range pairs {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m[k] = v
		}
	}
	return m
}
