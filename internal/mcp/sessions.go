package mcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

type sessionsArguments struct {
	Session string `json:"session,omitempty" jsonschema:"only this session, with more of its commands"`
	All     bool   `json:"all,omitempty" jsonschema:"also the sessions of other agents and people"`
}

// listing is the reply of the tool sessions.
type listing struct {
	Sessions []sessionEntry `json:"sessions" jsonschema:"live and recently ended sessions"`
	Places   []placeEntry   `json:"places,omitempty" jsonschema:"where sessions can run, if not only on this machine"`
	More     int            `json:"more,omitempty" jsonschema:"number of sessions that are not shown"`
	Scope    string         `json:"scope,omitempty" jsonschema:"scope of these sessions"`
}

type sessionEntry struct {
	Session   string      `json:"session" jsonschema:"name to use in other tools"`
	ID        string      `json:"id" jsonschema:"id of the session"`
	Owner     string      `json:"owner,omitempty" jsonschema:"who created it, if not you"`
	State     string      `json:"state" jsonschema:"creating|idle|running|terminated: state of the session"`
	Place     string      `json:"place,omitempty" jsonschema:"where it runs, if not on this machine"`
	Sandbox   string      `json:"sandbox,omitempty" jsonschema:"what confines it"`
	Cwd       string      `json:"cwd,omitempty" jsonschema:"its directory"`
	TTY       bool        `json:"tty,omitempty" jsonschema:"it has a terminal"`
	Holder    string      `json:"held_by,omitempty" jsonschema:"client that holds its keyboard"`
	Waiting   *waiting    `json:"waiting,omitempty" jsonschema:"what its command waits for"`
	Ended     string      `json:"ended,omitempty" jsonschema:"why it ended"`
	Execs     []execEntry `json:"execs,omitempty" jsonschema:"its last commands, oldest first"`
	Earlier   int         `json:"earlier,omitempty" jsonschema:"number of commands before those"`
	Processes []process   `json:"left_running,omitempty" jsonschema:"processes that ended commands left running"`
}

type execEntry struct {
	Exec     string  `json:"exec" jsonschema:"id of the command"`
	Label    string  `json:"label,omitempty" jsonschema:"its label"`
	Status   string  `json:"status" jsonschema:"state in words"`
	ExitCode *int    `json:"exit_code,omitempty" jsonschema:"once it has ended"`
	Size     int64   `json:"size" jsonschema:"bytes of output"`
	Ago      float64 `json:"seconds_ago" jsonschema:"seconds since it started"`
}

const (
	// fewExecs and manyExecs are how many commands of a session are listed: among
	// other sessions, and alone.
	fewExecs, manyExecs = 4, 25
	// entryBytes is the cost of the field names for each line.
	entryBytes = 60
)

func (s *server) sessions(ctx context.Context, c *call, a sessionsArguments) (*listing, error) {
	out := &listing{Sessions: []sessionEntry{}, Scope: s.Scope}
	chosen, execs := []api.Session{}, fewExecs
	var away []api.Unreachable
	switch {
	case a.Session != "":
		session, err := s.findExisting(ctx, a.Session)
		if err != nil {
			return nil, err
		}
		chosen, execs = append(chosen, *session), manyExecs
	case a.All:
		list, err := callMethod[api.SessionListResult](ctx, s, api.MethodSessionList, api.SessionListParams{})
		if err != nil {
			return nil, err
		}
		chosen, away, out.Scope = list.Sessions, list.Unreachable, ""
	default:
		mine, err := s.ownSessions(ctx)
		if err != nil {
			return nil, err
		}
		chosen, away = mine.Sessions, mine.Unreachable
	}
	if a.Session == "" {
		var err error
		if out.Places, err = s.placeEntries(ctx, away); err != nil {
			return nil, err
		}
	}
	// Live sessions come first, the most recently used first.
	slices.SortStableFunc(chosen, func(a, b api.Session) int {
		if a, b := a.State == api.StateTerminated, b.State == api.StateTerminated; a != b {
			if a {
				return 1
			}
			return -1
		}
		return b.LastActivityAt.Compare(a.LastActivityAt.Time)
	})
	room := c.room.all
	for i := range out.Places {
		room -= cost(out.Places[i].text()) + entryBytes
	}
	for i, session := range chosen {
		if room <= 0 {
			out.More = len(chosen) - i
			break
		}
		most := execs
		if session.State == api.StateTerminated && a.Session == "" {
			most = 1 // enough to ask for the others
		}
		e, err := s.entryOf(ctx, session.SessionID, most)
		if api.IsCode(err, api.CodeSessionNotFound) || api.IsCode(err, api.CodeRuntimeUnavailable) && a.Session == "" {
			continue // the daemon has removed it meanwhile, or its place is gone
		}
		if err != nil {
			return nil, err
		}
		out.Sessions = append(out.Sessions, *e)
		room -= cost(e.text()) + entryBytes*(1+len(e.Execs)+len(e.Processes))
	}
	return out, nil
}

