package fold

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/terminal-runtime/trl/api"
)

// Bounds of what a fold keeps. Together with its entities it stays below 8 MiB.
const (
	defaultMemory = 2 << 20
	stderrTail    = 8 << 10 // of stderr: the reason of a fatal end is in its last lines
	maxUnknown    = 1000    // entities for unknown lines in a run; the others are only counted
	maxGarbage    = 1000    // errors for lines that are no JSON, in a run
)

// Fold is the transcript of one dialogue. It is not safe for concurrent use.
type Fold struct {
	cfg   Config
	agent adapter

	// Where it is.
	run     int
	offset  int64 // of the next byte of the run
	settled int64 // offset after the last line that is folded
	record  int64 // records applied
	part    int   // changes of this step
	now     api.Time
	cur     *line // being folded

	// The line that has begun.
	started  bool
	lineAt   int64 // its offset
	buf      []byte
	long     *condenser // instead of buf, once the line is long
	skipping bool       // after a gap: up to the next newline

	store

	// The run.
	start      Start
	seed       string // of names that are made for this dialogue
	alive      bool
	isReady    bool
	failed     string
	busy       bool // the agent works, as its adapter knows
	stderr     []byte
	nativeID   string
	model      string
	mode       string
	out        []outLine
	pending    []*message // accepted and not taken, oldest first
	turn       *entity
	turns      int
	inTurn     []string // messages taken in the turn
	retrying   string   // the error that is open
	stalled    string
	garbageID  string // the error for the garbage just before
	wasGarbage bool
	garbages   int
	unknowns   int
	faults     int
	background int
	spent      api.DialogueUsage // by earlier runs
	used       api.DialogueUsage // by this one
	ended      bool              // end is the last entity
	lastCode   string            // of the last error of this run

	refused string // the tool call that an answer refuses for good, while it is said

	waiting  []waitingLine
	waitSize int
	seen     recent

	counters
	changes  []Change
	reported bool // Changes has returned them
	audit    func()
}

type counters struct {
	Read, Unknown, Garbage, Duplicates int64
}

// outLine is a line for the agent that no record calls written.
type outLine struct {
	Key  string
	Data []byte
	Msg  string `json:",omitempty"` // the message that it says
}

// New returns the fold of a dialogue that has not begun.
func New(cfg Config) *Fold {
	f := &Fold{cfg: cfg}
	if f.cfg.MemoryBytes <= 0 {
		f.cfg.MemoryBytes = defaultMemory
	}
	f.agent, _ = adapterOf(cfg.Agent) // without one, Apply refuses to start a run
	f.entities = map[string]*entity{}
	return f
}

// Feed folds output of the current run.
func (f *Fold) Feed(c Chunk) {
	f.input()
	if !f.alive {
		return
	}
	if c.Offset < f.offset {
		known := f.offset - c.Offset
		if known >= int64(len(c.Data)) {
			return
		}
		c.Data, c.Offset = c.Data[known:], f.offset
	}
	if !c.At.IsZero() {
		f.now = c.At
	}
	if c.Offset > f.offset {
		f.gap(c.Offset)
	}
	if c.Stderr {
		f.offset += int64(len(c.Data))
		f.stderr = append(f.stderr, c.Data...)
		if n := len(f.stderr) - stderrTail; n > stderrTail {
			f.stderr = append(f.stderr[:0], f.stderr[n:]...)
		}
		return
	}
	f.stdout(c.Data)
}

// gap notes that output is missing. The line that it tears is lost.
func (f *Fold) gap(to int64) {
	n := to - f.offset
	f.dropLine()
	f.skipping = true
	f.offset = to
	f.settled, f.part = to, 0
	f.fault(api.DialogueEntity{Code: api.DialogueGap, Message: "output of the agent is missing", Bytes: n})
	f.after()
}

// Apply folds something that TRL did. An error says that the record does not fit,
// such as an answer to a question that is settled; then nothing has changed.
func (f *Fold) Apply(r Record) error {
	if f.agent == nil {
		return fmt.Errorf("no adapter for the agent %q", f.cfg.Agent)
	}
	f.input()
	if err := f.fits(&r); err != nil {
		return err
	}
	record, part, now := f.record, f.part, f.now
	f.record++
	f.part = 0
	if !r.At.IsZero() {
		f.now = r.At
	}
	if err := f.apply(&r); err != nil {
		f.record, f.part, f.now = record, part, now
		return err
	}
	f.after()
	return nil
}

