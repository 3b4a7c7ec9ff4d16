package exec

import (
	"fmt"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/state"
)

// ConvertState2 converts the state of an exec from format 2 to the current format.
func ConvertState2(b []byte) ([]byte, error) {
	r, err := decodeExec2(b)
	if err != nil {
		return nil, err
	}
	return r.append(nil), nil
}

func decodeExec2(b []byte) (*State, error) {
	r := state.Positional(b)
	e := &State{session: r.Text(), number: r.Int(), key: r.Text(), state: api.ExecState(r.Text())}
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
