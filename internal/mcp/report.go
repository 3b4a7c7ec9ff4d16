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

// report describes a command: the reply of run, output and input.
type report struct {
	Status     string    `json:"status" jsonschema:"state in words: exit 1 in 2.3s, running for 30s …"`
	Exec       string    `json:"exec" jsonschema:"id of the command"`
	Session    string    `json:"session" jsonschema:"name of its session"`
	State      string    `json:"state" jsonschema:"queued|running|exited: whether it still runs"`
	Outcome    string    `json:"outcome" jsonschema:"running, exited, signaled, timed_out, cancelled, shell_exited, shell_died or oom_killed"`
	ExitCode   *int      `json:"exit_code,omitempty" jsonschema:"once it has ended"`
	Signal     string    `json:"signal,omitempty" jsonschema:"signal that ended it"`
	Seconds    float64   `json:"seconds" jsonschema:"run time, so far or total"`
	Place      string    `json:"place,omitempty" jsonschema:"where it runs, if not on this machine"`
	Sandbox    string    `json:"sandbox,omitempty" jsonschema:"what confines its session"`
	LimitHit   []string  `json:"limit_hit,omitempty" jsonschema:"limits of its session that it reached"`
	Cwd        string    `json:"cwd,omitempty" jsonschema:"the session's directory after the command"`
	Waiting    *waiting  `json:"waiting,omitempty" jsonschema:"on a terminal: what it waits for"`
	Left       []process `json:"left_running,omitempty" jsonschema:"processes that it started and that still run"`
	Matched    *line     `json:"matched,omitempty" jsonschema:"the line that matched pattern"`
	Found      []line    `json:"found,omitempty" jsonschema:"lines that match search"`
	Output     string    `json:"output" jsonschema:"without escape sequences; a line between [trl: and ] says what is left out"`
	Binary     bool      `json:"binary,omitempty" jsonschema:"the output is not text: a hex dump of its start is shown"`
	Size       int64     `json:"size" jsonschema:"bytes of the whole output"`
	Next       int64     `json:"next" jsonschema:"offset up to which output is shown; continue from it"`
	LeftOut    []span    `json:"left_out,omitempty" jsonschema:"parts of the output that are not shown, as offsets"`
	ErrorLines []line    `json:"telling,omitempty" jsonschema:"lines of the parts left out that look like errors"`
	Notes      []string  `json:"notes,omitempty" jsonschema:"more about the command, and the next call"`
	Stream     string    `json:"stream,omitempty" jsonschema:"the stream that is shown, if only one"`

	moreLeft int // number of processes left running that are not in Left
}

