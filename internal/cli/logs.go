package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/client"
)

func (a *app) logsCommand() *cobra.Command {
	var session, exec string
	var part logPart
	cmd := &cobra.Command{
		Use:   "logs [-s SESSION | -e EXEC]",
		Short: "Show the daemon's log, or the output of a command",
		Long: "Show the daemon's log, wherever the daemon on this machine writes it. With\n" +
			"--json you get its records as they are, one a line.\n\n" +
			"With -s you get the output of a session's last command instead, and with -e that\n" +
			"of any command: its stdout on stdout, its stderr on stderr. With --json you get\n" +
			"its chunks, one a line; at_ms is when a chunk was written, since the command\n" +
			"began.\n\n" +
			"--since takes a duration (10m: the last ten minutes) or a time, such as 14:30,\n" +
			"\"2026-11-17 14:30\" or 2026-11-17T14:30:00Z.",
		Example: "  trl logs --since 10m\n" +
			"  trl logs -f --tail 20\n" +
			"  trl logs -s build -f           # follow what runs in build",
	}
	cmd.Flags().StringVarP(&session, "session", "s", "", "show the output of the last command of `SESSION`")
	cmd.Flags().StringVarP(&exec, "exec", "e", "", "show the output of the command `EXEC`")
	cmd.Flags().BoolVarP(&part.follow, "follow", "f", false, "wait for more, until the command ends or ctrl-c")
	cmd.Flags().Var(&part.since, "since", "begin at `TIME`, or a duration before now")
	cmd.Flags().VarP(&part.tail, "tail", "n", "begin with the last `N` lines")
	must(cmd.RegisterFlagCompletionFunc("session", a.completeSessions))
	must(cmd.RegisterFlagCompletionFunc("exec", a.completeExecs))
	arguments := func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return usage("unexpected argument %q: use -s for the output in a session, -e for that of a command", args[0])
		case session != "" && exec != "":
			return usage("--session and --exec exclude each other: -s names the last command of a session")
		case session != "":
			return checkKind("SESSION", session)
		case exec != "":
			return checkKind("EXEC", exec)
		}
		return nil
	}
	cmd.RunE = action(arguments, func(ctx context.Context, _ []string) error {
		if session == "" && exec == "" {
			return a.printDaemonLog(ctx, part)
		}
		of, args := execFlags{session: session}, []string(nil)
		if exec != "" {
			args = []string{exec}
		}
		return of.with(ctx, a, args, func(c *client.Client, id string) error { return a.printExecLog(ctx, c, id, part) })
	})
	return cmd
}

// logPart is the part of a log that is asked for.
type logPart struct {
	since  sinceFlag
	tail   countFlag
	follow bool
}

// timestampLayout is how times are shown at the beginning of a line.
const timestampLayout = "2006-01-02 15:04:05.000"

// countFlag is a number of lines on the command line.
type countFlag struct {
	value int
	given bool
}

func (c *countFlag) String() string {
	if !c.given {
		return ""
	}
	return strconv.Itoa(c.value)
}

// Type returns the placeholder for the value in help texts.
func (*countFlag) Type() string { return "number" }

// Set parses the value.
func (c *countFlag) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return fmt.Errorf("write a number of lines, such as 20")
	}
	c.value, c.given = n, true
	return nil
}

// sinceFlag is a point in time on the command line: a duration before now, or a
// time. The zero value means the beginning.
type sinceFlag struct {
	text string
	time time.Time
}

func (s *sinceFlag) String() string { return s.text }

// Type returns the placeholder for the value in help texts.
func (*sinceFlag) Type() string { return "time" }

// Set parses the value.
func (s *sinceFlag) Set(text string) error {
	at, ok := parseSince(text, time.Now())
	if !ok {
		return fmt.Errorf("write a duration such as 10m, or a time such as 14:30 or 2026-11-17T14:30:00Z")
	}
	s.text, s.time = text, at
	return nil
}

// parseSince returns the time that text means at the time now: that long before
// it, a time of its day, or a time of any day. Times without a zone are local.
func parseSince(text string, now time.Time) (time.Time, bool) {
	var before durationFlag
	if before.Set(text) == nil {
		return now.Add(-before.value), true
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), at.Second(), 0, now.Location()), true
		}
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}
