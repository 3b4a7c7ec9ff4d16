package mcp

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

const (
	// mainSession is used when a call names none, and terminalSession when it
	// asks for a terminal.
	mainSession, terminalSession = "main", "terminal"
	// scopeTag is before the scope in a session's tags.
	scopeTag = "mcp:"
)

// terminal is the size of a terminal for a model: rows that it can read at once,
// and lines that are seldom broken.
var terminal = api.TTYSize{Rows: 40, Cols: 120}

// tag is the tag of the scope. A scope is mostly a directory, which may have any
// name; a tag may not.
func (s *server) tag() string {
	if !printable.Line(s.Scope) {
		return scopeTag + strconv.QuoteToASCII(s.Scope)
	}
	return scopeTag + s.Scope
}

// newTags are the tags that new sessions get.
func (s *server) newTags() []string { return append(slices.Clone(s.Tags), s.tag()) }

// caller is the account that the daemon takes this server's client for. "" means
// that the daemon is older than accounts.
func (s *server) caller(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.account == "" {
		ping, err := ask[api.PingResult](ctx, s, api.MethodSystemPing, nil)
		if err != nil {
			return "", err
		}
		s.account = ping.Caller
	}
	return s.account, nil
}

// isMine reports whether a session belongs to the account and the scope of this
// server. The tag alone does not say so: everybody may give it. Which client of
// the account made it does not matter: an agent may come back under another name
// or with none, and what a client calls itself proves nothing.
func (s *server) isMine(session *api.Session, caller string) bool {
	switch {
	case !slices.Contains(session.Tags, s.tag()):
		return false
	case caller == "":
		return true // no session of this daemon has an owner
	case session.Owner == "":
		// A daemon made it that was older than owners. Its tags are exactly those
		// that this server gives; a token that is bound to another tag could not
		// make one without that tag.
		return slices.Equal(session.Tags, s.newTags())
	}
	return api.Account(session.Owner) == caller
}

// mine are the sessions of the account and the scope, oldest first.
func (s *server) mine(ctx context.Context) ([]api.Session, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	list, err := ask[api.SessionListResult](ctx, s, api.MethodSessionList, api.SessionListParams{Tag: s.tag()})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Sessions, func(session api.Session) bool { return !s.isMine(&session, caller) }), nil
}

// isID says whether a word is an id that the daemon made.
func isID(word, prefix string) bool {
	rest, ok := strings.CutPrefix(word, prefix)
	return ok && len(rest) == 10 && !strings.ContainsAny(rest, "-_ ")
}

// find is the session of a name among its own, or of an id anywhere. One that has
// ended is found if no other has its name. nil: there is none.
func (s *server) find(ctx context.Context, word string) (*api.Session, error) {
	if isID(word, "s-") {
		info, err := ask[api.SessionInfo](ctx, s, api.MethodSessionInfo, api.SessionParams{SessionID: word})
		if err != nil {
			return nil, err
		}
		return &info.Session, nil
	}
	sessions, err := s.mine(ctx)
	if err != nil {
		return nil, err
	}
	var ended *api.Session
	for i, session := range sessions {
		switch {
		case session.Name != word:
		case session.State == api.StateTerminated:
			ended = &sessions[i]
		default:
			return &sessions[i], nil
		}
	}
	return ended, nil
}

// existing is find for a session that must be there.
func (s *server) existing(ctx context.Context, word string) (*api.Session, error) {
	session, err := s.find(ctx, word)
	if err == nil && session == nil {
		err = api.Errorf(api.CodeSessionNotFound, "there is no session %q here", word).
			WithHint("the tool sessions lists those there are; run makes one when it is named for the first time")
	}
	return session, err
}

// open is the session of a name, made now if there is none.
func (s *server) open(ctx context.Context, c *call, word string, tty bool) (*api.Session, error) {
	session, err := s.find(ctx, word)
	switch {
	case err != nil:
		return nil, err
	case session == nil, session.State == api.StateTerminated && !isID(word, "s-"):
		return s.create(ctx, c, word, tty)
	case tty && session.TTY == nil:
		return nil, api.Errorf(api.CodeInvalidParams, "session %q has no terminal", word).
			WithHint("give another session name with tty: true, or leave session out")
	}
	return session, nil
}

func (s *server) create(ctx context.Context, c *call, name string, tty bool) (*api.Session, error) {
	params := api.SessionCreateParams{Name: name, Cwd: s.Cwd, Env: s.Env, Shell: s.Shell, Tags: s.newTags()}
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	if caller != "" { // else the daemon is older than client, and refuses it
		params.Client = c.client()
	}
	if tty {
		params.TTY = &terminal
	}
	if params.Shell == "" {
		info, err := ask[api.SystemInfo](ctx, s, api.MethodSystemInfo, nil)
		if err != nil {
			return nil, err
		}
		if slices.Contains(info.Shells, "bash") {
			params.Shell = "bash"
		}
	}
	return ask[api.Session](ctx, s, api.MethodSessionCreate, params)
}

// client is what the client calls itself, as the daemon takes it.
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

// calledBy is what a model calls a session by: its name where that is enough.
func (s *server) calledBy(ctx context.Context, session *api.Session) (string, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return "", err
	}
	// Before names were checked they could be anything.
	if session.Name != "" && printable.Line(session.Name) && s.isMine(session, caller) {
		return session.Name, nil
	}
	return session.SessionID, nil
}

// look is how an exec stands now, without its output.
func (s *server) look(ctx context.Context, exec string) (*api.ExecResult, error) {
	return ask[api.ExecResult](ctx, s, api.MethodExecInfo, api.ExecParams{ExecID: exec})
}

// target is the exec that a call is about: the one it names, or the running or
// last one of the session it names.
func (s *server) target(ctx context.Context, exec, session string) (*api.ExecResult, error) {
	switch {
	case exec != "" && session != "":
		return nil, api.Errorf(api.CodeInvalidParams, "exec and session both say which command is meant: give one of them")
	case exec != "":
		return s.look(ctx, exec)
	case session == "":
		session = mainSession
	}
	found, err := s.existing(ctx, session)
	if err != nil {
		return nil, err
	}
	if found.ExecID != "" {
		return s.look(ctx, found.ExecID)
	}
	list, err := ask[api.ExecListResult](ctx, s, api.MethodExecList, api.SessionParams{SessionID: found.SessionID})
	if err != nil {
		return nil, err
	}
	if len(list.Execs) == 0 {
		return nil, api.Errorf(api.CodeExecNotFound, "no command has run in session %q yet", session)
	}
	return &list.Execs[len(list.Execs)-1], nil
}
