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

// runOptions is what `trl run` was told.
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
		Short: "Run a command, in a session or in one of its own",
		Long: "Run a command. Its output, its input and its exit status are those of `trl run`.\n" +
			"Without -s it has a session of its own, which is ended with it.\n\n" +
			"One word is text for the shell; several are a command and its arguments, which\n" +
			"the command gets as they are.\n\n" +
			"Exit status: that of the command, 124 if it timed out, 125 if TRL failed or lost\n" +
			"output, 128 and the number of the signal if one ended it or `trl run`.",
		Example: "  trl run -- ls 'a file'\n" +
			"  trl run -- 'ls | wc -l'\n" +
			"  trl run -s $id --timeout 5m -- make test\n" +
			"  trl run --shell bash --cwd /usr -- 'echo {a,b}'",
	}
	cmd.DisableFlagsInUseLine = true
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVarP(&o.session, "session", "s", "", "run it in the session `ID`")
	o.shellFlags.register(cmd)
	durationVar(cmd, &o.timeout, "timeout", "end the command when it takes longer; 0 is never")
	durationVar(cmd, &o.idle, "idle-timeout", "end the command when it wrote nothing for so long")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait while the session runs another command")
	cmd.Flags().BoolVarP(&o.noStdin, "no-stdin", "n", false, "do not pass on stdin: the command finds it empty")
	cmd.Flags().BoolVar(&o.merge, "merge", false, "write stderr to stdout, in the order of the writes")
	cmd.Flags().StringVar(&o.label, "label", "", "call it `NAME` in lists, where its text is not shown")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "say what the command left running")
	// After its first word everything is the command's, `trl run ls -l` too.
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

// must is for what can fail by a mistake in this package alone.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func checkRun(o *runOptions) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 || len(args) == 1 && args[0] == "" {
			return usage("which command? write it after --, as in `trl run -- ls -l`")
		}
		if err := checkKind("SESSION", o.session); err != nil {
			return err
		}
		if o.session != "" && o.shellFlags.shell != "" {
			return usage("--shell is for a new session, and %s has its shell already", o.session)
		}
		return nil
	}
}

// oneShotTTL ends the session of a `trl run` that was itself killed and could
// not do it. While it lives the session is idle for milliseconds only.
const oneShotTTL = 5 * time.Minute

// running is one run of `trl run`. Its fields are set before the goroutines
// that read them start, but for made.
type runInvocation struct {
	app        *app
	options    *runOptions
	client     *client.Client
	ownSession bool // the command has a session to itself
	exec       string

	signals     chan os.Signal
	interrupted context.Context // done at the first signal, which is its cause

	created atomic.Pointer[string] // the session that was made for the command
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

	// A reader of our output that goes away must not kill us before the
	// session is ended.
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
		ExecCommand: api.ExecCommand{SessionID: o.session, Command: command, TimeoutMS: o.timeout.milliseconds(), Wait: o.wait, StdinOpen: r.forwardsStdin(), Merge: o.merge, Label: o.label, Key: rand.Text()},
	}
	if ms := o.idle.milliseconds(); ms != nil {
		params.IdleTimeoutMS = *ms
	}
	if !r.ownSession {
		params.Env, params.Cwd = env, o.shellFlags.cwd
		return r.command(ctx, params)
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

// endSession destroys the session that was made for the command.
func (r *runInvocation) endSession(ctx context.Context, force bool) {
	id := *r.created.Load()
	_, err := r.client.DestroySession(ctx, api.SessionDestroyParams{SessionID: id, Force: force})
	r.app.reportLeftover(id, err)
}

// leftBehind says that a session could not be ended, unless it is gone.
func (a *app) reportLeftover(id string, err error) {
	if err != nil && !errors.Is(err, client.ErrClosed) && // with the daemon the session is gone too
		!api.IsCode(err, api.CodeShuttingDown) && !api.IsCode(err, api.CodeSessionTerminated) && !api.IsCode(err, api.CodeSessionNotFound) {
		a.printError(fmt.Errorf("session %s is left behind: %w", id, err))
	}
}

// command runs the command to its end. The error is its exit status, or what
// kept it from ending.
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
		st.Close() // the result has the output
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
		status = statusRunFailed // who pipes the output on must not take it for whole
	}
	if status != 0 {
		return exitStatus(status)
	}
	return nil
}

// start starts the command, or puts it into the queue of its session.
func (r *runInvocation) start(ctx context.Context, params api.ExecStreamParams) (*client.Stream, error) {
	st, err := r.client.Stream(ctx, params)
	if sig, ok := r.signalled(); ok && err != nil {
		return nil, exitStatus(statusSignal + int(sig))
	}
	return st, err
}

// printResult waits for the end of the command and prints its result. The call
// has the key of the one that started it, and so runs nothing.
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

// broken is the end of a command whose output could not be brought home.
func (r *runInvocation) streamError(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*writeError](err); ok {
		// Nobody reads: the command would be told by SIGPIPE, and so ends here.
		_, _ = r.client.Cancel(ctx, api.ExecCancelParams{ExecID: r.exec}) // it has ended by itself, or the daemon has
		if errors.Is(err, syscall.EPIPE) {
			return exitStatus(statusSignal + int(syscall.SIGPIPE))
		}
		return err
	}
	if errors.Is(err, client.ErrClosed) || api.IsCode(err, api.CodeExecNotFound) || api.IsCode(err, api.CodeShuttingDown) {
		return localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon went away while the command ran").
			WithHint("whether the command had ended is not known; `trl serve` starts the daemon again")}
	}
	return err
}
