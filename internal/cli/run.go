package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// runOptions are the flags of `trl run`.
type runOptions struct {
	shellFlags    shellFlags
	session       string
	timeout, idle durationFlag
	wait          bool
	noStdin       bool
	merge         bool
	verbose       bool
	label         string
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] [--] COMMAND [ARG...]",
		Short: "Run a command, in a session or on its own",
		Long: "Run a command. `trl run` passes on its stdin and prints the command's output. Without\n" +
			"-s the command gets its own session, which ends with it.\n\n" +
			"A single argument is shell code; several are a program and its arguments, passed\n" +
			"unchanged.\n\n" +
			"The exit status is the command's, 124 if it timed out, 125 if TRL failed or lost\n" +
			"output, and 128 plus the signal number if a signal ended it or `trl run`.",
		Example: "  trl run -- ls 'a file'\n" +
			"  trl run -- 'ls | wc -l'\n" +
			"  trl run -s $id --timeout 5m -- make test\n" +
			"  trl run --shell bash --cwd /usr -- 'echo {a,b}'",
	}
	cmd.DisableFlagsInUseLine = true
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVarP(&o.session, "session", "s", "", "run it in `SESSION`, given by its name or id")
	o.shellFlags.register(cmd)
	durationVar(cmd, &o.timeout, "timeout", "cancel the command after this time; 0 means never")
	durationVar(cmd, &o.idle, "idle-timeout", "cancel the command when it writes nothing for this long")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait if the session is running another command")
	cmd.Flags().BoolVarP(&o.noStdin, "no-stdin", "n", false, "do not pass on stdin; the command's stdin is empty")
	cmd.Flags().BoolVar(&o.merge, "merge", false, "merge stderr into stdout, in the order written")
	cmd.Flags().StringVar(&o.label, "label", "", "show it as `NAME` in lists; default: its program and subcommand")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "report what the command left running")
	// Everything after the first argument belongs to the command, as in `trl
	// run ls -l`.
	cmd.Flags().SetInterspersed(false)
	must(cmd.RegisterFlagCompletionFunc("session", a.completeSessions))
	cmd.RunE = action(checkRun(&o), func(ctx context.Context, args []string) error {
		err := a.run(ctx, &o, commandText(args))
		if err != nil && !hasExitStatus(err) {
			return &failure{err: err, status: statusRunFailed}
		}
		return err
	})
	return cmd
}

// must panics on errors that only a mistake in this package can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func checkRun(o *runOptions) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 || len(args) == 1 && args[0] == "" {
			return usage("COMMAND is missing; write it after --, as in `trl run -- ls -l`")
		}
		if err := checkKind("SESSION", o.session); err != nil {
			return err
		}
		if o.session != "" && o.shellFlags.shell != "" {
			return usage("--shell is for a new session, but %s already has its shell", o.session)
		}
		return nil
	}
}

// oneShotTTL ends the session of a `trl run` that was killed and could not do
// so itself. While `trl run` lives, the session is idle for milliseconds only.
const oneShotTTL = 5 * time.Minute

// runInvocation is one run of `trl run`. Its fields are set before the
// goroutines that read them start, except for created.
type runInvocation struct {
	app        *app
	options    *runOptions
	client     *client.Client
	ownSession bool // the session was created for the command
	exec       string

	signals     chan os.Signal
	interrupted context.Context // canceled by the first signal, which is its cause

	created atomic.Pointer[string] // the session created for the command
}

