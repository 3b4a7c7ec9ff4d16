package cell

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/confine"
	"github.com/terminal-runtime/trl/internal/session"
)

// startTimeout bounds how long a cell and its session may take to start, besides
// create_timeout_ms: the launcher and the TRL need some 50 ms, and seconds on a
// machine that swaps.
const startTimeout = 60 * time.Second

// Create starts a confined session, and returns when it can be used. If it can't be
// started, nothing is left behind. If its owner has created a session with the same
// key before, that one is returned as it is now.
func (c *Cells) Create(ctx context.Context, params api.SessionCreateParams, owner string) (*api.Session, error) {
	if params.Parent != "" {
		return nil, api.Errorf(api.CodeInvalidParams, "session.create: a confined session cannot have a parent").With("field", "parent").
			WithHint("repeat session.create without parent, and destroy both sessions; or use while_connected")
	}
	var cell *cell
	start := func(r session.RemoteState) (remote session.Remote, desc api.Session, err error) {
		// As for any session, it is created even if its caller leaves.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout+time.Duration(params.CreateTimeoutMS)*time.Millisecond)
		defer cancel()
		cell, desc, err = c.create(bounded, params, r)
		return cell, desc, err
	}
	return c.cfg.Pool.CreateRemote(ctx, params, owner, start, func(l *session.Listed) { c.begin(cell, l) })
}

// create starts a cell and the session in it.
func (c *Cells) create(ctx context.Context, params api.SessionCreateParams, r session.RemoteState) (*cell, api.Session, error) {
	var made api.Session
	plan, err := c.machine().plan(params)
	if err != nil {
		return nil, made, err
	}
	cell, err := c.launch(ctx, plan)
	if err != nil {
		return nil, made, err
	}
	inner := plan.inner
	_, inner.Client, _ = strings.Cut(r.Owner, "/")
	if err := cell.place.Request(ctx, api.MethodSessionCreate, inner, c.cfg.Actor(ctx), &made); err != nil {
		cell.discard()
		return nil, made, api.AsError(err)
	}
	if !strings.HasPrefix(made.SessionID, "s-"+cell.place.Node()+"-") {
		cell.discard()
		return nil, made, api.Errorf(api.CodeInternal, "the TRL of a confined session made one that is not its own")
	}
	r.Last = made
	cell.mu.Lock()
	cell.record.session = r
	saved := cell.record
	cell.mu.Unlock()
	c.save(&saved)
	return cell, made, nil
}

// machine returns what plans depend on.
func (c *Cells) machine() machine {
	dir, err := os.Getwd()
	if err != nil {
		dir = "/" // it was removed
	}
	return machine{
		abilities: c.abilities(), cgroups: c.cfg.Host.Abilities(), dir: dir, env: c.cfg.Env,
		hide: c.cfg.Hide, guarded: c.cfg.Guarded, sockets: confine.Sockets, lookup: lookup,
	}
}

// launch starts a cell without a session.
func (c *Cells) launch(ctx context.Context, plan *plan) (_ *cell, err error) {
	name, node, err := c.cfg.Places.CellName()
	if err != nil {
		return nil, err
	}
	listener, way, err := listen(c.cfg.Dir, name)
	if err != nil {
		return nil, err
	}
	defer listener.Close() // the TRL in the cell has it: once that is dead, no connection waits
	spec := plan.spec
	spec.Args = append([]string{"trl", "serve", "--node", node}, c.cfg.Args...)
	cell := c.newCell(name)
	cell.way = way
	if cell.tree, err = c.cfg.Host.NewTree(treeName(name)); err != nil {
		_ = way.Close() // err says more
		return nil, err
	}
	cell.place = c.cfg.Places.AddCell(name, cell)
	told, files, err := cell.tell(plan)
	defer closeAll(files) // the TRL in the cell has its own copies
	if err != nil {
		cell.discard()
		return nil, err
	}
	spec.Env = append(slices.Clone(spec.Env), Variable+"="+told)
	if err := c.run(ctx, cell, spec, append([]*os.File{listener}, files...), plan.allow); err != nil {
		cell.discard()
		return nil, err
	}
	return cell, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written
	}
}

// tell limits the cell, and returns what its TRL is to know, as JSON, and the files
// that it gets. They must be closed.
func (c *cell) tell(plan *plan) (text string, files []*os.File, err error) {
	inside := plan.inside
	if inside.Limits, err = c.limit(plan.limits); err != nil {
		return "", nil, api.Errorf(api.CodeLimitsUnavailable, "this daemon cannot enforce the requested limits").With("limits", plan.limits.Names()).
			With("reasons", map[string]string{"cgroup": err.Error()}).
			WithHint("the cgroups of the daemon have changed since it started: restart it, or leave limits out to run without")
	}
	if inside.Files, files, err = c.tree.MeterFiles(); err != nil {
		return "", files, err
	}
	if plan.spec.Network == confine.NetworkProxy {
		log, reader, err := newDenialLog()
		if err != nil {
			return "", files, err
		}
		c.denials, inside.Files, files = log, append(inside.Files, fileDenials), append(files, reader)
	}
	told, err := json.Marshal(inside)
	return string(told), files, err
}

// run starts the launcher in the tree of a cell, and waits until the TRL is executed.
func (c *Cells) run(ctx context.Context, cell *cell, spec confine.Spec, files []*os.File, allow []string) error {
	passed := make([]int, len(files))
	for i, f := range files {
		passed[i] = int(f.Fd())
	}
	launch, err := c.abilities().Launch(spec, passed...)
	if err != nil {
		return err
	}
	defer launch.Close()
	if cell.proc, err = cell.tree.Start(c.spec(launch.Start)); err != nil {
		return err
	}
	cell.record = record{name: cell.name, tree: cell.tree.Number(), pid: cell.proc.PID()}
	if cell.record.way, err = c.cfg.Keeper.Keep(int(cell.way.Fd())); err != nil {
		return err
	}
	c.save(&cell.record)
	if err := c.add(cell); err != nil {
		return err
	}
	listener, err := launch.Open(ctx)
	if errors.Is(err, confine.ErrDir) {
		return api.Errorf(api.CodeInvalidParams, "session.create: %w", err).With("field", "cwd").
			WithHint("set cwd to a directory that the session's user may enter: it has no capabilities, not even those of root")
	}
	if err != nil || listener == nil {
		return err
	}
	defer listener.Close() // the holder and the proxy have their own copies
	if cell.record.proxy, err = c.cfg.Keeper.Keep(int(listener.Fd())); err != nil {
		return err
	}
	if cell.record.denials, err = c.cfg.Keeper.Keep(int(cell.denials.file.Fd())); err != nil {
		return err
	}
	c.save(&cell.record)
	return cell.serveNetwork(listener, allow)
}
