package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/internal/printable"
	"github.com/terminal-runtime/trl/internal/units"
)

// visible makes foreign text safe for a terminal.
func visible(s string) string { return printable.Text(s) }

// printEmpty says in place of a table that a list is empty. It prints to stderr:
// for a script an empty list is no output.
func (a *app) printEmpty(format string, args ...any) error {
	_, err := fmt.Fprintln(a.stderr, visible(fmt.Sprintf(format, args...)))
	return err
}

// timeText returns when something happened: for a person how long ago, and the
// time otherwise.
func (a *app) timeText(t, now time.Time) string {
	if isTerminal(a.stdout) {
		return units.Age(now.Sub(t)) + " ago"
	}
	return t.Local().Format(time.DateTime)
}

// firstSetFlag returns the first of the flags that is set on the command line,
// or "".
func firstSetFlag(cmd *cobra.Command, names ...string) string {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return name
		}
	}
	return ""
}

// durationFlag is a duration on the command line: 300ms, 30s, 1h30m, 7d, or a
// number of seconds.
type durationFlag struct {
	value time.Duration
	given bool
}

func durationVar(cmd *cobra.Command, d *durationFlag, name, usage string) {
	cmd.Flags().Var(d, name, usage)
}

func (d *durationFlag) String() string {
	if !d.given {
		return ""
	}
	return d.value.String()
}

// Type returns the placeholder for the value in help texts.
func (*durationFlag) Type() string { return "duration" }

// maxSeconds is well within a time.Duration: 30 years.
const maxSeconds = 1e9

// Set parses the value.
func (d *durationFlag) Set(text string) error {
	value, err := units.ParseDuration(text)
	if err != nil {
		var seconds float64
		seconds, err = strconv.ParseFloat(text, 64)
		if !(seconds >= 0 && seconds <= maxSeconds) { // also true for NaN
			seconds = -1
		}
		value = time.Duration(seconds * float64(time.Second))
	}
	if err != nil || value < 0 {
		return fmt.Errorf("write a duration such as 300ms, 30s or 1h30m")
	}
	d.value, d.given = value, true
	return nil
}

// milliseconds returns the value for the wire, or nil if the flag is not set.
func (d *durationFlag) milliseconds() *int64 {
	if !d.given {
		return nil
	}
	ms := d.value.Milliseconds()
	if ms == 0 && d.value > 0 {
		ms = 1 // 0 would mean no limit
	}
	return &ms
}
