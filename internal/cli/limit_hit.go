package cli

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/units"
)

// limitRemarks calls say with the limits that a command has reached. limits are those
// of its session; nil means unknown.
func limitRemarks(e *api.ExecResult, limits *api.LimitsInForce, verbose bool, say func(format string, args ...any)) {
	var l api.LimitsInForce
	if limits != nil {
		l = *limits
	}
	size := units.ExactSize
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	memory := slices.Contains(e.LimitHit, api.LimitMemory)
	switch killed := e.Outcome == api.OutcomeOOMKilled; {
	case killed && memory:
		say("the command was killed: it needed more than the session's %s (memory)", amount(l.MemoryBytes, size, "memory"))
	case killed:
		say("the command was killed because memory ran out")
	case memory:
		say("a process of the command was killed: it needed more than the session's %s (memory)", amount(l.MemoryBytes, size, "memory"))
	}
	for _, limit := range e.LimitHit {
		switch limit {
		case api.LimitMemory: // above
		case api.LimitPIDs:
			say("the command could not start a process: the session may have %s at once (pids)", amount(l.PIDs, count, "no more"))
		case api.LimitFileSize:
			say("the command could not write on: a file of the session may have %s (file size)", amount(l.FileSizeBytes, size, "no more"))
		case api.LimitOpenFiles:
			say("the command could not open a file: a process of the session may have %s open (open files)", amount(l.OpenFiles, count, "no more"))
		case api.LimitDisk:
			say("the command could not write on: the session may store %s (disk)", amount(l.DiskBytes, size, "no more"))
		case api.LimitWall:
			say("the command was killed: the session's time of %s was over (wall)", amount(l.WallMS, units.Milliseconds, "life"))
		case api.LimitCPU:
			if verbose { // it was only slower
				say("the command was slowed down: the session may use %s processors (cpus)", amount(l.CPU, func(n float64) string {
					return strconv.FormatFloat(n, 'f', -1, 64)
				}, "no more"))
			}
		default:
			say("the command reached a limit of its session: %s", visible(string(limit)))
		}
	}
}

// amount formats a limit, or returns unknown for one that is not known.
func amount[N int64 | float64](n N, format func(N) string, unknown string) string {
	if n == 0 {
		return unknown
	}
	return format(n)
}

// denialText says what the network of a session refused.
func denialText(d *api.NetworkDenial) string {
	text := fmt.Sprintf("the session's network refused %s: %s", visible(destination(d)), visible(d.Message))
	if d.Suppressed > 0 {
		text += fmt.Sprintf(" (and %d more before it)", d.Suppressed)
	}
	return text
}

// destination returns what a program wanted to connect to.
func destination(d *api.NetworkDenial) string {
	switch {
	case d.Host == "":
		return "a connection"
	case d.Port == 0:
		return d.Host
	}
	return d.Host + ":" + strconv.Itoa(d.Port)
}
