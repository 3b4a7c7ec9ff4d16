package cli

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
)

func (a *app) psCommand() *cobra.Command {
	var filter sessionFilter
	var quiet bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "Show what the sessions do",
		Long: "Show the living sessions: who created them, their state and since when, the\n" +
			"command that runs, and the directory. `trl session list` has other columns.",
		Example: "  trl ps\n" +
			"  trl ps --tag ci\n" +
			"  trl ps --format '{{.session_id}} {{.state}} {{.exec_label}}'",
	}
	filter.register(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only ids")
	cmd.RunE = action(exactArgs(), func(ctx context.Context, _ []string) error {
		return a.listSessions(ctx, filter, func(sessions []api.Session) error {
			switch {
			case quiet:
				return a.printSessionIDs(sessions)
			case len(sessions) == 0:
				return filter.printNone(a)
			}
			return a.showActivity(sessions, time.Now())
		})
	})
	return cmd
}

// showActivity shows what each session does.
func (a *app) showActivity(sessions []api.Session, now time.Time) error {
	t := newSessionTable(a.stdout, sessions, "ID", "NAME", "OWNER", "STATE", "FOR", "COMMAND")
	t.style(3, stateStyle)
	for _, s := range sessions {
		t.row(s, s.SessionID, s.Name, s.Owner, stateText(s), stateAge(s, now), runningText(s))
	}
	return t.flush()
}

// stateAge returns for how long a session has been in its state: its last
// activity was the beginning or the end of a command.
func stateAge(s api.Session, now time.Time) string {
	if s.Terminated != nil {
		return ageText(s.Terminated.At, now)
	}
	return ageText(s.LastActivityAt, now)
}

// runningText returns the label of the running command, or its id if it has none.
func runningText(s api.Session) string {
	if s.State != api.StateRunning {
		return ""
	}
	return cmp.Or(s.ExecLabel, s.ExecID)
}
