package session

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/state"
	"github.com/terminal-runtime/trl/internal/terminal"
)

// In format 2 a session was JSON of that version's structs, and an exec had its
// fields by position.

// Convert2 converts a record of format 2 to the current format, under its key and
// perhaps others. For keys of other packages it returns nothing.
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
		value, err := terminal.ConvertSnapshot2(value)
		if err != nil {
			return nil, err
		}
		return map[string][]byte{key: value}, nil
	case exec.StatePrefix:
		value, err := exec.ConvertState2(value)
		if err != nil {
			return nil, err
		}
		return map[string][]byte{key: value}, nil
	case usedKeyPrefix:
		return map[string][]byte{key: value}, nil
	default:
		return nil, nil
	}
}

// session2 is a session in format 2.
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
	if old.Program.Path != "" { // the name it was called by was not kept
		r.program = shell.Program{Path: old.Program.Path, Family: shell.Family(old.Program.Family), Argv0: filepath.Base(old.Program.Path)}
	}
	if t := old.Terminal; t != nil {
		r.terminal = &terminal.Slots{Master: t.Master, Slave: t.Slave, Stage: t.Stage, Leader: t.Leader, LeaderPID: t.LeaderPID}
	}
	if t := old.Terminated; t != nil {
		r.terminated = &api.Terminated{At: api.Time{Time: t.At}, Reason: t.Reason, ExitCode: t.ExitCode, Signal: t.Signal}
	}
	if h := old.Held; h != nil {
		r.held = &leaseState{lease: h.Lease, holder: h.Holder, since: h.Since, until: h.Until, ttl: h.TTL, answers: h.Answers}
	}
	return r, nil
}
