package session

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/freelist"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/ledger"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
)

// Config of a Pool. Every zero value stands for its default.
type Config struct {
	// MaxSessions bounds the live sessions. Default 10,000: what one node is
	// built and tested for.
	MaxSessions int
	// DefaultTimeout is the timeout of execs in sessions that set none.
	// Default: none; an agent knows its commands, TRL does not.
	DefaultTimeout time.Duration
	// IdleTTL destroys a session that was idle for so long and set no TTL of
	// its own. Default: never.
	IdleTTL time.Duration
	// Grace is the time between SIGTERM and SIGKILL. Default 5 s.
	Grace time.Duration
	// Housekeeping is how often TTLs and retention are looked at at the most:
	// how late they may be. Default 1 s.
	Housekeeping time.Duration
	// SessionRetention is how long session.info answers for a terminated
	// session. Default 10 min.
	SessionRetention time.Duration
	// ExecRetention is how long a finished exec and its output are kept.
	// Default 1 h.
	ExecRetention time.Duration
	// MaxTerminated bounds the terminated sessions kept. Default 1,000.
	MaxTerminated int
	// MaxExecs bounds the finished execs kept for each session. Default 100.
	MaxExecs int
	// MaxOutputBytes is how much of each stream a result carries. Default
	// 128 KiB, half from the head and half from the tail: about as much as
	// fits a model's context, and the journal has the rest.
	MaxOutputBytes int64
	// InputBuffer is how many bytes of one command's input are held that its pipe
	// has not taken, at most. Default 16 MiB.
	InputBuffer int64
	// Log receives what happens to sessions, never what they run. Default:
	// discarded.
	Log *slog.Logger
	// Observer is told of every end. Default: nobody is.
	Observer Observer
	// Keeper has what must outlive this process. Default: nothing does.
	Keeper holder.Keeper
	// Ledger is where it is noted what a later process must know to go on with
	// the sessions. Default: nowhere.
	Ledger *ledger.Ledger
	// EndUnreadable ends the processes of a session that can't be taken over
	// from an earlier daemon. Default: they stay until the session is destroyed.
	EndUnreadable bool
}

// Observer counts what ends in a pool. It is called with locks held, and must
// return at once.
type Observer interface {
	// ExecEnded is told how and after how long; stopped means that TRL ended
	// the command, for a timeout or because it was asked to.
	ExecEnded(outcome api.Outcome, took time.Duration, stopped bool)
	// SessionEnded is told how many processes could not be killed.
	SessionEnded(survivors int)
}

func (c *Config) setDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.Grace, 5*time.Second)
	def(&c.Housekeeping, time.Second)
	def(&c.SessionRetention, 10*time.Minute)
	def(&c.ExecRetention, time.Hour)
	if c.MaxSessions == 0 {
		c.MaxSessions = 10_000
	}
	if c.MaxTerminated == 0 {
		c.MaxTerminated = 1_000
	}
	if c.MaxExecs == 0 {
		c.MaxExecs = 100
	}
	if c.MaxOutputBytes == 0 {
		c.MaxOutputBytes = 128 << 10
	}
	if c.InputBuffer == 0 {
		c.InputBuffer = 16 << 20
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Keeper == nil {
		c.Keeper = holder.NewLocalKeeper()
	}
}

// Pool owns all sessions.
//
// Lock order: Pool.mu, then Session.mu, then exec.mu. None is held across a
// system call that can block, nor while a shell runs.
type Pool struct {
	cfg          Config
	host         *process.Host
	driver       *shell.Driver
	store        *journal.Store
	outputPipes  *freelist.List[*outputPipe] // pipes for the output of commands
	stateBuffers sync.Pool                   // of *noteBuffer

	mu         sync.Mutex
	closing    bool
	sessions   map[string]*Session   // live and terminated, by id
	order      []*Session            // the same, oldest first
	keys       map[usedKey]*Session  // those that were made with a key
	live       int                   // creating, idle or running
	terminated int                   // terminated
	children   map[string][]*Session // of living sessions, those that end with one
	execs      map[string]*Exec
	work       sync.WaitGroup // every goroutine of the pool; see begin
	events     events         // its lock is taken last
	usedKeys   usedKeys       // its lock too
	history    history        // of sessions that ended before this process took over

	sessionsTotal, execsTotal atomic.Int64
	numbers                   atomic.Int64 // of sessions, in the order of creation
	persistFailed             atomic.Bool  // something could not be noted, which was said
	execsRunning              atomic.Int64
	execQuota                 atomic.Int64  // finished execs kept for each session now
	stop                      chan struct{} // ends the housekeeping
	sweepRequests             chan struct{} // has it look again; see sweepSooner
}

