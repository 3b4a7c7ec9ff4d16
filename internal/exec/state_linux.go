package exec

import (
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/printable"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/state"
)

// Keys of the ledger begin with these and end with the id of the exec.
const (
	StatePrefix = "x/" // its State
	InputPrefix = "i/" // its InputState
)

// State is what the ledger has of an exec. It is written twice for every command.
type State struct {
	session     string
	number      int64 // among the session's execs
	key         string
	sum         uint32 // checksum of its params, if it has a key; 0 means unknown
	state       api.ExecState
	command     shell.Command // what is still to be run
	timeout     time.Duration
	idleTimeout time.Duration
	began       time.Time
	running     time.Duration // how long it has run, by the monotonic clock
	at          time.Duration // when that was measured, as time since boot
	ended       time.Time
	lastByte    time.Time
	why         cause
	stdin       inputSlots
	output      [2]holder.Slot      // of stdout and stderr; 0 means none
	lane        journal.LiveSegment // of a journal that is still written to
	journal     []byte              // encoded, if it is not
	sizes       []resize
	before      process.LimitCounters
	denied      int64
	result      api.ExecResult // without ids and output; until it has ended only what echo sets, terminal and queue time
}

// maxEcho is the longest text that a result repeats, in bytes. It fits one line of
// a list, and is kept with the exec.
const maxEcho = 200

// CheckEcho returns an error if a text that the result would repeat is too long or
// not one line.
func CheckEcho(p *api.ExecCommand) error {
	for _, given := range [...]struct{ field, text string }{{"label", p.Label}} {
		if len(given.text) > maxEcho || !printable.Line(given.text) {
			return api.Errorf(api.CodeInvalidParams, "%s must be at most %d bytes on one line", given.field, maxEcho).With("field", given.field)
		}
	}
	return nil
}

// echo returns a result with what it repeats of the params. Fields persists this
// before the command begins, and not only once it has ended.
func echo(p *api.ExecCommand) api.ExecResult {
	return api.ExecResult{Label: p.Label, Merged: p.Merge}
}

// Fields describes the state for state.Encode and state.Decode. A new field goes to
// the end, with the next tag.
func (r *State) Fields(c *state.Coder) {
	state.Text(c, 1, &r.session)
	state.Int(c, 2, &r.number)
	state.Text(c, 3, &r.key)
	state.Text(c, 4, &r.state)
	state.Text(c, 5, &r.command.Text)
	state.Texts(c, 6, &r.command.Env)
	state.Text(c, 7, &r.command.Dir)
	state.Int(c, 8, &r.timeout)
	state.Int(c, 9, &r.idleTimeout)
	state.Time(c, 10, &r.began)
	state.Int(c, 11, &r.running)
	state.Int(c, 12, &r.at)
	state.Time(c, 13, &r.ended)
	state.Time(c, 14, &r.lastByte)
	state.Int(c, 15, &r.why)
	state.Int(c, 16, &r.stdin.read)
	state.Int(c, 17, &r.stdin.write)
	state.Int(c, 18, &r.stdin.buffer)
	state.Int(c, 19, &r.output[0])
	state.Int(c, 20, &r.output[1])
	state.Int(c, 21, &r.lane.Slot)
	state.Int(c, 22, &r.lane.Number)
	state.Bytes(c, 23, &r.journal)
	state.List(c, 24, &r.sizes, func(c *state.Coder, s *resize) {
		state.Int(c, 1, &s.offset)
		state.Int(c, 2, &s.at)
		state.Int(c, 3, &s.size.Rows)
		state.Int(c, 4, &s.size.Cols)
	})
	state.Optional(c, 25, &r.result.TTY, sizeFields)
	state.Text(c, 26, &r.result.Label)
	if c.Reading() || r.state == api.ExecExited {
		resultFields(c, &r.result)
	}
	state.Int(c, 39, &r.sum)
	state.Bool(c, 40, &r.result.Merged)
	state.Int(c, 41, &r.result.QueuedMS)
	state.Int(c, 42, &r.result.InputUnread)
	state.List(c, 43, &r.result.LimitHit, func(c *state.Coder, limit *api.Limit) { state.Text(c, 1, limit) })
	state.Int(c, 44, &r.before.OOMs)
	state.Int(c, 45, &r.before.OOMKills)
	state.Int(c, 46, &r.before.Forks)
	state.Int(c, 47, &r.before.Throttled)
	state.Int(c, 48, &r.before.CPU)
	state.Int(c, 49, &r.denied)
	state.List(c, 50, &r.result.NetworkDenied, func(c *state.Coder, d *api.NetworkDenial) {
		state.Text(c, 1, &d.Host)
		state.Int(c, 2, &d.Port)
		state.Text(c, 3, &d.Message)
		state.Int(c, 4, &d.Suppressed)
	})
}

