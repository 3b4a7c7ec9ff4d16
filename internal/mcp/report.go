package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

// report is what is told of a command: the reply of run, output, input and stop.
type report struct {
	Status   string    `json:"status" jsonschema:"how it stands, in words: exit 1 in 2.3s, running for 30s …"`
	Exec     string    `json:"exec" jsonschema:"the command's id"`
	Session  string    `json:"session" jsonschema:"the name of its session"`
	State    string    `json:"state" jsonschema:"queued|running|exited: whether it goes on"`
	Outcome  string    `json:"outcome" jsonschema:"running, exited, signaled, timed_out, cancelled, shell_exited or shell_died"`
	ExitCode *int      `json:"exit_code,omitempty" jsonschema:"once it has one"`
	Signal   string    `json:"signal,omitempty" jsonschema:"that ended it"`
	Seconds  float64   `json:"seconds" jsonschema:"so far, or in all"`
	Cwd      string    `json:"cwd,omitempty" jsonschema:"the session's directory after it"`
	Waiting  *waiting  `json:"waiting,omitempty" jsonschema:"on a terminal: what it waits for"`
	Left     []process `json:"left_running,omitempty" jsonschema:"processes that it started and that live"`
	Matched  *line     `json:"matched,omitempty" jsonschema:"the line that was waited for"`
	Found    []line    `json:"found,omitempty" jsonschema:"lines that were searched for"`
	Output   string    `json:"output" jsonschema:"without escapes; a line between [trl: and ] tells what is left out"`
	Binary   bool      `json:"binary,omitempty" jsonschema:"the output is no text: a hex dump of its start is shown"`
	Size     int64     `json:"size" jsonschema:"of the whole output, in bytes"`
	Next     int64     `json:"next" jsonschema:"offset up to which output is shown; go on from it"`
	LeftOut  []span    `json:"left_out,omitempty" jsonschema:"parts of the output that are not shown, by offsets"`
	Telling  []line    `json:"telling,omitempty" jsonschema:"of what is left out, lines that speak of errors"`
	Notes    []string  `json:"notes,omitempty" jsonschema:"what else is to be known, and the next call"`
	Stream   string    `json:"stream,omitempty" jsonschema:"the one that is shown, if not all"`

	moreLeft int // processes that it left running besides those
}

type waiting struct {
	For     string `json:"for" jsonschema:"input|password: what is to be typed"`
	Process string `json:"process" jsonschema:"who waits"`
}

type process struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

func (p process) String() string { return fmt.Sprintf("%d %s", p.PID, printable.Word(p.Command)) }

func (w *waiting) String() string { return printable.Word(w.Process) }

func processOf(p api.Process) process { return process{PID: p.PID, Command: clipShown(p.Command)} }

func waitingOf(w *api.Waiting) *waiting {
	return &waiting{For: string(w.For), Process: clipShown(w.Process)}
}

// clipShown shortens the arguments of a process to what takes about as much room
// as a line when they are quoted: anybody may choose them.
func clipShown(text string) string {
	text = clip(text, lineBytes)
	for len(printable.Word(text)) > 2*lineBytes {
		text = clip(text, len(text)/2)
	}
	return text
}

// maxNamed is how many processes a reply names.
const maxNamed = 8

// standing fills in how an exec stands.
func (s *server) standing(ctx context.Context, e *api.ExecResult) (*report, error) {
	r := &report{
		Exec: e.ExecID, State: string(e.State), Outcome: string(e.Outcome), ExitCode: e.ExitCode, Signal: e.Signal,
		Seconds: float64(e.DurationMS) / 1000, Cwd: e.Cwd, Size: e.StdoutBytes + e.StderrBytes,
	}
	session, err := ask[api.SessionInfo](ctx, s, api.MethodSessionInfo, api.SessionParams{SessionID: e.SessionID})
	if err != nil {
		return nil, err
	}
	if r.Session, err = s.calledBy(ctx, &session.Session); err != nil {
		return nil, err
	}
	if r.Cwd == "" {
		r.Cwd = session.Cwd
	}
	if session.Waiting != nil && session.ExecID == e.ExecID {
		r.Waiting = waitingOf(session.Waiting)
	}
	more := 0
	for _, p := range session.Processes {
		switch {
		case p.ExecID != e.ExecID || p.Role != "" || e.State != api.ExecExited:
		case len(r.Left) == maxNamed:
			more++
		default:
			r.Left = append(r.Left, processOf(p))
		}
	}
	r.Status = status(e)
	s.remark(r, e, session, more)
	return r, nil
}

