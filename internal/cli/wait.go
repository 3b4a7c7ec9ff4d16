package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

func (a *app) waitCommand() *cobra.Command {
	var of execFlags
	var timeout durationFlag
	cmd := &cobra.Command{
		Use:   "wait EXEC... | --last | -s SESSION",
		Short: "Wait for commands to end",
		Long: "Wait until commands have ended, and exit as `trl run` would have: with the\n" +
			"command's status, or 128 plus the number of the signal that ended it. With\n" +
			"several commands the status is that of the first one that failed, in the order\n" +
			"given. --timeout ends the wait with status 124; the commands keep running.",
		Example: "  exec=$(trl run -d -- make test)\n" +
			"  trl wait $exec\n" +
			"  trl wait --timeout 5m -s build    # the last command of the session",
	}
	cmd.DisableFlagsInUseLine = true
	of.register(a, cmd)
	durationVar(cmd, &timeout, "timeout", "stop waiting after this time, with status 124")
	cmd.RunE = action(of.severalArgs, func(ctx context.Context, args []string) error {
		if timeout.value > 0 {
			limited, cancel := context.WithTimeout(ctx, timeout.value)
			defer cancel()
			ctx = limited
		}
		err := a.wait(ctx, &of, args)
		switch {
		case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			a.remark(fmt.Sprintf("still running after %s", timeout.value))
			return exitStatus(statusTimedOut)
		case err != nil && !hasExitStatus(err):
			return &failure{err: err, status: statusRunFailed}
		}
		return err
	})
	return cmd
}

// severalArgs is args for a command that takes several of EXEC.
func (f *execFlags) severalArgs(cmd *cobra.Command, args []string) error {
	if len(args) < 2 {
		return f.args(cmd, args)
	}
	for _, arg := range args {
		if err := f.args(cmd, []string{arg}); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for the commands that args or the flags name.
func (a *app) wait(ctx context.Context, of *execFlags, args []string) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	running, err := of.find(ctx, c, args)
	if err != nil {
		return err
	}
	status := 0
	var ended struct {
		Execs []json.RawMessage `json:"execs"`
	}
	for _, e := range running {
		raw, result, err := awaitExec(ctx, c, e)
		if err != nil {
			return err
		}
		ended.Execs = append(ended.Execs, raw)
		if status == 0 {
			status = commandStatus(result)
		}
		if !a.json {
			remarks(result, remarkOptions{verbose: isTerminal(a.stderr)}, a.remark)
		}
	}
	if a.json {
		raw, err := json.Marshal(ended)
		if err != nil {
			return err
		}
		if err := a.printJSON(raw); err != nil {
			return err
		}
	}
	if status != 0 {
		return exitStatus(status)
	}
	return nil
}

// find returns the commands that args or the flags name. It fails before any of
// them is waited for if one does not exist.
func (f *execFlags) find(ctx context.Context, c *client.Client, args []string) ([]*api.ExecResult, error) {
	if f.last || f.session != "" {
		id, err := lastExec(ctx, c, f.session)
		if err != nil {
			return nil, err
		}
		args = []string{id}
	}
	var found []*api.ExecResult
	for _, ref := range args {
		id, err := findExec(ctx, c, ref)
		if err != nil {
			return nil, err
		}
		e, err := c.ExecInfo(ctx, api.ExecParams{ExecID: id})
		if err != nil {
			return nil, repeatExec(ref, err)
		}
		found = append(found, e)
	}
	return found, nil
}

// awaitExec waits until the command has ended and returns its result, as the
// daemon sent it and decoded.
func awaitExec(ctx context.Context, c *client.Client, e *api.ExecResult) (json.RawMessage, *api.ExecResult, error) {
	if e.State != api.ExecExited {
		if err := awaitExit(ctx, c, e); err != nil {
			return nil, nil, err
		}
	}
	var raw json.RawMessage
	if err := c.Call(ctx, api.MethodExecInfo, api.ExecParams{ExecID: e.ExecID}, &raw); err != nil {
		return nil, nil, err
	}
	var result api.ExecResult
	err := json.Unmarshal(raw, &result)
	return raw, &result, err
}

// awaitExit follows the output of a command from now on, without using it, to its
// exit.
func awaitExit(ctx context.Context, c *client.Client, e *api.ExecResult) error {
	st, err := c.Attach(ctx, api.ExecAttachParams{ExecID: e.ExecID, From: e.StdoutBytes + e.StderrBytes})
	if err != nil {
		return err
	}
	defer st.Close()
	for _, err := range st.Chunks() {
		if err != nil {
			return err
		}
	}
	return nil
}
