package process

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
)

// Config configures a Host. The zero value is usable.
type Config struct {
	// NoCgroup disables cgroups even where they work, for machines where another
	// manager owns the hierarchy (and for tests).
	NoCgroup bool
	// OnlySupport is for callers that only need Support: the cgroups of dead daemons
	// are left, and trees can't have limits.
	OnlySupport bool
	// MemoryLimited says that the memory of this process and all others that are
	// started here is limited as a whole.
	MemoryLimited bool
	// OrphanScan is the interval between scans for processes that belong to no
	// living tree. Default: 30 s; the scan only backs up Tree.Kill.
	OrphanScan time.Duration
	// Holder is the parent of this process and of every process started here. It
	// keeps them alive when this process dies. Nil means that this process is the
	// parent and its children end with it.
	Holder *holder.Client
	// Meter tells what the limits do that hold for this whole process. Nil: there are
	// none, or they are not known.
	Meter *Meter
	// Log receives what the host finds and repairs. Nil discards it.
	Log *slog.Logger
}

// Host is the parent of every process the daemon starts. There is at most one per
// OS process, because the kernel has one child table per process.
//
// Lock order: spawn, then mu. Neither is held across a blocking call, except
// spawn (shared) across fork and exec.
type Host struct {
	log            *slog.Logger
	holder         *holder.Client // nil means this process is the parent
	memoryLimited  bool           // with all that is started here
	parent         int            // pid of the parent: the holder or this process
	id             uint16         // identifies this host in tags; random, so that two daemons differ
	tag            tagger
	cgroup         *cgroupRoot // nil means tracking by tags alone
	noCgroupReason string      // why cgroup is nil
	abilities      []api.Ability
	meter          *Meter // nil: no limits hold for all trees together
	// gateAll starts every process through the gate, whose helper leaves the
	// controlling terminal. This process cannot leave it as a session leader (the
	// first process of a container or a terminal).
	gateAll bool

	// spawn is held shared from fork until the child is registered, and
	// exclusively by the reaper while it decides whose child died. Without it a
	// child that dies at once would be taken for an orphan.
	spawn sync.RWMutex

	mu    sync.Mutex
	procs map[int]*Proc    // every tracked process that has not been reaped
	exits map[int]exitInfo // with a holder: exits it reported and was not yet asked to forget
	trees map[uint32]*Tree // by number, until killed

	nextTree atomic.Uint32
	orphans  atomic.Int64
	foreign  sync.Once // logs tags of other users' processes only once

	scans     scanner
	strangers strangers
	newest    newestProcess // -1 with cgroups
	sigs      chan os.Signal
	stop      chan struct{}
	wg        sync.WaitGroup
}

// NewHost makes this OS process a subreaper, starts the reaper and finds out
// whether processes can be tracked by cgroups here.
func NewHost(cfg Config) (*Host, error) {
	if cfg.OrphanScan == 0 {
		cfg.OrphanScan = 30 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Holder == nil {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("become a child subreaper: %w", err)
		}
	}
	tag, err := newTagger()
	if err != nil {
		return nil, err
	}
	h := &Host{
		meter:         cfg.Meter,
		log:           cfg.Log,
		gateAll:       hasTerminal(),
		holder:        cfg.Holder,
		parent:        os.Getpid(),
		memoryLimited: cfg.MemoryLimited,
		id:            uint16(rand.Uint32()),
		tag:           tag,
		procs:         map[int]*Proc{},
		trees:         map[uint32]*Tree{},
		exits:         map[int]exitInfo{},
		sigs:          make(chan os.Signal, 1), // one pending wake-up is enough: the reaper drains all
		stop:          make(chan struct{}),
		newest:        -1,
	}
	h.scans.host = h
	if h.holder != nil {
		hello := h.holder.Hello()
		h.parent, h.id = hello.PID, hello.Host
		h.holder.Watch(h.onExit)
	} else {
		signal.Notify(h.sigs, unix.SIGCHLD)
		h.wg.Go(h.reapLoop)
	}
	if cfg.NoCgroup {
		h.noCgroupReason = "turned off by configuration"
	} else if h.cgroup, err = h.probeCgroup(!cfg.OnlySupport); err != nil {
		h.noCgroupReason = err.Error()
		h.log.Info("no cgroup for sessions, tracking processes by tags", "reason", h.noCgroupReason)
	}
	if h.cgroup == nil {
		h.newest = openNewestProcess()
	}
	if !cfg.OnlySupport {
		h.probeControllers()
	}
	h.wg.Go(func() { h.orphanLoop(cfg.OrphanScan) })
	return h, nil
}

// Support describes how this host tracks processes.
type Support struct {
	Cgroup string // the directory of the tree cgroups, "" if there is none
	Reason string // why there is none
}

// Support returns what NewHost found.
func (h *Host) Support() Support {
	if h.cgroup == nil {
		return Support{Reason: h.noCgroupReason}
	}
	return Support{Cgroup: h.cgroup.path}
}

// Orphans returns the number of dead descendants that were reaped without being
// tracked.
func (h *Host) Orphans() int64 {
	if h.holder == nil {
		return h.orphans.Load()
	}
	n, err := h.holder.Orphans()
	if err != nil {
		return 0 // the holder is gone, and all its children with it
	}
	return n
}

// Close stops the reaper. The caller must have killed every tree.
func (h *Host) Close() error {
	h.mu.Lock()
	left := len(h.trees)
	h.mu.Unlock()
	close(h.stop)
	signal.Stop(h.sigs)
	h.wg.Wait()
	if h.holder == nil {
		h.reap() // children that died after the last signal
		h.reapExiting()
	}
	h.newest.close()
	var err error
	if h.cgroup != nil {
		err = h.cgroup.remove()
		h.leaveLeaf()
	}
	if left > 0 {
		err = errors.Join(err, fmt.Errorf("%d process trees are still alive", left))
	}
	return err
}

// orphanLoop looks for processes that carry this host's tag or are in its cgroup
// and belong to no living tree. None should exist; if one does, it escaped the
// kill of its tree, and orphanLoop kills it.
func (h *Host) orphanLoop(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-tick.C:
			if h.holder == nil {
				h.reap() // a missed SIGCHLD must not leave a zombie forever
			}
			h.killOrphans()
		}
	}
}

func (h *Host) killOrphans() {
	gone := func(tree uint32) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.trees[tree] == nil
	}
	for _, m := range h.walk(gone) {
		if !gone(m.tree) {
			continue // a tree was just adopted
		}
		h.log.Warn("killing orphan of a session that is gone", "pid", m.pid)
		h.signalTagged(m.pid, m.tree, unix.SIGKILL)
	}
}
