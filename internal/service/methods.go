package service

import (
	"context"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/spelling"
)

// methods returns the table in the order of the contract.
func methods(b Sessions, e Execs, p Places, s System, who *accounts, byDefault api.Profile) []Method {
	return []Method{
		method(api.MethodSystemPing, ScopeRead,
			"Check that the daemon answers; returns its version, its uptime and the account that you are to it.",
			func(ctx context.Context, _ api.None) (*api.PingResult, error) {
				result := s.Ping(ctx)
				result.Caller = who.caller(ctx)
				return result, nil
			}),
		method(api.MethodSystemInfo, ScopeRead,
			"Describe the daemon: version, configuration, shells, runtimes, and which limits and isolations work on this machine.",
			info(s, p)),
		method(api.MethodSystemStats, ScopeRead,
			"Count what the daemon does and holds: sessions by state, commands run, bytes captured, memory.",
			stats(b, s)),
		method(api.MethodSystemUpgrade, ScopeAdmin,
			"Let the binary that is now at the daemon's path take over its sessions; returns whether it can, before the takeover.",
			upgrade(s)),
		inOrder(method(api.MethodSystemDelegate, ScopeAdmin,
			"Make this connection act for others: every later request must name the caller for whom it is made, as its actor.",
			delegate)),
		method(api.MethodSystemDisconnect, ScopeRead,
			"Report that a caller has closed its connection to the program that acts for it; sessions that end with that connection follow.",
			disconnect),

		method(api.MethodSessionCreate, ScopeRun,
			"Start a session: a long-lived shell whose directory, variables and functions persist from command to command.",
			create(b, who, byDefault)),
		method(api.MethodSessionList, ScopeRead,
			"List sessions, oldest first, optionally only those of one state, tag or runtime.",
			list(b)),
		method(api.MethodSessionInfo, ScopeRead,
			"Show one session: its state, the running and the last command, and every process in its tree.",
			b.Info),
		method(api.MethodSessionDestroy, ScopeRun,
			"End a session and kill every process in it; returns when none is left.",
			b.Destroy),
		streamMethod(api.MethodSessionWatch, ScopeRead, api.NotifySessionEvent,
			"Receive the events of one session, or of all: created, state changes, destroyed with the reason.",
			watch(b)),
		method(api.MethodSessionResize, ScopeRun,
			"Change the size of a session's terminal; its programs are notified.",
			b.Resize),
		method(api.MethodSessionScreen, ScopeRead,
			"Show the current screen of a session's terminal, as text, as styled runs, or as bytes that restore it in another terminal.",
			b.Screen),
		method(api.MethodSessionHold, ScopeRun,
			"Take the keyboard of a session, or renew the lease: other clients are refused, with the holder's name, until it is released or expires.",
			b.Hold),
		method(api.MethodSessionRelease, ScopeRun,
			"Release the keyboard of a session.",
			b.Release),

		inOrder(method(api.MethodExecRun, ScopeRun,
			"Run a command in a session and return its exit code and output; with yield_ms, return early while it keeps running.",
			e.Run)),
		inOrder(streamMethod(api.MethodExecStream, ScopeRun, api.NotifyExecChunk,
			"Run a command and receive its output in chunks as it is written; the last chunk says how it ended.",
			e.Stream)),
		streamMethod(api.MethodExecAttach, ScopeRead, api.NotifyExecChunk,
			"Follow the output of a running or finished command from an offset: first the existing output, then new output, then how it ended.",
			e.Attach),
		method(api.MethodExecOutput, ScopeRead,
			"Read the output of a running or finished command from an offset; with wait_ms, wait for more.",
			e.Output),
		inOrder(method(api.MethodExecInput, ScopeRun,
			"Write to the standard input of a running command, or close it.",
			e.Input)),
		method(api.MethodExecSignal, ScopeRun,
			"Send a signal to the processes of a running command.",
			e.Signal),
		method(api.MethodExecCancel, ScopeRun,
			"Stop a running command, named by its own id or its session's; returns when it is gone. The session continues.",
			func(ctx context.Context, p api.ExecCancelParams) (*api.ExecCancelResult, error) {
				if p.SessionID == "" && p.ExecID == "" {
					return nil, missing(api.MethodExecCancel, "exec_id", "session_id or exec_id is missing")
				}
				return e.Cancel(ctx, p)
			}),
		method(api.MethodExecInfo, ScopeRead,
			"Show whether a command still runs or how it ended, without its output.",
			e.ExecInfo),
		method(api.MethodExecList, ScopeRead,
			"List a session's commands, oldest first, without output.",
			e.ExecList),

		method(api.MethodPlaceList, ScopeRead,
			"List the places where sessions can run besides this machine, such as containers and SSH hosts, and whether each can be used now.",
			listPlaces(p)),
		method(api.MethodPlaceAdd, ScopeAdmin,
			"Add a place and connect to it; delivers TRL there if necessary.",
			wholeDaemon(api.MethodPlaceAdd, p.Add)),
		method(api.MethodPlaceCheck, ScopeAdmin,
			"Connect to a place now and describe it; a place that can't be reached is described with the reason.",
			wholeDaemon(api.MethodPlaceCheck, p.Check)),
		method(api.MethodPlaceRemove, ScopeAdmin,
			"Remove a place and everything TRL put there; with force, end the sessions in it first.",
			wholeDaemon(api.MethodPlaceRemove, p.Remove)),
		method(api.MethodPlaceUpgrade, ScopeAdmin,
			"Replace the TRL of a place with this daemon's version; the sessions in it continue.",
			wholeDaemon(api.MethodPlaceUpgrade, p.Upgrade)),

		method(api.MethodStreamClose, ScopeRead,
			"Stop receiving a stream that was opened over this connection; the command or session it follows continues.",
			closeStream),
	}
}

// clipAt is the number of bytes of a client-supplied name that are repeated in
// an error: longer than any name of the contract, too short to carry a payload
// into a log.
const clipAt = 64

func clip(name string) string {
	if len(name) <= clipAt {
		return name
	}
	return strings.ToValidUTF8(name[:clipAt], "") + "…"
}

func (t *Table) notFound(name string) error {
	err := api.Errorf(api.CodeMethodNotFound, "no method %q", clip(name)).With("method", clip(name))
	known := make([]string, len(t.methods))
	for i, m := range t.methods {
		known[i] = m.Name
	}
	if best, ok := spelling.Closest(name, known); ok {
		return err.WithHint("did you mean %s?", best)
	}
	return err.WithHint("call one of %s; system.info describes this daemon", strings.Join(known, ", "))
}
