// Package doctor looks at a machine, and at a daemon on it if there is one, and
// says what keeps sessions from running well there and what to do about it.
//
// It changes nothing. It runs in a process of its own, beside the daemon or
// without any, as whoever asks.
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
	Note    Grade = "note"    // it works, and could be better or surprise someone
	Problem Grade = "problem" // something does not work, or is not safe
)

// Finding is what one check has found.
type Finding struct {
	Check   string `json:"check"`
	Grade   Grade  `json:"grade"`
	Message string `json:"says"`
	// Run is a command that helps, or a line for a unit. Every problem has one.
	Run string `json:"run,omitempty"`
}

// Patient is what is looked at.
type Target struct {
	Version                                 string // of this program
	Socket, ConfigFile, TokenFile, SpillDir string // ConfigFile may be "": there is none
	MaxSessions, TotalQuota                 int64
	DefaultTimeoutMS, IdleTTLMS             int64               // settings; those of a daemon that answers count instead
	Quote                                   func(string) string // makes one word of it for a shell
	// Ask asks the daemon on Socket who it is.
	Info func(context.Context) (*api.SystemInfo, error)
	// Sessions asks it for its sessions.
	Sessions func(context.Context) ([]api.Session, error)
	// Keeper is the pid of who keeps its sessions without a daemon; 0: nobody does.
	HolderPID func() int
}

// Examine makes every check, in the order in which a person would ask.
func Examine(ctx context.Context, p Target) []Finding {
	var found []Finding
	daemon, info := p.daemon(ctx)
	found = append(found, daemon)
	if info != nil {
		found = append(found, p.sessions(ctx))
	}
	found = append(found, p.directory(), p.config(), p.tokens(), p.timeLimits(info))
	found = append(found, p.machine(ctx, info)...)
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