// status is how an exec stands, in words.
func status(e *api.ExecResult) string {
	text := outcome(e)
	if e.QueuedMS >= queuedLong {
		text += ", after " + seconds(e.QueuedMS) + " in the queue"
	}
	return text
}

// queuedLong is how many milliseconds in a queue are told.
const queuedLong = 100

func outcome(e *api.ExecResult) string {
	took := seconds(e.DurationMS)
	switch {
	case e.State == api.ExecQueued:
		return "queued, has not begun"
	case e.State == api.ExecRunning:
		return "running for " + took
	case e.Outcome == api.OutcomeTimedOut:
		return "timed out and stopped after " + took
	case e.Outcome == api.OutcomeCancelled:
		return "cancelled after " + took
	case e.ExitCode == nil:
		return strings.ReplaceAll(string(e.Outcome), "_", " ") + " after " + took
	case e.Signal != "":
		return fmt.Sprintf("exit %d (%s) in %s", *e.ExitCode, e.Signal, took)
	default:
		return fmt.Sprintf("exit %d in %s", *e.ExitCode, took)
	}
}

func seconds(ms int64) string {
	if ms == 0 {
		return "less than 1ms"
	}
	d := time.Duration(ms) * time.Millisecond
	if d >= time.Second {
		d = d.Round(100 * time.Millisecond)
	}
	return d.String()
}

// remark adds what the status and the output do not tell.
func (s *server) remark(r *report, e *api.ExecResult, session *api.SessionInfo, more int) {
	switch {
	case e.State == api.ExecQueued && session.ExecID != "":
		r.note(`it waits for %s, which runs in the same session: see %s, or stop this one and run it in another session`,
			session.ExecID, invoke(toolOutput, "exec", session.ExecID))
	case r.Waiting != nil && r.Waiting.For == string(api.WaitingPassword):
		how := ""
		for _, name := range slices.Sorted(maps.Keys(s.Secrets)) {
			how += invoke(toolInput, "exec", e.ExecID, "secret", name) + ", or "
		}
		r.note(`it waits for a password (%s): %sa person types it with "trl attach --write %s"`, r.Waiting, how, e.SessionID)
	case r.Waiting != nil:
		r.note(`it waits for input (%s): answer with %s`, r.Waiting, invoke(toolInput, "exec", e.ExecID, "text", "...", "keys", []string{"enter"}))
	}
	switch e.Outcome {
	case api.OutcomeShellExited:
		r.note("the command ended its shell (by exit, exec, or a failure under set -e); the session goes on in a copy of it")
	case api.OutcomeShellDied:
		r.note("the shell died under the command; the session goes on")
	}
	if e.RolledBack {
		since := "at the start of the session"
		if e.RolledBackTo != "" {
			since = "after " + e.RolledBackTo
		}
		r.note("the state of the shell was lost: directory and variables are as they were %s", since)
	}
	r.moreLeft = more
}

// goOn adds the calls that follow what is shown now.
func (r *report) goOn() {
	if r.State == string(api.ExecRunning) && r.Waiting == nil {
		r.note(`it goes on: %s waits for its end, %s ends it`, r.invoke("from", r.Next, "until", untilExit), invoke(toolStop, "exec", r.Exec))
	}
	if len(r.Left) > 0 {
		var names []string
		for _, p := range r.Left {
			names = append(names, p.String())
		}
		if r.moreLeft > 0 {
			names = append(names, fmt.Sprintf("and %d more", r.moreLeft))
		}
		r.note(`left running: %s. %s shows what they write from now on, %s ends them`,
			strings.Join(names, "; "), r.invoke("from", r.Next), invoke(toolStop, "exec", r.Exec))
	}
}

