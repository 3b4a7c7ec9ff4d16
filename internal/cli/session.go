package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/environ"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/units"
)

func (a *app) sessionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "session", Short: "Create, list and destroy sessions"}
	cmd.AddCommand(a.sessionCreateCommand(), a.sessionListCommand(), a.sessionInfoCommand(), a.sessionDestroyCommand())
	return a.group(cmd)
}

// shellFlags are the flags of a command or session that say where it runs.
type shellFlags struct {
	confine     confineFlags
	place       string
	shell, cwd  string
	env         []string
	envFromHere bool
}

func (p *shellFlags) register(a *app, cmd *cobra.Command) {
	names := append([]string{"sh"}, shell.Names()...)
	cmd.Flags().StringVar(&p.place, "place", "", "run it in the place `RUNTIME`, such as docker:NAME or ssh:HOST; see trl place")
	cmd.Flags().StringVar(&p.shell, "shell", "", "use `SHELL`: "+strings.Join(names, ", ")+" or a path (default /bin/sh)")
	cmd.Flags().StringVar(&p.cwd, "cwd", "", "start in `DIR` (default: the current directory; in a place, the place's)")
	cmd.Flags().StringArrayVar(&p.env, "env", nil, "set a variable with `NAME=VALUE`, or pass yours on with NAME; may be repeated")
	cmd.Flags().BoolVar(&p.envFromHere, "env-from-here", false, "pass on your PATH, LANG, VIRTUAL_ENV and the like, never secrets")
	must(cmd.RegisterFlagCompletionFunc("shell", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.MarkFlagDirname("cwd"))
	must(cmd.RegisterFlagCompletionFunc("place", a.completeRuntimes))
	groupFlags(cmd, "Where it runs", "place", "shell", "cwd", "env", "env-from-here")
	p.confine.register(cmd)
}

// apply sets what the flags say about a new session, but for its environment.
func (p *shellFlags) apply(params *newSession) error {
	params.Runtime, params.Shell, params.Cwd = p.place, p.shell, p.cwd
	return p.confine.apply(params)
}

// environment returns the variables given with --env and --env-from-here, taken
// from own, the environment of this program. --env wins.
func (p *shellFlags) environment(own []string) (map[string]string, error) {
	if len(p.env) == 0 && !p.envFromHere {
		return nil, nil
	}
	here, env := map[string]string{}, map[string]string{}
	for _, variable := range own {
		name, value, _ := strings.Cut(variable, "=")
		here[name] = value
		if p.envFromHere && environ.IsFromHere(name) {
			env[name] = value
		}
	}
	for _, entry := range p.env {
		name, value, given := strings.Cut(entry, "=")
		if name == "" {
			return nil, usage("--env %q: write NAME=VALUE", entry)
		}
		if !given {
			var ok bool
			if value, ok = here[name]; !ok {
				return nil, usage("--env %s: no such variable here to pass on; write %s=VALUE", name, name)
			}
		}
		env[name] = value
	}
	return env, nil
}

// create creates a session. Its default directory is that of this process, as
// for any command; a daemon on another machine may not have it, and then uses
// its own. In a named place the directory of this process means nothing.
func create(ctx context.Context, c *client.Client, params newSession, result any) error {
	if params.Cwd != "" || params.Runtime != "" && params.Runtime != api.RuntimeHost {
		return c.Call(ctx, api.MethodSessionCreate, params, result)
	}
	here := params
	if dir, err := os.Getwd(); err == nil {
		here.Cwd = dir
	}
	err := c.Call(ctx, api.MethodSessionCreate, here, result)
	if api.IsCode(err, api.CodeCwdNotFound) {
		err = c.Call(ctx, api.MethodSessionCreate, params, result)
	}
	return err
}

func (a *app) sessionCreateCommand() *cobra.Command {
	var where shellFlags
	var params newSession
	var timeout, idle durationFlag
	var tty string
	cmd := &cobra.Command{
		Use:   "create [-- COMMAND ARG...]",
		Short: "Create a session and print its id",
		Long: "Create a session and print its id. With a command after --, the session runs that\n" +
			"command instead of a shell.",
		Example: "  id=$(trl session create --shell bash --name build)\n" +
			"  trl session create --sandbox workspace --memory 2g\n" +
			"  trl session create -- tail -f /var/log/syslog",
	}
	where.register(a, cmd)
	cmd.Flags().StringVar(&params.InheritEnv, "inherit-env", "", "`WHICH` variables to take from the daemon: base, all or none (default base)")
	cmd.Flags().BoolVar(&params.Login, "login", false, "read the shell's login startup files")
	cmd.Flags().StringVar(&params.Name, "name", "", "show `NAME` in lists")
	cmd.Flags().StringArrayVar(&params.Tags, "tag", nil, "add `TAG`, to list sessions by; may be repeated")
	cmd.Flags().StringVar(&params.Parent, "parent", "", "end it no later than `SESSION`")
	cmd.Flags().StringVar(&tty, "tty", "", "run on a terminal of `ROWSxCOLS`, such as 24x80")
	durationVar(cmd, &timeout, "timeout", "cancel every command that takes longer")
	durationVar(cmd, &idle, "idle-ttl", "end the session when it has been idle for this long; 0 means never")
	groupFlags(cmd, "Where it runs", "inherit-env", "login", "tty")
	groupFlags(cmd, "Names", "name", "tag", "parent")
	groupFlags(cmd, "Time", "timeout", "idle-ttl")
	cmd.RunE = action(afterDashes, func(ctx context.Context, args []string) error {
		var err error
		if params.Env, err = where.environment(os.Environ()); err != nil {
			return err
		}
		if params.TTY, err = terminalSize(tty); err != nil {
			return err
		}
		params.Argv = args
		if err := where.apply(&params); err != nil {
			return err
		}
		if ms := timeout.milliseconds(); ms != nil {
			params.TimeoutMS = *ms
		}
		params.IdleTTLMS = idle.milliseconds()
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if params.Parent != "" {
			if params.Parent, err = findSession(ctx, c, params.Parent); err != nil {
				return err
			}
		}
		var raw json.RawMessage
		if err := create(ctx, c, params, &raw); err != nil {
			return err
		}
		var session api.Session
		if err := json.Unmarshal(raw, &session); err != nil {
			return err
		}
		a.warnOfNamesake(ctx, c, &session)
		if a.json {
			return a.printJSON(raw)
		}
		fmt.Fprintln(a.stdout, visible(session.SessionID))
		return nil
	})
	return cmd
}

// warnOfNamesake reports living sessions of the same owner with the same name:
// the name alone no longer says which one is meant.
func (a *app) warnOfNamesake(ctx context.Context, c *client.Client, created *api.Session) {
	if created.Name == "" {
		return
	}
	list, err := c.ListSessions(ctx, api.SessionListParams{})
	if err != nil {
		return // the session exists, and a warning is all that is lost
	}
	var others []string
	for _, s := range list.Sessions {
		if s.Name == created.Name && s.Owner == created.Owner && s.SessionID != created.SessionID && s.State != api.StateTerminated {
			others = append(others, s.SessionID)
		}
	}
	if len(others) > 0 {
		fmt.Fprintf(a.stderr, "trl: %s is also the name of %s; use ids to tell them apart\n", visible(created.Name), visible(strings.Join(others, ", ")))
	}
}

// terminalSize parses rows and columns; "" means no terminal.
func terminalSize(text string) (*api.TTYSize, error) {
	if text == "" {
		return nil, nil
	}
	rows, cols, _ := strings.Cut(text, "x")
	r, err1 := strconv.Atoi(rows)
	c, err2 := strconv.Atoi(cols)
	if err1 != nil || err2 != nil {
		return nil, usage("--tty %q: write rows and columns, as in 24x80", text)
	}
	return &api.TTYSize{Rows: r, Cols: c}, nil
}

// afterDashes requires every argument to come after --, where it can't be a
// typo.
func afterDashes(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
		return usage("unexpected argument %q; a command comes after --", args[0])
	}
	return nil
}

