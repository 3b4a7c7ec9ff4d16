package daemon

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/cell"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/route"
	"github.com/terminal-runtime/trl/internal/service"
	"github.com/terminal-runtime/trl/internal/session"
)

// openCells makes the cells of this daemon. In a cell there are none.
func (d *daemon) openCells(keep holder.Keeper) (err error) {
	if d.opts.Environment.inCell() {
		return nil
	}
	sum := sha256.Sum256([]byte(d.cfg.Socket))
	dir := filepath.Join(filepath.Dir(d.cfg.Socket), fmt.Sprintf(".cells-%x", sum[:4]))
	if d.opts.Stdio {
		dir = filepath.Join(d.opts.Environment.stateDir(), fmt.Sprintf(".cells-%d", os.Getpid()))
	}
	d.cells, err = cell.Open(cell.Config{
		Host: d.host, Keeper: keep, Ledger: d.ledger, Places: d.places, Pool: d.pool, Log: d.log,
		Dir: dir, Args: cellSettings(d.cfg), Env: cellEnvironment(os.Environ()), Hide: d.hiddenPaths(dir), Guarded: d.guardedPaths(), Grace: milliseconds(d.cfg.GraceMS),
		Actor: func(ctx context.Context) api.Actor {
			actor := d.table.ActorOf(ctx)
			actor.Connection = route.ClientOf(ctx)
			return actor
		},
	})
	return err
}

// cellSettings returns the settings of this daemon that hold in a cell too, as flags.
func cellSettings(cfg Config) []string {
	keys := []string{
		"default_timeout_ms", "idle_ttl_ms", "grace_ms", "session_retention_ms", "exec_retention_ms",
		"max_execs", "max_output_bytes", "labels", "input_buffer_bytes", "exec_memory_bytes", "exec_quota_bytes",
	}
	args := []string{"--log-level", "error", "--cgroup", CgroupOff}
	for _, s := range settings {
		if slices.Contains(keys, s.Key) {
			args = append(args, "--"+s.Flag(), s.Value(&cfg))
		}
	}
	return args
}

// cellEnvironment returns the variables for the TRL in a cell, which its session may
// inherit: those of this daemon, without its settings.
func cellEnvironment(variables []string) []string {
	return slices.DeleteFunc(slices.Clone(variables), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return strings.HasPrefix(name, envPrefix) || slices.Contains(agentVariables, name)
	})
}

// agentVariables lead to programs outside of a cell that act for this user.
var agentVariables = []string{"SSH_AUTH_SOCK", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST"}

// hiddenPaths returns what no confined session may see: this daemon's own files, and
// the sockets of programs that act for whoever connects. dir is where cells have
// their sockets for a moment.
func (d *daemon) hiddenPaths(dir string) []string {
	env := d.opts.Environment
	hide := []string{
		dir, env.stateDir(), d.cfg.TokenFile, d.cfg.File,
		"/run/docker.sock", "/var/run/docker.sock", "/run/containerd", "/run/podman", "/run/crio", "/run/dbus", "/run/systemd/private",
	}
	if runtime, ok := env.directory("XDG_RUNTIME_DIR"); ok {
		for _, name := range []string{"docker.sock", "podman", "gnupg", "bus", "keyring", "systemd", "trl"} {
			hide = append(hide, filepath.Join(runtime, name))
		}
	}
	if agent, ok := env.lookup("SSH_AUTH_SOCK"); ok {
		hide = append(hide, agent)
	}
	if env.Home != "" {
		for _, name := range []string{".docker/run", ".docker/desktop"} {
			hide = append(hide, filepath.Join(env.Home, name))
		}
	}
	return slices.DeleteFunc(hide, func(path string) bool { return path == "" })
}

// guardedPaths returns the socket of this daemon, which refuses confined sessions.
func (d *daemon) guardedPaths() []string {
	if d.opts.Stdio {
		return nil
	}
	return []string{d.cfg.Socket, d.cfg.Socket + ".lock"}
}

// sessions are the sessions of this machine: those of the pool, and confined ones.
type sessions struct {
	*session.Pool
	cells *cell.Cells
}

// Create creates a session, in a cell if it is confined.
func (s sessions) Create(ctx context.Context, params api.SessionCreateParams, owner string) (*api.Session, error) {
	if len(params.Isolation.Names()) > 0 && s.cells != nil {
		return s.cells.Create(ctx, params, owner)
	}
	return s.Pool.Create(ctx, params, owner)
}

var _ service.Sessions = sessions{}

// forgotten is called when the pool has forgotten a session.
func (d *daemon) forgotten(id string) {
	if d.cells != nil {
		d.cells.Forgotten(id)
	}
}

// refusesPeer returns an error for a client that is in one of this daemon's cells: it
// could create sessions without confinement.
func (d *daemon) refusesPeer(pid int) error {
	if d.cells != nil && d.cells.Has(pid) {
		return fmt.Errorf("process %s is in a confined session of this daemon", strconv.Itoa(pid))
	}
	return nil
}
