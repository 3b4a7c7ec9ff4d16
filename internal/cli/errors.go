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
	"github.com/terminal-runtime/trl/internal/daemon"
	"github.com/terminal-runtime/trl/internal/printable"
	"github.com/terminal-runtime/trl/internal/spelling"
	"github.com/terminal-runtime/trl/internal/trust"
)

// Exit statuses that are not a command's. `run` has its own status for failures
// of TRL, to distinguish them from the command's.
const (
	statusFailed    = 1
	statusUsage     = 2
	statusTimedOut  = 124 // as timeout(1) does
	statusRunFailed = 125 // as env(1) and timeout(1) do
	statusSignal    = 128 // plus the signal number
)

// failure is an error of a command whose usage was correct.
type failure struct {
	err    error
	status int
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// asFailure wraps err in a failure, unless it already determines the exit
// status.
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

// exitStatus exits with a status and prints nothing.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// usageError reports an invalid command line.
type usageError struct {
	message string
	hint    string // "" means the help of the command
}

func (e *usageError) Error() string { return e.message }

func usage(format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...)}
}

// flagError reports a flag that is wrong.
func flagError(cmd *cobra.Command, err error) error {
	wrong := &usageError{message: err.Error() + suggestFlag(cmd, err)}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if _, ok := invalid.GetFlag().Value.(*settingFlag); ok {
			wrong.message = fmt.Sprintf("--%s %v", invalid.GetFlag().Name, invalid.Unwrap()) // as for the other sources
		}
	}
	if cmd.CommandPath() == "trl exec" {
		wrong.hint = runHint // as in `docker exec -it`
	}
	return wrong
}

// suggestFlag returns a suggestion for the unknown flag in err, or "".
func suggestFlag(cmd *cobra.Command, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	switch {
	case !ok:
		return ""
	case unknown.GetSpecifiedName() == "V" && cmd.Flags().Lookup("version") != nil:
		return "; did you mean --version?"
	case len(unknown.GetSpecifiedName()) < 3: // any letter is close to a single letter
		return ""
	}
	var known []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { known = append(known, flag.Name) })
	if best, ok := spelling.Closest(unknown.GetSpecifiedName(), known); ok {
		return "; did you mean --" + best + "?"
	}
	return ""
}

// checkKind returns an error if id is of another kind: an exec for a session,
// or the reverse.
func checkKind(kind, id string) error {
	switch {
	case kind == "EXEC" && strings.HasPrefix(id, "s-"):
		return usage("%s is a session; `trl exec list %s` lists its commands", id, id)
	case kind == "SESSION" && strings.HasPrefix(id, "e-"):
		return usage("%s is a command; `trl session list` lists the sessions", id)
	}
	return nil
}

// localError is an error of this program in the form of the daemon's. It is
// printed without its code.
type localError struct{ api *api.Error }

func (e localError) Error() string { return e.api.Error() }
func (e localError) Unwrap() error { return e.api }

// refusalError reports a path, or a process behind it, that belongs to another
// user.
func refusalError(r *trust.Refusal) error {
	return localError{api.Errorf(api.CodeRuntimeUnavailable, "%s", r.Message).WithHint("%s", r.Hint)}
}

// noDaemonError explains why there is no connection.
func (a *app) noDaemonError(path string, err error) error {
	if refusal, ok := errors.AsType[*trust.Refusal](err); ok {
		return refusalError(refusal)
	}
	if errors.Is(err, fs.ErrPermission) {
		return localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon on %s or its directory belongs to another user", path).
			WithHint("run this as that user, as in `sudo -u USER trl …`, or start your own daemon: `trl serve --socket PATH &`")}
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
	if keeper := waitingHolder(path); keeper != 0 {
		none = api.Errorf(api.CodeRuntimeUnavailable, "no daemon is serving on %s, but process %d keeps its sessions", path, keeper).
			WithHint("`%s --detach` takes them over", serve)
	}
	none.Cause = err
	return localError{none}
}

// waitingHolder returns the process that keeps the sessions of a daemon that was
// stopped with --keep; 0 if there is none.
func waitingHolder(path string) (pid int) {
	holder, err := daemon.FindHolder(path)
	if err != nil {
		return 0
	}
	defer holder.Close()
	if !holder.Waiting() {
		return 0
	}
	return holder.PID()
}

// tokenError returns err or, if the daemon has refused the token, what that means
// for a user of the command line: the daemon's hint is for programs.
func tokenError(err error, token string) error {
	if !api.IsCode(err, api.CodeUnauthorized) {
		return err
	}
	if token == "" {
		return api.Errorf(api.CodeUnauthorized, "the daemon needs a token, and %s is not set", daemon.TokenVariable).
			WithHint("export %s=$(trl token create --scope run), with the token created on the daemon's machine", daemon.TokenVariable)
	}
	return api.Errorf(api.CodeUnauthorized, "the daemon does not know the token in %s, or it has expired", daemon.TokenVariable).
		WithHint("`trl token list` on the daemon's machine shows its tokens; `trl token create` makes another")
}

