package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/units"
)

func (a *app) placeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "place",
		Short: "Manage where sessions can run: containers, SSH hosts",
		Long: "Manage the places where sessions can run besides this machine. You name a place by\n" +
			"its runtime:\n\n" +
			"  docker:NAME, podman:NAME                a running container\n" +
			"  docker-image:IMAGE, podman-image:IMAGE  a container made for the sessions\n" +
			"  ssh:HOST, ssh:USER@HOST                 another machine\n" +
			"  cmd:NAME                                behind a command in the configuration\n" +
			"  trl:URL                                 another daemon, over HTTP\n\n" +
			"`trl run --place RUNTIME` adds a place that is new, and delivers TRL to it. The\n" +
			"sessions live there: they survive a lost connection and a restart of this daemon.",
		Example: "  trl run --place docker:web -- ls /app\n" +
			"  trl place check ssh:build.example.com\n" +
			"  trl place list",
	}
	cmd.AddCommand(a.placeListCommand(), a.placeAddCommand(), a.placeCheckCommand(), a.placeRemoveCommand(), a.placeUpgradeCommand())
	return a.group(cmd)
}

func (a *app) placeListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the places",
		Long: "List the places, and whether each can be used now. An idle place is not\n" +
			"connected; the next command connects. `trl place check` connects now.",
		Example: "  trl place list\n  trl place list --format '{{.runtime}} {{.state}}'",
		Aliases: []string{"ls"},
		RunE: action(exactArgs(), func(ctx context.Context, _ []string) error {
			return callAndShow(ctx, a, api.MethodPlaceList, nil, func(list *api.PlaceListResult) error {
				return a.showPlaces(list.Places, time.Now())
			})
		}),
	}
}

func (a *app) placeAddCommand() *cobra.Command {
	return a.onePlaceCommand(&cobra.Command{
		Use:   "add RUNTIME",
		Short: "Add a place and connect to it",
		Long: "Add a place and connect to it. It delivers TRL there if necessary. `trl run --place`\n" +
			"does the same; use this to find out before an agent needs the place.",
		Example: "  trl place add docker:web\n  trl place add ssh:me@build.example.com",
	}, api.MethodPlaceAdd)
}

func (a *app) placeCheckCommand() *cobra.Command {
	return a.onePlaceCommand(&cobra.Command{
		Use:   "check RUNTIME",
		Short: "Connect to a place now and show it",
		Long: "Connect to a place now, even if the last attempt just failed, and show what it is:\n" +
			"system, user, version, shells, and what can be enforced there. If it can't be\n" +
			"reached, the exit status is 1, and you see why and what to do.",
		Example: "  trl place check docker:web",
	}, api.MethodPlaceCheck)
}

func (a *app) placeUpgradeCommand() *cobra.Command {
	return a.onePlaceCommand(&cobra.Command{
		Use:   "upgrade RUNTIME",
		Short: "Replace the TRL of a place with this daemon's version",
		Long: "Replace the TRL of a place with this daemon's version. The sessions there and their\n" +
			"commands continue, as with `trl upgrade` here.",
		Example: "  trl place upgrade ssh:build.example.com",
	}, api.MethodPlaceUpgrade)
}

// onePlaceCommand completes a command that calls a method for one place and
// shows the place. A place that can't be reached is a failure.
func (a *app) onePlaceCommand(cmd *cobra.Command, method string) *cobra.Command {
	cmd.ValidArgsFunction = a.completePlaces
	cmd.RunE = action(exactArgs("RUNTIME"), func(ctx context.Context, args []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		var raw json.RawMessage
		if err := c.Call(ctx, method, api.PlaceParams{Runtime: args[0]}, &raw); err != nil {
			return err
		}
		var place api.Place
		if err := json.Unmarshal(raw, &place); err != nil {
			return err
		}
		if a.json {
			err = a.printJSON(raw)
		} else {
			err = a.showPlace(&place, time.Now())
		}
		if err == nil && place.State == api.PlaceUnreachable {
			return exitStatus(statusFailed)
		}
		return err
	})
	return cmd
}

