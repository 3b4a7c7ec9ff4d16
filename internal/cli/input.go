package cli

import (
	"context"
	"encoding/json"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/typing"
)

// stdinArgument in place of a text means that the text is read from stdin.
const stdinArgument = "-"

func (a *app) inputCommand() *cobra.Command {
	var to typingTarget
	var enter, eof bool
	cmd := &cobra.Command{
		Use:   "input EXEC|SESSION [TEXT...]",
		Short: "Type text into a running command",
		Long: "Type text into a running command, given by its id or by its session.\n\n" +
			"The text is typed as it is, several arguments with a space between them, and\n" +
			"nothing is added: --enter ends it with a newline. On a terminal a newline is the\n" +
			"enter key. With - the text is read from stdin. --eof then ends the command's\n" +
			"input.\n\n" +
			"A command without a terminal takes input if `trl run -d -i` started it, or if it\n" +
			"is the only one of its session (`trl session create -- COMMAND`).",
		Example: "  exec=$(trl run -d -i -- sort)\n" +
			"  trl input $exec - <names.txt\n" +
			"  trl input --enter --eof $exec zoe\n" +
			"  trl input -s repl --enter 'print(6*7)'",
		ValidArgsFunction: a.completeExecs,
	}
	cmd.DisableFlagsInUseLine = true
	cmd.Flags().SortFlags = false
	to.register(a, cmd)
	cmd.Flags().BoolVarP(&enter, "enter", "e", false, "add a newline, or press Enter on a terminal")
	cmd.Flags().BoolVar(&eof, "eof", false, "then end its input")
	cmd.RunE = action(func(_ *cobra.Command, args []string) error {
		text, err := to.args(args)
		if err == nil && len(text) == 0 && !enter && !eof {
			return usage("there is nothing to type: give TEXT, - for stdin, --enter or --eof")
		}
		return err
	}, func(ctx context.Context, args []string) error {
		words, err := to.args(args)
		if err != nil {
			return err
		}
		end := ""
		if enter {
			end = "\n"
		}
		var text io.Reader = strings.NewReader(strings.Join(words, " ") + end)
		if len(words) == 1 && words[0] == stdinArgument {
			text = io.MultiReader(a.stdin, strings.NewReader(end))
		}
		return to.with(ctx, a, args, func(c *client.Client, e *api.ExecResult) error {
			return a.typeText(ctx, c, e, text, eof)
		})
	})
	return cmd
}

// typeText types what it reads from text into the command. The answers of the
// daemon become one.
func (a *app) typeText(ctx context.Context, c *client.Client, e *api.ExecResult, text io.Reader, eof bool) error {
	total := api.ExecInputResult{ExecID: e.ExecID}
	err := copyInput(text, func(b []byte, last bool) error {
		params, err := typing.Input(e, b, nil)
		params.EOF = eof && last
		if err != nil || len(b) == 0 && !params.EOF {
			return err
		}
		answer, err := c.Input(ctx, params)
		if err == nil {
			answer.Bytes += total.Bytes
			total = *answer
		}
		return err
	})
	if err != nil || !a.json {
		return err
	}
	raw, err := json.Marshal(total)
	if err != nil {
		return err
	}
	return a.printJSON(raw)
}

// typingTarget says which command is typed into: the first argument, EXEC or
// SESSION, or the flag -s.
type typingTarget struct{ session string }

// register adds the flag to cmd, whose completion is that of the first argument.
func (t *typingTarget) register(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVarP(&t.session, "session", "s", "", "the command that runs in `SESSION`, in place of the first argument")
	complete := cmd.ValidArgsFunction
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 || t.session != "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, prefix)
	}
	must(cmd.RegisterFlagCompletionFunc("session", a.completeSessions))
}

// args returns the arguments after the one that names the command.
func (t *typingTarget) args(args []string) ([]string, error) {
	if t.session != "" {
		return args, checkKind("SESSION", t.session)
	}
	if len(args) == 0 {
		return nil, usage("EXEC is missing; -s SESSION names the command that runs in a session")
	}
	return args[1:], nil
}

// with connects to the daemon and calls fn with the command.
func (t *typingTarget) with(ctx context.Context, a *app, args []string, fn func(*client.Client, *api.ExecResult) error) error {
	session := t.session
	if session == "" {
		session = args[0]
	}
	if strings.HasPrefix(session, execPrefix) {
		return new(execFlags).with(ctx, a, args[:1], func(c *client.Client, id string) error {
			return withRunning(ctx, c, id, fn)
		})
	}
	return a.withSession(ctx, session, func(c *client.Client, id string) error {
		info, err := c.SessionInfo(ctx, api.SessionParams{SessionID: id})
		if err != nil {
			return err
		}
		if info.ExecID == "" {
			return localError{api.Errorf(api.CodeInvalidRequest, "no command is running in %s", session).
				WithHint("`trl run -d -i -s %s -- COMMAND` starts one that takes input", quote(session))}
		}
		return withRunning(ctx, c, info.ExecID, fn)
	})
}

// withRunning calls fn with the command, unless it has ended.
func withRunning(ctx context.Context, c *client.Client, id string, fn func(*client.Client, *api.ExecResult) error) error {
	e, err := c.ExecInfo(ctx, api.ExecParams{ExecID: id})
	if err != nil {
		return err
	}
	if e.State == api.ExecExited {
		return localError{api.Errorf(api.CodeInvalidRequest, "%s has ended (%s)", id, outcomeText(e)).
			WithHint("`trl run -d -i -- COMMAND` starts a command that takes input")}
	}
	return fn(c, e)
}
