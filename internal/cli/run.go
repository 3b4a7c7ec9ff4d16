package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/console"
)

// runOptions are the flags of `trl run`.
type runOptions struct {
	shellFlags    shellFlags
	session       string
	timeout, idle durationFlag
	wait          bool
	tty           bool
	detach        bool
	interactive   bool
	noStdin       bool
	merge         bool
	verbose       bool
	label         string
	detachKey     console.Key
}

// command returns the command as the flags describe it, without its session.
func (o *runOptions) command(text string) api.ExecCommand {
	c := api.ExecCommand{Command: text, TimeoutMS: o.timeout.milliseconds(), Wait: o.wait, Merge: o.merge, Label: o.label, Key: rand.Text()}
	if ms := o.idle.milliseconds(); ms != nil {
		c.IdleTimeoutMS = *ms
	}
	return c
}

func (a *app) runCommand() *cobra.Command {
	o := runOptions{detachKey: console.DefaultDetachKey}
	cmd := &cobra.Command{
		Use:   "run [--] COMMAND [ARG...]",
		Short: "Run a command, in a session or on its own",
		Long: "Run a command and print its output. Without -s the command gets its own\n" +
			"session, which ends with it.\n\n" +
			"A single argument is shell code; several are a program and its arguments, passed\n" +
			"unchanged.\n\n" +
			"The directory is yours, the environment the daemon's: PATH, HOME, LANG and the\n" +
			"like. --env passes on one variable of yours; --env-from-here passes on those\n" +
			"that select programs. With -s, both are the session's. With --place the command\n" +
			"runs in a container or on another machine, and both are that place's.\n\n" +
			"`trl run` passes on its stdin, unless that is a terminal. In a loop, or in a\n" +
			"script that your shell reads from stdin, use -n: otherwise the command gets the\n" +
			"rest of the loop's input or of the script.\n\n" +
			"With -t the command has a terminal and gets your keys, ctrl-c too. With -s, the\n" +
			"detach key leaves it running. -tn only shows its output, and needs no terminal.\n\n" +
			"With --sandbox the command is confined: `workspace` lets it write the current\n" +
			"directory and reach package registries, `offline` has no network, and `readonly`\n" +
			"writes nothing. Secrets in your home are hidden. A confinement or a limit holds\n" +
			"exactly, or nothing is run; `trl doctor` shows what this machine can enforce.\n\n" +
			"With -d it prints the command's id and returns at once, without reading stdin.\n" +
			"`trl wait` waits for the command, `trl exec output` shows its output, and with -i\n" +
			"`trl input` writes to it. Without -s its session ends a minute after it; the\n" +
			"output stays longer.\n\n" +
			"The exit status is the command's, 124 if it timed out, 125 if TRL failed or lost\n" +
			"output, and 128 plus the signal number if a signal ended it or `trl run`.",
		Example: "  trl run -- ls 'a file'\n" +
			"  trl run -- 'ls | wc -l'\n" +
			"  trl run -s $id --timeout 5m -- make test\n" +
			"  trl run -t -- vim notes.txt\n" +
			"  trl run --place docker:web -- ls /app\n" +
			"  trl run --sandbox workspace --memory 1g -- npm install\n" +
			"  exec=$(trl run -d -- make test)   # trl wait $exec",
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVarP(&o.session, "session", "s", "", "run it in `SESSION`, given by its name or id")
	o.shellFlags.register(a, cmd)
	durationVar(cmd, &o.timeout, "timeout", "cancel the command after this time; 0 means never")
	durationVar(cmd, &o.idle, "idle-timeout", "cancel the command when it writes nothing for this long")
	cmd.Flags().BoolVarP(&o.tty, "tty", "t", false, "run it on a terminal: yours, or with -n one of the same size")
	cmd.Flags().Var(&o.detachKey, "detach-key", "with -t and -s: leave it running with `KEY`")
	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "start it, print its id and return")
	cmd.Flags().BoolVarP(&o.interactive, "interactive", "i", false, "pass on stdin also from a terminal; with -d keep it open for trl input")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait if the session is running another command")
	cmd.Flags().BoolVarP(&o.noStdin, "no-stdin", "n", false, "do not pass on stdin; the command's stdin is empty")
	cmd.Flags().BoolVar(&o.merge, "merge", false, "merge stderr into stdout, in the order written")
	cmd.Flags().StringVar(&o.label, "label", "", "show it as `NAME` in lists; default: its program and subcommand")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "report what the command left running")
	groupFlags(cmd, "Where it runs", "session", "wait", "detach")
	groupFlags(cmd, "Input and output", "no-stdin", "merge", "label", "verbose", "tty", "detach-key", "interactive")
	groupFlags(cmd, "Time", "timeout", "idle-timeout")
	// Everything after the first argument belongs to the command, as in `trl
	// run ls -l`.
	cmd.Flags().SetInterspersed(false)
	must(cmd.RegisterFlagCompletionFunc("session", a.completeSessions))
	cmd.RunE = action(a.checkRun(&o), func(ctx context.Context, args []string) error {
		run := a.run
		switch {
		case o.detach:
			run = a.runDetached
		case o.tty && !o.noStdin:
			run = a.runOnTerminal
		}
		err := run(ctx, &o, commandText(args))
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

func (a *app) checkRun(o *runOptions) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 || len(args) == 1 && args[0] == "" {
			return usage("COMMAND is missing; write it after --, as in `trl run -- ls -l`")
		}
		if err := checkKind("SESSION", o.session); err != nil {
			return err
		}
		if o.session != "" && o.shellFlags.place != "" {
			return usage("--place is for a new session, but %s already runs somewhere", o.session)
		}
		if o.session != "" && o.shellFlags.shell != "" {
			return usage("--shell is for a new session, but %s already has its shell", o.session)
		}
		if flag := firstSetFlag(cmd, confineFlagNames...); o.session != "" && flag != "" {
			return usage("--%s is for a new session, but %s already exists", flag, o.session)
		}
		if o.interactive && o.noStdin {
			return usage("-i and -n exclude each other")
		}
		if o.tty && !o.noStdin && !o.detach && a.json {
			return usage("-t and --json exclude each other: the output goes to your terminal; -tn --json captures it")
		}
		if cmd.Flags().Changed("detach-key") && (!o.tty || o.session == "") {
			return usage("--detach-key needs -t and -s: without -s the session ends with the command")
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
	limits     *api.LimitsInForce // of that session; nil: none

	signals     chan os.Signal
	interrupted context.Context // canceled by the first signal, which is its cause

	created atomic.Pointer[string] // the session created for the command
}

func (a *app) run(ctx context.Context, o *runOptions, command string) error {
	env, err := o.shellFlags.environment(os.Environ())
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

	params := api.ExecStreamParams{ExecCommand: o.command(command)}
	params.StdinOpen = r.forwardsStdin()
	if !r.ownSession {
		params.Env, params.Cwd = env, o.shellFlags.cwd
		if params.SessionID, err = o.findSession(ctx, c); err != nil {
			return err
		}
		return repeatSession(o.session, r.command(ctx, params))
	}
	created, err := o.createSession(ctx, c, env, a.ttySize(o), oneShotTTL)
	if err != nil {
		return err
	}
	params.SessionID, r.limits = created.SessionID, created.Limits
	r.created.Store(&created.SessionID)
	refused, err := r.watchDenials(ctx, created)
	if err == nil {
		err = r.command(ctx, params)
	}
	r.endSession(ctx, false)
	refused.print(a)
	return err
}

func (r *runInvocation) forwardsStdin() bool {
	return r.options.interactive || !r.options.noStdin && !isTerminal(r.app.stdin)
}

// stdin returns the stdin to pass on. It warns if that is a script, unless the
// user asked for it with -i.
func (r *runInvocation) stdin() io.Reader {
	if r.options.interactive || !isScriptOf(fmt.Sprintf("/proc/%d", os.Getppid()), r.app.stdin) {
		return r.app.stdin
	}
	return &scriptReader{Reader: r.app.stdin, warn: r.app.remark}
}

// findSession returns the session given with -s. With -t it must have a
// terminal.
func (o *runOptions) findSession(ctx context.Context, c *client.Client) (string, error) {
	id, err := findSession(ctx, c, o.session)
	if err != nil || !o.tty {
		return id, err
	}
	info, err := c.SessionInfo(ctx, api.SessionParams{SessionID: id})
	if err != nil {
		return "", repeatSession(o.session, err)
	}
	if info.TTY == nil {
		return "", localError{api.Errorf(api.CodeInvalidRequest, "session %s has no terminal", o.session).
			WithHint("leave out -t, or run it in a session made by `trl session create --tty 24x80`")}
	}
	return id, nil
}

// createSession creates the session of a command that has its own. size is that
// of its terminal; nil means none.
func (o *runOptions) createSession(ctx context.Context, c *client.Client, env api.Env, size *api.TTYSize, ttl time.Duration) (*api.Session, error) {
	ms := ttl.Milliseconds()
	params := newSession{SessionCreateParams: api.SessionCreateParams{Env: env, TTY: size, Name: "trl run", IdleTTLMS: &ms}}
	if err := o.shellFlags.apply(&params); err != nil {
		return nil, err
	}
	var created api.Session
	err := create(ctx, c, params, &created)
	return &created, err
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
		go feedInput(done, r.client, r.exec, r.stdin())
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
