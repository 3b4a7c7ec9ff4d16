package exec

import (
	"log/slog"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/freelist"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/state"
)

// Config configures an Env.
type Config struct {
	// Keeper holds the descriptors that must outlive this process.
	Keeper holder.Keeper
	// Journals makes the journals of execs.
	Journals *journal.Store
	// Ledger stores what a later process must know. nil disables it.
	Ledger Ledger
	// Log receives what happens to execs, never what they run.
	Log *slog.Logger
	// Spawn starts a goroutine.
	Spawn func(func())
	// Ended is called when an exec ends, with locks held: it must return at once.
	// stopped reports whether the command was ended by a timeout or a cancel. nil
	// disables it.
	Ended func(outcome api.Outcome, took time.Duration, stopped bool)
}

// Ledger stores the state of execs.
type Ledger interface {
	Put(key string, value []byte)
	Erase(key string)
}

// Env is what all execs of a daemon share.
type Env struct {
	cfg          Config
	pipes        *freelist.List[*outputPipe] // for the output of commands
	stateBuffers sync.Pool                   // of *stateBuffer
}

// NewEnv returns an Env. It must be closed.
func NewEnv(cfg Config) *Env {
	return &Env{
		cfg: cfg, pipes: newOutputPipes(cfg.Keeper),
		stateBuffers: sync.Pool{New: func() any { return new(stateBuffer) }},
	}
}

// Close closes the pipes that no exec uses.
func (v *Env) Close() { v.pipes.Close() }

// stateBuffer is the memory for encoding the state of an exec. It is reused: two
// are needed for every command, and allocating them costs more than filling them.
type stateBuffer struct {
	state          State
	coder          state.Coder
	value, journal []byte
}

// maxPooledState keeps the memory of one state with much output in it from being
// held forever.
const maxPooledState = 4 << 10

// putStateBuffer returns a buffer to the pool, without what the command wrote.
func (v *Env) putStateBuffer(n *stateBuffer) {
	n.state, n.coder = State{}, state.Coder{}
	clear(n.value)
	clear(n.journal)
	if cap(n.value) <= maxPooledState && cap(n.journal) <= maxPooledState {
		v.stateBuffers.Put(n)
	}
}
