package session

import (
	"cmp"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/exec"
)

// snapshot returns the session as the api shows it.
func (s *Session) snapshot() api.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.remote != nil {
		return s.described
	}
	out := api.Session{
		SessionID: s.id, Name: s.params.Name, Tags: s.params.Tags, Owner: s.owner, Runtime: api.RuntimeHost, State: s.state,
		Shell: s.program.Path, Argv: s.params.Argv, TTY: s.params.TTY,
		CreatedAt: api.Time{Time: s.created}, LastActivityAt: api.Time{Time: s.active},
		ExecCount: s.execCount, TimeoutMS: s.timeout.Milliseconds(), IdleTTLMS: s.idleTTL.Milliseconds(),
		EnvKeys: s.envKeys, Parent: s.params.Parent, WhileConnected: s.params.WhileConnected, Unreadable: s.unreadable, Terminated: s.terminated,
		Limits: s.limitsInForce(), Isolation: cmp.Or(s.isolation, s.shared.cfg.Isolation), Login: s.login, Ending: s.ending && s.terminated == nil,
	}
	if s.unreadable != "" {
		return out
	}
	if s.lease != nil {
		out.Held = s.lease.describe()
	}
	if e := s.running; e != nil {
		out.ExecID, out.ExecLabel = e.ID(), e.Label()
	} else if len(s.params.Argv) > 0 && len(s.finished) > 0 {
		e := s.finished[0] // the only one of a direct session
		out.ExecID, out.ExecLabel = e.ID(), e.Label()
	}
	if s.state == api.StateIdle || s.state == api.StateRunning {
		if pid := s.currentPID(); s.tree.Alive(pid) {
			out.PID = pid
		}
		if out.Cwd = s.idleCwd; out.Cwd == "" || s.state == api.StateRunning {
			out.Cwd = s.cwd()
		}
	}
	return out
}

// limitsInForce returns the limits of the session and those of its cell, if it is in
// one; nil if there are none.
func (s *Session) limitsInForce() *api.LimitsInForce {
	outer := s.shared.cfg.Limits
	if s.limits == nil || outer == nil {
		return cmp.Or(s.limits, outer)
	}
	all := *s.limits
	all.MemoryBytes, all.CPU, all.PIDs, all.PIDsReserved = outer.MemoryBytes, outer.CPU, outer.PIDs, outer.PIDsReserved
	all.DiskBytes = outer.DiskBytes
	return &all
}

// info returns the session with what runs in it.
func (s *Session) info() *api.SessionInfo {
	info := &api.SessionInfo{Session: s.snapshot(), Processes: []api.Process{}}
	s.mu.Lock()
	running := s.running
	if !s.lastTyped.IsZero() {
		info.TypedAt = &api.Time{Time: s.lastTyped}
	}
	var last *exec.Exec
	if n := len(s.finished); n > 0 {
		last = s.finished[n-1]
	}
	s.mu.Unlock()
	if running != nil {
		info.Exec = running.Result()
	}
	if last != nil {
		info.LastExec = last.Result()
	}
	if info.State != api.StateIdle && info.State != api.StateRunning {
		return info
	}
	info.Processes = s.describeProcesses(s.tree.PIDs())
	info.Waiting = s.waiting()
	if cpu, ok := s.tree.CPU(); ok {
		info.Usage = &api.Usage{CPUMS: cpu.Milliseconds()}
	}
	return info
}

// waiting returns what the running command waits for, nil if for nothing that can
// be typed.
func (s *Session) waiting() *api.Waiting {
	s.mu.Lock()
	e := s.running
	s.mu.Unlock()
	if s.term == nil || e == nil {
		return nil
	}
	return s.waitingFor(e)
}

func (s *Session) waitingFor(e *exec.Exec) *api.Waiting {
	w := s.term.Waiting(e, s.tree.Marked(e.Mark(), 0))
	if w != nil {
		w.Process = s.displayCommand(w.Process)
	}
	return w
}

// describeProcesses describes processes of the session, with the role or the exec
// of each if it is known.
func (s *Session) describeProcesses(pids []int) []api.Process {
	infos := s.tree.Describe(pids)
	marks := s.marks()
	var shellPID, standbyPID int
	if s.shell != nil {
		shellPID, standbyPID = s.shell.PID()
	}
	out := make([]api.Process, 0, len(infos))
	for _, in := range infos {
		p := api.Process{PID: in.PID, PPID: in.PPID, AgeMS: in.Age.Milliseconds(), RSSBytes: in.RSS, Command: s.displayCommand(in.Command)}
		switch {
		case in.PID == shellPID:
			p.Role = api.RoleShell
		case s.term != nil && s.term.Leads(in.PID):
			p.Role = api.RoleLeader
		case in.PID == standbyPID || s.shell != nil && in.Mark == 0:
			p.Role = api.RoleStandby
		default:
			p.ExecID = marks[in.Mark]
		}
		out = append(out, p)
	}
	return out
}

// displayCommand returns a command line to show. Of a driven shell only the name is
// shown: where it reads its commands from is an implementation detail.
func (s *Session) displayCommand(command string) string {
	if s.shell == nil || !s.program.IsDriven(command) {
		return command
	}
	name, _, _ := strings.Cut(command, " ")
	return name
}

// marks maps the marks of processes to the ids of execs.
func (s *Session) marks() map[uint32]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := make(map[uint32]string, len(s.finished)+1)
	for _, e := range s.finished {
		m[e.Mark()] = e.ID()
	}
	if s.running != nil {
		m[s.running.Mark()] = s.running.ID()
	}
	return m
}

func (s *Session) cwd() string {
	var dir string
	var err error
	if s.shell != nil {
		dir, err = s.shell.Cwd()
	} else {
		dir, err = s.proc.Cwd()
	}
	if err != nil {
		return "" // the process is exiting
	}
	return dir
}

func (s *Session) currentPID() int {
	if s.shell != nil {
		pid, _ := s.shell.PID()
		return pid
	}
	return s.proc.PID()
}