// NewPool starts an empty pool.
func NewPool(cfg Config, host *process.Host, hub *shell.Driver, store *journal.Store) *Pool {
	cfg.setDefaults()
	p := &Pool{
		cfg: cfg, host: host, driver: hub, store: store, outputPipes: newOutputPipes(cfg.Keeper),
		sessions: map[string]*Session{}, keys: map[usedKey]*Session{},
		execs: map[string]*Exec{}, children: map[string][]*Session{},
		stop:          make(chan struct{}),
		stateBuffers:  sync.Pool{New: func() any { return new(stateBuffer) }},
		sweepRequests: make(chan struct{}, 1),
	}
	p.execQuota.Store(int64(cfg.MaxExecs))
	p.spawn(p.housekeep)
	return p
}

// begin is the door through which the pool's goroutines start, so that
// Shutdown can wait for all of them.
func (p *Pool) spawn(fn func()) { p.work.Go(fn) }

// sessionID is what the id of every session begins with.
const sessionIDPrefix = "s-"

// newID makes an id of 50 random bits: short enough to type, and no two alike
// among the millions a daemon ever makes.
func newID(prefix string) string {
	const letters = "0123456789abcdefghijklmnopqrstuv"
	var b [10]byte
	_, _ = rand.Read(b[:]) // it never fails
	for i := range b {
		b[i] = letters[b[i]%byte(len(letters))]
	}
	return prefix + string(b[:])
}

// Create starts a session and returns when it can be used. If it can't be
// started, nothing is left behind. One that its owner made with the same key is
// returned as it is now.
func (p *Pool) Create(ctx context.Context, params api.SessionCreateParams, owner string) (*api.Session, error) {
	if err := checkKey(params.Key); err != nil {
		return nil, err
	}
	if err := checkLifetime(ctx, &params); err != nil {
		return nil, err
	}
	p.history.await() // sessions are numbered
	s, err := p.findOrCreate(ctx, owner, params)
	if err != nil {
		return nil, err
	}
	s.trackConnection(ctx)
	snapshot := s.snapshot()
	return &snapshot, nil
}

// madeOrMake returns the session that was made with the same key, or makes one.
func (p *Pool) findOrCreate(ctx context.Context, owner string, params api.SessionCreateParams) (*Session, error) {
	s, err := p.findByKey(ctx, owner, params)
	if err == nil && s == nil {
		s, err = p.create(ctx, owner, params)
	}
	return s, err
}

// madeWith returns the session that its owner made with the same key, once it is
// made; nil: there is none.
func (p *Pool) findByKey(ctx context.Context, owner string, params api.SessionCreateParams) (*Session, error) {
	for params.Key != "" {
		p.mu.Lock()
		first, err := p.lookupKey(creationKey(owner, params.Key), sumOf(params))
		p.mu.Unlock()
		if first == nil || err != nil {
			return nil, err
		}
		select {
		case <-first.ready:
		case <-ctx.Done():
			return nil, errCallerLeft(ctx)
		}
		if !first.createFailed {
			return first, nil
		} // else nothing of it is left, and its key is free
	}
	return nil, nil
}

// make makes a session, or returns the one that was made with its key meanwhile.
func (p *Pool) create(ctx context.Context, owner string, params api.SessionCreateParams) (*Session, error) {
	s, err := p.newSession(params, owner)
	if err != nil {
		return nil, err
	}
	if first, err := p.add(s); err != nil {
		return nil, err
	} else if first != s {
		return p.findOrCreate(ctx, owner, params)
	}
	defer close(s.ready)
	if err := s.start(); err != nil {
		s.createFailed = true
		p.removeFailed(s)
		return nil, err
	}
	p.sessionsTotal.Add(1)
	if s.isEnding() {
		return nil, errDestroyedInCreation().With("session_id", s.id)
	}
	p.cfg.Log.Info("session created", "event", "session_created", "session", s.id, "owner", s.owner, "pid", s.currentPID())
	return s, nil
}

