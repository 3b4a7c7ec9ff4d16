package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/mcp"
)

// secretPrefix is before the names of secrets in the environment of `trl mcp`.
// Variables of TRL are never passed on to commands.
const secretPrefix = "TRL_SECRET_"

// mcpOptions is what `trl mcp` was told.
type mcpOptions struct {
	scope, shell string
	structured   string
	env          []string
	noStart      bool
}

func (a *app) mcpCommand() *cobra.Command {
	var o mcpOptions
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve the Model Context Protocol on stdin and stdout, for an agent",
		Long: "Serve the Model Context Protocol on stdin and stdout, for an agent that starts this\n" +
			"command. Its tools run commands in sessions of the daemon; if none runs, one is\n" +
			"started in the background.\n\n" +
			"Sessions belong to a scope, by default the directory this is started in: an agent\n" +
			"that was killed and comes back there finds its sessions again.\n\n" +
			"Variables named TRL_SECRET_NAME are secrets, which the model can give to commands\n" +
			"by NAME and never sees.",
		Example: "  claude mcp add trl -- trl mcp\n  codex mcp add trl -- trl mcp",
	}
	cmd.Flags().StringVar(&o.scope, "scope", "", "whose sessions these are; default: the current directory")
	cmd.Flags().StringVar(&o.shell, "shell", "", "`SHELL` of new sessions; default bash, or sh where there is none")
	cmd.Flags().StringArrayVar(&o.env, "env", nil, "variable `NAME` or NAME=VALUE for new sessions, besides PATH, HOME, LANG\nand the like; may be given several times")
	cmd.Flags().StringVar(&o.structured, "structured", string(mcp.StructuredAuto), "who gets structured content beside the text: always, never, or auto:\nclients that do not hide the text behind it")
	cmd.Flags().BoolVar(&o.noStart, "no-start", false, "fail if no daemon runs, instead of starting one")
	cmd.RunE = action(exactArgs(), func(ctx context.Context, _ []string) error { return a.serveMCP(ctx, o) })
	return cmd
}

func (a *app) serveMCP(ctx context.Context, o mcpOptions) error {
	switch s := mcp.Structured(o.structured); s {
	case mcp.StructuredAuto, mcp.StructuredAlways, mcp.StructuredNever:
	default:
		return usage("--structured is always, never or auto")
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	cfg, err := a.mcpConfig(o)
	if err != nil {
		return err
	}
	starts := !o.noStart && a.daemonAddress() == ""
	a.findRuntimeDir(ctx, fmt.Sprint("/run/user/", os.Geteuid()))
	c, err := a.connect(ctx)
	if starts && errors.Is(err, client.ErrNoDaemon) {
		if err = a.ensureDaemon(ctx); err == nil {
			c, err = a.connect(ctx)
		}
	}
	if err != nil {
		return err
	}
	defer c.Close()
	serving, done := context.WithCancel(context.Background())
	defer done()
	context.AfterFunc(ctx, func() { a.exitIfDaemonSilent(serving, c, syscall.SIGTERM) })
	cfg.Runtime = &persistentRuntime{app: a, client: c, start: starts}
	return mcp.ServeStdio(ctx, cfg)
}

// mcpConfig is how this agent's sessions are made.
func (a *app) mcpConfig(o mcpOptions) (mcp.Config, error) {
	cfg := mcp.Config{
		Version: buildVersion(), Scope: o.scope, Shell: o.shell, Structured: mcp.Structured(o.structured),
		Env: map[string]string{}, Secrets: map[string]string{},
	}
	var err error
	if cfg.Cwd, err = os.Getwd(); err != nil {
		return cfg, err
	}
	if cfg.Scope == "" {
		cfg.Scope = cfg.Cwd
	}
	for _, variable := range a.environment.Variables {
		name, value, _ := strings.Cut(variable, "=")
		if secret, ok := strings.CutPrefix(name, secretPrefix); ok && secret != "" && value != "" {
			cfg.Secrets[secret] = value
		} else if api.IsBaseEnv(name) && name != "TERM" && name != "SHELL" {
			// As the agent has it, and not as the daemon was started with. What
			// the terminal is and which shell runs there is the session's own.
			cfg.Env[name] = value
		}
	}
	added, err := (&shellFlags{env: o.env}).environment(os.LookupEnv)
	for name, value := range added {
		cfg.Env[name] = value
	}
	if a.daemonAddress() != "" {
		cfg.Cwd, cfg.Env = "", added // another machine has other directories
	}
	return cfg, err
}

// findRuntimeDir takes the usual directory for the one that XDG_RUNTIME_DIR would
// name, if that is not set: agents that pass few variables on are to find the
// daemon that a person's shell finds, and to start one there. Where that variable
// plays no part, or a daemon is found without it, nothing changes.
func (a *app) findRuntimeDir(ctx context.Context, dir string) {
	const variable = "XDG_RUNTIME_DIR"
	info, err := os.Stat(dir)
	if err != nil || !isPrivateDir(info) || slices.ContainsFunc(a.environment.Variables, func(v string) bool { return strings.HasPrefix(v, variable+"=") }) {
		return
	}
	before, err := a.socketPath()
	if err != nil {
		return // which is told by who needs it
	}
	other := *a
	other.environment.Variables = append(slices.Clip(other.environment.Variables), variable+"="+dir)
	if after, err := other.socketPath(); err != nil || after == before {
		return
	}
	if _, _, err := a.daemonStatus(ctx, before); errors.Is(err, client.ErrNoDaemon) {
		a.environment = other.environment
	}
}

// ownDirectory says whether it is a directory of this user, where nobody else can
// put anything.
func isPrivateDir(info os.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && info.Mode().Perm()&0o022 == 0 && int(owner.Uid) == os.Geteuid()
}

// persistentRuntime is a client that starts the daemon again when it has ended.
type persistentRuntime struct {
	app    *app
	client *client.Client
	start  bool
}

// Attach follows the output of an exec.
func (r *persistentRuntime) Attach(ctx context.Context, params api.ExecAttachParams, fn func(*api.Chunk, []byte) bool) error {
	st, err := r.client.Attach(ctx, params)
	if err != nil {
		return err
	}
	defer st.Close()
	for c, err := range st.Chunks() {
		if err != nil {
			return err
		}
		data, err := api.DecodeBytes(c.Data, c.Encoding)
		if err != nil {
			return err
		}
		if !fn(c, data) {
			return nil
		}
	}
	return nil
}

// Call calls a method.
func (r *persistentRuntime) Call(ctx context.Context, method string, params, result any) error {
	err := r.client.Call(ctx, method, params, result)
	if !r.start || !errors.Is(err, client.ErrNoDaemon) {
		return err // else nobody has got the call
	}
	if err := r.app.ensureDaemon(ctx); err != nil {
		return err
	}
	return r.client.Call(ctx, method, params, result)
}
