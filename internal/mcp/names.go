package mcp

import (
	"context"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
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

func (s *server) tag() string { return scopeTag + s.Scope }

// mine are the sessions of the scope, oldest first.
func (s *server) mine(ctx context.Context) ([]api.Session, error) {
	list, err := ask[api.SessionListResult](ctx, s, api.MethodSessionList, api.SessionListParams{Tag: s.tag()})
	if err != nil {
		return nil, err
	}
	return list.Sessions, nil
}

// isID says whether a word is an id that the daemon made.
func isID(word, prefix string) bool {
	rest, ok := strings.CutPrefix(word, prefix)
	return ok && len(rest) == 10 && !strings.ContainsAny(rest, "-_ ")
}

// find is the session of a name in the scope, or of an id anywhere. One that has
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
func (s *server) open(ctx context.Context, word string, tty bool) (*api.Session, error) {
	session, err := s.find(ctx, word)
	switch {
	case err != nil:
		return nil, err
	case session == nil, session.State == api.StateTerminated && !isID(word, "s-"):
		return s.create(ctx, word, tty)
	case tty && session.TTY == nil:
		return nil, api.Errorf(api.CodeInvalidParams, "session %q has no terminal", word).
			WithHint("give another session name with tty: true, or leave session out")
	}
	return session, nil
}

func (s *server) create(ctx context.Context, name string, tty bool) (*api.Session, error) {
	params := api.SessionCreateParams{
		Name: name, Cwd: s.Cwd, Env: s.Env, Shell: s.Shell,
		Tags: append(slices.Clone(s.Tags), s.tag()),
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

// calledBy is what a model calls a session by: its name where that is enough.
func (s *server) calledBy(session *api.Session) string {
	if session.Name != "" && slices.Contains(session.Tags, s.tag()) {
		return session.Name
	}
	return session.SessionID
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
