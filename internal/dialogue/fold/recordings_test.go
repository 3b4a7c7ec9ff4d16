package fold

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
)

var updateGolden = flag.Bool("update", false, "write the golden folds of the recordings")

// A recording is what a real agent wrote, what was sent to it, and how it ended.
// testdata/recordings has one archive for each version of an agent and mode; a new
// version adds an archive.
type recording struct {
	name   string // archive/name
	stdout []byte
	stdin  []byte
	meta   recordingMeta
}

type recordingMeta struct {
	Exit     int    `json:"exit"`
	ExitCode *int   `json:"exit_code"` // in place of exit
	Signal   string `json:"signal"`
	Stderr   string `json:"stderr"`
	After    []int  `json:"after"` // for each line of stdin: after how many lines of stdout it was sent
}

func recordings(t testing.TB, prefix string) []recording {
	t.Helper()
	archives, err := filepath.Glob("testdata/recordings/" + prefix + "*.tar.gz")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no recordings of %s: %v", prefix, err)
	}
	var all []recording
	for _, archive := range archives {
		all = append(all, readArchive(t, archive)...)
	}
	return all
}

func readArchive(t testing.TB, path string) []recording {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	base := strings.TrimSuffix(filepath.Base(path), ".tar.gz")
	byName := map[string]*recording{}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name, kind := strings.TrimSuffix(h.Name, ".jsonl"), "stdout"
		if n, ok := strings.CutSuffix(name, ".stdin"); ok {
			name, kind = n, "stdin"
		} else if n, ok := strings.CutSuffix(name, ".meta.json"); ok {
			name, kind = n, "meta"
		}
		rec := byName[name]
		if rec == nil {
			rec = &recording{name: base + "/" + name}
			byName[name] = rec
			names = append(names, name)
		}
		switch kind {
		case "stdout":
			rec.stdout = data
		case "stdin":
			rec.stdin = data
		case "meta":
			if err := json.Unmarshal(data, &rec.meta); err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.Sort(names)
	all := make([]recording, 0, len(names))
	for _, n := range names {
		all = append(all, *byName[n])
	}
	return all
}

// step is one input of a fold: output or a record.
type step struct {
	out, err []byte
	rec      *Record
}

// sent is a line of a recording's stdin that becomes a record.
type sent struct {
	raw    []byte
	kind   string // message, answer, interrupt, mode
	id     string // uuid of a message, or id of a request
	before []string
	after  string
}

// testTime is when records were made.
var testTime = api.Time{Time: time.Date(2026, 11, 16, 4, 0, 0, 0, time.UTC)}

// script makes the inputs of a fold from a recording of Claude Code. What the
// recording's driver sent becomes records, where its place is known; the ids that it
// chose are replaced by those that the fold chooses, so the agent's echoes fit.
func claudeScript(t testing.TB, r recording) []step {
	t.Helper()
	stdout := r.stdout
	if !bytes.Contains(stdout, []byte(`"request_id":"init-1"`)) && len(stdout) > 0 {
		stdout = append([]byte(`{"type":"control_response","response":{"subtype":"success","request_id":"init-1","response":{}}}`+"\n"), stdout...)
	}
	var todo []sent
	for _, raw := range bytes.Split(r.stdin, []byte("\n")) {
		var l struct {
			Type      string
			UUID      string
			RequestID string `json:"request_id"`
			Request   struct{ Subtype string }
			Response  struct {
				RequestID string `json:"request_id"`
			}
		}
		if json.Unmarshal(raw, &l) != nil {
			continue
		}
		s := sent{raw: raw}
		switch {
		case l.Type == "user" && l.UUID != "":
			s.kind, s.id, s.before = "message", l.UUID, []string{l.UUID}
		case l.Type == "control_response":
			s.kind, s.id, s.after = "answer", l.Response.RequestID, `"type":"control_request","request_id":"`+l.Response.RequestID
		case l.Request.Subtype == "interrupt":
			s.kind, s.id, s.before = "interrupt", l.RequestID, []string{"control_cancel_request", l.RequestID}
		case l.Request.Subtype == "set_permission_mode":
			s.kind, s.id, s.before = "mode", l.RequestID, []string{l.RequestID}
		default:
			continue
		}
		todo = append(todo, s)
	}

	f := New(Config{Agent: api.AgentClaude})
	var script []step
	told := map[string]bool{}
	var rename [][2]string
	said := func() []Line { // writes what the fold tells
		lines, err := f.Lines()
		if err != nil {
			t.Fatal(err)
		}
		var fresh []Line
		var keys []string
		for _, l := range lines {
			if !told[l.Key] {
				told[l.Key] = true
				fresh, keys = append(fresh, l), append(keys, l.Key)
			}
		}
		if len(keys) > 0 {
			rec := &Record{Kind: RecordWritten, Keys: keys, At: testTime}
			script = append(script, step{rec: rec})
			if err := f.Apply(*rec); err != nil {
				t.Fatal(err)
			}
		}
		return fresh
	}
	apply := func(rec *Record) bool {
		if err := f.Apply(*rec); err != nil {
			var e *api.Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			return false // a late or a second answer
		}
		script = append(script, step{rec: rec})
		return true
	}
	apply(&Record{Kind: RecordRun, Run: 1, At: testTime, NativeID: "11111111-1111-4111-8111-111111111111", Start: &Start{Cwd: "/home/dev/code", NativeID: "11111111-1111-4111-8111-111111111111"}})
	rename = append(rename, [2]string{`"request_id":"init-1"`, `"request_id":"trl-1-init"`})
	said()
	perform := func(s sent) {
		switch s.kind {
		case "message":
			var m struct{ Message struct{ Content string } }
			if err := json.Unmarshal(s.raw, &m); err != nil {
				t.Fatal(err)
			}
			if !apply(&Record{Kind: RecordMessage, ID: "u:" + s.id, Key: s.id[:8], Text: m.Message.Content, By: "alice", At: testTime}) {
				t.Fatal("a message was refused")
			}
			for _, l := range said() {
				sameLine(t, l.Data, s.raw, "", "")
			}
		case "answer":
			a := claudeAnswer(t, s.raw)
			id := "q:1:" + s.id
			if apply(&Record{Kind: RecordAnswer, ID: id, Answer: a, By: "alice", At: testTime}) {
				for _, l := range said() {
					sameLine(t, l.Data, s.raw, "", "")
				}
			}
		case "interrupt", "mode":
			rec := &Record{Kind: RecordInterrupt, By: "alice", At: testTime}
			if s.kind == "mode" {
				rec = &Record{Kind: RecordSet, Mode: "acceptEdits", At: testTime}
			}
			apply(rec)
			for _, l := range said() {
				var e struct {
					RequestID string `json:"request_id"`
				}
				_ = json.Unmarshal(l.Data, &e)
				rename = append(rename, [2]string{`"request_id":"` + s.id + `"`, `"request_id":"` + e.RequestID + `"`})
				sameLine(t, l.Data, s.raw, s.id, e.RequestID)
			}
		}
	}
	var last []byte
	for _, line := range bytes.SplitAfter(stdout, []byte("\n")) {
		for len(todo) > 0 {
			s := todo[0]
			due := s.after != "" && bytes.Contains(last, []byte(s.after)) || s.after != "" && !bytes.Contains(stdout, []byte(s.after))
			for _, b := range s.before {
				due = due || bytes.Contains(line, []byte(b)) && f.isReady
			}
			if !due && s.after != "" && bytes.Contains(stdout, []byte(s.after)) {
				// Its question was asked before something else that was sent.
				i, j := bytes.Index(stdout, []byte(s.after)), bytes.Index(stdout, line)
				due = len(line) > 0 && i < j
			}
			if !due {
				break
			}
			todo = todo[1:]
			perform(s)
		}
		last = line
		for _, r := range rename {
			line = bytes.ReplaceAll(line, []byte(r[0]), []byte(r[1]))
		}
		if len(line) == 0 {
			continue
		}
		script = append(script, step{out: line})
		f.Feed(Chunk{Offset: f.Offset(), Data: line})
		said()
	}
	if len(todo) > 0 && len(r.stdout) > 0 {
		t.Errorf("%s: %d lines of stdin have no place", r.name, len(todo))
	}
	if r.meta.Stderr != "" {
		script = append(script, step{err: []byte(r.meta.Stderr)})
	}
	exit := &Exit{Expected: r.meta.Exit == 0 || r.meta.Exit == 1 && bytes.Contains(r.stdout, []byte(`"type":"result"`)), StartedOK: f.isReady}
	switch r.meta.Exit {
	case -9, 137:
		exit.Signal = "SIGKILL"
	default:
		exit.ExitCode = &r.meta.Exit
	}
	return append(script, step{rec: &Record{Kind: RecordExit, Exit: exit, At: testTime}}, step{rec: &Record{Kind: RecordEnd, At: testTime, Reason: api.DialogueFinished}})
}

// sameLine compares a line that the fold tells with the one that the recording's
// driver sent, up to the ids.
func sameLine(t testing.TB, got, want []byte, theirs, ours string) {
	t.Helper()
	if theirs != "" {
		want = bytes.ReplaceAll(want, []byte(theirs), []byte(ours))
	}
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("told %q: %v", got, err)
	}
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("told %s\nthe driver sent %s", got, want)
	}
}