func (s *server) entryOf(ctx context.Context, id string, execs int) (*sessionEntry, error) {
	info, err := callMethod[api.SessionInfo](ctx, s, api.MethodSessionInfo, api.SessionParams{SessionID: id})
	if err != nil {
		return nil, err
	}
	list, err := callMethod[api.ExecListResult](ctx, s, api.MethodExecList, api.SessionParams{SessionID: id})
	if err != nil {
		return nil, err
	}
	e := &sessionEntry{
		ID: id, State: string(info.State), Cwd: info.Cwd, TTY: info.TTY != nil,
		Earlier: max(len(list.Execs)-execs, 0),
	}
	if e.Session, err = s.displayName(ctx, &info.Session); err != nil {
		return nil, err
	}
	e.Place, e.Sandbox = placeOf(&info.Session), confinedBy(info.Isolation)
	if caller, err := s.caller(ctx); err != nil || api.Account(info.Owner) != caller {
		e.Owner = info.Owner
	}
	if info.Held != nil {
		e.Holder = info.Held.Holder
	}
	if info.Waiting != nil {
		e.Waiting = waitingOf(info.Waiting)
	}
	if info.Terminated != nil {
		e.Ended = info.Terminated.Reason
	}
	for _, x := range list.Execs[e.Earlier:] {
		e.Execs = append(e.Execs, execEntry{
			Exec: x.ExecID, Label: x.Label, Status: status(&x), ExitCode: x.ExitCode, Size: x.StdoutBytes + x.StderrBytes,
			Ago: time.Since(x.StartedAt.Time).Round(time.Second).Seconds(),
		})
	}
	var left []api.Process
	for _, p := range info.Processes {
		if p.Role == "" && p.ExecID != info.ExecID {
			left = append(left, p)
		}
	}
	e.Processes = processList(left)
	return e, nil
}

func (l *listing) text() string {
	var b strings.Builder
	for i := range l.Places {
		b.WriteString(l.Places[i].text())
	}
	if len(l.Sessions) == 0 {
		b.WriteString("no sessions yet: run creates one")
	}
	for _, s := range l.Sessions {
		b.WriteString(s.text())
	}
	if l.More > 0 {
		fmt.Fprintf(&b, "[trl: %d more sessions]\n", l.More)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (s *sessionEntry) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s · %s", printable.Word(s.Session), s.State)
	if s.Ended != "" {
		fmt.Fprintf(&b, " (%s)", s.Ended)
	}
	if s.Place != "" {
		b.WriteString(" · " + printable.Word(s.Place))
	}
	if s.Sandbox != "" {
		b.WriteString(" · confined by " + printable.Word(s.Sandbox))
	}
	if s.Cwd != "" {
		b.WriteString(" · " + printable.Word(s.Cwd))
	}
	if s.TTY {
		b.WriteString(" · terminal")
	}
	if s.Holder != "" {
		b.WriteString(" · keyboard held by " + printable.Word(s.Holder))
	}
	if s.Owner != "" {
		b.WriteString(" · owned by " + printable.Word(s.Owner))
	}
	if s.Session != s.ID {
		b.WriteString(" · " + s.ID)
	}
	b.WriteByte('\n')
	if s.Waiting != nil {
		fmt.Fprintf(&b, "  waits for %s: %s\n", s.Waiting.For, s.Waiting)
	}
	if s.Earlier > 0 {
		fmt.Fprintf(&b, "  (%d earlier commands)\n", s.Earlier)
	}
	for _, x := range s.Execs {
		fmt.Fprintf(&b, "  %s · %s · %s ago · %s", x.Exec, x.Status, time.Duration(x.Ago)*time.Second, formatBytes(x.Size))
		if x.Label != "" {
			b.WriteString(" · " + printable.Word(x.Label))
		}
		b.WriteByte('\n')
	}
	for _, p := range s.Processes {
		b.WriteString("  left running: " + p.String() + "\n")
	}
	return b.String()
}
