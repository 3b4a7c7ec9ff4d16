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

// completeSessions offers the ids and the names of sessions that have not ended.
func (a *app) completeSessions(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var sessions []api.Session
	a.eachSession(func(_ context.Context, _ *client.Client, s *api.Session) { sessions = append(sessions, *s) })
	return sessionCompletions(sessions, prefix), cobra.ShellCompDirectiveNoFileComp
}

// sessionCompletions returns ids with names, and names with ids. A name that
// several sessions have names none of them, and a name that a shell would not
// read as it is can't be offered.
func sessionCompletions(sessions []api.Session, prefix string) (offers []string) {
	offer := func(word, description string) {
		if strings.HasPrefix(word, prefix) {
			offers = append(offers, cobra.CompletionWithDesc(word, description))
		}
	}
	count := map[string]int{}
	for _, s := range sessions {
		count[s.Name]++
	}
	for _, s := range sessions {
		offer(visible(s.SessionID), visible(s.Name))
		if count[s.Name] == 1 && s.Name != "" && quote(s.Name) == s.Name {
			offer(s.Name, visible(s.SessionID))
		}
	}
	return offers
}

// completeExecs offers the ids of the commands of those sessions, each with its
// outcome and its label.
func (a *app) completeExecs(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var ids []string
	a.eachSession(func(ctx context.Context, c *client.Client, s *api.Session) {
		list, err := c.ExecList(ctx, api.SessionParams{SessionID: s.SessionID})
		if err != nil {
			return // it has just ended, or the time is up
		}
		for _, e := range list.Execs {
			description := outcomeText(&e) + " in " + s.SessionID
			if e.Label != "" {
				description += ": " + e.Label
			}
			if strings.HasPrefix(e.ExecID, prefix) {
				ids = append(ids, cobra.CompletionWithDesc(visible(e.ExecID), visible(description)))
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

// completePlaces offers the runtimes of the places.
func (a *app) completePlaces(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return placeCompletions(a.places(), prefix), cobra.ShellCompDirectiveNoFileComp
}

// completeRuntimes offers where a session can run: the places, and this machine.
func (a *app) completeRuntimes(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	offers := placeCompletions(a.places(), prefix)
	if host := api.RuntimeHost; strings.HasPrefix(host, prefix) {
		offers = append(offers, cobra.CompletionWithDesc(api.RuntimeHost, "the daemon's machine"))
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}

// placeCompletions returns the runtimes that a shell reads as they are, each with
// its state.
func placeCompletions(places []api.Place, prefix string) (offers []string) {
	for i := range places {
		if p := &places[i]; strings.HasPrefix(p.Runtime, prefix) && quote(p.Runtime) == p.Runtime {
			offers = append(offers, cobra.CompletionWithDesc(p.Runtime, visible(string(p.State))))
		}
	}
	return offers
}

// places returns the places to offer; none without a daemon.
func (a *app) places() []api.Place {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	c, err := a.connect(ctx)
	if err != nil {
		return nil
	}
	defer c.Close()
	list, err := c.Places(ctx)
	if err != nil {
		return nil // an older daemon, or the time is up
	}
	return list.Places
}
