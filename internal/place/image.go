package place

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

// imageTTLMS is how long the container of an image lives without sessions and
// connections. It has nothing that the next one would not have.
const imageTTLMS = 60_000

// imagePlace reaches a container that it makes from an image. Its first process is the
// place's daemon, and the engine removes the container when that ends.
type imagePlace struct {
	bare
	turn   chan struct{} // held by the call that makes the container
	wanted atomic.Bool   // the next connect may make the container
}

func (i *imagePlace) want() { i.wanted.Store(true) }

// openImage returns the constructor of the transport for an engine's images.
func openImage(program string) func(*Registry, target) transport {
	return func(r *Registry, t target) transport {
		t.ttlMS = imageTTLMS
		return &imagePlace{
			bare: bare{
				engine: engine{program: program, env: t.env}, target: t, programs: r.delivery.programs,
				container: strings.TrimPrefix(t.directory(), "."), // of this place alone: its id is random
			},
			turn: make(chan struct{}, 1),
		}
	}
}

func (i *imagePlace) connect(ctx context.Context) (peer.Wire, *api.Hello, error) {
	wire, hello, err := i.find(ctx)
	if err != nil || wire != nil {
		return wire, hello, err
	}
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	wire, hello, err = i.find(ctx) // another call may have made it
	if err != nil || wire != nil {
		return wire, hello, err
	}
	if !i.wanted.Swap(false) {
		return nil, nil, &refusal{
			reason: ended, message: "its container has ended, and its sessions with it",
			hint: "create a session in " + i.target.runtime + ": that makes another container",
		}
	}
	if err := i.make(ctx); err != nil {
		return nil, nil, err
	}
	return i.relay(ctx, "--wait")
}

// find connects to the container, which an earlier daemon of this user may have made.
// It returns nil without an error if it does not run.
func (i *imagePlace) find(ctx context.Context) (peer.Wire, *api.Hello, error) {
	wire, hello, err := i.relay(ctx, "--wait")
	switch {
	case err == nil:
		return i.renew(ctx, wire, hello)
	case ctx.Err() != nil || because(err, noEngine) || because(err, noAccess) || because(err, paused):
		return nil, nil, err
	case because(err, notRunning) || !i.running(ctx):
		return nil, nil, nil
	}
	return nil, nil, err
}

// make makes the container and starts it.
func (i *imagePlace) make(ctx context.Context) error {
	if err := i.remove(ctx); err != nil { // one that was made and never started, or is ending
		return err
	}
	args := []string{"create", "--rm", "--name", i.container, "--label", "trl.place=" + i.target.name, "--entrypoint", i.path()}
	var limited Container
	if i.target.limits != nil {
		limited = containerOf(*i.target.limits)
		options, err := limited.options()
		if err != nil {
			return err
		}
		args = append(args, options...)
	}
	args = append(append(args, i.target.address), i.serveArgs()...)
	if _, err := i.run(ctx, nil, args...); err != nil {
		return limited.explain(err)
	}
	err := limited.explain(i.begin(ctx, limited))
	if err != nil {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		_ = i.remove(cleaning) // err says more
	}
	return err
}

// begin starts a container that was made with these limits.
func (i *imagePlace) begin(ctx context.Context, limited Container) error {
	if limited != (Container{}) {
		if err := i.checkLimits(ctx, i.container, limited); err != nil {
			return err
		}
	}
	p, err := i.fitting(ctx)
	if err == nil {
		err = i.put(ctx, i.container, i.target.directory(), p)
	}
	if err == nil {
		_, err = i.run(ctx, nil, "start", i.container)
	}
	return err
}

// upgrade has the daemon replace itself by this program.
func (i *imagePlace) upgrade(ctx context.Context) error {
	wire, _, err := i.connect(ctx) // which makes the container
	if err != nil {
		return err
	}
	_ = wire.Close() // it is not needed
	return i.bare.upgrade(ctx)
}

// cleanTimeout is how long the removal of a container that could not be started may
// take: the time that engines give a container to stop.
const cleanTimeout = 10 * time.Second

// running reports whether the container runs.
func (i *imagePlace) running(ctx context.Context) bool {
	out, err := i.run(ctx, nil, "inspect", "--type", "container", "--format", "{{.State.Running}}", i.container)
	return err == nil && strings.TrimSpace(out) == "true"
}

func (i *imagePlace) stop(ctx context.Context, grace time.Duration) {
	_, _ = i.run(ctx, nil, "stop", "-t", strconv.Itoa(int(grace.Seconds())), i.container) // remove follows
}

// remove removes the container with all that runs in it.
func (i *imagePlace) remove(ctx context.Context) error {
	_, err := i.run(ctx, nil, "rm", "-f", "-v", i.container)
	if because(err, notRunning) {
		return nil
	}
	return err
}

func (i *imagePlace) close() {}
