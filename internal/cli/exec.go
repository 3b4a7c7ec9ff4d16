package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/units"
)

func (a *app) execCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "exec", Short: "List, read and cancel the commands of a session"}
	cmd.AddCommand(a.execListCommand(), a.execOutputCommand(), a.execCancelCommand())
	return a.group(cmd)
}

func (a *app) execListCommand() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:               "list SESSION",
		Short:             "List the commands of a session",
		Aliases:           []string{"ls"},
		ValidArgsFunction: a.completeSessions,
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only ids")
	cmd.RunE = action(exactArgs("SESSION"), func(ctx context.Context, args []string) error {
		return a.withSession(ctx, args[0], func(c *client.Client, id string) error {
			return callOn(ctx, a, c, api.MethodExecList, api.SessionParams{SessionID: id}, func(list *api.ExecListResult) error {
				return a.showExecs(list.Execs, args[0], quiet, time.Now())
			})
		})
	})
	return cmd
}

// showExecs lists the commands of the session that ref names.
func (a *app) showExecs(execs []api.ExecResult, ref string, quiet bool, now time.Time) error {
	if quiet {
		for _, e := range execs {
			fmt.Fprintln(a.stdout, visible(e.ExecID))
		}
		return nil
	}
	if len(execs) == 0 {
		return a.printEmpty("no commands; `trl run -s %s -- COMMAND` runs one", quote(ref))
	}
	t := newTable(a.stdout, "ID", "STATUS", "STARTED", "TOOK", "STDOUT", "STDERR", "CWD", "LABEL")
	t.style(1, outcomeStyle)
	t.keepEnd(6)
	for _, e := range execs {
		t.row(e.ExecID, outcomeText(&e), a.timeText(e.StartedAt.Time, now), units.Milliseconds(e.DurationMS),
			units.Size(e.StdoutBytes), units.Size(e.StderrBytes), e.Cwd, e.Label)
	}
	return t.flush()
}

// outcomeText describes in a few words how a command ended, or its state if it
// has not.
func outcomeText(e *api.ExecResult) string {
	if e.State != api.ExecExited {
		return string(e.State)
	}
	status := ""
	if e.ExitCode != nil {
		status = fmt.Sprintf("exit %d", *e.ExitCode)
	}
	switch e.Outcome {
	case api.OutcomeExited:
		return status
	case api.OutcomeSignaled:
		return "killed by " + e.Signal
	case api.OutcomeShellExited:
		return status + ", ended its shell"
	default: // timed_out, cancelled, shell_died, oom_killed
		return strings.ReplaceAll(string(e.Outcome), "_", " ")
	}
}

func (a *app) execOutputCommand() *cobra.Command {
	var stdout, stderr, text, follow, cast bool
	var from int64
	var of execFlags
	cmd := &cobra.Command{
		Use:   "output EXEC | --last",
		Short: "Print the output of a command, byte for byte",
		Long: "Print a command's output, byte for byte: its stdout to stdout, its stderr to stderr.\n" +
			"With --json you get one answer of the daemon; pass its \"next\" to --from to continue.\n\n" +
			"With --cast you get a recording for asciinema (asciicast v3) with the original\n" +
			"timing. Output of pipes is shown on 80x24.",
		Example: "  trl exec output $exec\n" +
			"  trl exec output --cast $exec > build.cast   # asciinema play build.cast",
	}
	of.register(a, cmd)
	cmd.Flags().BoolVar(&stdout, "stdout", false, "only stdout")
	cmd.Flags().BoolVar(&stderr, "stderr", false, "only stderr")
	cmd.Flags().BoolVar(&text, "text", false, "strip escape sequences and fold progress bars")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow until the command ends")
	cmd.Flags().Int64Var(&from, "from", 0, "start at `OFFSET`")
	cmd.Flags().BoolVar(&cast, "cast", false, "print a recording for asciinema, with timing")
	cmd.RunE = action(of.args, func(ctx context.Context, args []string) error {
		if cast {
			if other := firstSetFlag(cmd, "json", "format", "text", "stdout", "stderr", "from"); other != "" {
				return usage("--cast and --%s exclude each other: a recording is the whole output in its own format", other)
			}
			return of.with(ctx, a, args, func(c *client.Client, id string) error { return a.record(ctx, c, id, follow) })
		}
		params := api.ExecOutputParams{From: from}
		if stdout != stderr {
			params.Stream = api.ChunkStdout
			if stderr {
				params.Stream = api.ChunkStderr
			}
		}
		if text {
			params.View = api.ViewText
		}
		return of.with(ctx, a, args, func(c *client.Client, id string) error {
			params.ExecID = id
			return a.printOutput(ctx, c, params, follow)
		})
	})
	return cmd
}

// printOutput prints the output of an exec: what exists now, or with follow
// everything until the command ends.
func (a *app) printOutput(ctx context.Context, c *client.Client, params api.ExecOutputParams, follow bool) error {
	if a.json {
		return callOn(ctx, a, c, api.MethodExecOutput, params, func(*api.ExecOutputResult) error { return nil })
	}
	if follow && params.View == "" { // the text view needs whole answers
		st, err := c.Attach(ctx, api.ExecAttachParams{ExecID: params.ExecID, From: params.From})
		if err != nil {
			return err
		}
		defer st.Close()
		_, _, err = copyStream(st, a.chunks(), params.Stream)
		return err
	}
	o := outputCopier{client: c, to: a.chunks(), params: params, follow: follow}
	_, err := o.copy(ctx)
	return err
}

// chunks returns a writer that sends each chunk to its stream.
func (a *app) chunks() chunkWriter {
	return chunkWriter{stdout: a.stdout, stderr: a.stderr}
}

type chunkWriter struct{ stdout, stderr io.Writer }

func (w chunkWriter) write(chunk api.Chunk) error {
	if chunk.Type == api.ChunkGap {
		fmt.Fprintf(w.stderr, "trl: %d bytes of output are missing here: dropped because of a quota or a full disk\n", chunk.Bytes)
		return nil
	}
	data, err := chunk.Content()
	if err != nil {
		return err
	}
	to := w.stdout
	if chunk.Type == api.ChunkStderr {
		to = w.stderr
	}
	if _, err := to.Write(data); err != nil {
		return &writeError{err}
	}
	return nil
}

// writeError reports that our output can't be written: its reader is gone, or
// the disk is full.
type writeError struct{ err error }

func (e *writeError) Error() string { return "write the output: " + e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

func (a *app) execCancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "cancel EXEC|SESSION",
		Short:             "Cancel a running command; its session continues",
		Long:              "Cancel a running command, given by its id or its session's. The session continues.\nIt returns once the command is gone.",
		ValidArgsFunction: a.completeSessions,
		RunE: action(exactArgs("EXEC or SESSION"), func(ctx context.Context, args []string) error {
			cancel := func(c *client.Client, params api.ExecCancelParams) error {
				return callOn(ctx, a, c, api.MethodExecCancel, params, func(result *api.ExecCancelResult) error {
					if !result.Cancelled {
						fmt.Fprintf(a.stderr, "trl: %s had already ended\n", visible(result.ExecID))
					}
					return nil
				})
			}
			if strings.HasPrefix(args[0], execPrefix) {
				return new(execFlags).with(ctx, a, args, func(c *client.Client, id string) error {
					return cancel(c, api.ExecCancelParams{ExecID: id})
				})
			}
			return a.withSession(ctx, args[0], func(c *client.Client, id string) error {
				return cancel(c, api.ExecCancelParams{SessionID: id})
			})
		}),
	}
}
