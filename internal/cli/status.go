package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/doctor"
	"github.com/terminal-runtime/trl/internal/units"
)

const (
	// maxStatusRows is how many running commands `trl status` shows: it fits on
	// one screen.
	maxStatusRows = 8
	// nearlyFull is the percentage of max_sessions from which it is a finding.
	nearlyFull = 90
)

// statusResult is the result of `trl status`.
type statusResult struct {
	Version      string            `json:"version"`
	PID          int               `json:"pid"`
	UptimeMS     int64             `json:"uptime_ms"`
	Socket       string            `json:"socket,omitempty"`
	HTTP         string            `json:"http,omitempty"`
	Sessions     map[api.State]int `json:"sessions"`
	MaxSessions  int64             `json:"max_sessions,omitempty"`
	ExecsRunning int               `json:"execs_running"`
	Memory       int64             `json:"memory_bytes"`
	OutputMemory int64             `json:"journal_memory_bytes"`
	OutputOnDisk int64             `json:"journal_spilled_bytes"`
	Running      []api.Session     `json:"running"`  // the longest running first
	Findings     []doctor.Finding  `json:"findings"` // notes and problems
}

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the daemon, its sessions and its problems",
		Long: "Show on one screen the daemon, its sessions and the commands that run longest,\n" +
			"and what needs attention: sessions that the daemon could not take over, commands\n" +
			"that wait for input, a limit that is nearly reached, another version.\n\n" +
			"`trl ps` lists all sessions, and `trl doctor` checks the machine.",
		RunE: action(exactArgs(), func(ctx context.Context, _ []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			status, err := a.status(ctx, c)
			if err != nil {
				return err
			}
			if a.json {
				return a.printValue(status)
			}
			return a.showStatus(status, time.Now())
		}),
	}
}

// status asks the daemon. However many sessions there are, it makes a few calls
// only.
func (a *app) status(ctx context.Context, c *client.Client) (*statusResult, error) {
	info, err := c.SystemInfo(ctx)
	if err != nil {
		return nil, err
	}
	stats, err := c.Stats(ctx)
	if err != nil {
		return nil, err
	}
	list, err := c.ListSessions(ctx, api.SessionListParams{Alive: true})
	if err != nil {
		return nil, err
	}
	status := &statusResult{
		Version: info.Version, PID: info.PID, UptimeMS: stats.UptimeMS,
		Sessions: stats.Sessions, ExecsRunning: stats.ExecsRunning,
		Memory: stats.Memory, OutputMemory: stats.JournalMemory, OutputOnDisk: stats.JournalSpilled,
		Running: longestRunning(list.Sessions), Findings: []doctor.Finding{},
	}
	status.Socket, _ = info.Config["socket"].(string)
	status.HTTP, _ = info.Config["http"].(string)
	if limit, ok := info.Config["max_sessions"].(float64); ok { // as JSON numbers arrive
		status.MaxSessions = int64(limit)
	}
	status.examine(list.Sessions)
	if a.daemonAddress() == "" && status.Version != buildVersion() {
		status.note("version", "trl upgrade", "the daemon is version %s, but this program is version %s", status.Version, buildVersion())
	}
	if err := status.findWaiting(ctx, c); err != nil {
		return nil, err
	}
	return status, nil
}

// longestRunning returns the sessions whose commands have been running longest.
func longestRunning(sessions []api.Session) []api.Session {
	running := []api.Session{}
	for _, s := range sessions {
		if s.State == api.StateRunning {
			running = append(running, s)
		}
	}
	slices.SortStableFunc(running, func(s, t api.Session) int { return s.LastActivityAt.Compare(t.LastActivityAt.Time) })
	return running[:min(len(running), maxStatusRows)]
}

func (s *statusResult) note(check, run, format string, args ...any) {
	s.Findings = append(s.Findings, doctor.Finding{Check: check, Grade: doctor.Note, Message: fmt.Sprintf(format, args...), Run: run})
}

// examine adds what the list of the sessions shows.
func (s *statusResult) examine(sessions []api.Session) {
	if unreadable := doctor.Sessions(sessions); unreadable.Grade != doctor.OK {
		s.Findings = append(s.Findings, unreadable)
	}
	if living := int64(len(sessions)); s.MaxSessions > 0 && living*100 >= s.MaxSessions*nearlyFull {
		s.note("limit", "trl ps # and trl session destroy", "%d of at most %d sessions (max_sessions) are in use", living, s.MaxSessions)
	}
}

// findWaiting adds the commands that wait for input. It looks only at those that
// it shows, so that its cost does not grow with the number of sessions.
func (s *statusResult) findWaiting(ctx context.Context, c *client.Client) error {
	for _, session := range s.Running {
		if session.TTY == nil { // only a terminal tells
			continue
		}
		screen, err := c.Screen(ctx, api.SessionScreenParams{SessionID: session.SessionID, Format: api.ScreenText})
		switch {
		case api.IsCode(err, api.CodeSessionTerminated) || api.IsCode(err, api.CodeSessionNotFound):
			continue // ended since the list
		case err != nil:
			return err
		}
		if screen.Waiting != nil {
			s.note("waiting", "trl attach --write "+session.SessionID, "the command in %s waits for %s", sessionText(session), screen.Waiting.For)
		}
	}
	return nil
}

// sessionText names a session in a sentence.
func sessionText(s api.Session) string {
	if s.Name == "" {
		return s.SessionID
	}
	return s.SessionID + " (" + s.Name + ")"
}

func (a *app) showStatus(s *statusResult, now time.Time) error {
	t := newTable(a.stdout)
	t.row("daemon", fmt.Sprintf("version %s, pid %d, up for %s", s.Version, s.PID, units.Age(time.Duration(s.UptimeMS)*time.Millisecond)))
	if s.Socket != "" {
		t.row("socket", s.Socket)
	}
	if s.HTTP != "" {
		t.row("http", s.HTTP)
	}
	t.row("sessions", sessionCounts(s.Sessions))
	t.row("commands", fmt.Sprintf("%d running", s.ExecsRunning))
	t.row("memory", fmt.Sprintf("%s, of which %s hold output; %s of output on disk", units.Size(s.Memory), units.Size(s.OutputMemory), units.Size(s.OutputOnDisk)))
	if len(s.Findings) == 0 {
		t.row("problems", "none")
	}
	if err := t.flush(); err != nil {
		return err
	}
	if len(s.Findings) > 0 {
		fmt.Fprintln(a.stdout)
		if err := a.showFindingTable(s.Findings); err != nil {
			return err
		}
	}
	if len(s.Running) == 0 {
		return nil
	}
	fmt.Fprintln(a.stdout)
	if err := a.showActivity(s.Running, now); err != nil {
		return err
	}
	if more := s.ExecsRunning - len(s.Running); more > 0 {
		fmt.Fprintf(a.stdout, "and %d more: `trl ps` lists them all\n", more)
	}
	return nil
}

// sessionCounts counts sessions by state in words.
func sessionCounts(by map[api.State]int) string {
	text := fmt.Sprintf("%d idle, %d running, %d ended and kept", by[api.StateIdle], by[api.StateRunning], by[api.StateTerminated])
	if starting := by[api.StateCreating]; starting > 0 {
		text = fmt.Sprintf("%d starting, ", starting) + text
	}
	return text
}
