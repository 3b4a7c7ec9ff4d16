package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/console"
)

// A reference names a session or a command the way people do: by its id, by the
// beginning of its id, or, for a session, by its name. The daemon knows ids
// only, so a reference that is no whole id costs a list.

const (
	sessionPrefix = "s-"
	execPrefix    = "e-"
	// idLetters is the length of the random part at the end of an id.
	idLetters = 10
)

// isWholeID reports whether ref has the form of a whole id with the prefix:
// s-LETTERS or s-NODE-LETTERS.
func isWholeID(ref, prefix string) bool {
	rest, ok := strings.CutPrefix(ref, prefix)
	if !ok || len(rest) < idLetters {
		return false
	}
	node, random := rest[:len(rest)-idLetters], rest[len(rest)-idLetters:]
	if node != "" && (node == "-" || !strings.HasSuffix(node, "-")) {
		return false
	}
	return strings.Trim(random, "0123456789abcdefghijklmnopqrstuv") == ""
}

// referenceError reports a reference that names nothing, or several things.
type referenceError struct{ api *api.Error }

func (e *referenceError) Error() string { return e.api.Error() }
func (e *referenceError) Unwrap() error { return e.api }

// withSession connects to the daemon and calls fn with the id of the session
// that ref names.
func (a *app) withSession(ctx context.Context, ref string, fn func(c *client.Client, id string) error) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	id, err := findSession(ctx, c, ref)
	if err != nil {
		return err
	}
	return repeatSession(ref, fn(c, id))
}

// findSession returns the id of the session that ref names: a whole id, the
// name of a living session, or the beginning of an id. What only sessions that
// have ended match names one of them if it is the only one.
func findSession(ctx context.Context, c *client.Client, ref string) (string, error) {
	if isWholeID(ref, sessionPrefix) {
		return ref, nil
	}
	list, err := c.ListSessions(ctx, api.SessionListParams{})
	if err != nil {
		return "", err
	}
	id, err := matchSession(list.Sessions, ref)
	if api.IsCode(err, api.CodeSessionNotFound) && len(list.Unreachable) > 0 {
		return "", sessionOutOfReach(ref, list.Unreachable)
	}
	return id, err
}

// sessionOutOfReach reports a reference that fits no listed session while places
// are out of reach: the session may be in one of them.
func sessionOutOfReach(ref string, away []api.Unreachable) error {
	var runtimes []string
	for i := range away {
		runtimes = append(runtimes, away[i].Runtime)
	}
	return &referenceError{api.Errorf(api.CodeRuntimeUnavailable, "no session %q here; it may be in %s, which can't be reached now (%s)",
		ref, strings.Join(runtimes, " or "), away[0].Reason).With("runtime", away[0].Runtime).With("reason", away[0].Reason).
		WithHint("`trl place check %s` tries again and says what to do; an id reaches its session without a list", quote(away[0].Runtime))}
}

// matchSession returns the id of the one session that ref names.
func matchSession(sessions []api.Session, ref string) (string, error) {
	named := func(s api.Session) bool { return s.Name == ref }
	begins := func(s api.Session) bool {
		return len(ref) > len(sessionPrefix) && strings.HasPrefix(s.SessionID, ref)
	}
	for _, living := range []bool{true, false} {
		for _, matches := range []func(api.Session) bool{named, begins} {
			var found []api.Session
			for _, s := range sessions {
				if (s.State != api.StateTerminated) == living && matches(s) {
					found = append(found, s)
				}
			}
			switch len(found) {
			case 0:
			case 1:
				return found[0].SessionID, nil
			default:
				return "", ambiguousSession(ref, found)
			}
		}
	}
	return "", noSession(ref)
}

// maxCandidates is how many of the sessions that fit a reference an error names.
const maxCandidates = 10

func ambiguousSession(ref string, found []api.Session) error {
	var ids []string
	for _, s := range found {
		id := s.SessionID
		if s.Cwd != "" {
			id += " in " + s.Cwd
		}
		ids = append(ids, id)
	}
	if more := len(ids) - maxCandidates; more > 0 {
		ids = append(ids[:maxCandidates], fmt.Sprintf("%d more", more))
	}
	return &referenceError{api.Errorf(api.CodeInvalidParams, "%q fits %d sessions: %s", ref, len(found), strings.Join(ids, ", ")).
		WithHint("use an id, or enough letters of it to tell them apart")}
}

func noSession(ref string) error {
	return &referenceError{api.Errorf(api.CodeSessionNotFound, "no session %q", ref).
		WithHint("`trl ps` lists the sessions; `trl session create --name NAME` makes a new one")}
}

// repeatSession returns err with ref in place of "this id", if the daemon has
// no such session: it never repeats what it was asked.
func repeatSession(ref string, err error) error {
	if found, ok := errors.AsType[*api.Error](err); ok && found.Code == api.CodeSessionNotFound && !errors.As(err, new(*referenceError)) {
		return noSession(ref)
	}
	return err
}

