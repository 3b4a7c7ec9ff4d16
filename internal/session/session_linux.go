package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/terminal"
)

// Session is one long-lived shell, or one direct command, with all its descendants.
// While idle it has no goroutine and costs one descriptor.
type Session struct {
	shared  *shared
	id      string
	number  int64                   // in the order of creation
	owner   string                  // who created it; "" if an earlier version did, which did not ask
	params  api.SessionCreateParams // as requested, without the values of the environment
	sum     uint32                  // checksum of the params, if it has a key
	envKeys []string
	program shell.Program // of a shell session
	env     []string      // for the shell, and for one that replaces it
	timeout time.Duration
	idleTTL time.Duration
	// reconnect is how long it outlives its last connection, if it ends with its
	// connections.
	reconnect time.Duration
	limits    *api.LimitsInForce    // nil means none; set before it is created
	wallEnd   time.Duration         // when its time is over, since boot; 0 means never
	isolation *api.IsolationInForce // of a remote session; nil means none
	created   time.Time
	// unreadable says why a session of an earlier daemon can't be adopted; "" means
	// that it was. Such a session has processes and nothing else.
	unreadable string
	// leftKeys are the records of such a session in the ledger, besides its own,
	// which are kept until it ends.
	leftKeys []string

	tree  *process.Tree      // set by start
	shell *shell.Shell       // nil in a direct session
	proc  *process.Proc      // of a direct session
	term  *terminal.Terminal // of a tty session

	remote    Remote      // runs a session that is only listed here; nil: it runs here
	described api.Session // such a session as it was last known; guarded by mu

	creationCtx    context.Context    // cancelled when it is destroyed
	cancelCreation context.CancelFunc // cancels creationCtx
	login          *api.Login         // how its login files ended; nil if it read none
	ready          chan struct{}      // closed when it is created, or could not be
	createFailed   bool               // valid after ready is closed
	// destroyedInCreation is true if destroy was called before the session was
	// created. Valid after start.
	destroyedInCreation bool
	destroyed           chan struct{} // closed when the tree is verified empty
	survivors           []api.Process // valid after destroyed is closed
	forceKill           chan struct{} // closed to skip the grace

	admission arrival.Turn // of commands, in arrival order

	// sizeMu is held while the terminal is resized, which may have to wait for its
	// output to reach a disk. It is taken before mu.
	sizeMu sync.Mutex

	mu              sync.Mutex
	state           api.State
	ending          bool // destroy has begun: no new exec
	endReason       string
	forceKilled     bool
	active          time.Time // when a command last began or ended
	lastAttended    time.Time // when a client last typed, looked or stopped following
	readers         int       // streams that follow it
	idleCwd         string    // the shell's, since its last exec ended: it can't change while idle
	running         *exec.Exec
	queue           []*exec.Exec // in arrival order
	finished        []*exec.Exec // retained, oldest first
	keys            map[string]*exec.Exec
	execCount       int64
	gate            holder.Slot // of a direct command that may not have been let run yet; 0 if it was
	terminated      *api.Terminated
	wall            *time.Timer     // ends it when its time is over; nil means never
	lease           *keyboardLease  // nil means that every client may type
	connections     connections     // of a session that ends with its connections
	inputEpoch      context.Context // done when the clients that may type now no longer may; nil if none has typed since
	endInputEpoch   context.CancelFunc
	lastTyped       time.Time    // when a client last typed without a lease
	sizeBeforeLease *api.TTYSize // of the terminal, before the lease; nil if it did not change
}

// shared is what all sessions of a pool use.
type shared struct {
	cfg      Config
	host     *process.Host
	driver   *shell.Driver
	ledger   *ledgerWriter
	execEnv  *exec.Env
	registry registry
	execs    index[execRef] // of all sessions; its lock is taken last
	events   eventLogs      // its locks are taken last
	prompts  prompts        // its lock is taken after Session.mu
	usedKeys usedKeys       // its lock is taken last
	work     sync.WaitGroup // every goroutine of the pool; see spawn

	execsTotal    atomic.Int64
	execsRunning  atomic.Int64
	execQuota     atomic.Int64  // finished execs that each session retains now
	sweepRequests chan struct{} // see requestSweep
}

