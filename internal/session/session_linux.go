package session

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/printable"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
)

// Session is one long-lived shell, or one direct command, with everything that
// descends from it. While idle it has no goroutine and costs one descriptor.
type Session struct {
	pool    *Pool
	id      string
	number  int64                   // in the order of creation
	owner   string                  // who made it; "": an earlier version, which did not ask
	params  api.SessionCreateParams // as asked for, without the environment's values
	sum     uint32                  // of what was asked for, if it has a key
	envKeys []string
	program shell.Program // of a shell session
	env     []string      // given to the shell, and to the one that replaces it
	timeout time.Duration
	idleTTL time.Duration
	// reconnect is how long it outlives its last connection, if it ends with those.
	reconnect time.Duration
	created   time.Time
	// unreadable says why a session of an earlier daemon can't be gone on with;
	// "" means that it can. Such a session has processes, and nothing else.
	unreadable string
	// leftRecords are what the ledger has of such a session besides its own
	// record, and keeps until it is ended.
	leftKeys []string

	tree  *process.Tree // set by start
	shell *shell.Shell  // nil in a direct session
	proc  *process.Proc // of a direct session
	term  *Terminal     // of a tty session

	creationCtx    context.Context    // cancelled when it is destroyed
	cancelCreation context.CancelFunc // cancels it
	login          *api.Login         // how its login files ended; nil: it read none
	ready          chan struct{}      // closed when it is made, or could not be
	createFailed   bool               // valid after made is closed
	destroyed      chan struct{}      // closed when the tree is verified empty
	survivors      []api.Process      // valid after destroyed is closed
	forceKill      chan struct{}      // closed when the grace is to be cut

	admission turn // of commands, in the order in which they came

	// sizing is held while the terminal gets another size, which may have to wait
	// for its output to reach a disk; taken before mu.
	sizeMu sync.Mutex

	mu              sync.Mutex
	state           api.State
	ending          bool // destroy has begun: no new exec
	endReason       string
	forceKilled     bool
	active          time.Time // when it was last used to run something
	lastAttended    time.Time // when somebody last typed, looked or stopped following
	readers         int       // streams that follow it
	idleCwd         string    // the shell's, since its last exec ended: it can't change while idle
	running         *Exec
	queue           []*Exec // execs that wait, in arrival order
	finished        []*Exec // kept ones, oldest first
	keys            map[string]*Exec
	execCount       int64
	gate            holder.Slot // of a direct command that may not have been let run yet; 0: it was
	terminated      *api.Terminated
	lease           *keyboardLease  // nil: everybody may type
	connections     connections     // of one that ends with its connections
	inputEpoch      context.Context // of those who may type now; nil: nobody has since the last fence
	endInputEpoch   context.CancelFunc
	lastTyped       time.Time    // when somebody did last without a hold
	sizeBeforeLease *api.TTYSize // of the terminal, before holders changed it; nil: they did not
}

// newSession checks the parameters and makes a session that is not started.
func (p *Pool) newSession(params api.SessionCreateParams, owner string) (*Session, error) {
	if err := checkNames(params.Name, params.Tags); err != nil {
		return nil, err
	}
	if err := checkSupported(&params); err != nil {
		return nil, err
	}
	now := time.Now()
	s := &Session{
		pool: p, id: newID(sessionIDPrefix), number: p.numbers.Add(1), owner: owner, state: api.StateCreating, created: now, active: now,
		timeout:   p.cfg.DefaultTimeout,
		idleTTL:   p.cfg.IdleTTL,
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
	if _, told := params.Env["TERM"]; params.TTY != nil && !told {
		env = terminalEnv(env)
	}
	s.env = env
	s.envKeys = slices.Sorted(maps.Keys(params.Env))
	params.Env = nil
	s.params = params
	return s, nil
}

// errNUL refuses a text that no program can be given as it is.
func errNUL(field string) error {
	return api.Errorf(api.CodeInvalidParams, "%s has a NUL byte", field).With("field", field).
		WithHint("no shell and no program takes one there; to give a program such bytes, use its stdin")
}

// maxName is how long a name or a tag may be, in bytes: they stand in lists.
const maxName = 1024

// checkNames refuses names and tags that a reader can't see for what they are.
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
	return api.Errorf(api.CodeInvalidParams, "%s must be of one line, without control and invisible characters", field).
		With("field", field).WithHint("leave out line breaks, escapes and bidi controls")
}

