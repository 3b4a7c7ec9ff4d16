package session

import (
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/state"
)

// What the ledger has of sessions and execs, under keys that begin with these.
// TestEveryFieldIsKept says which fields of the contract are kept here.
const (
	sessionPrefix = "s/" // and the id: what the session is
	endedPrefix   = "d/" // and the id: the same of one that has ended
	treePrefix    = "t/" // and the id: which process tree is the session's
	shellPrefix   = "h/" // and the id: where its shell is
	screenPrefix  = "v/" // and the id: what its terminal showed, and when
	execPrefix    = "x/" // and the id of the exec
	inputPrefix   = "i/" // and the id of the exec: what is known of its input
	usedKeyPrefix = "k/" // and session and key, or no session, owner and key
	// unreadableKey and one of the above: a record that a daemon could not read,
	// as it was found. A later one may be able to.
	unreadablePrefix = "u/"
)

// sessionRecord is a session, but for what its execs and its shell say.
type sessionState struct {
	number     int64 // in the order of creation
	name       string
	tags       []string
	argv       []string
	cwd        string
	login      bool
	tty        *api.TTYSize
	envKeys    []string
	env        []string
	program    shell.Program
	created    time.Time
	timeout    time.Duration
	idleTTL    time.Duration
	tree       uint32
	pid        int            // of a direct command
	terminal   *terminalSlots // nil: it has none
	ending     string         // why it is being destroyed
	terminated *api.Terminated
	held       *leaseState
	unheldSize *api.TTYSize
	owner      string
	key        string
	sum        uint32      // of its params, if it has a key
	loggedIn   *api.Login  // how its login files ended
	gate       holder.Slot // of a command that may not have been let run yet; 0: it was
	parent     string
	connected  bool          // it ends with its connections
	reconnect  time.Duration // so long after
}

func (r *sessionState) fields(c *state.Coder) {
	state.Int(c, 1, &r.number)
	state.Text(c, 2, &r.name)
	state.Texts(c, 3, &r.tags)
	state.Texts(c, 4, &r.argv)
	state.Text(c, 5, &r.cwd)
	state.Bool(c, 6, &r.login)
	state.Optional(c, 7, &r.tty, sizeFields)
	state.Texts(c, 8, &r.envKeys)
	state.Texts(c, 9, &r.env)
	state.Text(c, 10, &r.program.Path)
	state.Text(c, 11, &r.program.Family)
	state.Text(c, 12, &r.program.Argv0)
	state.Time(c, 13, &r.created)
	state.Int(c, 14, &r.timeout)
	state.Int(c, 15, &r.idleTTL)
	state.Int(c, 16, &r.tree)
	state.Int(c, 17, &r.pid)
	state.Optional(c, 18, &r.terminal, func(c *state.Coder, t *terminalSlots) { t.fields(c) })
	state.Text(c, 19, &r.ending)
	state.Optional(c, 20, &r.terminated, terminatedFields)
	state.Optional(c, 21, &r.held, func(c *state.Coder, h *leaseState) { h.fields(c) })
	state.Optional(c, 22, &r.unheldSize, sizeFields)
	state.Text(c, 23, &r.owner)
	state.Text(c, 24, &r.key)
	state.Int(c, 25, &r.sum)
	state.Int(c, 26, &r.gate)
	state.Optional(c, 27, &r.loggedIn, func(c *state.Coder, l *api.Login) {
		state.Text(c, 1, &l.Outcome)
		state.Optional(c, 2, &l.ExitCode, numberFields)
		state.Bool(c, 3, &l.TimedOut)
	})
	state.Text(c, 28, &r.parent)
	state.Bool(c, 29, &r.connected)
	state.Int(c, 30, &r.reconnect)
}

func sizeFields(c *state.Coder, size *api.TTYSize) {
	state.Int(c, 1, &size.Rows)
	state.Int(c, 2, &size.Cols)
}

func terminatedFields(c *state.Coder, t *api.Terminated) {
	state.Time(c, 1, &t.At.Time)
	state.Text(c, 2, &t.Reason)
	state.Optional(c, 3, &t.ExitCode, numberFields)
	state.Text(c, 4, &t.Signal)
}

