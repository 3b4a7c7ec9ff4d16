package mcp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

// bash is the shell that models know best.
const bash = "bash"

// defaultRuntimeSetting is the setting that says where a session runs whose
// creator does not care.
const defaultRuntimeSetting = "default_runtime"

// defaultRuntime returns where a session runs without a place.
func defaultRuntime(info *api.SystemInfo) string {
	if at, ok := info.Config[defaultRuntimeSetting].(string); ok && at != "" {
		return at
	}
	return api.RuntimeHost
}

// createInPlace creates a session somewhere else. Directory, environment and shell
// of this machine mean nothing there.
func (s *server) createInPlace(ctx context.Context, params api.SessionCreateParams) (*api.Session, error) {
	params.Env, params.Shell = s.PlaceEnv, bash
	session, err := callMethod[api.Session](ctx, s, api.MethodSessionCreate, params)
	if api.IsCode(err, api.CodeShellNotFound) {
		params.Shell = ""
		return callMethod[api.Session](ctx, s, api.MethodSessionCreate, params)
	}
	return session, err
}

// createAgain creates a session that does not exist, or has ended: then where it
// was. If it may still run in a place that is out of reach, it is not created
// elsewhere unless the model says where: the command could be meant for that
// place, and harm this machine.
func (s *server) createAgain(ctx context.Context, c *call, name string, w wish, f *found) (*api.Session, error) {
	if w.place == "" && len(f.away) > 0 {
		return nil, f.outOfReach(name)
	}
	if w.place == "" && f.session != nil {
		w.place = f.session.Runtime
	}
	if w.sandbox == "" && f.session != nil {
		w.sandbox = sandboxOf(f.session)
	}
	return s.create(ctx, c, name, w)
}

// outOfReach is the error for a session that may be in a place out of reach.
func (f *found) outOfReach(name string) error {
	var runtimes []string
	for i := range f.away {
		runtimes = append(runtimes, f.away[i].Runtime)
	}
	first := &f.away[0]
	return api.Errorf(api.CodeRuntimeUnavailable, "no session %q is in reach; it may run in %s, which can't be reached now: %s",
		name, strings.Join(runtimes, " or "), cmp.Or(first.Message, first.Reason)).
		With("runtime", first.Runtime).With("reason", first.Reason).
		WithHint("if it is there, it keeps running: try again later, or ask a person to run `trl place check %s`. If you mean a new session, say where: run with place: %q creates it on this machine",
			first.Runtime, api.RuntimeHost)
}

// isOutOfReach reports whether a call failed because the place of its session can't be
// reached. What runs there keeps running.
func isOutOfReach(err error) bool {
	return api.IsCode(err, api.CodeRuntimeUnavailable) && api.AsError(err).Details["runtime"] != nil
}

// asDone returns the error of a call that failed after it had an effect on a command.
// If the command's place went out of reach, the last request to the daemon could be
// repeated (sent: no), but the model must not repeat its call.
func asDone(err error, done, exec string) error {
	if !isOutOfReach(err) {
		return err
	}
	return whileAway(err, done).With("exec", exec).
		WithHint("do not repeat the call, the command may still run there: %s waits for its end", invoke(toolOutput, "exec", exec, "until", untilExit))
}

// asPossible returns the error of a call that may have started a command in a place
// that is out of reach.
func asPossible(err error) error {
	return whileAway(err, "the command may have been started").
		WithHint("repeat the call only if the tool %s shows, once the place is back, that the command did not run", toolSessions)
}

// whileAway returns the error of a call that was done, or perhaps, before the place
// went out of reach with err.
func whileAway(err error, done string) *api.Error {
	cause := api.AsError(err)
	return api.Errorf(api.CodeRuntimeUnavailable, "%s, but its place can't be reached now: %s", done, cause.Message).
		With("runtime", cause.Details["runtime"]).With("reason", cause.Details["reason"])
}

// placeEntry is a place in the reply of the tool sessions.
type placeEntry struct {
	Place     string   `json:"place" jsonschema:"what run takes as place"`
	State     string   `json:"state" jsonschema:"connected, idle (run connects), connecting or unreachable"`
	Default   bool     `json:"default,omitempty" jsonschema:"new sessions run here unless you give a place"`
	OS        string   `json:"os,omitempty" jsonschema:"operating system"`
	Arch      string   `json:"arch,omitempty" jsonschema:"processor"`
	User      string   `json:"user,omitempty" jsonschema:"user that commands run as"`
	Limits    []string `json:"limits,omitempty" jsonschema:"limits that can be enforced there"`
	Isolation []string `json:"isolation,omitempty" jsonschema:"isolations that can be enforced there"`
	Reason    string   `json:"reason,omitempty" jsonschema:"why it is unreachable"`
	Missing   bool     `json:"sessions_missing,omitempty" jsonschema:"its sessions are not listed, and may still run"`
}

// placeEntries returns the places where a session can run, this machine first.
// There are none if sessions run on this machine alone: that needs no words.
func (s *server) placeEntries(ctx context.Context, away []api.Unreachable) ([]placeEntry, error) {
	info, err := callMethod[api.SystemInfo](ctx, s, api.MethodSystemInfo, nil)
	if err != nil {
		return nil, err
	}
	if len(info.Places) == 0 && defaultRuntime(info) == api.RuntimeHost {
		return nil, nil
	}
	var entries []placeEntry
	if slices.Contains(info.Runtimes, api.RuntimeHost) {
		entries = append(entries, placeEntry{
			Place: api.RuntimeHost, State: string(api.PlaceConnected), OS: info.OS, Arch: info.Arch, Limits: info.Limits, Isolation: info.Isolates,
		})
	}
	for i := range info.Places {
		p := &info.Places[i]
		e := placeEntry{
			Place: p.Runtime, State: string(p.State), OS: p.OS, Arch: p.Arch, User: p.User,
			Limits: p.Limits, Isolation: p.Isolates, Reason: p.Reason,
		}
		if at := slices.IndexFunc(away, func(u api.Unreachable) bool { return u.Runtime == p.Runtime }); at >= 0 {
			e.State, e.Reason, e.Missing = string(api.PlaceUnreachable), away[at].Reason, true
		}
		entries = append(entries, e)
	}
	for i := range entries {
		entries[i].Default = entries[i].Place == defaultRuntime(info)
	}
	return entries, nil
}

func (p *placeEntry) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "place %s · %s", printable.Word(p.Place), p.State)
	if p.Reason != "" {
		fmt.Fprintf(&b, " (%s)", printable.Word(p.Reason))
	}
	if p.Missing {
		b.WriteString(", its sessions are not listed and may still run")
	}
	if p.OS != "" {
		b.WriteString(" · " + printable.Word(p.OS+"/"+p.Arch))
	}
	if p.User != "" {
		b.WriteString(" · user " + printable.Word(p.User))
	}
	if can := append(slices.Clone(p.Limits), p.Isolation...); len(can) > 0 {
		b.WriteString(" · enforces " + printable.Word(strings.Join(can, ",")))
	}
	if p.Default {
		b.WriteString(" · default")
	}
	b.WriteByte('\n')
	return b.String()
}

// placeOf returns the place that a session runs in, or "" on this machine.
func placeOf(session *api.Session) string {
	if session.Runtime == api.RuntimeHost {
		return ""
	}
	return session.Runtime
}