type waiting struct {
	For     string `json:"for" jsonschema:"input|password: what to type"`
	Process string `json:"process" jsonschema:"the process that waits"`
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

// clipShown shortens the arguments of a process to about the length of a line after
// quoting: any program can set its own arguments.
func clipShown(text string) string {
	text = clip(text, lineBytes)
	for len(printable.Word(text)) > 2*lineBytes {
		text = clip(text, len(text)/2)
	}
	return text
}

// maxNamed is the maximum number of processes in a reply.
const maxNamed = 8

// newReport returns a report of the state of an exec, without output.
func (s *server) newReport(ctx context.Context, e *api.ExecResult) (*report, error) {
	r := &report{
		Exec: e.ExecID, State: string(e.State), Outcome: string(e.Outcome), ExitCode: e.ExitCode, Signal: e.Signal,
		Seconds: float64(e.DurationMS) / 1000, Cwd: e.Cwd, Size: e.StdoutBytes + e.StderrBytes,
	}
	session, err := callMethod[api.SessionInfo](ctx, s, api.MethodSessionInfo, api.SessionParams{SessionID: e.SessionID})
	if err != nil {
		return nil, err
	}
	if r.Session, err = s.displayName(ctx, &session.Session); err != nil {
		return nil, err
	}
	r.Place, r.Sandbox = placeOf(&session.Session), confinedBy(session.Isolation)
	for _, limit := range e.LimitHit {
		r.LimitHit = append(r.LimitHit, string(limit))
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
	if len(r.LimitHit) > 0 {
		r.note("it reached limits of its session: %s; a command that needs less works, or ask a person for more", printable.Word(strings.Join(r.LimitHit, ",")))
	}
	s.addStateNotes(r, e, session, more)
	return r, nil
}

// status describes the state of an exec in words.
func status(e *api.ExecResult) string {
	text := outcome(e)
	if e.QueuedMS >= queuedLong {
		text += ", after " + formatMS(e.QueuedMS) + " in the queue"
	}
	return text
}

// queuedLong is the time in a queue, in milliseconds, from which on it is reported.
const queuedLong = 100

func outcome(e *api.ExecResult) string {
	took := formatMS(e.DurationMS)
	switch {
	case e.State == api.ExecQueued:
		return "queued, not started yet"
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

func formatMS(ms int64) string {
	if ms == 0 {
		return "less than 1ms"
	}
	d := time.Duration(ms) * time.Millisecond
	if d >= time.Second {
		d = d.Round(100 * time.Millisecond)
	}
	return d.String()
}

// addStateNotes adds notes on the state that status and output do not show.
func (s *server) addStateNotes(r *report, e *api.ExecResult, session *api.SessionInfo, more int) {
	switch {
	case e.State == api.ExecQueued && session.ExecID != "":
		r.note(`it waits for %s, which is running in the same session: see %s, or stop this one and run it in another session`,
			session.ExecID, invoke(toolOutput, "exec", session.ExecID))
	case r.Waiting != nil && r.Waiting.For == string(api.WaitingPassword):
		how := ""
		for _, name := range slices.Sorted(maps.Keys(s.Secrets)) {
			how += invoke(toolInput, "exec", e.ExecID, "secret", name) + ", or "
		}
		r.note(`it waits for a password (%s): %sa person can type it with "trl attach --write %s"`, r.Waiting, how, e.SessionID)
	case r.Waiting != nil:
		r.note(`it waits for input (%s): answer with %s`, r.Waiting, invoke(toolInput, "exec", e.ExecID, "text", "...", "keys", []string{"enter"}))
	}
	switch e.Outcome {
	case api.OutcomeShellExited:
		r.note("the command ended its shell (by exit, exec, or a failure under set -e, which stays on until set +e); the session continues in a copy of it")
	case api.OutcomeShellDied:
		r.note("the command's shell died; the session continues")
	}
	if e.RolledBack {
		since := "at the start of the session"
		if e.RolledBackTo != "" {
			since = "after " + e.RolledBackTo
		}
		r.note("the shell's state was lost; directory and variables are back to what they were %s", since)
	}
	for _, d := range e.NetworkDenied {
		r.note("the session may not connect to %s:%d: %s", printable.Word(d.Host), d.Port, printable.Word(d.Message))
	}
	r.moreLeft = more
}

// addNextCalls adds notes with the calls to make next.
func (r *report) addNextCalls() {
	if r.State == string(api.ExecRunning) && r.Waiting == nil {
		r.note(`it is still running: %s waits for its end, %s stops it`, r.invoke("from", r.Next, "until", untilExit), invoke(toolStop, "exec", r.Exec))
	}
	if len(r.Left) > 0 {
		var names []string
		for _, p := range r.Left {
			names = append(names, p.String())
		}
		if r.moreLeft > 0 {
			names = append(names, fmt.Sprintf("and %d more", r.moreLeft))
		}
		r.note(`left running: %s. %s shows their new output, %s stops them`,
			strings.Join(names, "; "), r.invoke("from", r.Next), invoke(toolStop, "exec", r.Exec))
	}
}

func (r *report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// show adds output to the report, with notes on what is left out.
func (r *report) show(o *shownOutput) {
	r.Output, r.Binary, r.Next, r.ErrorLines = o.text, o.binary, o.page.To, o.errorLines
	r.LeftOut = o.leftOut
	for _, cut := range o.leftOut {
		note := fmt.Sprintf("[trl: %s left out, from offset %d to %d; %s shows them, %s finds lines]",
			formatBytes(cut.size()), cut.From, cut.To, r.invoke("from", cut.From), r.invoke("search", "..."))
		if strings.Contains(r.Output, cutMark) {
			r.Output = strings.Replace(r.Output, cutMark, note, 1)
		} else {
			r.Output += "\n" + note
		}
	}
	if o.binary {
		r.note("the output is not text; its first bytes are shown in hex. To inspect it, write it to a file and use tools for its format")
	}
	for _, gap := range o.gaps {
		r.note("%s from offset %d on were dropped because of a quota or a full disk, and can't be read", formatBytes(gap.size()), gap.From)
	}
	if len(o.errorLines) > 0 {
		r.note("lines of the part left out that may explain the result are below")
	}
	if o.stopped {
		r.noteStopped("the search for errors in the part left out", scanTime, o.scannedTo, o.leftOut[0].To, errorSearch)
	}
	if o.page.To < r.Size && len(o.leftOut) == 0 {
		r.note("%s follow: continue with %s", formatBytes(r.Size-o.page.To), r.invoke("from", o.page.To))
	}
}

// noteStopped adds a note that a search reached its time limit, where it stopped,
// and which call continues from there. Without it, a model would take a missing
// result for nothing found.
func (r *report) noteStopped(what string, limit time.Duration, at, end int64, search string) {
	r.note("%s stopped after %s, at offset %d of %d; %s continues", what, limit, at, end, r.invoke("search", search, "from", at))
}

// invoke formats the call of output that shows more of the same command.
func (r *report) invoke(more ...any) string {
	args := append([]any{"exec", r.Exec}, more...)
	if r.Stream != "" {
		args = append(args, "stream", r.Stream)
	}
	return invoke(toolOutput, args...)
}

// invoke formats a call as a model can make it.
func invoke(tool string, args ...any) string {
	var b strings.Builder
	b.WriteString(tool + " {")
	for i := 0; i < len(args); i += 2 {
		if i > 0 {
			b.WriteString(", ")
		}
		value, _ := json.Marshal(args[i+1]) // can't fail for strings and numbers
		fmt.Fprintf(&b, "%q: %s", args[i], printable.JSON(value))
	}
	return b.String() + "}"
}

// text returns the reply as a model reads it: how and where the command ended, its
// output, and the notes.
func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s · %s · session %s", r.Status, r.Exec, printable.Word(r.Session))
	if r.Place != "" {
		b.WriteString(" · " + printable.Word(r.Place))
	}
	if r.Sandbox != "" {
		b.WriteString(" · confined by " + printable.Word(r.Sandbox))
	}
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
	for _, l := range r.ErrorLines {
		fmt.Fprintf(&b, "  @%d: %s\n", l.Offset, l.Text)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
