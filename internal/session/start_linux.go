package session

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/printable"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/terminal"
)

// newSession checks the params and returns a session that is not started.
func newSession(shared *shared, number int64, params api.SessionCreateParams, owner string) (*Session, error) {
	if err := checkNames(params.Name, params.Tags); err != nil {
		return nil, err
	}
	if err := checkSupported(&params); err != nil {
		return nil, err
	}
	if err := shared.checkLimits(params.Limits); err != nil {
		return nil, err
	}
	now := time.Now()
	s := &Session{
		shared: shared, id: newNodeID(sessionIDPrefix, shared.cfg.Node), number: number, owner: owner, state: api.StateCreating, created: now, active: now,
		timeout:   shared.cfg.DefaultTimeout,
		idleTTL:   shared.cfg.IdleTTL,
		destroyed: make(chan struct{}),
		forceKill: make(chan struct{}),
		ready:     make(chan struct{}),
	}
	s.creationCtx, s.cancelCreation = context.WithCancel(context.Background())
	if params.Key != "" {
		s.sum = sumOf(params)
	}
	if params.TimeoutMS > 0 {
		s.timeout = time.Duration(params.TimeoutMS) * time.Millisecond
	}
	s.reconnect = defaultReconnect
	if params.ReconnectMS > 0 {
		s.reconnect = time.Duration(params.ReconnectMS) * time.Millisecond
	}
	if params.IdleTTLMS != nil {
		s.idleTTL = time.Duration(*params.IdleTTLMS) * time.Millisecond
	}
	if params.Argv != nil && len(params.Argv) == 0 {
		return nil, api.Errorf(api.CodeInvalidParams, "argv is empty").With("field", "argv").
			WithHint("give a program and its arguments, or leave argv out for a shell")
	}
	if slices.ContainsFunc(params.Argv, func(arg string) bool { return strings.Contains(arg, "\x00") }) {
		return nil, errNUL("argv")
	}
	if len(params.Argv) > 0 && params.Shell != "" {
		return nil, api.Errorf(api.CodeInvalidParams, "shell and argv exclude each other").With("field", "argv").
			WithHint("leave out one of them")
	}
	if err := checkDir(params.Cwd); err != nil {
		return nil, err
	}
	if len(params.Argv) == 0 {
		var err error
		if s.program, err = findShell(params.Shell); err != nil {
			return nil, err
		}
	}
	env, err := environment(params.InheritEnv, params.Env, os.Environ())
	if err != nil {
		return nil, err
	}
	if _, set := params.Env["TERM"]; params.TTY != nil && !set {
		env = terminal.Env(env)
	}
	s.env = env
	s.envKeys = slices.Sorted(maps.Keys(params.Env))
	params.Env = nil
	s.params = params
	return s, nil
}

// checkNames returns an error for names and tags with characters that a reader
// can't see.
func checkNames(name string, tags []string) error {
	long := func(text string) bool { return len(text) > maxName }
	if long(name) || slices.ContainsFunc(tags, long) {
		return api.Errorf(api.CodeInvalidParams, "name and tags must be at most %d bytes each", maxName).With("field", "name")
	}
	field := ""
	switch {
	case !printable.Line(name):
		field = "name"
	case slices.ContainsFunc(tags, func(tag string) bool { return !printable.Line(tag) }):
		field = "tags"
	default:
		return nil
	}
	return api.Errorf(api.CodeInvalidParams, "%s must be one line without control or invisible characters", field).
		With("field", field).WithHint("leave out line breaks, escapes and bidi controls")
}

// maxName bounds a name or a tag, in bytes: they are shown in lists.
const maxName = 1024

// checkSupported returns an error for what this daemon can't do. Nothing is
// silently ignored.
func checkSupported(params *api.SessionCreateParams) error {
	if params.Runtime != "" && params.Runtime != api.RuntimeHost {
		return api.Errorf(api.CodeRuntimeNotFound, "no such runtime").
			WithHint(`leave runtime out, or use "host"; system.info lists the runtimes`)
	}
	if names := params.Isolation.Names(); len(names) > 0 {
		return api.Errorf(api.CodeLimitsUnavailable, "this daemon cannot enforce the requested isolation").
			With("isolation", names).
			WithHint("system.info lists the isolations that can be enforced; leave isolation out to run without")
	}
	if params.TTY != nil {
		return terminal.CheckSize(*params.TTY, "tty")
	}
	return nil
}

