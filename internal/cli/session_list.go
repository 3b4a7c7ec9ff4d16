package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/units"
)

// sessionFilter are the flags that select the sessions of a list.
type sessionFilter struct {
	state, tag string
	all, mine  bool
}

func (f *sessionFilter) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.tag, "tag", "", "only sessions with `TAG`")
	cmd.Flags().BoolVarP(&f.all, "all", "a", false, "include sessions that have ended")
	cmd.Flags().BoolVar(&f.mine, "mine", false, "only sessions that you created yourself, not your agents")
}

// listSessions calls show with the sessions that the filter selects, or prints
// them as data.
func (a *app) listSessions(ctx context.Context, f sessionFilter, show func([]api.Session) error) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	params := api.SessionListParams{State: api.State(f.state), Tag: f.tag, Alive: !f.all && f.state == ""}
	if f.mine {
		return a.listMine(ctx, c, params, show)
	}
	return callOn(ctx, a, c, api.MethodSessionList, params, func(list *api.SessionListResult) error { return show(list.Sessions) })
}

// listMine is listSessions for those that the caller's account created without
// the name of a client.
func (a *app) listMine(ctx context.Context, c *client.Client, params api.SessionListParams, show func([]api.Session) error) error {
	ping, err := c.Ping(ctx)
	if err != nil {
		return err
	}
	var list struct {
		Sessions []json.RawMessage `json:"sessions"`
	}
	if err := c.Call(ctx, api.MethodSessionList, params, &list); err != nil {
		return err
	}
	raws, mine := list.Sessions[:0], []api.Session{}
	for _, raw := range list.Sessions {
		var session api.Session
		if err := json.Unmarshal(raw, &session); err != nil {
			return err
		}
		if session.Owner == ping.Caller {
			raws, mine = append(raws, raw), append(mine, session)
		}
	}
	if a.json {
		list.Sessions = raws
		return a.printValue(list)
	}
	return show(mine)
}

// printNone says that the list is empty.
func (f *sessionFilter) printNone(a *app) error {
	switch {
	case f.state != "" || f.tag != "" || f.mine:
		return a.printEmpty("no such session; `trl ps -a` lists all of them")
	case f.all:
		return a.printEmpty("no sessions; `trl session create` makes one")
	default:
		return a.printEmpty("no sessions; `trl session create` makes one, -a lists those that have ended")
	}
}

func (a *app) sessionListCommand() *cobra.Command {
	var filter sessionFilter
	var quiet bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the sessions",
		Long: "List the sessions, oldest first. It omits sessions that have ended, unless you\n" +
			"ask for them with --all or --state; --json always includes them.",
		Example: "  trl session list --tag ci\n  trl session list --format '{{.session_id}} {{.name}}'",
		Aliases: []string{"ls"},
	}
	filter.register(cmd)
	cmd.Flags().StringVar(&filter.state, "state", "", "only those in `STATE`: creating, idle, running, terminated")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only ids")
	cmd.RunE = action(exactArgs(), func(ctx context.Context, _ []string) error {
		filter.all = filter.all || a.json && a.format.template == nil
		return a.listSessions(ctx, filter, func(sessions []api.Session) error {
			switch {
			case quiet:
				return a.printSessionIDs(sessions)
			case len(sessions) == 0:
				return filter.printNone(a)
			}
			return a.showSessions(sessions, time.Now())
		})
	})
	return cmd
}

func (a *app) printSessionIDs(sessions []api.Session) error {
	for _, s := range sessions {
		if _, err := fmt.Fprintln(a.stdout, visible(s.SessionID)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) showSessions(sessions []api.Session, now time.Time) error {
	t := newTable(a.stdout, "ID", "NAME", "STATE", "SHELL", "PID", "EXECS", "AGE", "IDLE", "OWNER", "CWD")
	t.style(2, stateStyle)
	t.keepEnd(9)
	for _, s := range sessions {
		idle := ""
		if s.State == api.StateIdle {
			idle = ageText(s.LastActivityAt, now)
		}
		t.row(s.SessionID, s.Name, stateText(s), program(s), pidText(s.PID), strconv.FormatInt(s.ExecCount, 10), ageText(s.CreatedAt, now), idle, s.Owner, s.Cwd)
	}
	return t.flush()
}

// ageText returns how long ago t was, or "" if that is unknown.
func ageText(t api.Time, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return units.Age(now.Sub(t.Time))
}

// States of a session that only tables have.
const (
	stateUnreadable = "unreadable"
	stateEnding     = "ending"
)

// stateText returns the state of a session for a table.
func stateText(s api.Session) string {
	switch {
	case s.Unreadable != "" && s.Terminated == nil:
		return stateUnreadable
	case s.Ending:
		return stateEnding
	}
	return string(s.State)
}

// program returns what a session runs.
func program(s api.Session) string {
	if len(s.Argv) > 0 {
		return quoteAll(s.Argv)
	}
	return s.Shell
}

func pidText(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
