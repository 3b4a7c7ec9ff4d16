package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/daemon"
	"github.com/terminal-runtime/trl/internal/trust"
)

func (a *app) serveCommand() *cobra.Command {
	var file string
	var stdio, detach bool
	flags := map[string]string{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: "Run the daemon until SIGTERM or Ctrl-C. It then ends its sessions and all their\n" +
			"processes; a second signal does not wait for them. SIGHUP does what `trl upgrade`\n" +
			"does. Sessions that `trl stop --keep` left behind continue.\n\n" +
			"Every setting has one name: max_sessions in the configuration file,\n" +
			"TRL_MAX_SESSIONS in the environment, --max-sessions here. Flags take precedence over\n" +
			"the environment, and the environment over the file, which is\n" +
			"~/.config/trl/config.toml, or /etc/trl/config.toml for root. Durations are written as\n" +
			"30s or 1h30m, sizes as 64KiB or 8GiB; a bare number is in the unit of the name.",
		Example: "  trl serve --detach\n  trl serve --socket ~/trl.sock --log-level debug",
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration `FILE`; it must exist (also TRL_CONFIG)")
	cmd.Flags().BoolVar(&stdio, "stdio", false, "serve one connection on stdin and stdout, and exit with it")
	cmd.Flags().BoolVar(&detach, "detach", false, "start in the background, and return when it answers")
	groupFlags(cmd, "Start", "config", "stdio", "detach")
	defaults := daemon.Defaults(a.environment)
	for _, s := range daemon.Settings() {
		if s.Key != "socket" { // a flag of every command
			flag := cmd.Flags().VarPF(&settingFlag{setting: s, text: s.Value(&defaults), to: flags}, s.Flag(), "", s.Usage)
			groupFlags(cmd, s.Group, s.Flag())
			if s.IsSwitch() {
				flag.NoOptDefVal = "true" // the name alone sets it
			}
		}
	}
	cmd.RunE = action(exactArgs(), func(ctx context.Context, _ []string) error {
		if detach && stdio {
			return usage("--stdio and --detach exclude each other: stdio serves the process that starts it")
		}
		// Prepare must come first, because it may execute this program again. A
		// holder that executed this binary was prepared before, and has state
		// that must not be lost.
		if !a.resumedHolder && !a.checkOnly && !detach {
			if err := daemon.Prepare(a.environment); err != nil {
				return err
			}
		}
		if a.socket != "" {
			flags["socket"] = a.socket
		}
		cfg, err := daemon.Load(daemon.Sources{Flags: flags, Environment: a.environment, File: file})
		if err != nil {
			return err
		}
		if detach {
			a.warnOfVariables()
			return a.detach(ctx, cfg.Socket)
		}
		opts := daemon.Options{
			HasHolder: a.heldDaemon, Args: os.Args,
			Version: buildVersion(), Stdio: stdio,
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			Environment: a.environment,
		}
		switch {
		case a.checkOnly:
			return daemon.Check(cfg, opts)
		case !stdio && !a.heldDaemon && daemon.HasLocalPlace && a.needsHolder(cfg):
			return a.becomeHolder(cfg)
		default:
			return serveError(daemon.Serve(ctx, cfg, opts))
		}
	})
	return cmd
}

// needsHolder reports whether a daemon on this machine has a holder. Without sessions
// there is nothing to hold, but service managers rely on the holder: it uses the sockets
// that they pass, and its daemon reports to them.
func (a *app) needsHolder(cfg daemon.Config) bool {
	return cfg.HostRuntime == daemon.HostRuntimeOn || a.resumedHolder || daemon.Managed(a.environment)
}

// warnOfVariables reports variables that look like settings but are not. A daemon
// in the background reports them in its log only.
func (a *app) warnOfVariables() {
	for _, v := range a.environment.UnknownVariables() {
		meant := ""
		if v.Meant != "" {
			meant = "; did you mean " + v.Meant + "?"
		}
		fmt.Fprintf(a.stderr, "trl: %s in the environment is not a setting%s\n", visible(v.Name), meant)
	}
}

// serveError adds a hint to the error of a daemon that can't have its socket.
func serveError(err error) error {
	if refusal, ok := errors.AsType[*trust.Refusal](err); ok {
		return refusalError(refusal)
	}
	hint := ""
	missing, isPath := errors.AsType[*fs.PathError](err)
	switch {
	case isPath && missing.Op == "mkdir" && errors.Is(err, fs.ErrNotExist):
		hint = "check the path of the socket, or create its directory: `mkdir -p " + quote(missing.Path) + "`"
	case errors.Is(err, daemon.ErrServing):
		hint = "use it as it is (`trl info`), start another with `trl serve --socket PATH`, or end it with `trl stop`"
	case errors.As(err, new(*daemon.OtherSettingsError)):
		hint = "run `trl serve` without flags to continue them, or `trl stop` to end them and then use any flags; the configuration file still applies"
	case errors.Is(err, fs.ErrPermission):
		hint = "`trl serve --socket PATH` uses a directory of yours; `trl doctor` checks for other problems"
	default:
		return err
	}
	return localError{api.Errorf(api.CodeRuntimeUnavailable, "%w", err).WithHint("%s", hint)}
}

// becomeHolder turns this process into the holder.
func (a *app) becomeHolder(cfg daemon.Config) error {
	args := os.Args
	if a.resumedHolder {
		args = append(args[:1:1], args[2:]...) // without the subcommand
	}
	a.holderStarted = true
	code, err := daemon.BecomeHolder(cfg, args, a.resumedHolder, os.Stderr)
	if err == nil && code != 0 {
		err = exitStatus(code)
	}
	return serveError(err)
}

// resumeHolder continues as the holder, even if this binary rejects its
// arguments or configuration: otherwise the sessions would be lost.
func (a *app) resumeHolder(args []string) int {
	a.resumedHolder = true
	code := a.main(args)
	if !a.holderStarted {
		code = a.report(nil, asFailure(a.becomeHolder(daemon.Defaults(a.environment))))
	}
	return code
}

// settingFlag is a setting of the daemon as a flag. It keeps the text, which
// daemon.Load parses together with all other sources.
type settingFlag struct {
	setting daemon.Setting
	text    string
	to      map[string]string // values set on the command line, by key
}

func (f *settingFlag) String() string { return f.text }

// Set checks the text and keeps it.
func (f *settingFlag) Set(text string) error {
	if err := f.setting.Check(text); err != nil {
		return err
	}
	f.text = text
	f.to[f.setting.Key] = text
	return nil
}

// Type returns the placeholder for the value in help texts.
func (f *settingFlag) Type() string {
	if f.setting.IsSwitch() {
		return "bool"
	}
	return f.setting.Placeholder()
}