func claudeAnswer(t testing.TB, raw []byte) *api.DialogueAnswer {
	t.Helper()
	var l struct {
		Response struct {
			Response struct {
				Behavior     string
				Message      string
				Interrupt    bool
				UpdatedInput struct {
					Answers map[string]json.RawMessage
				}
			}
		}
	}
	if err := json.Unmarshal(raw, &l); err != nil {
		t.Fatal(err)
	}
	r := l.Response.Response
	a := &api.DialogueAnswer{Option: r.Behavior, Message: r.Message, Interrupt: r.Interrupt}
	for _, v := range r.UpdatedInput.Answers { // the recordings have one
		a.Values = map[string]json.RawMessage{"q1": v}
	}
	return a
}

// feed gives a step to a fold.
func (s step) feed(t testing.TB, f *Fold) {
	t.Helper()
	switch {
	case s.rec != nil:
		if err := f.Apply(*s.rec); err != nil {
			t.Fatal(err)
		}
	case s.err != nil:
		f.Feed(Chunk{Offset: f.Offset(), Data: s.err, Stderr: true})
	default:
		f.Feed(Chunk{Offset: f.Offset(), Data: s.out})
	}
}

// foldScript folds a script, with the invariants checked after each event.
func foldScript(t testing.TB, agent api.Agent, script []step) *watched {
	t.Helper()
	w := watch(t, New(Config{Agent: agent}))
	for _, s := range script {
		w.step(s)
	}
	return w
}