func findShell(name string) (shell.Program, error) {
	program, ok := shell.Find(name)
	if !ok {
		return program, api.Errorf(api.CodeShellNotFound, "no such shell on this host").
			With("shell", name).
			WithHint("system.info lists the shells found here; or give the path of one")
	}
	if program.Family == "" {
		return program, api.Errorf(api.CodeShellNotFound, "%s is not a shell that can be driven", program.Path).
			With("shell", name).
			WithHint("use %s; to run a single program use argv instead of shell", shell.Alternatives())
	}
	return program, nil
}

// start starts the shell or the direct command. On an error nothing is left.
func (s *Session) start() error {
	tree, err := s.shared.host.NewTree(s.id)
	if err != nil {
		close(s.destroyed)
		return api.Errorf(api.CodeInternal, "create process tree: %w", err)
	}
	s.tree = tree
	s.persistTree()
	if err := s.setLimits(); err != nil {
		s.cleanUpFailedStart()
		return err
	}
	if s.params.TTY != nil {
		if s.term, err = terminal.Open(s.terminalConfig(), *s.params.TTY); err != nil {
			s.cleanUpFailedStart()
			return api.Errorf(api.CodeInternal, "%w", err)
		}
	}
	if len(s.params.Argv) > 0 {
		err = s.startDirect()
	} else {
		err = s.startShell()
	}
	if err != nil {
		s.cleanUpFailedStart()
	}
	return err
}

// shellConfig returns the configuration of the session's shell.
func (s *Session) shellConfig() shell.Config {
	cfg := shell.Config{
		Tree: s.tree, Program: s.program, Dir: s.params.Cwd, Env: s.env, Login: s.params.Login, Grace: s.shared.cfg.Grace,
		BootTime: time.Duration(s.params.CreateTimeoutMS) * time.Millisecond,
	}
	if s.term != nil {
		cfg.Terminal, cfg.TTY = s.term.Leader(), s.term.Name()
	}
	if s.shared.cfg.Ledger != nil {
		key := shellPrefix + s.id
		cfg.Save = func(state []byte) { s.shared.ledger.Put(key, state) }
	}
	return cfg
}

func (s *Session) startShell() error {
	if s.term != nil {
		if err := s.term.Lead(s.tree); err != nil {
			return api.Errorf(api.CodeInternal, "%w", err)
		}
	}
	cfg := s.shellConfig()
	sh, err := s.shared.driver.Open(s.creationCtx, cfg)
	if err != nil {
		return s.errNoShell(err)
	}
	s.shell = sh
	if res := sh.LoginResult(); res != nil {
		s.login = loginResult(*res)
		if s.login.TimedOut || s.login.Outcome != api.OutcomeExited || *s.login.ExitCode != 0 {
			s.shared.cfg.Log.Warn("login files failed", "event", "login_failed", "session", s.id, "outcome", s.login.Outcome, "exit_code", *s.login.ExitCode)
		}
	}
	s.started(api.StateIdle)
	return nil
}

// errNoShell returns the error for a shell that did not start.
func (s *Session) errNoShell(err error) error {
	crash, crashed := errors.AsType[*shell.CrashError](err)
	_, unstarted := errors.AsType[*shell.StartError](err)
	switch {
	case s.creationCtx.Err() != nil:
		return errDestroyedInCreation().With("session_id", s.id)
	case crashed:
		return s.explainLimit(api.Errorf(api.CodeShellCrashed, "%s: %w", s.program.Path, crash).
			With("exit_code", crash.Status.Code).
			With("signal", process.SignalName(crash.Status.Signal)).
			With("stderr", string(crash.Stderr)).
			WithHint("try another shell, or check env and cwd"))
	case unstarted && (errors.Is(err, unix.ENOEXEC) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOENT)):
		return api.Errorf(api.CodeShellNotFound, "%w", err).With("shell", s.program.Path).
			WithHint("system.info lists the shells found here; or give the path of one")
	default:
		return s.explainLimit(api.Errorf(api.CodeInternal, "%s: %w", s.program.Path, err).WithHint("try again, or try another shell"))
	}
}

// loginResult returns how the login files ended.
func loginResult(res shell.Result) *api.Login {
	var r api.ExecResult
	exec.FillShellResult(&r, res)
	if res.Stopped {
		r.Outcome = api.OutcomeTimedOut
	}
	return &api.Login{Outcome: r.Outcome, ExitCode: r.ExitCode, TimedOut: res.Stopped}
}
