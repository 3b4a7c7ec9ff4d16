package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/units"
)

func (a *app) infoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "info",
		Short: "Show the daemon's version, settings and capabilities",
		RunE: action(exactArgs(), func(ctx context.Context, _ []string) error {
			return callAndShow(ctx, a, api.MethodSystemInfo, nil, a.showInfo)
		}),
	}
}

func (a *app) showInfo(info *api.SystemInfo) error {
	t := newTable(a.stdout)
	t.row("version", fmt.Sprintf("%s (protocol %d, %s/%s)", info.Version, info.Protocol, info.OS, info.Arch))
	t.row("pid", strconv.Itoa(info.PID))
	for _, key := range []string{"socket", "node", "http", "config_file", "max_sessions"} {
		if value, ok := info.Config[key]; ok && value != "" {
			if n, ok := value.(float64); ok { // as JSON numbers arrive
				value = int64(n)
			}
			t.row(strings.ReplaceAll(key, "_", " "), fmt.Sprint(value))
		}
	}
	tracking := info.Process.Tracking + " " + info.Process.Cgroup
	if info.Process.Reason != "" {
		tracking = info.Process.Tracking + " (no cgroup: " + info.Process.Reason + ")"
	}
	t.row("processes", "tracked by "+tracking)
	t.row("shells", strings.Join(info.Shells, ", "))
	t.row("runtimes", strings.Join(info.Runtimes, ", "))
	t.row("limits", strings.Join(info.Limits, ", "))
	t.row("isolation", strings.Join(info.Isolates, ", "))
	return t.flush()
}

func (a *app) statsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Show daemon counters and memory use",
		Long: "Show the daemon's counters and its memory use. A daemon that has taken over from\n" +
			"another one counts from 0, so it can have more sessions than it created.",
		RunE: action(exactArgs(), func(ctx context.Context, _ []string) error {
			return callAndShow(ctx, a, api.MethodSystemStats, nil, a.showStats)
		}),
	}
}

func (a *app) showStats(stats *api.SystemStats) error {
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	t := newTable(a.stdout)
	t.row("up", units.Milliseconds(stats.UptimeMS))
	t.row("sessions", fmt.Sprintf("%s; %d created since the daemon started", sessionCounts(stats.Sessions), stats.SessionsTotal))
	t.row("commands", fmt.Sprintf("%d running, %d kept; %d started or queued since the daemon started", stats.ExecsRunning, stats.ExecsRetained, stats.ExecsTotal))
	t.row("output", fmt.Sprintf("%s captured since the daemon started; %s held in memory, %s on disk",
		units.Size(stats.BytesCaptured), units.Size(stats.JournalMemory), units.Size(stats.JournalSpilled)))
	t.row("memory", units.Size(stats.Memory))
	t.row("files", count(int64(stats.FDs)))
	t.row("goroutines", count(int64(stats.Goroutines)))
	t.row("orphans", fmt.Sprintf("%d processes outlived their parents and have since ended, which is normal", stats.Orphans))
	return t.flush()
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: action(exactArgs(), func(context.Context, []string) error {
			if !a.json {
				fmt.Fprintln(a.stdout, "trl "+buildVersion())
				return nil
			}
			raw, err := json.Marshal(map[string]any{"version": buildVersion(), "protocol": api.Protocol})
			if err != nil {
				return err
			}
			return a.printJSON(raw)
		}),
	}
}