// watched is a fold with a client that takes up its changes.
type watched struct {
	t    testing.TB
	f    *Fold
	last Position
	seen map[string]*api.DialogueEntity
	log  []Change
}

func watch(t testing.TB, f *Fold) *watched {
	w := &watched{t: t, f: f, seen: map[string]*api.DialogueEntity{}}
	f.audit = func() { auditFold(t, f) }
	return w
}

func (w *watched) step(s step) {
	w.t.Helper()
	s.feed(w.t, w.f)
	w.drain()
}

func (w *watched) drain() {
	w.t.Helper()
	for _, c := range w.f.Changes() {
		if c.At.Compare(w.last) <= 0 {
			w.t.Fatalf("the position %v of a change follows %v", c.At, w.last)
		}
		w.last = c.At
		e := w.seen[c.Entity.ID]
		if e == nil {
			e = &api.DialogueEntity{}
			w.seen[c.Entity.ID] = e
		}
		if c.Append != nil {
			had := e.Text
			if c.Append.Field == "output" {
				had = e.Output
			}
			if int(c.Append.At) != len(had) {
				w.t.Fatalf("%s: text is appended at %d, of %d", c.Entity.ID, c.Append.At, len(had))
			}
		}
		Merge(e, c)
		w.log = append(w.log, c)
	}
	if p := w.f.Position(); p.Compare(w.last) < 0 {
		w.t.Fatalf("the position %v of the fold is before its last change %v", p, w.last)
	}
}

