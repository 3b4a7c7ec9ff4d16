// Package cli implements the command line of TRL.
//
// Except for `serve`, which runs the daemon, every command is a client like any
// other: it uses the client package and has no other access. Commands print a
// table or a line for people, with --json the daemon's answer unchanged, and with
// --format parts of it.
package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/daemon"
	"github.com/terminal-runtime/trl/internal/printable"
)

// version is set by the linker; see buildVersion.
var version string

// buildVersion returns the version of this binary: the one it was linked with,
// or that of the module it was installed from.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// app is one run of the program: its streams and its global flags. Commands are
// its methods.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environment    daemon.Environment
	exit           func(status int) // ends the process at once

	socket        string // --socket; "" if not set
	address       string // --address; "" if not set
	json          bool   // --json or --format: print results as data
	format        formatFlag
	heldDaemon    bool // run as the daemon of a holder
	checkOnly     bool // only report whether this binary can be the daemon
	resumedHolder bool // run as a holder that executed this binary
	holderStarted bool // becomeHolder was called
}

// Main runs the program and returns its exit status.
func Main(args []string) int {
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		environment: daemon.SystemEnvironment(), exit: os.Exit,
	}
	switch {
	case len(args) > 1 && args[0] == daemon.DaemonSubcommand && args[1] == daemon.CheckArg:
		a.checkOnly, args = true, args[2:]
	case len(args) > 0 && args[0] == daemon.DaemonSubcommand:
		a.heldDaemon, args = true, args[1:]
	case len(args) > 0 && args[0] == daemon.HolderSubcommand:
		return a.resumeHolder(args[1:])
	case len(args) == 1 && args[0] == removerCommand:
		return removeDelivered()
	case len(args) > 0 && args[0] == launcherCommand:
		return a.launch(args[1:])
	}
	return a.main(args)
}

func (a *app) main(args []string) int {
	root := a.program()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	at, err := root.ExecuteContextC(context.Background())
	return a.report(at, err)
}

// program returns the root command with everything that a user can run: those of
// rootCommand, the help, and cobra's completion scripts.
func (a *app) program() *cobra.Command {
	root := a.rootCommand()
	root.SetCompletionCommandGroupID(moreCommands)
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			a.group(cmd)
		}
	}
	return root
}

// moreCommands is the heading of the commands that belong to no other.
const moreCommands = "More"

func (a *app) rootCommand() *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:   "trl",
		Short: "Shell sessions for AI agents",
		Long: "TRL runs commands in shell sessions that keep their directory and variables, and\n" +
			"keeps track of every process they start. `trl serve` runs the daemon; the other\n" +
			"commands talk to it.",
		Example: "  trl quickstart                   take a one-minute tour\n" +
			"  trl serve --detach               start the daemon\n" +
			"  trl run -- ls -l                 run one command\n" +
			"  id=$(trl session create)         create a session\n" +
			"  trl run -s $id -- 'cd /usr; ls'  run a command in it\n" +
			"  trl session destroy $id          destroy it and all its processes",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&a.socket, "socket", "", "connect to the daemon's Unix socket at `PATH` (also TRL_SOCKET)")
	root.PersistentFlags().StringVar(&a.address, "address", "", "connect to the daemon at `ADDRESS`: http(s)://HOST:PORT or ws(s)://HOST:PORT, with the token in TRL_TOKEN, unix:PATH, or exec:[\"COMMAND\",…] (also TRL_ADDRESS)")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print results and errors as JSON")
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "print the version")
	root.PersistentFlags().Var(&a.format, "format", "print each result, or entry of a list, with a Go `TEMPLATE` such as '{{.session_id}} {{.state}}'")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return a.checkFormat(cmd) }
	root.SetFlagErrorFunc(flagError)
	a.setHelp(root)
	addGroup(root, "Sessions and commands", a.runCommand(), a.waitCommand(), a.inputCommand(), a.keysCommand(),
		a.psCommand(), a.sessionCommand(), a.execCommand(), a.logsCommand(), a.eventsCommand())
	addGroup(root, "People and agents", a.attachCommand(), a.shellCommand(), a.screenCommand(), a.mcpCommand())
	addGroup(root, "Daemon", a.serveCommand(), a.upgradeCommand(), a.stopCommand(), a.statusCommand(),
		a.infoCommand(), a.statsCommand(), a.doctorCommand(), a.placeCommand(), a.tokenCommand(), a.connectCommand())
	addGroup(root, moreCommands, a.quickstartCommand(), a.versionCommand(), a.docsCommand())
	root.SetHelpCommandGroupID(moreCommands)
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	a.group(root)
	alone := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if showVersion {
			return a.printVersion()
		}
		return alone(cmd, args)
	}
	return root
}