func numberFields(c *state.Coder, n *int) { state.Int(c, 1, n) }

func (t *terminalSlots) fields(c *state.Coder) {
	state.Int(c, 1, &t.Master)
	state.Int(c, 2, &t.Slave)
	state.Int(c, 3, &t.Stage[0])
	state.Int(c, 4, &t.Stage[1])
	state.Int(c, 5, &t.Leader)
	state.Int(c, 6, &t.LeaderPID)
}

// holdRecord is who has the keyboard.
type leaseState struct {
	lease, holder string
	since, until  time.Time
	ttl           time.Duration
	answers       bool
}

func (h *leaseState) fields(c *state.Coder) {
	state.Text(c, 1, &h.lease)
	state.Text(c, 2, &h.holder)
	state.Time(c, 3, &h.since)
	state.Time(c, 4, &h.until)
	state.Int(c, 5, &h.ttl)
	state.Bool(c, 6, &h.answers)
}

func (r *sessionState) encode() []byte { return state.Encode(r.fields) }

func decodeSessionState(b []byte) (*sessionState, error) {
	r := &sessionState{}
	return r, state.Decode(b, r.fields)
}

// treeRecord is which process tree is a session's. It is a record of its own, so
// that the processes of a session whose record can't be read are known.
type treeState struct{ number uint32 }

func (r *treeState) fields(c *state.Coder) { state.Int(c, 1, &r.number) }

func (p *screenSnapshot) fields(c *state.Coder) {
	state.Int(c, 1, &p.exec)
	state.Int(c, 2, &p.offset)
	state.Int(c, 3, &p.size.Rows)
	state.Int(c, 4, &p.size.Cols)
	state.Bytes(c, 5, &p.ansi)
}

func (p *screenSnapshot) encode() []byte { return state.Encode(p.fields) }

func decodeScreenSnapshot(b []byte) (*screenSnapshot, error) {
	p := &screenSnapshot{}
	return p, state.Decode(b, p.fields)
}

// execRecord is an exec. It is written twice with every command.
type execState struct {
	session     string
	number      int64 // of the session's execs
	key         string
	sum         uint32 // of its params, if it has a key; 0: not known
	state       api.ExecState
	command     shell.Command // what of it is still to be run
	timeout     time.Duration
	idleTimeout time.Duration
	began       time.Time
	running     time.Duration // how long it has run, by a clock that nobody sets
	at          time.Duration // when it had, by that clock
	ended       time.Time
	lastByte    time.Time
	why         cause
	stdin       inputSlots
	output      [2]holder.Slot      // of stdout and stderr; 0: none
	lane        journal.LiveSegment // of a journal that is still written to
	journal     []byte              // value of one that is not
	sizes       []resize
	result      api.ExecResult // how it ended, without ids and output; of one that has not, terminal, label, merge and queue
}

func (r *execState) fields(c *state.Coder) {
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
}

// resultFields are how an exec ended.
func resultFields(c *state.Coder, r *api.ExecResult) {
	state.Text(c, 27, &r.Outcome)
	hasCode, code := r.ExitCode != nil, 0
	if hasCode {
		code = *r.ExitCode
	}
	state.Bool(c, 28, &hasCode)
	state.Int(c, 29, &code)
	if c.Reading() && hasCode {
		n := code // only then in memory of its own
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
	})
}

// inputRecord is what is known of an exec's input. It is a record of its own, for it
// is written with every input.
type inputState struct {
	session string
	end     int64 // so much of the buffer is whole
	eof     bool  // nothing comes after that
	keyed   []keyedInput
}

func (r *inputState) fields(c *state.Coder) {
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

// append adds the record to b.
func (r *execState) append(b []byte) []byte {
	c := state.Writer(b)
	r.fields(&c)
	return c.Value()
}

func decodeExecState(b []byte) (*execState, error) {
	r := &execState{}
	err := state.Decode(b, r.fields)
	return r, err
}