func (a *app) placeRemoveCommand() *cobra.Command {
	var params api.PlaceRemoveParams
	cmd := &cobra.Command{
		Use:   "remove RUNTIME",
		Short: "Remove a place and everything TRL put there",
		Long: "Remove a place: end the TRL there, remove its program and its files, and forget the\n" +
			"place. A place with live sessions is refused, unless you end them with --force. If\n" +
			"the place can't be reached, nothing can be removed there: start it first, or use\n" +
			"--forget if it is gone for good.",
		Example:           "  trl place remove docker:web\n  trl place remove --forget ssh:old.example.com",
		Aliases:           []string{"rm"},
		ValidArgsFunction: a.completePlaces,
	}
	cmd.Flags().BoolVarP(&params.Force, "force", "f", false, "end the sessions in it first")
	cmd.Flags().BoolVar(&params.Forget, "forget", false, "do nothing there; for a place that is gone for good")
	cmd.RunE = action(exactArgs("RUNTIME"), func(ctx context.Context, args []string) error {
		params.Runtime = args[0]
		return callAndShow(ctx, a, api.MethodPlaceRemove, params, func(*api.PlaceRemoveResult) error { return nil })
	})
	return cmd
}

func (a *app) showPlaces(places []api.Place, now time.Time) error {
	if len(places) == 0 {
		return a.printEmpty("no places; `trl place add docker:NAME` adds a container, `trl place add ssh:HOST` a machine")
	}
	t := newTable(a.stdout, "RUNTIME", "NAME", "STATE", "FOR", "SYSTEM", "USER", "VERSION", "REASON")
	t.style(2, placeStyle)
	for i := range places {
		p := &places[i]
		t.row(p.Runtime, p.Name, string(p.State), sinceText(p.Since, now), platform(p), p.User, p.Version, p.Reason)
	}
	return t.flush()
}

// sinceText returns how long ago t was, or "" if that is unknown.
func sinceText(t *api.Time, now time.Time) string {
	if t == nil {
		return ""
	}
	return ageText(*t, now)
}

// platform returns the system and the processor of a place.
func platform(p *api.Place) string {
	if p.OS == "" {
		return ""
	}
	return p.OS + "/" + p.Arch
}

func (a *app) showPlace(p *api.Place, now time.Time) error {
	t := newTable(a.stdout)
	t.style(1, placeStyle)
	field := func(name, value string) {
		if value != "" {
			t.row(name, value)
		}
	}
	field("runtime", p.Runtime)
	field("name", p.Name)
	field("state", string(p.State))
	field("for", sinceText(p.Since, now))
	field("reason", p.Reason)
	field("message", p.Message)
	field("system", platform(p))
	field("user", p.User)
	field("version", p.Version)
	field("shells", strings.Join(p.Shells, ", "))
	field("limits", strings.Join(p.Limits, ", "))
	field("isolation", strings.Join(p.Isolates, ", "))
	if p.RetryMS > 0 {
		field("next try", "in "+units.Milliseconds(p.RetryMS))
	}
	field("hint", p.Hint)
	return t.flush()
}

// placeStyle returns the style of a place's state.
func placeStyle(state string) style {
	switch api.PlaceState(state) {
	case api.PlaceConnected:
		return styleGreen
	case api.PlaceConnecting:
		return styleYellow
	case api.PlaceUnreachable:
		return styleRed
	}
	return ""
}

// reportUnreachable says which places' sessions are missing from a list.
func (a *app) reportUnreachable(places []api.Unreachable, now time.Time) {
	for i := range places {
		p := &places[i]
		text := p.Runtime + " is out of reach"
		if age := sinceText(p.Since, now); age != "" {
			text += " for " + age
		}
		a.remark(visible(fmt.Sprintf("%s (%s), so its sessions are not listed; `trl place check %s` tries again and says more", text, p.Reason, quote(p.Runtime))))
	}
}
