package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// detachedTTL ends the session of a `trl run -d` after its command. It is enough
// for the time between the creation of the session and the start of the command,
// and short for what the command left running. The output is kept for longer, as
// for any session that has ended.
const detachedTTL = time.Minute

// runDetached starts the command and prints its id.
func (a *app) runDetached(ctx context.Context, o *runOptions, command string) error {
	env, err := o.shellFlags.environment(os.Environ())
	if err != nil {
		return err
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	params := api.ExecRunParams{ExecCommand: o.command(command), YieldMS: 1} // answer at once
	params.StdinOpen = o.interactive
	if o.session != "" {
		params.Env, params.Cwd = env, o.shellFlags.cwd
		if params.SessionID, err = o.findSession(ctx, c); err != nil {
			return err
		}
		return repeatSession(o.session, a.startDetached(ctx, c, params))
	}
	created, err := o.createSession(ctx, c, env, a.ttySize(o), detachedTTL)
	if err != nil {
		return err
	}
	params.SessionID = created.SessionID
	if err := a.startDetached(ctx, c, params); err != nil {
		a.endSession(c, created.SessionID)
		return err
	}
	if o.tty && isTerminal(a.stderr) {
		a.remark(fmt.Sprintf("it runs in %s; `trl attach --write %s` types on its terminal", created.SessionID, created.SessionID))
	}
	return nil
}

func (a *app) startDetached(ctx context.Context, c *client.Client, params api.ExecRunParams) error {
	return callOn(ctx, a, c, api.MethodExecRun, params, func(e *api.ExecResult) error {
		fmt.Fprintln(a.stdout, visible(e.ExecID))
		return nil
	})
}
