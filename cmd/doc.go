// Package cmd is the command line of Binrelay and everything that only a whole program needs: the
// environment, signals, logging, and the wiring of the parts. A user's whole program is
//
//	func main() { cmd.Main(functions.Set{Filter: paid}) }
//
// and has all of relay's subcommands. With an empty Set it is the stock relay.
//
// Nothing below this package reads the environment; nothing imports this package but main packages.
//
// Reading order: main.go (subcommands, exit codes), config.go (every variable), validate.go (what is a
// mistake), run.go (how the parts are put together), then demo.go, check.go and wal.go.
package cmd
