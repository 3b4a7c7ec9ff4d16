package session

import (
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/ledger"
	"github.com/terminal-runtime/trl/internal/shell"
)

// What the ledger has of sessions and execs, under keys that begin with these.
const (
	sessionKey  = "s/" // and the id: what the session is
	shellKey    = "h/" // and the id: where its shell is
	screenKey   = "v/" // and the id: what its terminal showed, and when
	execKey     = "x/" // and the id of the exec
	spentPrefix = "k/" // and session and key
)

// sessionRecord is a session, but for what its execs and its shell say.
type sessionRecord struct {
	Number     int64 // in the order of creation
	Params     api.SessionCreateParams
	EnvKeys    []string
	Env        []string
	Program    shell.Program
	Created    time.Time
	Timeout    time.Duration
	IdleTTL    time.Duration
	Tree       uint32
	PID        int            // of a direct command
	Terminal   *terminalSlots // nil: it has none
	Ending     string         // why it is being destroyed
	Terminated *api.Terminated
	Held       *holdRecord
	UnheldSize *api.TTYSize
}

// holdRecord is who has the keyboard.
type holdRecord struct {
	Lease, Holder string
	Since, Until  time.Time
	TTL           time.Duration
	Answers       bool
}

// The record of a session is written when it is made and when something of it
// changes, not with every command.
func (r *sessionRecord) encode() []byte { return ledger.EncodeSlowly(r) }

func decodeSession(b []byte) (*sessionRecord, error) {
	r := &sessionRecord{}
	return r, ledger.DecodeSlowly(b, r)
}

// execRecord is an exec. It is written twice with every command.
type execRecord struct {
	session     string
	number      int64 // of the session's execs
	key         string
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
	output      [2]holder.Slot // of stdout and stderr; 0: none
	lane        journal.Lane   // of a journal that is still written to
	journal     []byte         // value of one that is not
	sizes       []resize
	result      api.ExecResult
}

func (r *execRecord) encode(w *ledger.Writer) {
	w.Text(r.session)
	w.Int(r.number)
	w.Text(r.key)
	w.Text(string(r.state))
	w.Text(r.command.Text)
	w.Texts(r.command.Env)
	w.Text(r.command.Dir)
	w.Int(int64(r.timeout))
	w.Int(int64(r.idleTimeout))
	w.Time(r.began)
	w.Int(int64(r.running))
	w.Int(int64(r.at))
	w.Time(r.ended)
	w.Time(r.lastByte)
	w.Int(int64(r.why))
	for _, slot := range []holder.Slot{r.stdin.read, r.stdin.write, r.stdin.first, r.output[0], r.output[1], r.lane.Slot} {
		w.Int(int64(slot))
	}
	w.Int(int64(r.lane.Number))
	w.Blob(r.journal)
	w.Int(int64(len(r.sizes)))
	for _, s := range r.sizes {
		w.Int(s.offset)
		w.Int(int64(s.at))
		encodeSize(w, &s.size)
	}
	encodeSize(w, r.result.TTY)
	w.Text(r.result.Label)
	w.Bool(r.state == api.ExecExited)
	if r.state == api.ExecExited {
		encodeResult(w, &r.result)
	}
}

func decodeExec(b []byte) (*execRecord, error) {
	r := ledger.NewReader(b)
	e := &execRecord{session: r.Text(), number: r.Int(), key: r.Text(), state: api.ExecState(r.Text())}
	e.command = shell.Command{Text: r.Text(), Env: r.Texts(), Dir: r.Text()}
	e.timeout, e.idleTimeout = time.Duration(r.Int()), time.Duration(r.Int())
	e.began = r.Time()
	e.running, e.at = time.Duration(r.Int()), time.Duration(r.Int())
	e.ended, e.lastByte = r.Time(), r.Time()
	e.why = cause(r.Int())
	for _, slot := range []*holder.Slot{&e.stdin.read, &e.stdin.write, &e.stdin.first, &e.output[0], &e.output[1], &e.lane.Slot} {
		*slot = holder.Slot(r.Int())
	}
	e.lane.Number = uint64(r.Int())
	e.journal = r.Blob()
	for n := r.Int(); n > 0 && r.More(); n-- {
		s := resize{offset: r.Int(), at: time.Duration(r.Int())}
		if size := decodeSize(r); size != nil {
			s.size = *size
		}
		e.sizes = append(e.sizes, s)
	}
	tty, label := decodeSize(r), r.Text()
	if r.Bool() {
		e.result = decodeResult(r)
	}
	e.result.TTY, e.result.Label = tty, label
	return e, r.Err()
}

// encodeSize writes the size of a terminal, nil for none.
func encodeSize(w *ledger.Writer, size *api.TTYSize) {
	if size == nil {
		size = &api.TTYSize{}
	}
	w.Int(int64(size.Rows))
	w.Int(int64(size.Cols))
}

func decodeSize(r *ledger.Reader) *api.TTYSize {
	size := api.TTYSize{Rows: int(r.Int()), Cols: int(r.Int())}
	if size.Rows == 0 {
		return nil
	}
	return &size
}

// encodeResult writes how an exec ended, without ids and output.
func encodeResult(w *ledger.Writer, r *api.ExecResult) {
	w.Text(string(r.Outcome))
	w.Bool(r.ExitCode != nil)
	if r.ExitCode != nil {
		w.Int(int64(*r.ExitCode))
	}
	w.Text(r.Signal)
	w.Int(r.DurationMS)
	w.Bool(r.TimedOut)
	w.Bool(r.Cancelled)
	w.Text(r.Cwd)
	w.Int(int64(len(r.Survivors)))
	for _, p := range r.Survivors {
		for _, n := range []int64{int64(p.PID), int64(p.PPID), p.AgeMS, p.RSSBytes} {
			w.Int(n)
		}
		w.Text(p.Command)
		w.Text(p.ExecID)
		w.Text(p.Role)
	}
	w.Bool(r.RolledBack)
	w.Text(r.RolledBackTo)
	w.Bool(r.Usage != nil)
	if r.Usage != nil {
		w.Int(r.Usage.CPUMS)
		w.Int(r.Usage.MaxRSSBytes)
	}
}

func decodeResult(r *ledger.Reader) api.ExecResult {
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