// unsupported refuses what was asked for and can't be given here. Nothing is
// silently ignored.
func checkSupported(params *api.SessionCreateParams) error {
	if params.Runtime != "" && params.Runtime != api.RuntimeHost {
		return api.Errorf(api.CodeRuntimeNotFound, "there is no such runtime here").
			WithHint(`leave runtime out, or use "host"; system.info lists the runtimes`)
	}
	if len(params.Limits) > 0 {
		return api.Errorf(api.CodeLimitsUnavailable, "this daemon can't enforce the limits that were asked for").
			With("limits", slices.Sorted(maps.Keys(params.Limits))).
			WithHint("system.info lists the limits that can be enforced; leave limits out to run without")
	}
	if len(params.Isolation) > 0 {
		return api.Errorf(api.CodeLimitsUnavailable, "this daemon can't enforce the isolation that was asked for").
			With("isolation", slices.Sorted(maps.Keys(params.Isolation))).
			WithHint("system.info lists the isolations that can be enforced; leave isolation out to run without")
	}
	if params.TTY != nil {
		return checkSize(*params.TTY, "tty")
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

// checkDir refuses a working directory that can't be one. "" is the daemon's.
func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	st, err := os.Stat(dir)
	if err == nil && !st.IsDir() {
		err = unix.ENOTDIR
	}
	if err == nil {
		err = unix.Access(dir, unix.X_OK)
	}
	if err != nil {
		return api.Errorf(api.CodeCwdNotFound, "cwd: %s", reason(err)).With("cwd", dir).
			WithHint("give an existing directory, or create it first with a command")
	}
	return nil
}

// reason is the plain cause of a file error, without the path it repeats.
func reason(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// start starts the shell or the direct command. On an error nothing is left.
func (s *Session) start() error {
	tree, err := s.pool.host.NewTree(s.id)
	if err != nil {
		close(s.destroyed)
		return api.Errorf(api.CodeInternal, "no process tree: %w", err)
	}
	s.tree = tree
	s.persistTree()
	if s.params.TTY != nil {
		if s.term, err = s.pool.openTerminal(*s.params.TTY); err != nil {
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

// shellConfig is what the session's shell is driven with.
func (s *Session) shellConfig() shell.Config {
	cfg := shell.Config{
		Tree: s.tree, Program: s.program, Dir: s.params.Cwd, Env: s.env, Login: s.params.Login, Grace: s.pool.cfg.Grace,
		BootTime: time.Duration(s.params.CreateTimeoutMS) * time.Millisecond,
	}
	if s.term != nil {
		cfg.Terminal, cfg.TTY = s.term.leader, s.term.slave.Name()
	}
	if s.pool.cfg.Ledger != nil {
		key := shellPrefix + s.id
		cfg.Save = func(state []byte) { s.pool.put(key, state) }
	}
	return cfg
}

func (s *Session) startShell() error {
	if s.term != nil {
		leader, err := s.tree.NewTerminal(s.term.slave)
		if err != nil {
			return api.Errorf(api.CodeInternal, "%w", err)
		}
		s.term.leader = leader
		if err := s.term.keepLeader(); err != nil {
			return api.Errorf(api.CodeInternal, "%w", err)
		}
	}
	cfg := s.shellConfig()
	sh, err := s.pool.driver.Open(s.creationCtx, cfg)
	if err != nil {
		return s.errNoShell(err)
	}
	s.shell = sh
	if res := sh.LoginResult(); res != nil {
		s.login = loginResult(*res)
		if s.login.TimedOut || s.login.Outcome != api.OutcomeExited || *s.login.ExitCode != 0 {
			s.pool.cfg.Log.Warn("login files have failed", "event", "login_failed", "session", s.id, "outcome", s.login.Outcome, "exit_code", *s.login.ExitCode)
		}
	}
	s.started(api.StateIdle)
	return nil
}

// errNoShell says why the session has no shell.
func (s *Session) errNoShell(err error) error {
	crash, crashed := errors.AsType[*shell.CrashError](err)
	_, unstarted := errors.AsType[*shell.StartError](err)
	switch {
	case s.creationCtx.Err() != nil:
		return errDestroyedInCreation().With("session_id", s.id)
	case crashed:
		return api.Errorf(api.CodeShellCrashed, "%s: %w", s.program.Path, crash).
			With("exit_code", crash.Status.Code).
			With("signal", process.SignalName(crash.Status.Signal)).
			With("stderr", string(crash.Stderr)).
			WithHint("try another shell, or look at env and cwd: the shell could not start with them")
	case unstarted && (errors.Is(err, unix.ENOEXEC) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOENT)):
		return api.Errorf(api.CodeShellNotFound, "%w", err).With("shell", s.program.Path).
			WithHint("system.info lists the shells found here; or give the path of one")
	default:
		return api.Errorf(api.CodeInternal, "%s: %w", s.program.Path, err).WithHint("try again, or try another shell")
	}
}

// errCutShort is the answer to who asked for a session that somebody destroyed before
// it was made.
func errDestroyedInCreation() *api.Error {
	return api.Errorf(api.CodeSessionTerminated, "the session was destroyed while it was being created").
		WithHint("session.create makes a new one")
}

// loginOf is how the login startup files ended, in the words of the contract.
func loginResult(res shell.Result) *api.Login {
	var r api.ExecResult
	fillShellResult(&r, res)
	if res.Stopped {
		r.Outcome = api.OutcomeTimedOut
	}
	return &api.Login{Outcome: r.Outcome, ExitCode: r.ExitCode, TimedOut: res.Stopped}
}

// endsAlready reports whether somebody has destroyed it.
func (s *Session) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// attend says that somebody types or looks: the session is not forgotten.
func (s *Session) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastAttended = time.Now()
}

// follow says so from now on, until leave is called.
func (s *Session) addReader() (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.readers--
		s.lastAttended = time.Now()
	}
}

// idleSince is when nobody had to do with the session any more; zero: somebody has.
// Under mu.
func (s *Session) idleSince() time.Time {
	if s.state != api.StateIdle || s.readers > 0 || s.lease != nil {
		return time.Time{}
	}
	if s.lastAttended.After(s.active) {
		return s.lastAttended
	}
	return s.active
}

func (s *Session) currentState() api.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *Session) currentPID() int {
	if s.shell != nil {
		pid, _ := s.shell.PID()
		return pid
	}
	return s.proc.PID()
}

func (s *Session) errIfTerminated() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != api.StateTerminated {
		return nil
	}
	return s.errTerminated()
}

