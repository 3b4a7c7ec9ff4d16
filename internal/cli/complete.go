package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// completePatience is how long a completion may ask the daemon: a person waits
// at the prompt, and is offered what was found by then.
const completionTimeout = time.Second

// completeSessions offers the ids of the living sessions.
func (a *app) completeSessions(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var ids []string
	a.eachSession(func(_ context.Context, _ *client.Client, s *api.Session) {
		if strings.HasPrefix(s.SessionID, prefix) {
			ids = append(ids, cobra.CompletionWithDesc(visible(s.SessionID), visible(s.Name)))
		}
	})
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// completeExecs offers the ids of the commands of the living sessions, each
// with how it ended.
func (a *app) completeExecs(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var ids []string
	a.eachSession(func(ctx context.Context, c *client.Client, s *api.Session) {
		list, err := c.ExecList(ctx, api.SessionParams{SessionID: s.SessionID})
		if err != nil {
			return // it has just ended, or time is up
		}
		for _, e := range list.Execs {
			if strings.HasPrefix(e.ExecID, prefix) {
				ids = append(ids, cobra.CompletionWithDesc(visible(e.ExecID), visible(outcomeText(&e)+" in "+s.SessionID)))
			}
		}
	})
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// eachSession calls fn for each living session. Where there is no daemon there
// is nothing to offer, and no place to say so.
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