// group turns cmd into a command that only has subcommands: alone it prints its
// help, and an unknown subcommand is an error.
func (a *app) group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args)
	}
	return cmd
}

// action returns a RunE function that checks the arguments with args and then
// calls fn; an error of fn is a failure, not wrong usage.
func action(args cobra.PositionalArgs, fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, list []string) error {
		if err := args(cmd, list); err != nil {
			return err
		}
		return asFailure(fn(cmd.Context(), list))
	}
}

// exactArgs requires exactly the named arguments.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usage("%s is missing", names[len(args)])
		}
		if len(args) > len(names) {
			return usage("unexpected argument %q", args[len(names)])
		}
		for i, name := range names {
			if err := checkKind(name, args[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// socketPath returns the daemon's socket: from the flag, the environment, the
// configuration file or the default, in this order.
func (a *app) socketPath() (string, error) {
	flags := map[string]string{}
	if a.socket != "" {
		return a.socket, nil
	}
	cfg, err := daemon.Load(daemon.Sources{Flags: flags, Environment: a.environment})
	if err != nil {
		return "", err
	}
	return cfg.Socket, nil
}

// daemonAddress returns the daemon's address, or "" if it is on a local socket.
func (a *app) daemonAddress() string {
	if a.address == "" && a.socket == "" {
		return os.Getenv(daemon.AddressVariable)
	}
	return a.address
}

// connect opens a connection to the daemon and waits until it answers.
func (a *app) connect(ctx context.Context) (*client.Client, error) {
	if address := a.daemonAddress(); address != "" {
		token := os.Getenv(daemon.TokenVariable)
		c, err := client.DialWith(ctx, address, client.Options{Patience: dialPatience, Token: token})
		if refused, ok := errors.AsType[*api.Error](err); ok {
			return nil, tokenError(refused, token)
		}
		if err != nil {
			return nil, localError{unreachableError(address, err)}
		}
		c, err = checkedClient(ctx, c, address)
		return c, tokenError(err, token)
	}
	path, err := a.socketPath()
	if err != nil {
		return nil, err
	}
	c, err := client.DialWith(ctx, path, client.Options{Patience: dialPatience})
	if err != nil {
		return nil, a.noDaemonError(path, err)
	}
	if c, err = checkedClient(ctx, c, path); errors.Is(err, client.ErrNoDaemon) {
		return nil, a.noDaemonError(path, err) // it has gone since the dial
	}
	return c, err
}

// checkedClient returns c once the daemon has answered, and closes it
// otherwise.
func checkedClient(ctx context.Context, c *client.Client, where string) (*client.Client, error) {
	if err := pingDaemon(ctx, c, where); err != nil {
		_ = c.Close() // err says more
		return nil, err
	}
	return c, nil
}

// dialPatience is how long to look for a daemon that went away: a person waits.
const dialPatience = 3 * time.Second

// callAndShow calls one method on a new connection. With --json or --format it
// prints the raw answer, otherwise it calls show.
func callAndShow[T any](ctx context.Context, a *app, method string, params any, show func(*T) error) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return callOn(ctx, a, c, method, params, show)
}

// callOn is callAndShow on a connection that the caller has.
func callOn[T any](ctx context.Context, a *app, c *client.Client, method string, params any, show func(*T) error) error {
	if a.json {
		var raw json.RawMessage
		if err := c.Call(ctx, method, params, &raw); err != nil {
			return err
		}
		return a.printJSON(raw)
	}
	var result T
	if err := c.Call(ctx, method, params, &result); err != nil {
		return err
	}
	return show(&result)
}

// printJSON prints a result by the template of --format, or as one indented JSON
// value: programs don't mind, and people read it on a terminal, which must not
// interpret its contents.
func (a *app) printJSON(raw json.RawMessage) error {
	if a.format.template != nil {
		return a.format.print(a.stdout, raw)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return err
	}
	out.WriteByte('\n')
	_, err := a.stdout.Write(printable.JSON(out.Bytes()))
	return err
}

// isTerminal reports whether stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
