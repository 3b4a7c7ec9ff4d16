package session

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/state"
)

// In format 2 a session was JSON of the structs of that time, and an exec had its
// fields by position.

// Convert2 returns what a record of format 2 is now, under its key and perhaps
// others. Keys that are not of this package return nothing.
func Convert2(key string, value []byte) (map[string][]byte, error) {
	kind, id, _ := strings.Cut(key, "/")
	switch kind + "/" {
	case sessionPrefix:
		r, err := decodeSession2(value)
		if err != nil {
			return nil, err
		}
		if r.terminated != nil {
			return map[string][]byte{endedPrefix + id: r.encode()}, nil
		}
		tree := treeState{r.tree}
		return map[string][]byte{key: r.encode(), treePrefix + id: state.Encode(tree.fields)}, nil
	case shellPrefix:
		saved, err := shell.ConvertState2(value)
		return map[string][]byte{key: saved}, err
	case screenPrefix:
		p, err := decodeScreenSnapshot2(value)
		if err != nil {
			return nil, err
		}
		return map[string][]byte{key: p.encode()}, nil
	case execPrefix:
		r, err := decodeExec2(value)
		if err != nil {
			return nil, err
		}
		return map[string][]byte{key: r.append(nil)}, nil
	case usedKeyPrefix:
		return map[string][]byte{key: value}, nil
	default:
		return nil, nil
	}
}

// session2 is what a session was in format 2.
type session2 struct {
	Number int64
	Params struct {
		Argv  []string     `json:"argv"`
		Cwd   string       `json:"cwd"`
		Login bool         `json:"login"`
		Name  string       `json:"name"`
		Tags  []string     `json:"tags"`
		TTY   *api.TTYSize `json:"tty"`
	}
	EnvKeys  []string
	Env      []string
	Program  struct{ Path, Family string }
	Created  time.Time
	Timeout  time.Duration
	IdleTTL  time.Duration
	Tree     uint32
	PID      int
	Terminal *struct {
		Master, Slave, Leader holder.Slot
		Stage                 [2]holder.Slot
		LeaderPID             int
	}
	Ending     string
	Terminated *struct {
		At       time.Time `json:"at"`
		Reason   string    `json:"reason"`
		ExitCode *int      `json:"exit_code"`
		Signal   string    `json:"signal"`
	}
	Held *struct {
		Lease, Holder string
		Since, Until  time.Time
		TTL           time.Duration
		Answers       bool
	}
	UnheldSize *api.TTYSize
}

func decodeSession2(b []byte) (*sessionState, error) {
	var old session2
	if err := state.JSON2(b, &old); err != nil {
		return nil, err
	}
	r := &sessionState{
		number: old.Number, name: old.Params.Name, tags: old.Params.Tags, argv: old.Params.Argv, cwd: old.Params.Cwd,
		login: old.Params.Login, tty: old.Params.TTY, envKeys: old.EnvKeys, env: old.Env, created: old.Created,
		timeout: old.Timeout, idleTTL: old.IdleTTL, tree: old.Tree, pid: old.PID, ending: old.Ending, unheldSize: old.UnheldSize,
	}
	if old.Program.Path != "" { // by which name it was called was not kept
		r.program = shell.Program{Path: old.Program.Path, Family: shell.Family(old.Program.Family), Argv0: filepath.Base(old.Program.Path)}
	}
	if t := old.Terminal; t != nil {
		r.terminal = &terminalSlots{Master: t.Master, Slave: t.Slave, Stage: t.Stage, Leader: t.Leader, LeaderPID: t.LeaderPID}
	}
	if t := old.Terminated; t != nil {
		r.terminated = &api.Terminated{At: api.Time{Time: t.At}, Reason: t.Reason, ExitCode: t.ExitCode, Signal: t.Signal}
	}
	if h := old.Held; h != nil {
		r.held = &leaseState{lease: h.Lease, holder: h.Holder, since: h.Since, until: h.Until, ttl: h.TTL, answers: h.Answers}
	}
	return r, nil
}

func decodeScreenSnapshot2(b []byte) (*screenSnapshot, error) {
	r := state.Positional(b)
	p := &screenSnapshot{exec: r.Int(), offset: r.Int()}
	if size := decodeSize2(r); size != nil {
		p.size = *size
	}
	p.ansi = r.Blob()
	return p, r.Err()
}

func decodeExec2(b []byte) (*execState, error) {
	r := state.Positional(b)
	e := &execState{session: r.Text(), number: r.Int(), key: r.Text(), state: api.ExecState(r.Text())}
	e.command = shell.Command{Text: r.Text(), Env: r.Texts(), Dir: r.Text()}
	e.timeout, e.idleTimeout = time.Duration(r.Int()), time.Duration(r.Int())
	e.began = r.Time()
	e.running, e.at = time.Duration(r.Int()), time.Duration(r.Int())
	e.ended, e.lastByte = r.Time(), r.Time()
	e.why = cause(r.Int())
	for _, slot := range []*holder.Slot{&e.stdin.read, &e.stdin.write, &e.stdin.buffer, &e.output[0], &e.output[1], &e.lane.Slot} {
		*slot = holder.Slot(r.Int())
	}
	e.lane.Number = uint64(r.Int())
	e.journal = r.Blob()
	for n := r.Int(); n > 0 && r.More(); n-- {
		s := resize{offset: r.Int(), at: time.Duration(r.Int())}
		if size := decodeSize2(r); size != nil {
			s.size = *size
		}
		e.sizes = append(e.sizes, s)
	}
	tty, label := decodeSize2(r), r.Text()
	if r.Bool() {
		e.result = decodeResult2(r)
	}
	e.result.TTY, e.result.Label = tty, label
	if err := r.Err(); err != nil {
		return e, fmt.Errorf("exec of session %q: %w", e.session, err)
	}
	return e, nil
}

// decodeSize2 reads the size of a terminal, nil for none.
func decodeSize2(r *state.PositionalReader) *api.TTYSize {
	size := api.TTYSize{Rows: int(r.Int()), Cols: int(r.Int())}
	if size.Rows == 0 {
		return nil
	}
	return &size
}

func decodeResult2(r *state.PositionalReader) api.ExecResult {
	out := api.ExecResult{State: api.ExecExited, Outcome: api.Outcome(r.Text())}
	if r.Bool() {
		code := int(r.Int())
		out.ExitCode = &code
	}
	out.Signal, out.DurationMS = r.Text(), r.Int()
	out.TimedOut, out.Cancelled, out.Cwd = r.Bool(), r.Bool(), r.Text()
	for n := r.Int(); n > 0 && r.More(); n-- {
		out.Survivors = append(out.Survivors, api.Process{
			PID: int(r.Int()), PPID: int(r.Int()), AgeMS: r.Int(), RSSBytes: r.Int(),
			Command: r.Text(), ExecID: r.Text(), Role: r.Text(),
		})
	}
	out.RolledBack, out.RolledBackTo = r.Bool(), r.Text()
	if r.Bool() {
		out.Usage = &api.Usage{CPUMS: r.Int(), MaxRSSBytes: r.Int()}
	}
	return out
}
