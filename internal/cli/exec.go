package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
)

func (a *app) execCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "exec", Short: "Look at the commands of a session, and cancel one"}
	cmd.AddCommand(a.execListCommand(), a.execOutputCommand(), a.execCancelCommand())
	return a.group(cmd)
}

func (a *app) execListCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "list SESSION",
		Short:             "List what runs and has run in a session",
		Aliases:           []string{"ls"},
		ValidArgsFunction: a.completeSessions,
		RunE: action(exactArgs("SESSION"), func(ctx context.Context, args []string) error {
			return callAndShow(ctx, a, api.MethodExecList, api.SessionParams{SessionID: args[0]}, a.showExecs)
		}),
	}
}

func (a *app) showExecs(list *api.ExecListResult) error {
	t := newTable(a.stdout, "ID", "STATUS", "STARTED", "TOOK", "STDOUT", "STDERR", "CWD", "LABEL")
	for _, e := range list.Execs {
		t.row(e.ExecID, outcomeText(&e), e.StartedAt.Local().Format(time.DateTime), formatMilliseconds(e.DurationMS),
			formatSize(e.StdoutBytes), formatSize(e.StderrBytes), e.Cwd, e.Label)
	}
	return t.flush()
}

// ending is how a command ended, or that it has not, in few words.
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
	cmd := &cobra.Command{
		Use:   "output EXEC",
		Short: "Print the output of a command, byte for byte",
		Long: "Print the output of a command, byte for byte: its stdout to stdout, its stderr to\n" +
			"stderr. With --json it is one answer of the daemon; the next one begins --from\n" +
			"its \"next\".\n\n" +
			"With --cast it is a recording that asciinema plays (asciicast v3), with the times\n" +
			"at which the output came. Output of pipes is shown on 80x24.",
		Example: "  trl exec output $exec\n" +
			"  trl exec output --cast $exec > build.cast   # asciinema play build.cast",
		ValidArgsFunction: a.completeExecs,
	}
	cmd.Flags().BoolVar(&stdout, "stdout", false, "only its stdout")
	cmd.Flags().BoolVar(&stderr, "stderr", false, "only its stderr")
	cmd.Flags().BoolVar(&text, "text", false, "without escape sequences and with progress bars folded")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the command ends")
	cmd.Flags().Int64Var(&from, "from", 0, "begin at this `OFFSET`")
	cmd.Flags().BoolVar(&cast, "cast", false, "as a recording for asciinema, with its times")
	cmd.RunE = action(exactArgs("EXEC"), func(ctx context.Context, args []string) error {
		if cast {
			if other := firstSetFlag(cmd, "json", "text", "stdout", "stderr", "from"); other != "" {
				return usage("--cast and --%s exclude each other: a recording is the whole output in a form of its own", other)
			}
			return a.record(ctx, args[0], follow)
		}
		params := api.ExecOutputParams{ExecID: args[0], From: from}
		if stdout != stderr {
			params.Stream = api.ChunkStdout
			if stderr {
				params.Stream = api.ChunkStderr
			}
		}
		if text {
			params.View = api.ViewText
		}
		if a.json {
			return callAndShow(ctx, a, api.MethodExecOutput, params, func(*api.ExecOutputResult) error { return nil })
		}
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if follow && !text { // text is made of whole answers
			st, err := c.Attach(ctx, api.ExecAttachParams{ExecID: params.ExecID, From: from})
			if err != nil {
				return err
			}
			defer st.Close()
			_, _, err = copyStream(st, a.chunks(), params.Stream)
			return err
		}
		o := outputCopier{client: c, to: a.chunks(), params: params, follow: follow}
		_, err = o.copy(ctx)
		return err
	})
	return cmd
}

// chunks writes chunks of output where they belong.
func (a *app) chunks() chunkWriter {
	return chunkWriter{stdout: a.stdout, stderr: a.stderr}
}

type chunkWriter struct{ stdout, stderr io.Writer }

func (w chunkWriter) write(chunk api.Chunk) error {
	if chunk.Type == api.ChunkGap {
		fmt.Fprintf(w.stderr, "trl: %d bytes of output are missing here: they were not kept, for a quota or a full disk\n", chunk.Bytes)
		return nil
	}
	data, err := api.DecodeBytes(chunk.Data, chunk.Encoding)
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

// writeError says that the reader of our output is gone, or its disk is full.
type writeError struct{ err error }

func (e *writeError) Error() string { return "write the output: " + e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

func (a *app) execCancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "cancel EXEC|SESSION",
		Short:             "End a running command; its session lives on",
		Long:              "End a running command, named by itself or by its session, which lives on. It\nreturns when the command is gone.",
		ValidArgsFunction: a.completeSessions,
		RunE: action(exactArgs("EXEC or SESSION"), func(ctx context.Context, args []string) error {
			params := api.ExecCancelParams{ExecID: args[0]}
			if strings.HasPrefix(args[0], "s-") {
				params = api.ExecCancelParams{SessionID: args[0]}
			}
			return callAndShow(ctx, a, api.MethodExecCancel, params, func(result *api.ExecCancelResult) error {
				if !result.Cancelled {
					fmt.Fprintf(a.stderr, "trl: %s had ended already\n", visible(result.ExecID))
				}
				return nil
			})
		}),
	}
}