// fits reports why a record can't be applied.
func (f *Fold) fits(r *Record) error {
	switch r.Kind {
	case RecordRun:
		switch {
		case f.alive:
			return errors.New("fold: the last run has not ended")
		case r.Start == nil:
			return errors.New("fold: a run without a start")
		case r.Run <= f.run:
			return fmt.Errorf("fold: run %d after run %d", r.Run, f.run)
		}
	case RecordMessage:
		if r.ID == "" {
			return errors.New("fold: a message without an id")
		}
	case RecordAnswer:
		q := f.entities[r.ID]
		switch {
		case q == nil || q.e.Type != api.EntityQuestion:
			return &api.Error{Code: api.CodeInvalidParams, Message: fmt.Sprintf("no question %q in this dialogue", r.ID), Hint: "list the open questions with dialogue.info"}
		case !q.open:
			return &api.Error{Code: CodeQuestionSettled, Message: fmt.Sprintf("question %q is settled", r.ID), Details: map[string]any{"by": q.e.By, "state": q.e.State}}
		case r.Answer == nil:
			return errors.New("fold: an answer that says nothing")
		}
	case RecordInterrupt, RecordSet, RecordStalled:
		if !f.alive {
			return &api.Error{Code: CodeDialogueEnded, Message: "no agent runs in this dialogue", Hint: "start it again with dialogue.resume"}
		}
	case RecordExit:
		if r.Exit == nil {
			return errors.New("fold: an exit that says nothing")
		}
	case RecordWritten, RecordLink, RecordEnd:
	default:
		return fmt.Errorf("fold: unknown record %q", r.Kind)
	}
	return nil
}

func (f *Fold) apply(r *Record) error {
	switch r.Kind {
	case RecordRun:
		f.begin(r)
	case RecordMessage:
		f.say(r)
	case RecordAnswer:
		return f.answer(r)
	case RecordInterrupt:
		return f.agent.interrupt(f)
	case RecordSet:
		return f.agent.set(f, r.Model, r.Mode)
	case RecordWritten:
		for _, key := range r.Keys {
			f.written(key)
		}
	case RecordExit:
		if f.alive {
			f.exit(r.Exit)
		}
	case RecordStalled:
		if f.stalled == "" {
			f.stalled = f.fault(api.DialogueEntity{Code: api.DialogueStalled, Message: "the agent is silent", Evidence: r.Evidence})
			f.entities[f.stalled].keep = true
		}
	case RecordLink:
		if x := f.entities[r.ID]; x != nil && x.e.Type == api.EntityToolCall {
			f.put(api.DialogueEntity{Type: api.EntityToolCall, ID: r.ID, ExecID: r.ExecID})
		}
	case RecordEnd:
		if f.alive {
			f.exit(&Exit{Expected: true})
		}
		f.end(r.Reason)
	}
	return nil
}

// begin starts a run.
func (f *Fold) begin(r *Record) {
	f.run, f.offset, f.settled = r.Run, 0, 0
	f.dropLine()
	f.skipping = false
	f.start = *r.Start
	if f.seed == "" {
		f.seed = f.start.NativeID + "\x00" + strconv.FormatInt(r.At.UnixMilli(), 36)
	}
	f.alive, f.isReady, f.failed, f.busy, f.ended, f.lastCode = true, false, "", false, false, ""
	f.stderr, f.out = nil, nil
	f.garbageID, f.garbages, f.unknowns, f.background = "", 0, 0, 0
	f.spent, f.used = addUsage(f.spent, f.used), api.DialogueUsage{}
	f.nativeID = r.NativeID
	if !f.start.Fork { // the name of a fork is the agent's to choose
		f.native(cmpOr(r.NativeID, f.start.NativeID))
	}
	f.agent.begin(f)
}

// ready notes that the handshake is over; messages may be said.
func (f *Fold) ready() {
	if f.isReady {
		return
	}
	f.isReady = true
	f.tellPending()
}

// fail notes that the handshake has failed.
func (f *Fold) fail(why string) {
	if f.failed == "" && !f.isReady {
		f.failed = clip(why, 4<<10)
	}
}

// native notes the agent's name of the conversation.
func (f *Fold) native(id string) {
	if id != "" && len(id) <= 1<<10 {
		f.nativeID = id
	}
}

// exit settles everything: the run is over.
func (f *Fold) exit(e *Exit) {
	f.lastLine()
	f.flushWaiting()
	f.agent.exit(f, e)
	open := f.turn != nil || f.root.first != nil
	for f.root.first != nil {
		f.close(deepest(f.root.first), "cut", "agent_ended", "lost")
	}
	if f.turn != nil {
		f.endTurn("cut", "agent_ended", nil)
	}
	if f.retrying != "" {
		f.clear(&f.retrying)
	}
	f.clear(&f.stalled)
	if !f.isReady && f.failed == "" {
		f.failed = cmpOr(lastLine(f.stderr), "the agent ended before it was ready")
	}
	switch {
	case e.Lost != "":
		f.fault(api.DialogueEntity{Code: api.DialogueReconnectFailed, Message: e.Lost, Stderr: f.stderrText(), ExitCode: e.ExitCode, Signal: e.Signal})
	case open || !e.Expected:
		message := "the agent ended, and no client had asked for it"
		if e.Expected {
			message = "the agent ended while it was at work"
		}
		f.fault(api.DialogueEntity{Code: api.DialogueUnexpectedExit, Message: message, Stderr: f.stderrText(), ExitCode: e.ExitCode, Signal: e.Signal, Retryable: true})
	}
	f.alive, f.busy, f.background = false, false, 0
	f.leaveTaken()
	f.out = nil
	f.dropLine()
}

