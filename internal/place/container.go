package place

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

// container reaches a running container.
type container struct {
	engine
	target   target
	delivery *delivery
	bare     bare

	mu      sync.Mutex
	noShell bool // it was found to have none
}

// openContainer returns the constructor of the transport for an engine's containers.
func openContainer(program string) func(*Registry, target) transport {
	return func(r *Registry, t target) transport {
		e := engine{program: program, env: t.env}
		return &container{
			engine: e, target: t, delivery: r.delivery,
			bare: bare{engine: e, container: t.address, target: t, programs: r.delivery.programs},
		}
	}
}

func (c *container) command(script string, args ...string) []string {
	return append([]string{c.program, "exec", "-i", c.target.address, "sh", "-c", script, "sh"}, args...)
}

// start starts a script as a child of the engine. The container's first process
// would have to reap it otherwise, and many do not.
func (c *container) start(script string, args ...string) []string {
	return append([]string{c.program, "exec", "-d", c.target.address, "sh", "-c", script, "sh"}, args...)
}

// near reports whether the engine is on this machine, unless a context of docker says
// otherwise.
func (c *container) near() bool {
	env := c.env
	if env == nil {
		env = os.Environ()
	}
	return !slices.ContainsFunc(env, func(v string) bool {
		name, host, _ := strings.Cut(v, "=")
		return (name == "DOCKER_HOST" || name == "CONTAINER_HOST") && host != "" && !strings.HasPrefix(host, "unix:")
	})
}

func (c *container) explain(err error, stderr string) *refusal {
	return c.explainFor(c.target.address, err, stderr)
}

func (c *container) connect(ctx context.Context) (peer.Wire, *api.Hello, error) {
	if !c.isBare() {
		wire, hello, err := c.delivery.open(ctx, c.target, c)
		c.mu.Lock()
		c.noShell = because(err, noShell)
		c.mu.Unlock()
		switch {
		case because(err, notRunning):
			return nil, nil, c.checkPaused(ctx, err)
		case !because(err, noShell):
			return wire, hello, err
		}
	}
	return c.bare.connect(ctx)
}

// checkPaused returns the refusal for a paused container, which podman does not tell
// from one that is not running, or else err.
func (c *container) checkPaused(ctx context.Context, err error) error {
	state, stateErr := c.run(ctx, nil, "inspect", "--type", "container", "--format", "{{.State.Status}}", c.target.address)
	if stateErr != nil || strings.TrimSpace(state) != "paused" {
		return err
	}
	return &refusal{reason: paused, message: "the container is paused", hint: fmt.Sprintf(unpause, c.program, c.target.address)}
}

func (c *container) isBare() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.noShell
}

func (c *container) upgrade(ctx context.Context) error {
	if !c.isBare() {
		err := c.delivery.upgrade(ctx, c.target, c)
		if !because(err, noShell) {
			return err
		}
	}
	return c.bare.upgrade(ctx)
}

func (c *container) remove(ctx context.Context) error {
	err := c.delivery.remove(ctx, c.target, c)
	if because(err, noShell) {
		err = c.bare.remove(ctx)
	}
	if because(err, notRunning) {
		return nil // its processes have ended with it
	}
	return err
}

func (c *container) close() {}

// bare reaches the TRL in the root of a container without using any other program
// there.
type bare struct {
	engine
	container string
	target    target
	programs  *programs
}

func (b *bare) path() string   { return "/" + b.target.directory() + "/trl" }
func (b *bare) socket() string { return "/" + b.target.directory() + "/s.sock" }

func (b *bare) explain(err error, stderr string) *refusal {
	return b.explainFor(b.container, err, stderr)
}

// relay connects to the daemon.
func (b *bare) relay(ctx context.Context, flags ...string) (peer.Wire, *api.Hello, error) {
	argv := append([]string{b.program, "exec", "-i", b.container, b.path(), "connect", "--socket", b.socket()}, flags...)
	wire, hello, err := peer.StartCommand(ctx, peer.Command{Argv: argv, Env: b.env, MaxMessage: maxMessage})
	if err != nil && ctx.Err() == nil {
		err = explain(b, err)
	}
	return wire, hello, err
}

// serveArgs returns the arguments of the program as the place's daemon.
func (b *bare) serveArgs() []string {
	return append([]string{"serve", "--config", "/dev/null", "--socket", b.socket()}, b.target.serveFlags()...)
}

func (b *bare) connect(ctx context.Context) (peer.Wire, *api.Hello, error) {
	wire, hello, err := b.relay(ctx)
	switch {
	case err == nil:
		return b.renew(ctx, wire, hello)
	case ctx.Err() != nil || because(err, notRunning) || because(err, paused) || because(err, noEngine) || because(err, noAccess):
		return nil, nil, err
	}
	p, err := b.fitting(ctx)
	if err == nil {
		err = b.put(ctx, b.container, b.target.directory(), p)
	}
	if err == nil {
		_, err = b.run(ctx, nil, append([]string{"exec", "-d", b.container, b.path()}, b.serveArgs()...)...)
	}
	if err != nil {
		return nil, nil, err
	}
	return b.relay(ctx, "--wait")
}

// renew replaces the program of a daemon that is not this one, and returns a
// connection to the new daemon. The old one goes on if it can't be replaced.
func (b *bare) renew(ctx context.Context, wire peer.Wire, hello *api.Hello) (peer.Wire, *api.Hello, error) {
	if b.programs.has(hello.Digest) {
		return wire, hello, nil
	}
	p, err := b.fitting(ctx)
	if err != nil || p.digest == hello.Digest || b.put(ctx, b.container, b.target.directory(), p) != nil {
		return wire, hello, nil //nolint:nilerr // its sessions can be used
	}
	_ = wire.Close()                                                                         // the daemon ends
	_, _ = b.run(ctx, nil, "exec", b.container, b.path(), "upgrade", "--socket", b.socket()) // or goes on
	return b.relay(ctx, "--wait")
}

// upgrade has the daemon replace itself by this program.
func (b *bare) upgrade(ctx context.Context) error {
	wire, hello, err := b.connect(ctx) // which replaces the program
	if err != nil {
		return err
	}
	_ = wire.Close() // it is not needed
	p, err := b.fitting(ctx)
	if err == nil && hello.Digest != p.digest {
		_, err = b.run(ctx, nil, "exec", b.container, b.path(), "upgrade", "--socket", b.socket())
	}
	return err
}

// fitting returns the program for the container's architecture.
func (b *bare) fitting(ctx context.Context) (*program, error) {
	arch, err := b.archOf(ctx, b.container)
	if err != nil {
		return nil, err
	}
	p, why := b.programs.of(arch)
	if why != nil {
		return nil, why
	}
	return p, nil
}

// remove ends the daemon. The program itself then removes its directory: nothing else
// in the container could.
func (b *bare) remove(ctx context.Context) error {
	_, err := b.run(ctx, nil, "exec", b.container, b.path(), "stop", "--socket", b.socket())
	if err == nil {
		_, err = b.run(ctx, nil, "exec", b.container, b.path(), "be-remover")
	}
	if because(err, noShell) {
		return nil // the program was never there
	}
	return err
}
