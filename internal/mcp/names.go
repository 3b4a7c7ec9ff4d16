package mcp

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

const (
	// mainSession is the default session of a call, and terminalSession the
	// default of a call that asks for a terminal.
	mainSession, terminalSession = "main", "terminal"
	// scopeTag is the prefix of the scope in a session's tags.
	scopeTag = "mcp:"
)

// terminalSize is the size of a terminal for a model: few enough rows to read at
// once, and columns wide enough that lines seldom wrap.
var terminalSize = api.TTYSize{Rows: 40, Cols: 120}

// tag returns the tag of the scope. A scope is usually a directory, whose name can
// have characters that a tag must not have.
func (s *server) tag() string {
	if !printable.Line(s.Scope) {
		return scopeTag + strconv.QuoteToASCII(s.Scope)
	}
	return scopeTag + s.Scope
}

// newTags returns the tags for new sessions.
func (s *server) newTags() []string { return append(slices.Clone(s.Tags), s.tag()) }

// caller returns the account that the daemon assigns to this server's client. ""
// means that the daemon predates accounts.
func (s *server) caller(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.account == "" {
		ping, err := callMethod[api.PingResult](ctx, s, api.MethodSystemPing, nil)
		if err != nil {
			return "", err
		}
		s.account = ping.Caller
	}
	return s.account, nil
}

// isMine reports whether a session belongs to the account and the scope of this
// server. The tag alone does not prove it: any client can set it. Which client of
// the account made the session does not matter: an agent may come back under
// another name or with none, and client names are not verified.
func (s *server) isMine(session *api.Session, caller string) bool {
	switch {
	case !slices.Contains(session.Tags, s.tag()):
		return false
	case caller == "":
		return true // no session of this daemon has an owner
	case session.Owner == "":
		// It was made by a daemon that predates owners. Accept it only if its tags
		// are exactly those that this server sets: a token bound to another tag
		// could not create a session without that tag.
		return slices.Equal(session.Tags, s.newTags())
	}
	return api.Account(session.Owner) == caller
}

// ownSessions returns the sessions of the account and the scope, oldest first,
// and the places whose sessions are missing.
func (s *server) ownSessions(ctx context.Context) (*api.SessionListResult, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	list, err := callMethod[api.SessionListResult](ctx, s, api.MethodSessionList, api.SessionListParams{Tag: s.tag()})
	if err != nil {
		return nil, err
	}
	list.Sessions = slices.DeleteFunc(list.Sessions, func(session api.Session) bool { return !s.isMine(&session, caller) })
	return list, nil
}

// sessionIDForm matches the id of a session, with or without the name of a node. Parts
// of that name are shorter than the ten random characters at the end.
var sessionIDForm = regexp.MustCompile(`^s-([a-z0-9]{1,8}-){0,4}[a-z0-9]{10}$`)

// found is the result of a search for a session.
type found struct {
	session *api.Session // nil if there is none; it has ended only if no live one has the name
	away    []api.Unreachable
}

// usable reports whether the session can run commands.
func (f *found) usable() bool { return f.session != nil && f.session.State != api.StateTerminated }

// find returns the session with the given name among its own sessions, or with the
// given id among all. Of several with the name it prefers one in the given place,
// if that is not "".
func (s *server) find(ctx context.Context, word, place string) (*found, error) {
	if sessionIDForm.MatchString(word) {
		info, err := callMethod[api.SessionInfo](ctx, s, api.MethodSessionInfo, api.SessionParams{SessionID: word})
		if err != nil {
			return nil, err
		}
		return &found{session: &info.Session}, nil
	}
	list, err := s.ownSessions(ctx)
	if err != nil {
		return nil, err
	}
	f := &found{away: list.Unreachable}
	named := slices.DeleteFunc(list.Sessions, func(session api.Session) bool { return session.Name != word })
	for _, anywhere := range []bool{false, true} {
		for i := range named {
			if !f.usable() && (anywhere || named[i].Runtime == place) {
				f.session = &named[i]
			}
		}
	}
	return f, nil
}

// findExisting is like find, but returns an error if there is no session.
func (s *server) findExisting(ctx context.Context, word string) (*api.Session, error) {
	f, err := s.find(ctx, word, "")
	switch {
	case err != nil:
		return nil, err
	case f.session != nil:
		return f.session, nil
	case len(f.away) > 0:
		return nil, f.outOfReach(word)
	}
	return nil, api.Errorf(api.CodeSessionNotFound, "no session %q in this scope", word).
		WithHint("the tool sessions lists the sessions; run creates one when you name it for the first time")
}