func (a *app) sessionInfoCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "info SESSION",
		Short:             "Show a session and the processes in it",
		ValidArgsFunction: a.completeSessions,
		RunE: action(exactArgs("SESSION"), func(ctx context.Context, args []string) error {
			return a.withSession(ctx, args[0], func(c *client.Client, id string) error {
				return callOn(ctx, a, c, api.MethodSessionInfo, api.SessionParams{SessionID: id}, a.showSession)
			})
		}),
	}
}

func (a *app) showSession(s *api.SessionInfo) error {
	t := newTable(a.stdout)
	field := func(name, value string) {
		if value != "" {
			t.row(name, value)
		}
	}
	field("id", s.SessionID)
	field("name", s.Name)
	field("tags", strings.Join(s.Tags, ", "))
	field("owner", s.Owner)
	field("state", stateText(s.Session))
	field("because", s.Unreadable)
	if end := s.Terminated; end != nil {
		field("ended", end.At.Local().Format(time.DateTime)+" ("+end.Reason+")")
	}
	if elsewhere(s.Session) {
		field("place", s.Runtime)
	}
	field("runs", program(s.Session))
	field("cwd", s.Cwd)
	if !s.CreatedAt.IsZero() { // zero if unknown
		field("created", s.CreatedAt.Local().Format(time.DateTime))
	}
	field("variables", strings.Join(s.EnvKeys, ", "))
	showIsolation(s.Isolation, field)
	field("limits", limitsText(s.Limits))
	if s.TimeoutMS > 0 {
		field("timeout", units.Milliseconds(s.TimeoutMS))
	}
	if s.IdleTTLMS > 0 {
		field("idle ttl", units.Milliseconds(s.IdleTTLMS))
	}
	field("commands", strconv.FormatInt(s.ExecCount, 10))
	if s.Exec != nil {
		field("running", s.Exec.ExecID+" for "+units.Milliseconds(s.Exec.DurationMS))
	}
	if s.LastExec != nil {
		field("last", s.LastExec.ExecID+", "+outcomeText(s.LastExec))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if len(s.Processes) == 0 {
		return nil
	}
	fmt.Fprintln(a.stdout)
	return a.showProcesses(s.Processes)
}

// showProcesses lists the session's own processes first and last, so that those
// of commands are together, by age.
func (a *app) showProcesses(processes []api.Process) error {
	order := map[string]int{api.RoleShell: -2, api.RoleLeader: -1, api.RoleStandby: 1}
	processes = slices.SortedStableFunc(slices.Values(processes), func(p, q api.Process) int {
		return cmp.Or(order[p.Role]-order[q.Role], cmp.Compare(q.AgeMS, p.AgeMS), cmp.Compare(p.PID, q.PID))
	})
	t := newTable(a.stdout, "PID", "PPID", "AGE", "RSS", "OF", "COMMAND")
	for _, p := range processes {
		of := p.Role
		if of == "" {
			of = p.ExecID
		}
		t.row(strconv.Itoa(p.PID), strconv.Itoa(p.PPID), units.Milliseconds(p.AgeMS), units.Size(p.RSSBytes), of, p.Command)
	}
	return t.flush()
}

func (a *app) sessionDestroyCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:               "destroy SESSION...",
		Short:             "Destroy sessions and kill every process in them",
		Long:              "Destroy sessions and kill every process in them. It returns once they are gone.",
		Example:           "  trl session destroy $id\n  trl session destroy $(trl session list -q --tag ci)",
		Aliases:           []string{"rm"},
		ValidArgsFunction: a.completeSessions,
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "kill at once, without SIGTERM first")
	cmd.RunE = action(atLeastOne("SESSION"), func(ctx context.Context, args []string) error {
		status := exitStatus(0)
		for _, ref := range args { // go on after one that is already gone
			if err := a.destroy(ctx, ref, force); err != nil {
				a.printError(err)
				status = statusFailed
			}
		}
		if status != 0 {
			return status
		}
		return nil
	})
	return cmd
}

func atLeastOne(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage("%s is missing", name)
		}
		return nil
	}
}

func (a *app) destroy(ctx context.Context, ref string, force bool) error {
	return a.withSession(ctx, ref, func(c *client.Client, id string) error {
		params := api.SessionDestroyParams{SessionID: id, Force: force}
		return callOn(ctx, a, c, api.MethodSessionDestroy, params, func(result *api.SessionDestroyResult) error {
			if len(result.Survivors) == 0 {
				return nil
			}
			return fmt.Errorf("these processes of %s could not be killed: %s", id, processNames(result.Survivors))
		})
	})
}
