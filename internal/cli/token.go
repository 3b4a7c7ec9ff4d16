package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/daemon"
	"github.com/terminal-runtime/trl/internal/units"
)

// tokenCommand works on the token file directly: whoever may write it needs no
// daemon's permission, and the first token must exist before the first daemon.
func (a *app) tokenCommand() *cobra.Command {
	var at tokenFile
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create and revoke tokens for HTTP",
		Long: "Create, list and revoke the tokens that clients need over HTTP. They are stored as\n" +
			"hashes in a file that only you can read. A new token works at once, also if the\n" +
			"daemon is running; a revoked one stops working within a second. The Unix socket\n" +
			"needs no token.",
	}
	cmd.PersistentFlags().StringVar(&at.path, "token-file", "", "use the token file `FILE` (also TRL_TOKEN_FILE)")
	cmd.PersistentFlags().StringVar(&at.config, "config", "", "configuration `FILE`; it must exist (also TRL_CONFIG)")
	cmd.AddCommand(a.tokenCreateCommand(&at), a.tokenListCommand(&at), a.tokenRevokeCommand(&at))
	return a.group(cmd)
}

// tokenFile are the flags that locate the token file.
type tokenFile struct{ path, config string }

// open returns the token file that the daemon would use.
func (t *tokenFile) open(env daemon.Environment) (access.File, error) {
	flags := map[string]string{}
	if t.path != "" {
		flags["token_file"] = t.path
	}
	cfg, err := daemon.Load(daemon.Sources{Flags: flags, Environment: env, File: t.config})
	if err != nil {
		return access.File{}, err
	}
	return access.File{Path: cfg.TokenFile}, nil
}

func (a *app) tokenCreateCommand(at *tokenFile) *cobra.Command {
	var wanted access.NewToken
	var scope string
	var ttl durationFlag
	cmd := &cobra.Command{
		Use:   "create --scope SCOPE",
		Short: "Create a token and print it once",
		Long: "Create a token and print it. You see it only once: only its hash is stored.\n\n" +
			"The scope says what a client may do with it: `read` only reads, `run` creates sessions\n" +
			"and runs commands, `admin` also changes the daemon. Whoever can run commands can do\n" +
			"anything that you can do on this machine. With --tag the token only reaches sessions\n" +
			"with that tag, and every session it creates must have it. With --sandbox these are\n" +
			"confined; a client can only narrow that. A TRL without confinement refuses a token\n" +
			"file with such a token.",
		Example: "  token=$(trl token create --scope run --ttl 24h --name ci)\n" +
			"  curl -H \"Authorization: Bearer $token\" -H 'Content-Type: application/json' \\\n" +
			"    -d '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"system.ping\"}' \\\n" +
			"    http://127.0.0.1:7040/rpc",
	}
	cmd.Flags().StringVar(&scope, "scope", "", "allow `SCOPE`: read, run or admin")
	durationVar(cmd, &ttl, "ttl", "expire after this time (default: never)")
	cmd.Flags().StringVar(&wanted.Tag, "tag", "", "limit to sessions with `TAG`")
	cmd.Flags().StringVar(&wanted.Sandbox, "sandbox", "", "confine its sessions at least by `PROFILE`: workspace, readonly or offline; needs --tag")
	must(cmd.RegisterFlagCompletionFunc("sandbox", cobra.FixedCompletions(profileNames, cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().StringVar(&wanted.Name, "name", "", "show `NAME` in lists")
	cmd.RunE = action(exactArgs(), func(context.Context, []string) error {
		wanted.Scope, wanted.TTL = access.Scope(scope), ttl.value
		if !wanted.Scope.Valid() {
			return usage("--scope must be read, run or admin")
		}
		if ttl.given && ttl.value < time.Second {
			return usage("--ttl must be at least one second")
		}
		switch {
		case wanted.Sandbox != "" && !slices.Contains(profileNames, wanted.Sandbox):
			return usage("--sandbox %q: the profiles are %s", wanted.Sandbox, strings.Join(profileNames, ", "))
		case wanted.Sandbox != "" && wanted.Scope == access.ScopeAdmin:
			return usage("--sandbox excludes --scope admin, which changes the daemon itself")
		case wanted.Sandbox != "" && wanted.Tag == "":
			return usage("--sandbox needs --tag: without one the token could use the sessions of others")
		}
		file, err := at.open(a.environment)
		if err != nil {
			return err
		}
		secret, token, err := file.Create(wanted)
		if err != nil {
			return err
		}
		if a.json {
			return a.printValue(struct {
				access.Token
				Secret string `json:"token"`
			}{token, secret})
		}
		fmt.Fprintln(a.stdout, secret)
		scoped := string(token.Scope)
		if token.Sandbox != "" {
			scoped += ", confined by " + token.Sandbox
		}
		fmt.Fprintf(a.stderr, "trl: token %s, scope %s, %s; it is not shown again. `trl token revoke %s` revokes it.\n",
			token.ID, scoped, lifetime(token, token.Created), token.ID)
		return nil
	})
	return cmd
}

// lifetime describes how long a token is valid.
func lifetime(t access.Token, now time.Time) string {
	switch {
	case t.Expires.IsZero():
		return "never expires"
	case t.Expired(now):
		return "expired"
	default:
		return "expires in " + units.Duration(t.Expires.Sub(now).Round(time.Second))
	}
}

func (a *app) tokenListCommand(at *tokenFile) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the tokens, without their secrets",
		Aliases: []string{"ls"},
		RunE: action(exactArgs(), func(context.Context, []string) error {
			file, err := at.open(a.environment)
			if err != nil {
				return err
			}
			tokens, err := file.List()
			if err != nil {
				return err
			}
			if a.json {
				return a.printValue(map[string]any{"tokens": tokens})
			}
			return a.showTokens(tokens, time.Now())
		}),
	}
}

func (a *app) showTokens(tokens []access.Token, now time.Time) error {
	if len(tokens) == 0 {
		return a.printEmpty("no tokens; `trl token create --scope SCOPE` makes one")
	}
	t := newTable(a.stdout, "ID", "NAME", "SCOPE", "TAG", "SANDBOX", "CREATED", "LIFE")
	for _, token := range tokens {
		t.row(token.ID, token.Name, string(token.Scope), token.Tag, token.Sandbox, a.timeText(token.Created, now), lifetime(token, now))
	}
	return t.flush()
}

func (a *app) tokenRevokeCommand(at *tokenFile) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID...",
		Short:   "Revoke tokens",
		Aliases: []string{"rm"},
		RunE: action(atLeastOne("ID"), func(_ context.Context, args []string) error {
			file, err := at.open(a.environment)
			if err != nil {
				return err
			}
			status := exitStatus(0)
			for _, id := range args { // go on after one that is already gone
				if err := file.Revoke(id); err != nil {
					if errors.Is(err, access.ErrNoToken) {
						err = localError{api.Errorf(api.CodeInvalidParams, "%w", err).WithHint("run `trl token list`")}
					}
					a.printError(err)
					status = statusFailed
				}
			}
			if status != 0 {
				return status
			}
			return nil
		}),
	}
}

// printValue prints a value of this program as JSON.
func (a *app) printValue(value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return a.printJSON(raw)
}
