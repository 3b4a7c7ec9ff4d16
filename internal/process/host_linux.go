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

	"github.com/terminal-runtime/trl/internal/holder"
)

// Config of a Host. The zero value is usable.
type Config struct {
	// NoCgroup keeps the host from using cgroups even where they work, for
	// machines where another manager owns the hierarchy (and for tests).
	NoCgroup bool
	// Untouched leaves alone what daemons that are gone have left in cgroups,
	// for who only wants to know the Support.
	NoSweep bool
	// OrphanScan is how often processes are looked for that belong to no
	// living tree. Default 30 s: it is a second belt, Tree.Kill is the first.
	OrphanScan time.Duration
	// Holder is the parent of what is started here, and this process's own. It
	// keeps the processes when this one dies. Default: this process is the
	// parent itself, and they end with it.
	Holder *holder.Client
	// Log receives what the host finds and mends. Default: discarded.
	Log *slog.Logger
}

// Host is the parent of every process the daemon starts. There is at most one
// per OS process, because the kernel's child table is one.
//
// Lock order: spawn, then mu. Neither is held across a blocking call, except
// spawn (shared) across fork and exec.
type Host struct {
	log            *slog.Logger
	holder         *holder.Client // nil: this process is the parent
	parent         int            // the pid of who is
	id             uint16         // this host in the tags; random, so that two daemons differ
	tag            tagger
	cgroup         *cgroupRoot // nil: tracking by tags alone
	noCgroupReason string      // why cgroup is nil
	// gateAll sends every start through the gate, whose helper leaves the
	// controlling terminal: this process could not, as the leader of a session
	// (the first process of a container or a terminal).
	gateAll bool

	// spawn is held shared from fork until the child is registered, and
	// exclusively by the reaper while it decides whose a dead child was.
	// Without it a child that dies at once would be taken for an orphan.
	spawn sync.RWMutex

	mu    sync.Mutex
	procs map[int]*Proc    // every tracked process that has not been reaped
	exits map[int]exitInfo // with a holder: what it told and was not told to forget
	trees map[uint32]*Tree // by number, until killed

	nextTree atomic.Uint32
	orphans  atomic.Int64
	foreign  sync.Once // the tags of other users' processes are logged once

	scans scanner
	sigs  chan os.Signal
	stop  chan struct{}
	wg    sync.WaitGroup
}

// NewHost makes this OS process a subreaper, starts the reaper and finds out
// by which means processes can be tracked here.
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
		log:     cfg.Log,
		gateAll: hasTerminal(),
		holder:  cfg.Holder,
		parent:  os.Getpid(),
		id:      uint16(rand.Uint32()),
		tag:     tag,
		procs:   map[int]*Proc{},
		trees:   map[uint32]*Tree{},
		exits:   map[int]exitInfo{},
		sigs:    make(chan os.Signal, 1), // one pending wake-up is enough: the reaper drains all
		stop:    make(chan struct{}),
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
	} else if h.cgroup, err = h.probeCgroup(!cfg.NoSweep); err != nil {
		h.noCgroupReason = err.Error()
		h.log.Info("no cgroup for sessions, tracking processes by tags", "reason", h.noCgroupReason)
	}
	h.wg.Go(func() { h.orphanLoop(cfg.OrphanScan) })
	return h, nil
}

// Support says by which means this host tracks processes.
type Support struct {
	Cgroup string // the directory of the tree cgroups, "" if none
	Reason string // why there is none
}

// Support returns what was found at start.
func (h *Host) Support() Support {
	if h.cgroup == nil {
		return Support{Reason: h.noCgroupReason}
	}
	return Support{Cgroup: h.cgroup.path}
}

// Orphans counts the dead descendants that were reaped without being tracked.
func (h *Host) Orphans() int64 {
	if h.holder == nil {
		return h.orphans.Load()
	}
	n, err := h.holder.Orphans()
	if err != nil {
		return 0 // the holder is gone, and everything with it
	}
	return n
}

// Close stops the reaper. Every tree must have been killed before.
func (h *Host) Close() error {
	h.mu.Lock()
	left := len(h.trees)
	h.mu.Unlock()
	close(h.stop)
	signal.Stop(h.sigs)
	h.wg.Wait()
	if h.holder == nil {
		h.reap() // what died between the last signal and now
		h.reapExiting()
	}
	var err error
	if h.cgroup != nil {
		err = h.cgroup.remove()
	}
	if left > 0 {
		err = errors.Join(err, fmt.Errorf("%d process trees were still alive", left))
	}
	return err
}

// orphanLoop looks for processes that carry this host's tag or sit in its
// cgroup and belong to no living tree. None should exist; one that does is a
// process that outran the kill of its tree, and it is killed now.
func (h *Host) orphanLoop(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-tick.C:
			if h.holder == nil {
				h.reap() // a missed SIGCHLD must not leave a zombie for ever
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
		h.log.Warn("killing an orphan of a session that is gone", "pid", m.pid)
		h.signalTagged(m.pid, m.tree, unix.SIGKILL)
	}
}