// unreachableError reports that nothing could be reached at the given address.
func unreachableError(address string, err error) *api.Error {
	unreachable := api.Errorf(api.CodeRuntimeUnavailable, "%w", err)
	if strings.HasPrefix(address, "exec:") {
		return unreachable.WithHint("run the command in a terminal: it must end in `trl connect` and print a line with system.hello")
	}
	return unreachable.WithHint("use http://HOST:PORT for a daemon started with `trl serve --http HOST:PORT`, or unix:PATH")
}

// report prints err and returns the exit status.
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
	hint := fmt.Sprintf("run `%s --help`", at.CommandPath())
	if wrong, ok := errors.AsType[*usageError](err); ok && wrong.hint != "" {
		hint = wrong.hint
	}
	a.printError(localError{api.Errorf(api.CodeInvalidParams, "%w", err).WithHint("%s", hint)})
	return statusUsage
}

// printConfigError prints what is wrong with the settings, each problem on a line
// of its own.
func (a *app) printConfigError(wrong *daemon.ConfigError) {
	const hint = "`trl serve --help` describes the settings"
	switch {
	case a.checkOnly: // it becomes a part of the asking daemon's error
		fmt.Fprintln(a.stderr, visible(wrong.Error()))
	case a.json:
		a.printError(localError{api.Errorf(api.CodeInvalidParams, "%s", wrong).WithHint(hint)})
	default:
		for _, problem := range wrong.Problems {
			fmt.Fprintf(a.stderr, "trl: %s\n", visible(problem.Error()))
		}
		fmt.Fprintln(a.stderr, hintPrefix+hint)
	}
}

// printError prints err for a person, or with --json as the contract's error
// object.
func (a *app) printError(err error) {
	if wrong, ok := errors.AsType[*daemon.ConfigError](err); ok {
		a.printConfigError(wrong)
		return
	}
	var e *api.Error
	showCode := false
	local, ok := errors.AsType[localError](err)
	switch {
	case ok:
		e = local.api
	case errors.Is(err, client.ErrNoDaemon):
		e = unreachableError("", err) // over HTTP only the first call notices
	case errors.Is(err, client.ErrClosed) && !api.IsCode(err, api.CodeUnauthorized):
		// The daemon may have given a reason before it closed; err repeats it.
		e = &api.Error{Code: api.CodeRuntimeUnavailable, Message: err.Error()}
	default:
		if e, showCode = errors.AsType[*api.Error](err); !showCode {
			e = api.AsError(err)
		}
	}
	if a.json && a.format.template == nil {
		if raw, err := json.Marshal(e); err == nil {
			fmt.Fprintf(a.stderr, "%s\n", printable.JSON(raw))
			return
		}
	}
	text := describe(e, showCode)
	if mayColour(a.stderr) {
		text = paintError(text)
	}
	fmt.Fprint(a.stderr, text)
}

// describe formats an error as one line, followed by a line for its hint.
func describe(e *api.Error, showCode bool) string {
	if refused := unavailable(e); refused != nil {
		e = refused
	}
	var b strings.Builder
	b.WriteString("trl: " + visible(e.Message))
	if showCode {
		b.WriteString(" [" + visible(string(e.Code)) + "]")
	}
	var details []string
	for _, name := range slices.Sorted(maps.Keys(e.Details)) {
		details = append(details, visible(name+": "+detailText(e.Details[name])))
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

// unavailable returns an error about limits or isolation that can't be enforced with
// its details in its message; nil for other errors.
func unavailable(e *api.Error) *api.Error {
	reasons, ok := e.Details["reasons"].(map[string]any)
	if e.Code != api.CodeLimitsUnavailable || !ok {
		return nil
	}
	var names, why []string
	for _, detail := range []string{"limits", "isolation"} {
		if members, ok := e.Details[detail].([]any); ok {
			names = append(names, detailText(members))
		}
	}
	for _, ability := range slices.Sorted(maps.Keys(reasons)) {
		if reason := detailText(reasons[ability]); !slices.Contains(why, reason) {
			why = append(why, reason)
		}
	}
	short := *e
	short.Message = "this machine cannot enforce " + strings.Join(names, ", ") + ": " + strings.Join(why, "; ")
	short.Details = nil
	return &short
}

// detailText formats a detail of an error: lists and objects without their brackets.
func detailText(detail any) string {
	var parts []string
	switch d := detail.(type) {
	case []any:
		for _, one := range d {
			parts = append(parts, detailText(one))
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(d)) {
			parts = append(parts, name+": "+detailText(d[name]))
		}
	default:
		return fmt.Sprint(detail)
	}
	return strings.Join(parts, ", ")
}

// forPeople rewrites a hint for callers of the API in terms of the command
// line.
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
		api.MethodExecInput, "`trl input`",
		api.MethodExecList, "`trl exec list`",
		api.MethodSystemInfo, "`trl info`",
		"call "+api.MethodSystemUpgrade, "run `trl upgrade`",
		api.MethodSessionHold+" with force: true", "`trl attach --write`",
		api.MethodSessionWatch, "`trl attach`",
		api.MethodSessionScreen, "`trl screen`",
		api.MethodExecAttach, "`trl exec output --follow`",
		"wait: true", "--wait",
		"stdin_open: true", "`trl run -d -i`",
		`with tty: {"rows": 24, "cols": 80}`, "with --tty 24x80",
	).Replace(hint)
}
