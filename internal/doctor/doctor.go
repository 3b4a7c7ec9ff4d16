// Package doctor checks a machine, and a daemon on it if there is one, and reports
// what keeps sessions from running well and how to fix it.
//
// It changes nothing. It runs in the caller's process and as the caller's user, with
// or without a daemon.
package doctor

import (
	"context"
	"fmt"

	"github.com/terminal-runtime/trl/api"
)

// Grade is how much a finding matters.
type Grade string

// The grades.
const (
	OK      Grade = "ok"
	Note    Grade = "note"    // works, but could be better or may be a surprise
	Problem Grade = "problem" // does not work, or is not safe
)

// Finding is the result of one check.
type Finding struct {
	Check   string `json:"check"`
	Grade   Grade  `json:"grade"`
	Message string `json:"says"`
	// Run is a command that helps, or a line for a unit. Every problem has one.
	Run string `json:"run,omitempty"`
}

// Target describes the daemon and the settings to check.
type Target struct {
	Version                                 string // of this program
	Socket, ConfigFile, TokenFile, SpillDir string // ConfigFile is "" if there is none
	MaxSessions, TotalQuota                 int64
	DefaultTimeoutMS, IdleTTLMS             int64               // settings; those of a running daemon override them
	Quote                                   func(string) string // quotes an argument for a shell
	// Info calls system.info of the daemon on Socket.
	Info func(context.Context) (*api.SystemInfo, error)
	// Sessions lists its sessions.
	Sessions func(context.Context) ([]api.Session, error)
	// Holder returns the pid of the holder of the socket's sessions, 0 if there is
	// none, and whether it waits for a daemon.
	Holder func() (pid int, waiting bool)
}

// Examine runs every check, in the order in which a person would ask.
func Examine(ctx context.Context, p Target) []Finding {
	var found []Finding
	daemon, info := p.daemon(ctx)
	found = append(found, daemon)
	if info != nil {
		found = append(found, p.sessions(ctx))
	}
	found = append(found, p.directory(), p.config(), p.tokens(), p.timeLimits(info))
	found = append(found, p.machine(ctx, info)...)
	if info != nil {
		found = append(found, confinement(info)...)
	}
	return found
}

func ok(check, says string, args ...any) Finding {
	return Finding{Check: check, Grade: OK, Message: fmt.Sprintf(says, args...)}
}

func note(check, run, says string, args ...any) Finding {
	return Finding{Check: check, Grade: Note, Message: fmt.Sprintf(says, args...), Run: run}
}

func problem(check, run, says string, args ...any) Finding {
	return Finding{Check: check, Grade: Problem, Message: fmt.Sprintf(says, args...), Run: run}
}
