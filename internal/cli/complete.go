package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// completionTimeout is how long a completion may ask the daemon: a person waits
// at the prompt and is offered what was found by then.
const completionTimeout = time.Second

// completeSessions offers the ids of sessions that have not ended.
func (a *app) completeSessions(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var ids []string
	a.eachSession(func(_ context.Context, _ *client.Client, s *api.Session) {
		if strings.HasPrefix(s.SessionID, prefix) {
			ids = append(ids, cobra.CompletionWithDesc(visible(s.SessionID), visible(s.Name)))
		}
	})
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// completeExecs offers the ids of the commands of those sessions, each with its
// outcome.
func (a *app) completeExecs(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var ids []string
	a.eachSession(func(ctx context.Context, c *client.Client, s *api.Session) {
		list, err := c.ExecList(ctx, api.SessionParams{SessionID: s.SessionID})
		if err != nil {
			return // it has just ended, or the time is up
		}
		for _, e := range list.Execs {
			if strings.HasPrefix(e.ExecID, prefix) {
				ids = append(ids, cobra.CompletionWithDesc(visible(e.ExecID), visible(outcomeText(&e)+" in "+s.SessionID)))
			}
		}
	})
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// eachSession calls fn for each session that has not ended. Without a daemon
// there is nothing to offer, and a completion can't report errors.
func (a *app) eachSession(fn func(context.Context, *client.Client, *api.Session)) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	c, err := a.connect(ctx)
	if err != nil {
		return
	}
	defer c.Close()
	sessions, err := c.ListSessions(ctx, api.SessionListParams{})
	if err != nil {
		return
	}
	for _, s := range sessions.Sessions {
		if s.State != api.StateTerminated {
			fn(ctx, c, &s)
		}
	}
}
