package cmd

import (
	"io"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/term"
)

// newLogger writes what c asks for to w: text for eyes, JSON for machines.
func newLogger(w io.Writer, c *Config) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		level = slog.LevelInfo // validate has let only four words pass
	}
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "text" || c.LogFormat == "" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// isTerminal reports whether a person reads w as it is written.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colours reports whether w may be coloured (https://no-color.org).
func (p *program) colours(w io.Writer) bool {
	return isTerminal(w) && p.environ["NO_COLOR"] == "" && !strings.EqualFold(p.environ["TERM"], "dumb")
}