// errCreating says that the session is not there yet.
func (s *Session) errCreating() *api.Error {
	return api.Errorf(api.CodeSessionBusy, "the session is being created").With("session_id", s.id).
		WithHint("use it when session.create has answered")
}

func (s *Session) errIfCreating() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == api.StateCreating {
		return s.errCreating()
	}
	return nil
}

// errIfUnreadable refuses what only a session can do that was taken over.
func (s *Session) errIfUnreadable() error {
	if s.unreadable == "" {
		return nil
	}
	return api.Errorf(api.CodeSessionUnreadable, "this daemon can't go on with the session: %s", s.unreadable).With("session_id", s.id).
		WithHint("session.info lists its processes, session.destroy ends them; a daemon of another version may be able to go on")
}

// terminal returns the terminal of a session that has been made.
func (s *Session) terminal() (*Terminal, error) {
	if err := s.errIfCreating(); err != nil {
		return nil, err
	}
	if err := s.errIfUnreadable(); err != nil {
		return nil, err
	}
	if s.term == nil {
		return nil, errNoTerminal().With("session_id", s.id)
	}
	return s.term, nil
}

// errLost says that nothing more can be kept for the session, which ends it.
func (s *Session) errLost() *api.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errTerminated().With("reason", api.ReasonLost)
}

// errTerminated says why the session can't be used. Under s.mu.
func (s *Session) errTerminated() *api.Error {
	if s.endReason == api.ReasonShutdown {
		return errShuttingDown()
	}
	text := "the session has ended"
	if s.terminated == nil {
		text = "the session is being ended"
	}
	e := api.Errorf(api.CodeSessionTerminated, "%s", text).With("session_id", s.id).
		WithHint("session.info still answers; session.create makes a new one")
	if s.terminated != nil {
		e = e.With("reason", s.terminated.Reason)
	}
	return e
}

