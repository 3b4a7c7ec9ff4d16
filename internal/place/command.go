package place

import (
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

// command reaches a place behind a command of the configuration that ends in a
// running `trl connect`, as in kubectl exec -i pod -- trl connect.
type command struct {
	argv  []string
	env   []string
	wrong *refusal // why it can't be used; nil: it can
}

// openCommand returns the transport of cmd:NAME. With deliver = true the command is
// only the beginning of one, which needs another transport.
func openCommand(r *Registry, t target) transport {
	table, found := r.cfg.Configured[t.address]
	if !found || len(table.Command) == 0 {
		return &command{wrong: &refusal{
			reason: refused, message: "the configuration has no command for the place any more",
			hint: "add [place." + t.address + "] with a command to the configuration, and run `trl upgrade`",
		}}
	}
	if table.Deliver {
		return &delivered{delivery: r.delivery, target: t, box: prefix(table.Command)}
	}
	return &command{argv: table.Command, env: t.env}
}

func (c *command) connect(ctx context.Context) (peer.Wire, *api.Hello, error) {
	if c.wrong != nil {
		return nil, nil, c.wrong
	}
	wire, hello, err := peer.StartCommand(ctx, peer.Command{Argv: c.argv, Env: c.env, MaxMessage: maxMessage})
	switch {
	case err == nil:
		return wire, hello, nil
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return nil, nil, &refusal{reason: noEngine, message: err.Error(), hint: "install the program, or correct `command` in the configuration"}
	default:
		return nil, nil, &refusal{reason: unreachable, message: err.Error(), hint: "run the command of the place by hand: it must print the hello of `trl connect`"}
	}
}

// remove does nothing: another person started the daemon there.
func (c *command) remove(context.Context) error { return nil }

func (c *command) close() {}

// prefix is a toolbox for a place in which a command runs the words that follow it, as
// in kubectl exec -i pod --.
type prefix []string

func (p prefix) command(script string, args ...string) []string {
	return slices.Concat(p, []string{"sh", "-c", script, "sh"}, args)
}

func (p prefix) explain(err error, stderr string) *refusal {
	if strings.Contains(err.Error()+stderr, "executable file not found") {
		return &refusal{reason: noShell, message: "the place has no shell: " + err.Error(), hint: "use a place with a shell, or run trl in it and end `command` in `trl connect`"}
	}
	return &refusal{reason: unreachable, message: err.Error(), hint: "run the command of the place by hand, with `echo works` after it"}
}

// delivered reaches a place by a toolbox alone.
type delivered struct {
	*delivery
	target target
	box    toolbox
}

func (d *delivered) connect(ctx context.Context) (peer.Wire, *api.Hello, error) {
	return d.open(ctx, d.target, d.box)
}

func (d *delivered) remove(ctx context.Context) error { return d.delivery.remove(ctx, d.target, d.box) }

func (d *delivered) upgrade(ctx context.Context) error {
	return d.delivery.upgrade(ctx, d.target, d.box)
}

func (d *delivered) close() {}
