package session

import (
	"context"
	"log/slog"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/ledger"
)

// Config configures a Pool. Zero values stand for the defaults.
type Config struct {
	// Node is put into the ids of new sessions and execs. Sessions that were adopted
	// keep theirs. Default: ids have no name of a node.
	Node string
	// MaxSessions bounds the live sessions. Default 10,000: what one node is built
	// and tested for.
	MaxSessions int
	// DefaultTimeout is the timeout of execs in sessions that set none. Default:
	// none; an agent knows its commands, TRL does not.
	DefaultTimeout time.Duration
	// IdleTTL is how long a session without its own TTL may be idle before it is
	// destroyed. Default: forever.
	IdleTTL time.Duration
	// Grace is the time between SIGTERM and SIGKILL. Default 5 s.
	Grace time.Duration
	// Housekeeping is the shortest interval between two checks of TTLs and
	// retention: how late they may take effect. Default 1 s.
	Housekeeping time.Duration
	// SessionRetention is how long session.info answers for a terminated session.
	// Default 10 min.
	SessionRetention time.Duration
	// ExecRetention is how long a finished exec and its output are retained.
	// Default 1 h.
	ExecRetention time.Duration
	// MaxTerminated bounds the terminated sessions that are retained. Default
	// 1,000.
	MaxTerminated int
	// MaxExecs bounds the finished execs that are retained for each session.
	// Default 100.
	MaxExecs int
	// MaxOutputBytes is how much of each stream a result has. Default 128 KiB, half
	// from the head and half from the tail: about what fits a model's context; the
	// journal has the rest.
	MaxOutputBytes int64
	// NoLabels leaves commands without a label if their caller gave none. Default:
	// they get one made of their first words, as package label describes.
	NoLabels bool
	// InputBuffer bounds the input of one command that its pipe has not taken yet,
	// in bytes. Default 16 MiB.
	InputBuffer int64
	// Log receives what happens to sessions, never what they run. Default:
	// discarded.
	Log *slog.Logger
	// Observer is called when an exec or a session ends. nil disables it.
	Observer Observer
	// Keeper holds the descriptors that must outlive this process. Default: none
	// do.
	Keeper holder.Keeper
	// Ledger stores what a later process needs to go on with the sessions. nil
	// disables it.
	Ledger *ledger.Ledger
	// Isolation and Limits are in force for all sessions, if this process is in a
	// cell. nil: none are.
	Isolation *api.IsolationInForce
	Limits    *api.LimitsInForce
	// Denials are what the network of the cell has refused. nil: it refuses nothing.
	Denials exec.Denials
	// Enforced has the limits that the container of this process enforces for a
	// session that asks for exactly these.
	Enforced api.Limits
	// Forgotten is called when an ended session is forgotten, with its id. nil: nothing
	// is called.
	Forgotten func(id string)
	// EndUnreadable kills the processes of a session that can't be adopted from an
	// earlier daemon. Default: they stay until the session is destroyed.
	EndUnreadable bool
}

// Remote runs a session that the pool only lists: a confined one, which another TRL
// on this machine has. It is safe for concurrent use.
type Remote interface {
	// Known returns the session if nothing can have changed since it was last asked
	// for, and false otherwise.
	Known() (api.Session, bool)
	// Describe asks for the session as it is now. It returns it as it was last known
	// if that takes too long.
	Describe(ctx context.Context) api.Session
	// End ends the session because of why. It has the usual grace until force is
	// closed. It calls Listed.Ended, when all of its processes are gone.
	End(why string, force <-chan struct{})
}

// Observer counts what ends in a pool. Its methods are called with locks held and
// must return at once.
type Observer interface {
	// ExecEnded is called with the outcome and the duration of an exec. stopped
	// reports whether TRL ended the command, for a timeout or a cancel.
	ExecEnded(outcome api.Outcome, took time.Duration, stopped bool)
	// SessionEnded is called with the number of processes that could not be killed.
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