// snapshot is the session as the contract shows it.
func (s *Session) snapshot() api.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := api.Session{
		SessionID: s.id, Name: s.params.Name, Tags: s.params.Tags, Owner: s.owner, Runtime: api.RuntimeHost, State: s.state,
		Shell: s.program.Path, Argv: s.params.Argv, TTY: s.params.TTY,
		CreatedAt: api.Time{Time: s.created}, LastActivityAt: api.Time{Time: s.active},
		ExecCount: s.execCount, TimeoutMS: s.timeout.Milliseconds(), IdleTTLMS: s.idleTTL.Milliseconds(),
		EnvKeys: s.envKeys, Parent: s.params.Parent, WhileConnected: s.params.WhileConnected, Unreadable: s.unreadable, Terminated: s.terminated,
		Login: s.login, Ending: s.ending && s.terminated == nil,
	}
	if s.unreadable != "" {
		return out
	}
	if s.lease != nil {
		out.Held = s.lease.describe()
	}
	if s.running != nil {
		out.ExecID = s.running.id
	} else if len(s.params.Argv) > 0 && len(s.finished) > 0 {
		out.ExecID = s.finished[0].id // the only one of a direct session
	}
	if s.state == api.StateIdle || s.state == api.StateRunning {
		if pid := s.currentPID(); s.tree.Alive(pid) {
			out.PID = pid
		}
		if out.Cwd = s.idleCwd; out.Cwd == "" || s.state == api.StateRunning {
			out.Cwd = s.cwd()
		}
	}
	return out
}

func (s *Session) cwd() string {
	var dir string
	var err error
	if s.shell != nil {
		dir, err = s.shell.Cwd()
	} else {
		dir, err = s.proc.Cwd()
	}
	if err != nil {
		return "" // it is just going
	}
	return dir
}

// info adds what goes on in the session.
func (s *Session) info() *api.SessionInfo {
	info := &api.SessionInfo{Session: s.snapshot(), Processes: []api.Process{}}
	s.mu.Lock()
	running := s.running
	if !s.lastTyped.IsZero() {
		info.TypedAt = &api.Time{Time: s.lastTyped}
	}
	var last *Exec
	if n := len(s.finished); n > 0 {
		last = s.finished[n-1]
	}
	s.mu.Unlock()
	if running != nil {
		info.Exec = running.result()
	}
	if last != nil {
		info.LastExec = last.result()
	}
	if info.State != api.StateIdle && info.State != api.StateRunning {
		return info
	}
	info.Processes = s.describeProcesses(s.tree.PIDs())
	info.Waiting = s.waiting()
	if cpu, ok := s.tree.CPU(); ok {
		info.Usage = &api.Usage{CPUMS: cpu.Milliseconds()}
	}
	return info
}

// describe tells of processes of the session, with the role or the exec of
// each where it is known.
func (s *Session) describeProcesses(pids []int) []api.Process {
	infos := s.tree.Describe(pids)
	marks := s.marks()
	var shellPID, standbyPID int
	if s.shell != nil {
		shellPID, standbyPID = s.shell.PID()
	}
	out := make([]api.Process, 0, len(infos))
	for _, in := range infos {
		p := api.Process{PID: in.PID, PPID: in.PPID, AgeMS: in.Age.Milliseconds(), RSSBytes: in.RSS, Command: s.displayCommand(in.Command)}
		switch {
		case in.PID == shellPID:
			p.Role = api.RoleShell
		case s.term != nil && s.term.leads(in.PID):
			p.Role = api.RoleLeader
		case in.PID == standbyPID || s.shell != nil && in.Mark == 0:
			p.Role = api.RoleStandby
		default:
			p.ExecID = marks[in.Mark]
		}
		out = append(out, p)
	}
	return out
}

// shown is a command line as it is told. Where a driven shell has its commands from is
// nobody's business: it is by the shell's name that people know it.
func (s *Session) displayCommand(command string) string {
	if s.shell == nil || !s.program.IsDriven(command) {
		return command
	}
	name, _, _ := strings.Cut(command, " ")
	return name
}

// marks maps the marks of processes to the execs that are known.
func (s *Session) marks() map[uint32]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := make(map[uint32]string, len(s.finished)+1)
	for _, e := range s.finished {
		m[e.mark] = e.id
	}
	if s.running != nil {
		m[s.running.mark] = s.running.id
	}
	return m
}
