package session

import (
	"math"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/state"
	"github.com/terminal-runtime/trl/internal/terminal"
)

// Keys of the ledger begin with these, or with exec.StatePrefix or
// exec.InputPrefix. TestEveryFieldIsKept checks which fields of the api are
// persisted.
const (
	sessionPrefix = "s/" // and the id: a sessionState
	endedPrefix   = "d/" // and the id: the same of an ended session
	treePrefix    = "t/" // and the id: a treeState
	shellPrefix   = "h/" // and the id: the state of its shell
	screenPrefix  = "v/" // and the id: a terminal.Snapshot
	usedKeyPrefix = "k/" // and session and key; or no session, owner and key
	// unreadablePrefix and one of the above: a record that a daemon could not read,
	// as it was found. A later daemon may be able to.
	unreadablePrefix = "u/"
)

// sessionState is a session without its execs and its shell.
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
	pid        int             // of a direct command
	terminal   *terminal.Slots // nil if it has none
	ending     string          // why it is being destroyed
	terminated *api.Terminated
	held       *leaseState
	unheldSize *api.TTYSize
	owner      string
	key        string
	sum        uint32      // checksum of its params, if it has a key
	loggedIn   *api.Login  // how its login files ended
	gate       holder.Slot // of a command that may not have been let run yet; 0 if it was
	parent     string
	connected  bool          // it ends with its connections
	reconnect  time.Duration // how long after
	limits     *api.LimitsInForce
	isolation  *api.IsolationInForce // of a remote session
	execCount  int64                 // of a remote session
	wallEnd    time.Duration         // since boot
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
	state.Optional(c, 18, &r.terminal, func(c *state.Coder, t *terminal.Slots) { t.Fields(c) })
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
	state.Optional(c, 31, &r.limits, limitsFields)
	state.Int(c, 32, &r.wallEnd)
	state.Optional(c, 33, &r.isolation, isolationFields)
	state.Int(c, 34, &r.execCount)
}

func limitsFields(c *state.Coder, l *api.LimitsInForce) {
	state.Int(c, 1, &l.MemoryBytes)
	cpu := math.Float64bits(l.CPU)
	state.Int(c, 2, &cpu)
	l.CPU = math.Float64frombits(cpu)
	state.Int(c, 3, &l.PIDs)
	state.Int(c, 4, &l.OpenFiles)
	state.Int(c, 5, &l.FileSizeBytes)
	state.Int(c, 6, &l.WallMS)
	state.Int(c, 7, &l.DiskBytes)
	state.Int(c, 8, &l.PIDsReserved)
}

func isolationFields(c *state.Coder, i *api.IsolationInForce) {
	state.Text(c, 1, &i.Profile)
	state.Optional(c, 2, &i.Filesystem, func(c *state.Coder, fs *api.Filesystem) {
		state.Texts(c, 1, &fs.Read)
		state.Texts(c, 2, &fs.Write)
		state.Texts(c, 3, &fs.Deny)
		state.Bool(c, 4, &fs.PrivateTmp)
	})
	state.Optional(c, 3, &i.Network, func(c *state.Coder, n *api.Network) {
		state.Text(c, 1, &n.Mode)
		state.Texts(c, 2, &n.Allow)
	})
	state.Text(c, 4, &i.Processes)
	state.Text(c, 5, &i.User)
	state.Bool(c, 6, &i.NoNewPrivs)
	state.Text(c, 7, &i.Seccomp)
	state.Int(c, 8, &i.LandlockABI)
	state.Texts(c, 9, &i.Mechanisms)
	state.Optional(c, 10, &i.Add, func(c *state.Coder, a *api.Addition) {
		state.Texts(c, 1, &a.Write)
		state.Texts(c, 2, &a.Allow)
	})
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

// leaseState is a keyboard lease.
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

// treeState says which process tree belongs to a session. It is a separate record,
// so that the processes of a session are known if its own record can't be read.
type treeState struct{ number uint32 }

func (r *treeState) fields(c *state.Coder) { state.Int(c, 1, &r.number) }

func (k usedKey) ledgerKey() string { return usedKeyPrefix + k.session + "/" + k.key }
