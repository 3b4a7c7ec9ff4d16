package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/daemon"
	"github.com/terminal-runtime/trl/internal/doctor"
	"github.com/terminal-runtime/trl/internal/trust"
)

func (a *app) doctorCommand() *cobra.Command {
	var file, place string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine and its daemon for problems",
		Long: "Check this machine, and its daemon if one is running: kernel features, limits,\n" +
			"permissions, directories, shells. It changes nothing.\n\n" +
			"A note is good to know; a problem needs fixing and comes with a command to run.\n" +
			"The exit status is 1 if there is a problem. Run it as the user who runs the daemon.\n\n" +
			"With --place it checks a place instead, from a session in it.",
		Example: "  trl doctor\n  trl doctor --place docker:web\n  sudo -u trl trl --socket /run/trl/trl.sock doctor",
	}
	cmd.Flags().StringVar(&file, "config", "", "the daemon's configuration `FILE` (also TRL_CONFIG)")
	cmd.Flags().StringVar(&place, "place", "", "check the place `RUNTIME`, such as docker:NAME or ssh:HOST")
	must(cmd.RegisterFlagCompletionFunc("place", a.completeRuntimes))
	cmd.RunE = action(exactArgs(), func(ctx context.Context, _ []string) error {
		if place != "" {
			if file != "" {
				return usage("--config and --place exclude each other: a place has no configuration of its own")
			}
			found, err := a.examinePlace(ctx, place)
			if err != nil {
				return err
			}
			return a.showFindings(found)
		}
		return a.showFindings(a.examine(ctx, file))
	})
	return cmd
}

func (a *app) examine(ctx context.Context, file string) []doctor.Finding {
	flags := map[string]string{}
	if a.socket != "" {
		flags["socket"] = a.socket
	}
	cfg, err := daemon.Load(daemon.Sources{Flags: flags, Environment: a.environment, File: file})
	var found []doctor.Finding
	if err != nil {
		refusal, refused := errors.AsType[*trust.Refusal](err)
		if !refused {
			found = append(found, doctor.Finding{Check: "settings", Grade: doctor.Problem, Message: err.Error(), Run: "trl serve --help"})
		}
		// Settings that the file does not break still count.
		if cfg, err = daemon.Load(daemon.Sources{Flags: flags, Environment: a.environment, File: os.DevNull}); err != nil {
			cfg = daemon.Defaults(a.environment)
		}
		cfg.File = ""
		if refused {
			cfg.File = refusal.Path // the doctor reports what is wrong with it
		}
	}
	return append(found, doctor.Examine(ctx, doctor.Target{
		Version: buildVersion(), Socket: cfg.Socket, ConfigFile: cfg.File, TokenFile: cfg.TokenFile,
		SpillDir: cfg.SpillDir, MaxSessions: cfg.MaxSessions, TotalQuota: cfg.TotalQuota, Quote: quote,
		DefaultTimeoutMS: cfg.DefaultTimeoutMS, IdleTTLMS: cfg.IdleTTLMS,
		Info: func(ctx context.Context) (*api.SystemInfo, error) {
			c, err := client.Dial(ctx, cfg.Socket)
			if err != nil {
				return nil, err
			}
			defer c.Close()
			return c.SystemInfo(ctx)
		},
		Sessions: func(ctx context.Context) ([]api.Session, error) {
			c, err := client.Dial(ctx, cfg.Socket)
			if err != nil {
				return nil, err
			}
			defer c.Close()
			list, err := c.ListSessions(ctx, api.SessionListParams{})
			if err != nil {
				return nil, err
			}
			return list.Sessions, nil
		},
		Holder: func() (pid int, waiting bool) {
			holder, err := daemon.FindHolder(cfg.Socket)
			if err != nil {
				return 0, false
			}
			defer holder.Close()
			return holder.PID(), holder.Waiting()
		},
	})...)
}

func (a *app) showFindings(found []doctor.Finding) error {
	counts := map[doctor.Grade]int{}
	for _, f := range found {
		counts[f.Grade]++
	}
	if a.json {
		result := map[string]any{"checks": found}
		if a.format.template == nil { // a template gets the checks one by one
			result["notes"], result["problems"] = counts[doctor.Note], counts[doctor.Problem]
		}
		if err := a.printValue(result); err != nil {
			return err
		}
	} else {
		if err := a.showFindingTable(found); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "\n%d ok, %d notes, %d problems\n", counts[doctor.OK], counts[doctor.Note], counts[doctor.Problem])
	}
	if counts[doctor.Problem] > 0 {
		return exitStatus(statusFailed)
	}
	return nil
}

func (a *app) showFindingTable(found []doctor.Finding) error {
	t := newTable(a.stdout)
	t.style(0, gradeStyle)
	for _, f := range found {
		t.row(string(f.Grade), f.Check, f.Message)
		if f.Run != "" {
			t.row(" ", " ", "→ "+f.Run)
		}
	}
	return t.flush()
}
