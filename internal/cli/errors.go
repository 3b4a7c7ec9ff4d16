package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/printable"
	"github.com/terminal-runtime/trl/internal/spelling"
	"github.com/terminal-runtime/trl/internal/trust"
)

// The exit statuses that are not a command's. `run` has its own for failures
// of TRL, so that they are told from those of the command.
const (
	statusFailed    = 1
	statusUsage     = 2
	statusTimedOut  = 124 // as of timeout(1)
	statusRunFailed = 125 // as of env(1) and timeout(1)
	statusSignal    = 128 // and the number of the signal
)

// failure is an error of a command that was called rightly.
type failure struct {
	err    error
	status int
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// failed marks an error as a failure, unless it is marked already.
func asFailure(err error) error {
	if err == nil || hasExitStatus(err) {
		return err
	}
	return &failure{err: err, status: statusFailed}
}

func hasExitStatus(err error) bool {
	if _, ok := errors.AsType[*failure](err); ok {
		return true
	}
	if _, ok := errors.AsType[exitStatus](err); ok {
		return true
	}
	_, ok := errors.AsType[*usageError](err)
	return ok
}

// exitStatus ends the program with a status and without a word.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// usageError is a command line that makes no sense.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usage(format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...)}
}

// meant is the flag that was meant by one that does not exist.
func suggestFlag(cmd *cobra.Command, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || len(unknown.GetSpecifiedName()) < 3 { // of one letter any other is near
		return ""
	}
	var known []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { known = append(known, flag.Name) })
	if best, ok := spelling.Closest(unknown.GetSpecifiedName(), known); ok {
		return "; did you mean --" + best + "?"
	}
	return ""
}

// checkKind says so if an id is one of another kind of thing.
func checkKind(kind, id string) error {
	switch {
	case kind == "EXEC" && strings.HasPrefix(id, "s-"):
		return usage("%s is a session; `trl exec list %s` shows its commands", id, id)
	case kind == "SESSION" && strings.HasPrefix(id, "e-"):
		return usage("%s is a command; `trl session list` shows the sessions", id)
	}
	return nil
}

// localError is an error of this program's own, in the form of the daemon's.
// For people it goes without its code.
type localError struct{ api *api.Error }

func (e localError) Error() string { return e.api.Error() }
func (e localError) Unwrap() error { return e.api }

// refused is the error of a path, or of a process behind it, that is another
// user's.
func refusalError(r *trust.Refusal) error {
	return localError{api.Errorf(api.CodeRuntimeUnavailable, "%s", r.Message).WithHint("%s", r.Hint)}
}

// noDaemon explains why there is no connection.
func (a *app) noDaemonError(path string, err error) error {
	if refusal, ok := errors.AsType[*trust.Refusal](err); ok {
		return refusalError(refusal)
	}
	if errors.Is(err, fs.ErrPermission) {
		return localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon on %s is another user's, or its directory is", path).
			WithHint("run this as that user, as in `sudo -u USER trl …`; or `trl serve --socket PATH &` starts a daemon of your own")}
	}
	if !errors.Is(err, client.ErrNoDaemon) {
		return localError{api.Errorf(api.CodeRuntimeUnavailable, "cannot reach a daemon on %s: %w", path, err)}
	}
	serve := "trl serve"
	if a.socket != "" {
		serve += " --socket " + quote(a.socket)
	}
	none := api.Errorf(api.CodeRuntimeUnavailable, "no daemon is serving on %s — start one with `%s`", path, serve).
		WithHint("`%s --detach` starts it in the background", serve)
	none.Cause = err
	return localError{none}
}

// notThere is that nobody could be reached at an address that was given.
func unreachableError(err error) *api.Error {
	return api.Errorf(api.CodeRuntimeUnavailable, "%w", err).
		WithHint("the address is http://HOST:PORT, where `trl serve --http HOST:PORT` serves, or unix:PATH")
}

// report says what went wrong, and returns the exit status.
func (a *app) report(at *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	if status, ok := errors.AsType[exitStatus](err); ok {
		return int(status)
	}
	if f, ok := errors.AsType[*failure](err); ok {
		a.printError(f.err)
		return f.status
	}
	a.printError(localError{api.Errorf(api.CodeInvalidParams, "%w", err).
		WithHint("`%s --help` shows how it is used", at.CommandPath())})
	return statusUsage
}

// printError writes an error for a person, or with --json as the error object
// of the contract.
func (a *app) printError(err error) {
	var e *api.Error
	showCode := false
	local, ok := errors.AsType[localError](err)
	switch {
	case ok:
		e = local.api
	case errors.Is(err, client.ErrNoDaemon):
		e = unreachableError(err) // over HTTP the first call finds out
	case errors.Is(err, client.ErrClosed) && !api.IsCode(err, api.CodeUnauthorized):
		// The daemon may have said why before it closed, which err repeats.
		e = &api.Error{Code: api.CodeRuntimeUnavailable, Message: err.Error()}
	default:
		if e, showCode = errors.AsType[*api.Error](err); !showCode {
			e = api.AsError(err)
		}
	}
	if a.json {
		if raw, err := json.Marshal(e); err == nil {
			fmt.Fprintf(a.stderr, "%s\n", printable.JSON(raw))
			return
		}
	}
	fmt.Fprint(a.stderr, describe(e, showCode))
}

// describe is an error in a line, and its hint in another.
func describe(e *api.Error, showCode bool) string {
	var b strings.Builder
	b.WriteString("trl: " + visible(e.Message))
	if showCode {
		b.WriteString(" [" + visible(string(e.Code)) + "]")
	}
	var details []string
	for _, name := range slices.Sorted(maps.Keys(e.Details)) {
		details = append(details, visible(fmt.Sprintf("%s: %v", name, e.Details[name])))
	}
	if len(details) > 0 {
		b.WriteString(" (" + strings.Join(details, ", ") + ")")
	}
	b.WriteByte('\n')
	if e.Hint != "" {
		b.WriteString("hint: " + visible(forPeople(e.Hint)) + "\n")
	}
	return b.String()
}

// forPeople puts a hint that was written for a caller of the API into the
// words of the command line.
func forPeople(hint string) string {
	return strings.NewReplacer(
		api.MethodSessionCreate, "`trl session create`",
		api.MethodSessionList, "`trl session list`",
		api.MethodSessionInfo, "`trl session info`",
		api.MethodSessionDestroy, "`trl session destroy`",
		api.MethodExecRun, "`trl run`",
		api.MethodExecOutput, "`trl exec output`",
		api.MethodExecCancel, "`trl exec cancel`",
		api.MethodExecInfo, "`trl exec list`",
		api.MethodExecList, "`trl exec list`",
		api.MethodSystemInfo, "`trl info`",
		"call "+api.MethodSystemUpgrade, "run `trl upgrade`",
		api.MethodSessionHold+" with force: true", "`trl attach --write`",
		api.MethodSessionWatch, "`trl attach`",
		api.MethodSessionScreen, "`trl screen`",
		api.MethodExecAttach, "`trl exec output --follow`",
		"wait: true", "--wait",
		`with tty: {"rows": 24, "cols": 80}`, "with --tty 24x80",
	).Replace(hint)
}