// entities compares what a client has with what the fold has, and returns the lines
// of a golden file.
func (w *watched) entities() []string {
	w.t.Helper()
	var lines []string
	for _, p := range w.f.Entities() {
		got, want := asJSON(w.t, w.seen[p.Entity.ID]), asJSON(w.t, p.Entity)
		if got != want {
			w.t.Fatalf("a client has\n%s\nthe fold has\n%s", got, want)
		}
		lines = append(lines, p.Changed.String()+" "+want)
	}
	return append(lines, asJSON(w.t, w.f.Summary()))
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// auditFold checks what must hold after each event.
func auditFold(t testing.TB, f *Fold) {
	t.Helper()
	open, memory := 0, 0
	for id, x := range f.entities {
		if x.e.ID != id || x.open != openness(&x.e) {
			t.Fatalf("%s: open is %v", id, x.open)
		}
		if x.size != sizeOf(x) {
			t.Fatalf("%s: size %d is %d", id, sizeOf(x), x.size)
		}
		memory += x.size
		if !x.open || x.e.Type == api.EntityTurn {
			if x.parent != nil || x.first != nil {
				t.Fatalf("%s is closed and in the tree", id)
			}
			continue
		}
		open++
		depth := 0
		top := x
		for p := x.parent; p != &f.root; p = p.parent {
			if p == nil || !p.open {
				t.Fatalf("%s is open under something closed", id)
			}
			if depth++; depth > len(f.entities) {
				t.Fatalf("%s: parents in a circle", id)
			}
			top = p
		}
		if !f.alive {
			t.Fatalf("%s is open, and no agent runs", id)
		}
		if f.turn == nil && !top.detached {
			t.Fatalf("%s is open, and no turn is", id)
		}
		if p := f.entities[x.e.Parent]; x.e.Parent != "" && (p == nil || !p.open) {
			t.Fatalf("%s is open under %s, which is not", id, x.e.Parent)
		}
		if call := f.entities[x.e.ToolCall]; x.e.Type == api.EntityQuestion && call != nil && !call.open {
			t.Fatalf("%s is open, and its call %s is closed", id, x.e.ToolCall)
		}
		if x.e.Type == api.EntityQuestion && !slices.Contains(f.asking, id) {
			t.Fatalf("%s is open and not in the list", id)
		}
	}
	if memory != f.memory {
		t.Fatalf("memory %d is counted as %d", memory, f.memory)
	}
	for _, id := range f.asking {
		if !f.isOpen(id) {
			t.Fatalf("%s is in the list of open questions", id)
		}
	}
	if s := f.entities["state"]; s != nil && s.e.State != string(f.state()) {
		t.Fatalf("the state is %s and said to be %s", f.state(), s.e.State)
	}
	if f.state() == api.DialogueIdle && (f.turn != nil || len(f.asking) > 0) {
		t.Fatal("idle with something open")
	}
	_ = open
}

// shorter abbreviates long texts of a golden line.
func shorter(line string) string {
	at, text, ok := strings.Cut(line, " ")
	if !ok || strings.HasPrefix(line, "{") {
		at, text = "", line
	}
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return line
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if len(text) < 2000 {
		return line
	}
	_ = e.Encode(abbreviate(v))
	return strings.TrimSpace(at + " " + strings.TrimSpace(b.String()))
}

func abbreviate(v any) any {
	switch v := v.(type) {
	case string:
		if len(v) > 200 {
			return fmt.Sprintf("%s... %d bytes %x", clip(v, 100), len(v), sha256.Sum256([]byte(v)))
		}
	case map[string]any:
		for k := range v {
			v[k] = abbreviate(v[k])
		}
	case []any:
		for i := range v {
			v[i] = abbreviate(v[i])
		}
	}
	return v
}

// TestRecordings folds what real agents wrote and compares the transcripts with
// those that were reviewed. -update writes them.
func TestRecordings(t *testing.T) {
	count := map[string]int{}
	for _, r := range recordings(t, "claude") {
		t.Run(r.name, func(t *testing.T) {
			w := foldScript(t, api.AgentClaude, claudeScript(t, r))
			if s := w.f.Summary(); s.Unknown+s.Garbage > 0 {
				t.Errorf("%d lines are unknown, %d are no JSON", s.Unknown, s.Garbage)
			}
			lines := w.entities()
			for i := range lines {
				lines[i] = shorter(lines[i])
			}
			golden(t, "testdata/golden/"+r.name+".txt", strings.Join(lines, "\n")+"\n")
		})
		count[strings.Split(r.name, "/")[0]]++
	}
	want := map[string]int{"claude-2.1.325-stream": 66, "claude-2.1.197-stream": 12, "claude-2.1.325-dialogue": 14}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("recordings (-want +got):\n%s", diff)
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *updateGolden {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the transcript differs (-want +got); review it and use -update:\n%s", diff)
	}
}
