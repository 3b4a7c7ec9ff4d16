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

	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/caller"
	"github.com/terminal-runtime/trl/internal/environ"
	"github.com/terminal-runtime/trl/internal/mcp"
)

// secretPrefix precedes the names of secrets in the environment of `trl mcp`.
// Variables of TRL are never passed on to commands.
const secretPrefix = "TRL_SECRET_"

// mcpOptions are the flags of `trl mcp`.
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
		Short: "Serve MCP to an agent on stdin and stdout",
		Long: "Serve the Model Context Protocol (MCP) on stdin and stdout, to the agent that starts\n" +
			"this command. Its tools run commands in sessions of the daemon; if no daemon is\n" +
			"running, it starts one in the background.\n\n" +
			"Sessions belong to a scope, by default the current directory: an agent that was\n" +
			"killed and restarted there finds its sessions again.\n\n" +
			"A variable named TRL_SECRET_NAME is a secret: the model can pass it to commands by\n" +
			"NAME, and never sees its value.",
		Example: "  claude mcp add trl -- trl mcp\n  codex mcp add trl -- trl mcp",
	}
	cmd.Flags().StringVar(&o.scope, "scope", "", "scope of the sessions (default: the current directory)")
	cmd.Flags().StringVar(&o.shell, "shell", "", "`SHELL` of new sessions (default bash, or sh if there is no bash)")
	cmd.Flags().StringArrayVar(&o.env, "env", nil, "pass variable `NAME` or NAME=VALUE to new sessions, in addition to PATH, HOME, LANG and the like; may be repeated")
	cmd.Flags().StringVar(&o.structured, "structured", string(mcp.StructuredAuto), "structuredContent in results: auto, always or never; auto omits it for clients that would hide the text")
	cmd.Flags().BoolVar(&o.noStart, "no-start", false, "fail if no daemon is running, instead of starting one")
	cmd.RunE = action(exactArgs(), func(ctx context.Context, _ []string) error { return a.serveMCP(ctx, o) })
	return cmd
}

func (a *app) serveMCP(ctx context.Context, o mcpOptions) error {
	switch s := mcp.Structured(o.structured); s {
	case mcp.StructuredAuto, mcp.StructuredAlways, mcp.StructuredNever:
	default:
		return usage("--structured must be auto, always or never")
	}
	if isTerminal(a.stdin) {
		fmt.Fprintln(a.stderr, "trl: this serves MCP to an agent, which starts it itself; to set one up see `trl mcp --help`. Ctrl-C ends it.")
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
	cfg.Caller = &persistentCaller{Caller: caller.Client(c), app: a, start: starts}
	return mcp.ServeStdio(ctx, cfg)
}

// mcpConfig returns the configuration of this agent's sessions.
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
		} else if environ.IsCallers(name) {
			// Use the agent's value, not the one that the daemon was started
			// with.
			cfg.Env[name] = value
		}
	}
	added, err := (&shellFlags{env: o.env}).environment(os.Environ())
	for name, value := range added {
		cfg.Env[name] = value
	}
	cfg.PlaceEnv = added
	if a.daemonAddress() != "" {
		cfg.Cwd, cfg.Env = "", added // paths of this machine mean nothing there
	}
	return cfg, err
}

// findRuntimeDir sets XDG_RUNTIME_DIR to dir, its usual value, if the variable
// is unset: an agent that passes on few variables should find, or start, the
// daemon that the user's shell finds. Nothing changes if the variable plays no
// role or a daemon is found without it.
func (a *app) findRuntimeDir(ctx context.Context, dir string) {
	const variable = "XDG_RUNTIME_DIR"
	info, err := os.Stat(dir)
	if err != nil || !isPrivateDir(info) || slices.ContainsFunc(a.environment.Variables, func(v string) bool { return strings.HasPrefix(v, variable+"=") }) {
		return
	}
	before, err := a.socketPath()
	if err != nil {
		return // the next use of the path reports it
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

// isPrivateDir reports whether info is a directory of this user that no one
// else can write to.
func isPrivateDir(info os.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && info.Mode().Perm()&0o022 == 0 && int(owner.Uid) == os.Geteuid()
}

// persistentCaller restarts the daemon after it has ended.
type persistentCaller struct {
	caller.Caller
	app   *app
	start bool
}

// Call calls a method. If there is no daemon it starts one and tries again.
func (p *persistentCaller) Call(ctx context.Context, method string, params, result any) error {
	err := p.Caller.Call(ctx, method, params, result)
	if !p.start || !errors.Is(err, client.ErrNoDaemon) {
		return err // with ErrNoDaemon the call was not sent, so it can be repeated
	}
	if err := p.app.ensureDaemon(ctx); err != nil {
		return err
	}
	return p.Caller.Call(ctx, method, params, result)
}