// first returns the session that was made with a key; nil: none was. Under mu.
func (p *Pool) lookupKey(key usedKey, sum uint32) (*Session, error) {
	first := p.keys[key]
	switch {
	case first != nil && first.sum != sum:
		return nil, errOtherParams()
	case first == nil && p.usedKeys.has(key):
		return nil, api.Errorf(api.CodeSessionNotFound, "a session was made with this key, and it is no longer kept").
			WithHint("it is not made again; to make another send another key")
	}
	return first, nil
}

// add makes s one of the pool's sessions, or returns the one that was made with its
// key.
func (p *Pool) add(s *Session) (first *Session, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.params.Key != "" {
		if first, err := p.lookupKey(s.key(), s.sum); first != nil || err != nil {
			return first, err
		}
	}
	if err := p.errIfFull(); err != nil {
		return nil, err
	}
	if err := p.checkParent(s); err != nil {
		return nil, err
	}
	p.live++
	p.addSession(s)
	p.addChild(s)
	p.updateExecQuota()
	if s.idleTTL > 0 {
		p.requestSweep()
	}
	return s, nil
}

// enlist makes a session known. Under mu.
func (p *Pool) addSession(s *Session) {
	p.sessions[s.id] = s
	p.order = append(p.order, s)
	if s.params.Key != "" {
		p.keys[s.key()] = s
	}
}

// key is what the session was made with.
func (s *Session) key() usedKey { return creationKey(s.owner, s.params.Key) }

// keyOf is the key of a session: those of one owner are not those of another.
func creationKey(owner, key string) usedKey { return usedKey{key: owner + "/" + key} }

// errIfFull returns an error if no session can be added. Under mu.
func (p *Pool) errIfFull() error {
	if p.closing {
		return errShuttingDown()
	}
	if p.live >= p.cfg.MaxSessions {
		return api.Errorf(api.CodeMaxSessions, "the pool is full: %d sessions are alive", p.live).
			With("max_sessions", p.cfg.MaxSessions).
			WithHint("destroy a session that is no longer needed (session.list shows them), or raise max_sessions")
	}
	return nil
}

// drop forgets a session that never started.
func (p *Pool) removeFailed(s *Session) {
	p.mu.Lock()
	delete(p.sessions, s.id)
	delete(p.keys, s.key())
	p.removeChild(s)
	if i := slices.Index(p.order, s); i >= 0 {
		p.order = slices.Delete(p.order, i, i+1)
	}
	p.updateExecQuota()
	p.live--
	p.mu.Unlock()
}

func errShuttingDown() *api.Error {
	return api.Errorf(api.CodeShuttingDown, "the daemon is shutting down").WithHint("connect again when it has been restarted")
}

// find looks in a map of the pool. What is not there may be of a session that
// ended before this process took over.
func find[T any](p *Pool, in map[string]*T, id string) *T {
	look := func() *T {
		p.mu.Lock()
		defer p.mu.Unlock()
		return in[id]
	}
	if v := look(); v != nil {
		return v
	}
	p.history.await()
	return look()
}

// session finds a session, dead or alive.
func (p *Pool) session(id string) (*Session, error) {
	s := find(p, p.sessions, id)
	if s == nil {
		return nil, errNoSession()
	}
	return s, nil
}

func errNoSession() *api.Error {
	return api.Errorf(api.CodeSessionNotFound, "there is no session with this id").
		WithHint("session.list shows the sessions; session.create makes a new one")
}

// exec finds an exec of any session.
func (p *Pool) exec(id string) (*Exec, error) {
	e := find(p, p.execs, id)
	if e == nil {
		return nil, api.Errorf(api.CodeExecNotFound, "there is no exec with this id, or its retention is over").
			WithHint("exec.list shows a session's execs")
	}
	return e, nil
}