// registry is the list of sessions that a session is in.
type registry interface {
	// childrenOf returns the sessions that end with the one that has this id.
	childrenOf(id string) []*Session
	// sessionEnded is called once, when a session that was started has ended.
	sessionEnded(s *Session)
}

// execRef is an exec and its session.
type execRef struct {
	session *Session
	exec    *exec.Exec
}

func newShared(cfg Config, host *process.Host, driver *shell.Driver, store *journal.Store) *shared {
	h := &shared{
		cfg: cfg, host: host, driver: driver, ledger: &ledgerWriter{ledger: cfg.Ledger, log: cfg.Log},
		sweepRequests: make(chan struct{}, 1),
	}
	env := exec.Config{Keeper: cfg.Keeper, Journals: store, Log: cfg.Log, Spawn: h.spawn}
	if cfg.Ledger != nil {
		env.Ledger = h.ledger
	}
	if cfg.Observer != nil {
		env.Ended = cfg.Observer.ExecEnded
	}
	h.execEnv = exec.NewEnv(env)
	return h
}

// spawn starts a goroutine that Shutdown waits for.
func (h *shared) spawn(fn func()) { h.work.Go(fn) }

// requestSweep makes the housekeeping check again: something may be due sooner than
// it expects.
func (h *shared) requestSweep() {
	select {
	case h.sweepRequests <- struct{}{}:
	default: // a request is pending
	}
}

// rememberKey remembers the key of an exec or a session that is forgotten.
func (h *shared) rememberKey(k usedKey) {
	gone, full := h.usedKeys.add(k)
	if h.cfg.Ledger == nil {
		return
	}
	h.ledger.Put(k.ledgerKey(), nil)
	if full {
		h.ledger.Erase(gone.ledgerKey())
	}
}

// terminalConfig returns the configuration of the session's terminal.
func (s *Session) terminalConfig() terminal.Config {
	cfg := terminal.Config{Keeper: s.shared.cfg.Keeper, Spawn: s.shared.spawn}
	if s.shared.cfg.Ledger != nil {
		key := screenPrefix + s.id
		cfg.SaveScreen = func(snapshot []byte) { s.shared.ledger.Put(key, snapshot) }
	}
	return cfg
}

// key returns the key that the session was created with.
func (s *Session) key() usedKey { return creationKey(s.owner, s.params.Key) }

// touch records that a client types or looks, so that the session does not count as
// idle.
func (s *Session) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastAttended = time.Now()
}

// addReader does so until leave is called.
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

// idleSince returns since when no client uses the session, zero if one does. The
// caller must hold mu.
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

func (s *Session) errIfTerminated() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != api.StateTerminated {
		return nil
	}
	return s.errTerminated()
}

// errCreating is the error for a session that is not ready yet.
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

// errIfUnreadable returns an error if the session could not be adopted.
func (s *Session) errIfUnreadable() error {
	if s.unreadable == "" {
		return nil
	}
	return api.Errorf(api.CodeSessionUnreadable, "this daemon cannot adopt the session: %s", s.unreadable).With("session_id", s.id).
		WithHint("session.info lists its processes, session.destroy ends them; a daemon of another version may be able to adopt it")
}

// terminal returns the terminal of a session that is ready.
func (s *Session) terminal() (*terminal.Terminal, error) {
	if err := s.errIfCreating(); err != nil {
		return nil, err
	}
	if err := s.errIfUnreadable(); err != nil {
		return nil, err
	}
	if s.term == nil {
		return nil, terminal.ErrNoTerminal().With("session_id", s.id)
	}
	return s.term, nil
}

// errLost is the error for a session that ends because the holder is gone.
func (s *Session) errLost() *api.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errTerminated().With("reason", api.ReasonLost)
}

// errTerminated says why the session can't be used. The caller must hold s.mu.
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

// errDestroyedInCreation is the error for the creator of a session that another
// client destroyed before it was ready.
func errDestroyedInCreation() *api.Error {
	return api.Errorf(api.CodeSessionTerminated, "the session was destroyed while it was being created").
		WithHint("session.create makes a new one")
}

func errShuttingDown() *api.Error {
	return api.Errorf(api.CodeShuttingDown, "the daemon is shutting down").WithHint("reconnect when it has restarted")
}