func (a *app) run(ctx context.Context, o *runOptions, command string) error {
	env, err := o.shellFlags.environment(os.LookupEnv)
	if err != nil {
		return err
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	r := &runInvocation{app: a, options: o, client: c, ownSession: o.session == ""}

	// If the reader of our output goes away, SIGPIPE must not kill us before
	// the session is destroyed.
	signal.Ignore(syscall.SIGPIPE)
	r.signals = make(chan os.Signal, 4)
	signal.Notify(r.signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	interrupted, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	r.interrupted = interrupted
	ctx, done := context.WithCancel(ctx)
	defer done()
	go r.watchSignals(ctx, interrupt)

	params := api.ExecStreamParams{
		ExecCommand: api.ExecCommand{Command: command, TimeoutMS: o.timeout.milliseconds(), Wait: o.wait, StdinOpen: r.forwardsStdin(), Merge: o.merge, Label: o.label, Key: rand.Text()},
	}
	if ms := o.idle.milliseconds(); ms != nil {
		params.IdleTimeoutMS = *ms
	}
	if !r.ownSession {
		params.Env, params.Cwd = env, o.shellFlags.cwd
		if params.SessionID, err = findSession(ctx, c, o.session); err != nil {
			return err
		}
		return repeatSession(o.session, r.command(ctx, params))
	}
	if err := r.createSession(ctx, env); err != nil {
		return err
	}
	params.SessionID = *r.created.Load()
	err = r.command(ctx, params)
	r.endSession(ctx, false)
	return err
}

func (r *runInvocation) forwardsStdin() bool { return !r.options.noStdin && !isTerminal(r.app.stdin) }

func (r *runInvocation) createSession(ctx context.Context, env map[string]string) error {
	ttl := oneShotTTL.Milliseconds()
	var session api.Session
	err := create(ctx, r.client, api.SessionCreateParams{
		Shell: r.options.shellFlags.shell, Cwd: r.options.shellFlags.cwd, Env: env,
		Name: "trl run", IdleTTLMS: &ttl,
	}, &session)
	if err == nil {
		r.created.Store(&session.SessionID)
	}
	return err
}

// endSession destroys the session that was created for the command.
func (r *runInvocation) endSession(ctx context.Context, force bool) {
	id := *r.created.Load()
	_, err := r.client.DestroySession(ctx, api.SessionDestroyParams{SessionID: id, Force: force})
	r.app.reportLeftover(id, err)
}

// reportLeftover reports that a session could not be destroyed, unless it is
// gone.
func (a *app) reportLeftover(id string, err error) {
	if err != nil && !errors.Is(err, client.ErrClosed) && // the session is gone with the daemon
		!api.IsCode(err, api.CodeShuttingDown) && !api.IsCode(err, api.CodeSessionTerminated) && !api.IsCode(err, api.CodeSessionNotFound) {
		a.printError(fmt.Errorf("session %s is still there: %w", id, err))
	}
}

// command runs the command to its end. The error is its exit status, or why its
// end is not known.
func (r *runInvocation) command(ctx context.Context, params api.ExecStreamParams) error {
	if sig, ok := r.signalled(); ok {
		return exitStatus(statusSignal + int(sig))
	}
	st, err := r.start(ctx, params)
	if err != nil {
		return err
	}
	defer st.Close()
	r.exec = st.ExecID()
	done, finish := context.WithCancel(ctx)
	defer finish()
	if params.StdinOpen {
		go feedInput(done, r.client, r.exec, r.app.stdin)
	}
	go r.cancelWhenInterrupted(done)

	var result *api.ExecResult
	var missing int64
	if r.app.json {
		st.Close() // the result contains the output
		result, err = r.printResult(ctx, params)
	} else if result, missing, err = copyStream(st, r.app.chunks(), ""); err == nil {
		r.printRemarks(result)
	}
	if err != nil {
		return r.streamError(ctx, err)
	}
	status := commandStatus(result)
	if sig, ok := r.signalled(); ok && result.Cancelled {
		status = statusSignal + int(sig)
	}
	if status == 0 && missing > 0 {
		status = statusRunFailed // a pipeline must not take incomplete output for complete
	}
	if status != 0 {
		return exitStatus(status)
	}
	return nil
}

// start starts the command, or queues it in its session.
func (r *runInvocation) start(ctx context.Context, params api.ExecStreamParams) (*client.Stream, error) {
	st, err := r.client.Stream(ctx, params)
	if sig, ok := r.signalled(); ok && err != nil {
		return nil, exitStatus(statusSignal + int(sig))
	}
	return st, err
}

// printResult waits for the end of the command and prints its result. The call
// repeats the key of the one that started the command, so it runs nothing.
func (r *runInvocation) printResult(ctx context.Context, params api.ExecStreamParams) (*api.ExecResult, error) {
	var raw json.RawMessage
	again := api.ExecRunParams{ExecCommand: params.ExecCommand}
	if err := r.client.Call(ctx, api.MethodExecRun, again, &raw); err != nil {
		return nil, err
	}
	var result api.ExecResult
	if err := json.Unmarshal(raw, &result); err != nil {
		return nil, err
	}
	return &result, r.app.printJSON(raw)
}

// streamError returns the error of a command whose output could not be copied
// to the end.
func (r *runInvocation) streamError(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*writeError](err); ok {
		// No one reads the output. Locally SIGPIPE would end the command, so
		// cancel it.
		_, _ = r.client.Cancel(ctx, api.ExecCancelParams{ExecID: r.exec}) // an error means that it, or the daemon, has ended
		if errors.Is(err, syscall.EPIPE) {
			return exitStatus(statusSignal + int(syscall.SIGPIPE))
		}
		return err
	}
	if errors.Is(err, client.ErrClosed) || api.IsCode(err, api.CodeExecNotFound) || api.IsCode(err, api.CodeShuttingDown) {
		return localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon went away while the command ran").
			WithHint("the command may still have finished; `trl serve` starts the daemon again")}
	}
	return err
}