// List returns the sessions that match, oldest first.
func (p *Pool) List(_ context.Context, params api.SessionListParams) (*api.SessionListResult, error) {
	switch params.State {
	case "", api.StateCreating, api.StateIdle, api.StateRunning, api.StateTerminated:
	default:
		return nil, api.Errorf(api.CodeInvalidParams, "state is not a session state").With("field", "state").
			WithHint("use creating, idle, running or terminated")
	}
	p.history.await()
	p.mu.Lock()
	all := slices.Clone(p.order)
	p.mu.Unlock()
	out := &api.SessionListResult{Sessions: make([]api.Session, 0, len(all))}
	for _, s := range all {
		if params.Tag != "" && !slices.Contains(s.params.Tags, params.Tag) ||
			params.Runtime != "" && params.Runtime != api.RuntimeHost {
			continue
		}
		state := s.currentState()
		if params.State != "" && params.State != state || params.Alive && state == api.StateTerminated {
			continue
		}
		out.Sessions = append(out.Sessions, s.snapshot())
	}
	return out, nil
}

// Info returns a session with what goes on in it. It answers for a terminated
// session until its retention ends.
func (p *Pool) Info(_ context.Context, params api.SessionParams) (*api.SessionInfo, error) {
	s, err := p.session(params.SessionID)
	if err != nil {
		return nil, err
	}
	return s.info(), nil
}

// Destroy ends a session and answers when its tree is verified empty.
func (p *Pool) Destroy(ctx context.Context, params api.SessionDestroyParams) (*api.SessionDestroyResult, error) {
	s, err := p.session(params.SessionID)
	if err != nil {
		return nil, err
	}
	if err := s.errIfTerminated(); err != nil {
		return nil, err
	}
	done := s.destroy(api.ReasonDestroyed, params.Force)
	select {
	case <-done:
	case <-ctx.Done():
		return nil, api.Errorf(api.CodeInternal, "the caller stopped waiting: %w", ctx.Err())
	}
	return &api.SessionDestroyResult{SessionID: s.id, State: api.StateTerminated, Survivors: s.survivors}, nil
}

// Stats counts what the pool holds.
type Stats struct {
	SessionsByState           map[api.State]int
	SessionsTotal, ExecsTotal int64
	ExecsRunning              int
	ExecsRetained             int
}

// Stats returns the counts of this moment.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	all := slices.Clone(p.order)
	retained := len(p.execs)
	p.mu.Unlock()
	st := Stats{
		SessionsByState: map[api.State]int{api.StateCreating: 0, api.StateIdle: 0, api.StateRunning: 0, api.StateTerminated: 0},
		SessionsTotal:   p.sessionsTotal.Load(),
		ExecsTotal:      p.execsTotal.Load(),
		ExecsRunning:    int(p.execsRunning.Load()),
		ExecsRetained:   retained,
	}
	for _, s := range all {
		st.SessionsByState[s.currentState()]++
	}
	return st
}

// shutdownAtOnce is how many sessions are destroyed side by side: each waits
// for its processes most of the time, and a walk of /proc serves many.
const shutdownConcurrency = 256

// Shutdown refuses new work and destroys all sessions. While ctx lives they
// have their grace; when it is done they are killed at once. It returns when
// every tree is verified empty. What was captured can be read until Close.
func (p *Pool) Shutdown(ctx context.Context) error {
	p.endAll(ctx, api.ReasonShutdown)
	p.work.Wait()
	p.events.close()
	return nil
}

// Lose is for when the holder has died, and with it what sessions need to go on:
// new work is refused, and every session is ended at once. What was captured can
// be read until Close.
func (p *Pool) Lose() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	p.endAll(now, api.ReasonLost)
}

func (p *Pool) endAll(ctx context.Context, why string) {
	p.history.await()
	p.mu.Lock()
	if !p.closing {
		p.closing = true
		close(p.stop)
	}
	all := slices.Clone(p.order)
	p.mu.Unlock()
	slots := make(chan struct{}, shutdownConcurrency)
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			select {
			case <-s.destroy(why, ctx.Err() != nil):
			case <-ctx.Done():
				<-s.destroy(why, true)
			}
		})
	}
	wg.Wait()
}

// Close drops what was kept of sessions and execs, after Shutdown and when the
// last caller has been answered.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.execs {
		e.journal.Release()
	}
	clear(p.execs)
	clear(p.sessions)
	p.order = nil
	p.outputPipes.Close()
}
