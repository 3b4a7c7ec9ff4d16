package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/daemon"
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
	if file, ok := info.Config["config_file"].(string); ok {
		t.row("config file", file)
	}
	for _, row := range settingRows(info.Config) {
		t.row(row...)
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

// settingRows returns the settings that a reader looks for, and those that differ
// from their defaults.
func settingRows(config map[string]any) (rows [][]string) {
	defaults := daemon.Defaults(daemon.Environment{})
	for _, s := range daemon.Settings() {
		value, ok := config[s.Key]
		if !ok {
			continue // an older daemon, or one that hides its settings
		}
		text := s.Format(value)
		switch s.Key {
		case "socket", "max_sessions":
		case "spill_dir", "token_file": // their defaults are the daemon's own
			continue
		default:
			if text == s.Value(&defaults) {
				continue
			}
		}
		rows = append(rows, []string{strings.ReplaceAll(strings.TrimSuffix(strings.TrimSuffix(s.Key, "_ms"), "_bytes"), "_", " "), text})
	}
	return rows
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
		RunE:  action(exactArgs(), func(context.Context, []string) error { return a.printVersion() }),
	}
}

// printVersion is `trl version` and `trl --version`.
func (a *app) printVersion() error {
	if a.json {
		return a.printValue(map[string]any{"version": buildVersion(), "protocol": api.Protocol})
	}
	fmt.Fprintln(a.stdout, "trl "+buildVersion())
	return nil
}