func (r *report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// show puts an output into the reply.
func (r *report) show(o *shown) {
	r.Output, r.Binary, r.Next, r.Telling = o.text, o.binary, o.page.To, o.telling
	r.LeftOut = o.leftOut
	for _, cut := range o.leftOut {
		note := fmt.Sprintf("[trl: %s left out, from offset %d to %d; %s shows them, %s finds lines]",
			bytesOf(cut.size()), cut.From, cut.To, r.invoke("from", cut.From), r.invoke("search", "..."))
		if strings.Contains(r.Output, cutMark) {
			r.Output = strings.Replace(r.Output, cutMark, note, 1)
		} else {
			r.Output += "\n" + note
		}
	}
	if o.binary {
		r.note("the output is not text; its first bytes are shown in hex. To look into it, write it to a file and use tools for its format")
	}
	for _, gap := range o.gaps {
		r.note("%s from offset %d on were not kept, for a quota or a full disk: they can't be read any more", bytesOf(gap.size()), gap.From)
	}
	if len(o.telling) > 0 {
		r.note("lines in what is left out that may tell why are below")
	}
	if o.stopped {
		r.stopped("looking for errors in what is left out", scanTime, o.looked, o.leftOut[0].To, tellingSearch)
	}
	if o.page.To < r.Size && len(o.leftOut) == 0 {
		r.note("%s follow: go on with %s", bytesOf(r.Size-o.page.To), r.invoke("from", o.page.To))
	}
}

// stopped says that something was cut short by its time limit, where, and which
// call goes on from there: whoever reads nothing of it would take silence for
// nothing found.
func (r *report) stopped(what string, limit time.Duration, at, end int64, search string) {
	r.note("%s stopped after %s, at offset %d of %d; %s goes on", what, limit, at, end, r.invoke("search", search, "from", at))
}

// invoke is the call of output that shows more of the same.
func (r *report) invoke(more ...any) string {
	args := append([]any{"exec", r.Exec}, more...)
	if r.Stream != "" {
		args = append(args, "stream", r.Stream)
	}
	return invoke(toolOutput, args...)
}

// invoke is a call as a model can make it.
func invoke(tool string, args ...any) string {
	var b strings.Builder
	b.WriteString(tool + " {")
	for i := 0; i < len(args); i += 2 {
		if i > 0 {
			b.WriteString(", ")
		}
		value, _ := json.Marshal(args[i+1]) // of strings and numbers: can't fail
		fmt.Fprintf(&b, "%q: %s", args[i], printable.JSON(value))
	}
	return b.String() + "}"
}

// text is the reply as a model reads it: how it ended, where, the output, and
// what else there is to know.
func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s · %s · session %s", r.Status, r.Exec, printable.Word(r.Session))
	if r.Cwd != "" {
		b.WriteString(" · " + printable.Word(r.Cwd))
	}
	b.WriteByte('\n')
	if r.Matched != nil {
		fmt.Fprintf(&b, "matched at offset %d: %s\n", r.Matched.Offset, r.Matched.Text)
	}
	for _, l := range r.Found {
		fmt.Fprintf(&b, "@%d: %s\n", l.Offset, l.Text)
	}
	switch {
	case r.Found != nil:
	case r.Output != "":
		b.WriteString(r.Output + "\n")
	case r.Size == 0:
		b.WriteString("(no output)\n")
	}
	for _, note := range r.Notes {
		b.WriteString("[trl: " + note + "]\n")
	}
	for _, l := range r.Telling {
		fmt.Fprintf(&b, "  @%d: %s\n", l.Offset, l.Text)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
