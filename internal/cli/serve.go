package cli

import (
	"context"
	"errors"
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
		Long: "Run the daemon until SIGTERM or Ctrl-C; then its sessions are ended, with all\n" +
			"their processes. A second signal does not wait for them. SIGHUP does what\n" +
			"`trl upgrade` does. Where `trl stop --keep` has left sessions, they go on.\n\n" +
			"Every setting has one name: max_sessions in the configuration file,\n" +
			"TRL_MAX_SESSIONS in the environment, --max-sessions here. Flags come first, then\n" +
			"the environment, then the file, which is ~/.config/trl/config.toml, or for root\n" +
			"/etc/trl/config.toml.",
		Example: "  trl serve --detach\n  trl serve --socket ~/trl.sock --log-level debug",
	}
	cmd.Flags().SortFlags = false // in the order in which they are documented
	cmd.Flags().StringVar(&file, "config", "", "configuration `FILE`; it must exist (also TRL_CONFIG)")
	cmd.Flags().BoolVar(&stdio, "stdio", false, "serve one connection on stdin and stdout, and end with it")
	cmd.Flags().BoolVar(&detach, "detach", false, "start it in the background, and return when it answers")
	defaults := daemon.Defaults(a.environment)
	for _, s := range daemon.Settings() {
		if s.Key != "socket" { // a flag of every command
			flag := cmd.Flags().VarPF(&settingFlag{setting: s, text: s.Value(&defaults), to: flags}, s.Flag(), "", s.Usage)
			if s.IsSwitch() {
				flag.NoOptDefVal = "true" // so that the name alone will do
			}
		}
	}
	cmd.RunE = action(exactArgs(), func(ctx context.Context, _ []string) error {
		if detach && stdio {
			return usage("--stdio is for who starts it: it can't go with --detach")
		}
		// Before anything else runs: it may start this program again. A holder
		// that became this program was clean before, and has what must not be lost.
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
		case !stdio && !a.heldDaemon:
			return a.becomeHolder(cfg)
		default:
			return serveError(daemon.Serve(ctx, cfg, opts))
		}
	})
	return cmd
}

// notServing says what to do where a daemon can't have its socket.
func serveError(err error) error {
	if refusal, ok := errors.AsType[*trust.Refusal](err); ok {
		return refusalError(refusal)
	}
	hint := ""
	switch {
	case errors.Is(err, daemon.ErrServing):
		hint = "it can be used as it is, see `trl info`; `trl serve --socket PATH` starts another beside it, `trl stop` ends it"
	case errors.As(err, new(*daemon.OtherSettingsError)):
		hint = "`trl serve` without flags gives them a daemon again; `trl stop` ends the sessions, and then any flags will do; what is in the configuration file applies"
	case errors.Is(err, fs.ErrPermission):
		hint = "`trl serve --socket PATH` serves in a directory of your own; `trl doctor` says what else is in the way"
	default:
		return err
	}
	return localError{api.Errorf(api.CodeRuntimeUnavailable, "%w", err).WithHint("%s", hint)}
}

// hold makes this process the holder.
func (a *app) becomeHolder(cfg daemon.Config) error {
	args := os.Args
	if a.resumedHolder {
		args = append(args[:1:1], args[2:]...) // without the word for it
	}
	a.holderStarted = true
	code, err := daemon.BecomeHolder(cfg, args, a.resumedHolder, os.Stderr)
	if err == nil && code != 0 {
		err = exitStatus(code)
	}
	return serveError(err)
}

// holdAgain goes on as the holder, whatever the program that this process became
// thinks of its arguments and its configuration: its sessions would be lost.
func (a *app) resumeHolder(args []string) int {
	a.resumedHolder = true
	code := a.main(args)
	if !a.holderStarted {
		code = a.report(nil, asFailure(a.becomeHolder(daemon.Defaults(a.environment))))
	}
	return code
}

// settingFlag is a setting of the daemon as a flag. It is kept as text, and
// read together with all other sources by daemon.Load.
type settingFlag struct {
	setting daemon.Setting
	text    string
	to      map[string]string // given values, by key
}

func (f *settingFlag) String() string { return f.text }

// Set keeps the text.
func (f *settingFlag) Set(text string) error {
	if err := f.setting.Check(text); err != nil {
		return err
	}
	f.text = text
	f.to[f.setting.Key] = text
	return nil
}

// Type is what stands for the value in the help.
func (f *settingFlag) Type() string {
	switch {
	case f.setting.IsNumber():
		return "number"
	case f.setting.IsSwitch():
		return "bool"
	case f.setting.IsList():
		return "list"
	default:
		return "text"
	}
}