// resultFields are the fields of a result that are set when the command has ended.
func resultFields(c *state.Coder, r *api.ExecResult) {
	state.Text(c, 27, &r.Outcome)
	hasCode, code := r.ExitCode != nil, 0
	if hasCode {
		code = *r.ExitCode
	}
	state.Bool(c, 28, &hasCode)
	state.Int(c, 29, &code)
	if c.Reading() && hasCode {
		n := code // allocated only if there is one
		r.ExitCode = &n
	}
	state.Text(c, 30, &r.Signal)
	state.Int(c, 31, &r.DurationMS)
	state.Bool(c, 32, &r.TimedOut)
	state.Bool(c, 33, &r.Cancelled)
	state.Text(c, 34, &r.Cwd)
	state.List(c, 35, &r.Survivors, func(c *state.Coder, p *api.Process) {
		state.Int(c, 1, &p.PID)
		state.Int(c, 2, &p.PPID)
		state.Int(c, 3, &p.AgeMS)
		state.Int(c, 4, &p.RSSBytes)
		state.Text(c, 5, &p.Command)
		state.Text(c, 6, &p.ExecID)
		state.Text(c, 7, &p.Role)
	})
	state.Bool(c, 36, &r.RolledBack)
	state.Text(c, 37, &r.RolledBackTo)
	state.Optional(c, 38, &r.Usage, func(c *state.Coder, u *api.Usage) {
		state.Int(c, 1, &u.CPUMS)
		state.Int(c, 2, &u.MaxRSSBytes)
		state.Int(c, 3, &u.MemoryPeakBytes)
		state.Int(c, 4, &u.PIDsPeak)
	})
}

func sizeFields(c *state.Coder, size *api.TTYSize) {
	state.Int(c, 1, &size.Rows)
	state.Int(c, 2, &size.Cols)
}

// InputState is what the ledger has of an exec's input. It is separate because it
// is written with every input.
type InputState struct {
	session string
	end     int64 // the buffer is complete up to here
	eof     bool  // nothing comes after that
	keyed   []keyedInput
}

// Fields describes the state for state.Encode and state.Decode.
func (r *InputState) Fields(c *state.Coder) {
	state.Text(c, 1, &r.session)
	state.Int(c, 2, &r.end)
	state.Bool(c, 3, &r.eof)
	state.List(c, 4, &r.keyed, func(c *state.Coder, k *keyedInput) {
		state.Int(c, 1, &k.key)
		state.Int(c, 2, &k.sum)
		state.Int(c, 3, &k.taken)
		state.Int(c, 4, &k.next)
		state.Bool(c, 5, &k.whole)
		state.Bool(c, 6, &k.typing)
	})
}

// Encode encodes the state.
func (r *InputState) Encode() []byte { return state.Encode(r.Fields) }

// append appends the encoded state to b.
func (r *State) append(b []byte) []byte {
	c := state.Writer(b)
	r.Fields(&c)
	return c.Value()
}

// DecodeState decodes a State. On an error it returns what could be read.
func DecodeState(b []byte) (*State, error) {
	r := &State{}
	err := state.Decode(b, r.Fields)
	return r, err
}

// DecodeInputState decodes an InputState. On an error it returns what could be
// read.
func DecodeInputState(b []byte) (*InputState, error) {
	r := &InputState{}
	return r, state.Decode(b, r.Fields)
}

// Slots returns the holder's slots that the state names.
func (r *State) Slots() []holder.Slot {
	return []holder.Slot{r.stdin.read, r.stdin.write, r.stdin.buffer, r.output[0], r.output[1], r.lane.Slot}
}

// Check returns an error if the output in the state can't be read.
func (r *State) Check() error {
	if len(r.journal) == 0 {
		return nil
	}
	return journal.CheckValue(r.journal)
}

// SessionID returns the id of the session that the exec belongs to.
func (r *State) SessionID() string { return r.session }

// Number returns the place of the exec among those of its session.
func (r *State) Number() int64 { return r.number }

// SessionID returns the id of the session that the exec belongs to.
func (r *InputState) SessionID() string { return r.session }

// cause is why a command was stopped before it ended by itself. It is persisted.
type cause int32

const (
	causeNone cause = iota
	causeTimeout
	causeCancel
)

// keyedInput is an input that came with a key.
type keyedInput struct {
	key    uint64 // hash of the key: keys are long, and there are many
	sum    uint32 // checksum of its params
	taken  int64  // bytes of it that the command was sent
	next   int64  // offset after the last of them
	whole  bool   // it was sent completely
	typing bool   // it is being typed on a terminal, or was when a daemon died
}

// inputSlots are the holder's slots of a command's input; 0 means none.
type inputSlots struct{ read, write, buffer holder.Slot }

// resize is a change of the terminal's size at an offset of the journal.
type resize struct {
	offset int64
	at     time.Duration // since the exec began
	size   api.TTYSize
}