// execFlags are the arguments and flags that name a command: EXEC, or --last
// with or without a session.
type execFlags struct {
	session string
	last    bool
}

// register adds the flags to cmd.
func (f *execFlags) register(a *app, cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.last, "last", "l", false, "the last command, of the session given with -s or of all")
	cmd.Flags().StringVarP(&f.session, "session", "s", "", "the last command of `SESSION`")
	cmd.ValidArgsFunction = a.completeExecs
	must(cmd.RegisterFlagCompletionFunc("session", a.completeSessions))
}

// args requires EXEC, or one of the flags in its place.
func (f *execFlags) args(cmd *cobra.Command, args []string) error {
	if err := checkKind("SESSION", f.session); err != nil {
		return err
	}
	if !f.last && f.session == "" {
		if len(args) == 0 {
			return usage("EXEC is missing; --last names the last command, -s SESSION the last one of a session")
		}
		return exactArgs("EXEC")(cmd, args)
	}
	if len(args) > 0 {
		return usage("unexpected argument %q: --last and -s name the command", args[0])
	}
	return nil
}

// with connects to the daemon and calls fn with the id of the command.
func (f *execFlags) with(ctx context.Context, a *app, args []string, fn func(c *client.Client, id string) error) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if f.last || f.session != "" {
		id, err := lastExec(ctx, c, f.session)
		if err != nil {
			return err
		}
		return fn(c, id)
	}
	id, err := findExec(ctx, c, args[0])
	if err != nil {
		return err
	}
	return repeatExec(args[0], fn(c, id))
}

// findExec returns the id of the command that ref names: a whole id, or the
// beginning of one.
func findExec(ctx context.Context, c *client.Client, ref string) (string, error) {
	if isWholeID(ref, execPrefix) {
		return ref, nil
	}
	if len(ref) <= len(execPrefix) || !strings.HasPrefix(ref, execPrefix) {
		return "", noExec(ref)
	}
	var found []string
	err := eachExec(ctx, c, "", func(e *api.ExecResult) {
		if strings.HasPrefix(e.ExecID, ref) {
			found = append(found, e.ExecID)
		}
	})
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", noExec(ref)
	case len(found) > 1:
		slices.Sort(found)
		ids := found[:min(len(found), maxCandidates)]
		return "", &referenceError{api.Errorf(api.CodeInvalidParams, "%q fits %d commands: %s", ref, len(found), strings.Join(ids, ", ")).
			WithHint("use more letters of the id")}
	}
	return found[0], nil
}

// lastExec returns the command that was started last in the session, or in any
// session if it is "". What a prompt runs to complete words does not count.
func lastExec(ctx context.Context, c *client.Client, session string) (string, error) {
	if session != "" {
		id, err := findSession(ctx, c, session)
		if err != nil {
			return "", err
		}
		session = id
	}
	var last *api.ExecResult
	err := eachExec(ctx, c, session, func(e *api.ExecResult) {
		if e.Label != console.CompletionLabel && (last == nil || !e.StartedAt.Before(last.StartedAt.Time)) {
			last = e
		}
	})
	switch {
	case err != nil:
		return "", repeatSession(session, err)
	case last == nil && session != "":
		return "", &referenceError{api.Errorf(api.CodeExecNotFound, "session %s has run no command", session).
			WithHint("`trl run -s %s -- COMMAND` runs one", session)}
	case last == nil:
		return "", &referenceError{api.Errorf(api.CodeExecNotFound, "no session has run a command").
			WithHint("`trl run -s SESSION -- COMMAND` runs one")}
	}
	return last.ExecID, nil
}

// eachExec calls fn for each command of the session, or of all sessions if it
// is "".
func eachExec(ctx context.Context, c *client.Client, session string, fn func(*api.ExecResult)) error {
	ids := []string{session}
	if session == "" {
		list, err := c.ListSessions(ctx, api.SessionListParams{})
		if err != nil {
			return err
		}
		ids = ids[:0]
		for _, s := range list.Sessions {
			if s.ExecCount > 0 {
				ids = append(ids, s.SessionID)
			}
		}
	}
	for _, id := range ids {
		list, err := c.ExecList(ctx, api.SessionParams{SessionID: id})
		if err != nil {
			if session == "" && api.IsCode(err, api.CodeSessionNotFound) {
				continue // forgotten since the list
			}
			return err
		}
		for i := range list.Execs {
			fn(&list.Execs[i])
		}
	}
	return nil
}

func noExec(ref string) error {
	return &referenceError{api.Errorf(api.CodeExecNotFound, "no command %q; it may have expired", ref).
		WithHint("`trl exec list SESSION` lists the commands of a session")}
}

// repeatExec is repeatSession for a command.
func repeatExec(ref string, err error) error {
	if found, ok := errors.AsType[*api.Error](err); ok && found.Code == api.CodeExecNotFound && !errors.As(err, new(*referenceError)) {
		return noExec(ref)
	}
	return err
}