// wish is what a session must be like.
type wish struct {
	place   string // where it runs; "": where it ran before, or the default
	sandbox string // the profile that confines it; "": the default, or what it has
	tty     bool
}

// findOrCreate returns the session with the given name, and creates it if there is
// none.
func (s *server) findOrCreate(ctx context.Context, c *call, word string, w wish) (*api.Session, error) {
	place := w.place
	f, err := s.find(ctx, word, place)
	switch {
	case err != nil:
		return nil, err
	case !f.usable() && !sessionIDForm.MatchString(word):
		return s.createAgain(ctx, c, word, w, f)
	case place != "" && f.session.Runtime != place:
		return nil, api.Errorf(api.CodeInvalidParams, "session %q runs in %s", word, f.session.Runtime).
			WithHint("give another session name for %s, or leave place out", place)
	case w.sandbox != "" && sandboxOf(f.session) != w.sandbox:
		return nil, api.Errorf(api.CodeInvalidParams, "session %q exists, and is not confined by %s", word, w.sandbox).
			WithHint("give another session name with sandbox: %q, or leave sandbox out", w.sandbox)
	case w.tty && f.session.TTY == nil:
		return nil, api.Errorf(api.CodeInvalidParams, "session %q has no terminal", word).
			WithHint("give another session name with tty: true, or leave session out")
	}
	return f.session, nil
}

func (s *server) create(ctx context.Context, c *call, name string, w wish) (*api.Session, error) {
	params := api.SessionCreateParams{Name: name, Runtime: w.place, Tags: s.newTags()}
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	if caller != "" { // else the daemon predates the parameter client, and would reject it
		params.Client = c.client()
	}
	if w.tty {
		params.TTY = &terminalSize
	}
	info, err := callMethod[api.SystemInfo](ctx, s, api.MethodSystemInfo, nil)
	if err != nil {
		return nil, err
	}
	if params.Isolation, err = confinement(info, w.sandbox); err != nil {
		return nil, err
	}
	if at := cmp.Or(w.place, defaultRuntime(info)); at != api.RuntimeHost {
		return s.createInPlace(ctx, params)
	}
	params.Cwd, params.Env, params.Shell = s.Cwd, s.Env, s.Shell
	if params.Shell == "" && slices.Contains(info.Shells, bash) {
		params.Shell = bash
	}
	return callMethod[api.Session](ctx, s, api.MethodSessionCreate, params)
}

// client returns the name of the client, with characters that the daemon rejects
// replaced.
func (c *call) client() string {
	info := c.request.ClientInfo()
	if info == nil {
		return ""
	}
	name := strings.Map(func(r rune) rune {
		if !api.IsClientName(string(r)) {
			return '-'
		}
		return r
	}, info.Name)
	return name[:min(len(name), api.MaxClientName)] // it is ASCII now
}

// displayName returns the name by which a model can address the session: its name
// if that finds it, else its id.
func (s *server) displayName(ctx context.Context, session *api.Session) (string, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return "", err
	}
	// Old daemons did not check names.
	if session.Name != "" && printable.Line(session.Name) && s.isMine(session, caller) {
		return session.Name, nil
	}
	return session.SessionID, nil
}

// execInfo returns the current state of an exec, without its output.
func (s *server) execInfo(ctx context.Context, exec string) (*api.ExecResult, error) {
	return callMethod[api.ExecResult](ctx, s, api.MethodExecInfo, api.ExecParams{ExecID: exec})
}

// target returns the exec that a call refers to: the given exec, or the running or
// last one of the given session.
func (s *server) target(ctx context.Context, exec, session string) (*api.ExecResult, error) {
	switch {
	case exec != "" && session != "":
		return nil, api.Errorf(api.CodeInvalidParams, "exec and session both name a command: give one of them")
	case exec != "":
		return s.execInfo(ctx, exec)
	case session == "":
		session = mainSession
	}
	found, err := s.findExisting(ctx, session)
	if err != nil {
		return nil, err
	}
	if found.ExecID != "" {
		return s.execInfo(ctx, found.ExecID)
	}
	list, err := callMethod[api.ExecListResult](ctx, s, api.MethodExecList, api.SessionParams{SessionID: found.SessionID})
	if err != nil {
		return nil, err
	}
	if len(list.Execs) == 0 {
		return nil, api.Errorf(api.CodeExecNotFound, "no command has run in session %q yet", session)
	}
	return &list.Execs[len(list.Execs)-1], nil
}
