package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
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
	var raw json.RawMessage
	if err := c.Call(ctx, api.MethodSessionList, params, &raw); err != nil {
		return err
	}
	var list sessionList
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	if f.mine {
		ping, err := c.Ping(ctx)
		if err != nil {
			return err
		}
		if list, err = list.ownedBy(ping.Caller); err != nil {
			return err
		}
	}
	switch {
	case a.json && a.format.template == nil && !f.mine:
		return a.printJSON(raw)
	case a.json && a.format.template == nil:
		return a.printValue(list)
	}
	a.reportUnreachable(list.Unreachable, time.Now())
	if a.json { // a template gets the sessions one by one
		return a.printValue(sessionList{Sessions: list.Sessions})
	}
	sessions := make([]api.Session, len(list.Sessions))
	for i := range sessions {
		if err := json.Unmarshal(list.Sessions[i], &sessions[i]); err != nil {
			return err
		}
	}
	return show(sessions)
}

// sessionList is the answer to session.list with the sessions as they came, so
// that --json shows what a later version adds to them.
type sessionList struct {
	Sessions    []json.RawMessage `json:"sessions"`
	Unreachable []api.Unreachable `json:"unreachable,omitempty"`
}

// ownedBy returns the sessions that the account created without the name of a
// client.
func (l sessionList) ownedBy(account string) (sessionList, error) {
	mine := sessionList{Sessions: []json.RawMessage{}, Unreachable: l.Unreachable}
	for _, raw := range l.Sessions {
		var session struct {
			Owner string `json:"owner"`
		}
		if err := json.Unmarshal(raw, &session); err != nil {
			return mine, err
		}
		if session.Owner == account {
			mine.Sessions = append(mine.Sessions, raw)
		}
	}
	return mine, nil
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
	t := newSessionTable(a.stdout, sessions, "ID", "NAME", "STATE", "SHELL", "PID", "EXECS", "AGE", "IDLE", "OWNER")
	t.style(2, stateStyle)
	for _, s := range sessions {
		idle := ""
		if s.State == api.StateIdle {
			idle = ageText(s.LastActivityAt, now)
		}
		t.row(s, s.SessionID, s.Name, stateText(s), program(s), pidText(s.PID), strconv.FormatInt(s.ExecCount, 10), ageText(s.CreatedAt, now), idle, s.Owner)
	}
	return t.flush()
}

// sessionTable is a table of sessions. Its last columns say where each session
// is: its place, if any of them is in one, what confines it, if any of them is
// confined, and its directory.
type sessionTable struct {
	*table
	places, confined bool
}

func newSessionTable(w io.Writer, sessions []api.Session, headings ...string) *sessionTable {
	t := &sessionTable{places: slices.ContainsFunc(sessions, elsewhere), confined: slices.ContainsFunc(sessions, confined)}
	if t.places {
		headings = append(headings, "RUNTIME")
	}
	if t.confined {
		headings = append(headings, "SANDBOX")
	}
	t.table = newTable(w, append(headings, "CWD")...)
	t.keepEnd(len(headings))
	return t
}

func (t *sessionTable) row(s api.Session, cells ...string) {
	if t.places {
		cells = append(cells, cmp.Or(s.Runtime, api.RuntimeHost))
	}
	if t.confined && s.Isolation != nil {
		cells = append(cells, sandboxText(s.Isolation))
	} else if t.confined {
		cells = append(cells, "")
	}
	t.table.row(append(cells, s.Cwd)...)
}

// elsewhere reports whether a session runs in a place.
func elsewhere(s api.Session) bool { return s.Runtime != "" && s.Runtime != api.RuntimeHost }

// confined reports whether a session is isolated.
func confined(s api.Session) bool { return s.Isolation != nil }

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