// end is the last entity of the dialogue, until it is resumed.
func (f *Fold) end(reason string) {
	if f.ended {
		return
	}
	f.ended = true
	f.derive()
	e := api.DialogueEntity{Type: api.EntityEnd, ID: "end:" + strconv.Itoa(f.run), Reason: cmpOr(reason, api.DialogueFinished), Code: f.lastCode}
	f.put(e)
	f.changes[len(f.changes)-1].Last = true
}

// stderrText returns the end of stderr as text.
func (f *Fold) stderrText() string {
	b := f.stderr
	if n := len(b) - stderrTail; n > 0 {
		b = b[n:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	return string(bytes.ToValidUTF8(b, []byte("\uFFFD")))
}

func lastLine(b []byte) string {
	b = bytes.TrimSpace(b)
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		b = b[i+1:]
	}
	return clip(string(bytes.ToValidUTF8(b, []byte("\uFFFD"))), 1<<10)
}

// input is called before each input.
func (f *Fold) input() {
	if f.reported {
		f.changes, f.reported = nil, false
	}
}

// after is called after each step, a line or a record.
func (f *Fold) after() {
	f.derive()
	f.shrink()
	if f.audit != nil {
		f.audit()
	}
}

// derive makes the entity of the state say what is so.
func (f *Fold) derive() {
	background := f.background
	e := api.DialogueEntity{Type: api.EntityState, ID: "state", State: string(f.state()), Model: f.model, Mode: f.mode, NativeID: f.nativeID}
	x := f.entities[e.ID]
	if x == nil && f.run == 0 {
		return
	}
	if (x == nil || x.e.Background == nil) && background != 0 || x != nil && x.e.Background != nil && *x.e.Background != background {
		e.Background = &background
	}
	if x == nil || x.e.State != e.State || x.e.Model != e.Model || x.e.Mode != e.Mode || x.e.NativeID != e.NativeID || e.Background != nil {
		e.Run = f.run
		f.put(e)
	}
}

func (f *Fold) state() api.DialogueState {
	switch {
	case !f.alive && f.run > 0:
		return api.DialogueEnded
	case !f.isReady:
		return api.DialogueStarting
	case len(f.asking) > 0:
		return api.DialogueAsking
	case f.turn != nil || f.busy || len(f.pending) > 0 || len(f.inTurn) > 0:
		return api.DialogueRunning
	default:
		return api.DialogueIdle
	}
}

// Changes returns what has changed since the last call, in order. It is valid until
// the next input.
func (f *Fold) Changes() []Change {
	if f.reported {
		return nil
	}
	f.reported = true
	return f.changes
}

// Lines returns the input that the agent must get and that no record calls written.
func (f *Fold) Lines() ([]Line, error) {
	if len(f.out) == 0 {
		return nil, nil
	}
	lines := make([]Line, len(f.out))
	for i, o := range f.out {
		lines[i] = Line{Key: o.Key, Data: o.Data}
	}
	return lines, nil
}

// ForkPoint returns the agent's own name of the place after a turn, for Start.ForkAt.
// It reports false if the turn is not known here or the agent has not named it. Of a
// turn that has been archived it is the native_id of the entity.
func (f *Fold) ForkPoint(turn string) (string, bool) {
	x := f.entities[turn]
	if x == nil || x.e.Type != api.EntityTurn || x.open || x.e.NativeID == "" {
		return "", false
	}
	return x.e.NativeID, true
}

// Position returns the place of the fold in its inputs: all output before it and all
// records are folded.
func (f *Fold) Position() Position {
	return Position{Run: f.run, Offset: f.settled, Record: f.record, Part: f.part}
}

// Offset returns up to where the output of the current run has been fed, which is
// past Position within a line.
func (f *Fold) Offset() int64 { return f.offset }

// Summary describes the dialogue.
func (f *Fold) Summary() Summary {
	s := Summary{
		State: f.state(), Ready: f.isReady, Failed: f.failed, Background: f.background, Run: f.run, NativeID: f.nativeID, Model: f.model, Mode: f.mode,
		Asking: append([]string(nil), f.asking...), Retrying: f.retrying != "",
		Lines: f.Read, Unknown: f.Unknown, Garbage: f.Garbage, Duplicates: f.Duplicates,
	}
	if f.turn != nil {
		s.Turn = f.turn.e.ID
	}
	if x := f.entities["usage"]; x != nil {
		s.Usage = x.e.Usage
	}
	if f.agent != nil {
		s.Capabilities = f.agent.capabilities()
	}
	return s
}
