package fold

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// rpcMessage is a line of Codex or ACP.
type rpcMessage struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
}

func readMessage(t testing.TB, line []byte) (m rpcMessage) {
	t.Helper()
	if err := json.Unmarshal(line, &m); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return m
}

// runsOf groups the recordings of the same conversation: NAME_1 and NAME_2 are two
// processes, one after the other.
func runsOf(all []recording) (grouped [][]recording) {
	for _, r := range all {
		if base, ok := strings.CutSuffix(r.name, "_2"); ok && len(grouped) > 0 {
			if last := grouped[len(grouped)-1]; last[0].name == base+"_1" {
				grouped[len(grouped)-1] = append(last, r)
				continue
			}
		}
		grouped = append(grouped, []recording{r})
	}
	return grouped
}

// rpcScript makes the inputs of a fold from recordings of an agent that speaks
// JSON-RPC, one for each run. What their driver sent becomes records, in its place. The lines that
// the fold tells are compared with those of the driver, whose ids are replaced by
// those of the fold.
type rpcScript struct {
	t      testing.TB
	agent  api.Agent
	f      *Fold
	script []step
	strict bool              // the driver sent what the fold tells
	want   [][]byte          // lines of the driver that the fold has not told yet
	got    [][]byte          // lines of the fold that the driver has not sent yet
	ids    map[string]string // of the driver's requests, by ours
	told   map[string]bool
}

// handshake are the requests that a fold makes by itself.
var handshake = []string{
	"initialize", "initialized", "thread/start", "thread/resume", "thread/fork", "thread/turns/list", "session/new", "session/load", "session/resume",
}

func newRPCScript(t testing.TB, agent api.Agent, runs []recording) *rpcScript {
	t.Helper()
	s := &rpcScript{t: t, agent: agent, f: New(Config{Agent: agent}), told: map[string]bool{}}
	for i := range runs {
		s.run(i+1, &runs[i])
	}
	s.apply(&Record{Kind: RecordEnd, At: testTime, Reason: api.DialogueFinished})
	return s
}

// apply applies a record, and what it lets the fold tell.
func (s *rpcScript) apply(r *Record) bool {
	s.t.Helper()
	if err := s.f.Apply(*r); err != nil {
		var e *api.Error
		if !errors.As(err, &e) {
			s.t.Fatal(err)
		}
		return false
	}
	s.script = append(s.script, step{rec: r})
	s.write()
	return true
}

// write writes what the fold tells.
func (s *rpcScript) write() {
	s.t.Helper()
	lines, err := s.f.Lines()
	if err != nil {
		s.t.Fatal(err)
	}
	var keys []string
	for _, l := range lines {
		if s.told[l.Key] {
			s.t.Fatalf("the key %s comes back", l.Key)
		}
		s.told[l.Key] = true
		keys = append(keys, l.Key)
		s.got = append(s.got, l.Data)
	}
	if keys != nil {
		s.apply(&Record{Kind: RecordWritten, Keys: keys, At: testTime})
	}
	s.compare()
}

// compare pairs the lines of the fold with those of the driver.
func (s *rpcScript) compare() {
	s.t.Helper()
	for len(s.got) > 0 && len(s.want) > 0 {
		got, want := readMessage(s.t, s.got[0]), readMessage(s.t, s.want[0])
		if got.Method != want.Method {
			s.t.Errorf("told %s\nthe driver sent %s", s.got[0], s.want[0])
		}
		if got.Method != "" && got.ID != nil {
			s.ids[string(want.ID)] = string(got.ID)
		} else if !bytes.Equal(got.ID, want.ID) {
			s.t.Errorf("told %s\nthe driver sent %s", s.got[0], s.want[0])
		}
		if s.strict && !bytes.Contains(s.want[0], []byte(`"readTextFile"`)) { // one driver offers more
			for _, pair := range [][2]json.RawMessage{{got.Params, want.Params}, {got.Result, want.Result}} {
				var g, w any
				_, _ = json.Unmarshal(pair[0], &g), json.Unmarshal(pair[1], &w)
				if !reflect.DeepEqual(g, w) {
					s.t.Errorf("told %s\nthe driver sent %s", s.got[0], s.want[0])
				}
			}
		}
		s.got, s.want = s.got[1:], s.want[1:]
	}
}

func (s *rpcScript) run(n int, r *recording) {
	t := s.t
	t.Helper()
	var sent [][]byte
	for line := range bytes.Lines(r.stdin) {
		sent = append(sent, line)
	}
	out := slices.Collect(bytes.Lines(r.stdout))
	after := r.meta.After
	s.strict = after != nil
	if after == nil {
		after = placesOf(t, sent, out)
	}
	s.ids, s.told = map[string]string{}, map[string]bool{}
	start := &Start{Cwd: "/home/dev/project", Version: "0"}
	if s.agent == api.AgentCodex {
		start.Mode = "untrusted/workspace-write"
	}
	for _, line := range sent {
		m := readMessage(t, line)
		var p struct{ ThreadID, SessionID, LastTurnID, Sandbox, Cwd string }
		_ = json.Unmarshal(m.Params, &p)
		switch m.Method {
		case "thread/start":
			start.Cwd = p.Cwd
		case "thread/resume":
			start.NativeID, start.Resume = p.ThreadID, true
			if p.Sandbox == "" {
				start.Mode = "untrusted"
			}
		case "thread/fork":
			start.NativeID, start.Fork, start.ForkAt = p.ThreadID, true, p.LastTurnID
		case "session/load":
			start.NativeID, start.Resume = p.SessionID, true
		}
	}
	s.apply(&Record{Kind: RecordRun, Run: n, At: testTime, NativeID: start.NativeID, Start: start})
	for i := 0; ; i++ {
		for len(sent) > 0 && after[0] <= i {
			line := sent[0]
			sent, after = sent[1:], after[1:]
			s.send(line)
		}
		if i == len(out) {
			break
		}
		line := s.renumber(out[i])
		s.script = append(s.script, step{out: line})
		s.f.Feed(Chunk{Offset: s.f.Offset(), Data: line})
		s.write()
	}
	if s.strict && len(s.want)+len(s.got) > 0 && r.meta.Signal == "" && s.f.Summary().Failed == "" {
		t.Errorf("the driver sent also %s\ntold also %s", s.want, s.got)
	}
	s.want, s.got = nil, nil
	if r.meta.Stderr != "" {
		s.script = append(s.script, step{err: []byte(r.meta.Stderr)})
		s.f.Feed(Chunk{Offset: s.f.Offset(), Data: []byte(r.meta.Stderr), Stderr: true})
	}
	exit := &Exit{ExitCode: r.meta.ExitCode, Expected: true, StartedOK: s.f.isReady}
	switch {
	case r.meta.Signal != "":
		exit.Signal, exit.Expected = "SIGKILL", false
	case exit.ExitCode == nil:
		exit.ExitCode = &r.meta.Exit
	}
	s.apply(&Record{Kind: RecordExit, Exit: exit, At: testTime})
}

// renumber gives the answer to a request of the driver the id that the fold gave it.
func (s *rpcScript) renumber(line []byte) []byte {
	m := readMessage(s.t, line)
	if m.Method != "" || m.ID == nil {
		return line
	}
	id, ok := s.ids[string(m.ID)]
	if !ok {
		id = "9" + string(m.ID) // the driver has asked for what the fold never asks
	}
	return bytes.Replace(line, []byte(`"id":`+string(m.ID)), []byte(`"id":`+id), 1)
}

// placesOf says after which lines of output the lines of a driver were sent, if it did
// not note that: a request before its answer, an answer after its request, and a
// prompt of ACP after the answer to what was asked before it.
func placesOf(t testing.TB, sent, out [][]byte) (after []int) {
	find := func(request bool, id json.RawMessage) int {
		for i, line := range out {
			m := readMessage(t, line)
			if bytes.Equal(m.ID, id) && (m.Method != "") == request {
				return i
			}
		}
		return len(out)
	}
	last, answered := 0, 0
	for _, line := range sent {
		m := readMessage(t, line)
		at := last
		switch {
		case m.Method == "":
			at = find(true, m.ID) + 1
		case strings.HasPrefix(m.Method, "session/"):
			at, answered = answered, find(false, m.ID)+1
		case m.ID != nil:
			at = find(false, m.ID)
			answered = at + 1
		}
		last = max(last, min(at, len(out)))
		after = append(after, last)
	}
	return after
}

// send makes a record of a line that the driver sent.
func (s *rpcScript) send(line []byte) {
	t := s.t
	t.Helper()
	m := readMessage(t, line)
	switch {
	case slices.Contains(handshake, m.Method):
		s.want = append(s.want, line)
		s.compare()
	case m.Method == "turn/start" || m.Method == "session/prompt":
		var p struct {
			ClientUserMessageID string
			Input, Prompt       []struct{ Text string }
			Model               string
		}
		if err := json.Unmarshal(m.Params, &p); err != nil {
			t.Fatal(err)
		}
		if p.Model != "" { // the fold says it by itself
			s.apply(&Record{Kind: RecordSet, Model: p.Model, At: testTime})
			s.got = nil
		}
		key := p.ClientUserMessageID
		if key == "" || s.f.get("u:"+key) != nil && m.Method == "turn/start" && s.f.get("u:"+key).Delivery != "written" {
			key = "k" + strconv.Itoa(len(s.script))
			line = regexp.MustCompile(`"clientUserMessageId":"[^"]*"`).ReplaceAll(line, []byte(`"clientUserMessageId":"`+key+`"`))
		}
		if p.Model != "" {
			line = bytes.Replace(line, []byte(`"model":"`+p.Model+`",`), nil, 1)
		}
		s.want = append(s.want, line)
		s.apply(&Record{Kind: RecordMessage, ID: "u:" + key, Key: key, Text: append(p.Input, p.Prompt...)[0].Text, By: "alice", At: testTime})
	case m.Method == "turn/interrupt" || m.Method == "session/cancel":
		n := len(s.script)
		s.want = append(s.want, line)
		s.apply(&Record{Kind: RecordInterrupt, By: "alice", At: testTime})
		if len(s.script) == n+1 { // there was nothing to stop
			s.want = s.want[:len(s.want)-1]
		}
	case m.Method == "thread/settings/update" || m.Method == "session/set_model" || m.Method == "session/set_mode":
		var p struct {
			ModelID, ModeID, ApprovalPolicy string
			SandboxPolicy                   *struct{ Type string }
		}
		if err := json.Unmarshal(m.Params, &p); err != nil {
			t.Fatal(err)
		}
		mode := cmpOr(p.ModeID, p.ApprovalPolicy)
		if p.SandboxPolicy != nil {
			mode += "/danger-full-access"
		}
		s.want = append(s.want, line)
		s.apply(&Record{Kind: RecordSet, Model: p.ModelID, Mode: mode, At: testTime})
	case m.Method != "":
		// Something that a fold never asks for.
	case m.Error != nil || strings.Contains(string(m.Result), `"outcome":"cancelled"`):
		s.want = append(s.want, line)
		s.compare()
	default:
		s.want = append(s.want, line)
		if !s.apply(&Record{Kind: RecordAnswer, ID: name("q:"+strconv.Itoa(s.f.run)+":", string(m.ID)), Answer: rpcAnswer(t, m.Result), By: "alice", At: testTime}) {
			s.want = s.want[:len(s.want)-1] // too late
		}
	}
}

// rpcAnswer reads the answer of a driver.
func rpcAnswer(t testing.TB, result json.RawMessage) *api.DialogueAnswer {
	t.Helper()
	var r struct {
		Decision json.RawMessage
		Outcome  struct{ OptionID string }
		Answers  map[string]struct{ Answers []string }
	}
	if err := json.Unmarshal(result, &r); err != nil {
		t.Fatal(err)
	}
	a := &api.DialogueAnswer{Option: r.Outcome.OptionID}
	var rule map[string]any
	if json.Unmarshal(r.Decision, &a.Option) != nil && json.Unmarshal(r.Decision, &rule) == nil {
		a.Option, a.Suggestion = "accept", new(int)
	}
	for id, v := range r.Answers {
		text, err := json.Marshal(v.Answers[0])
		if err != nil {
			t.Fatal(err)
		}
		a.Option, a.Values = "answer", map[string]json.RawMessage{id: text}
	}
	return a
}

// rpcAgents are the agents whose recordings rpcScript reads.
var rpcAgents = []struct {
	agent api.Agent
	name  string
}{{api.AgentCodex, "codex"}, {api.AgentGemini, "gemini"}}

// unasked are answers to what only the drivers of some recordings asked: methods that
// do not exist, and prompts after session/load had failed.
var unasked = map[string]int64{"wrong_requests": 2, "set": 1, "loaded": 1, "loaded_after_kill": 1, "gemini_acp_load_after_eof": 1}

// TestRecordingsOfRPC folds what Codex and Gemini CLI wrote, checks that the fold
// tells them what the drivers of the recordings did, and compares the transcripts
// with those that were reviewed. -update writes them.
func TestRecordingsOfRPC(t *testing.T) {
	for _, agent := range rpcAgents {
		count := 0
		for _, runs := range runsOf(recordings(t, agent.name)) {
			count += len(runs)
			base := strings.TrimSuffix(runs[0].name, "_1")
			t.Run(base, func(t *testing.T) {
				w := foldScript(t, agent.agent, newRPCScript(t, agent.agent, runs).script)
				s := w.f.Summary()
				if odd := unasked[base[strings.LastIndexByte(base, '/')+1:]]; s.Unknown != odd || s.Garbage > 0 {
					t.Errorf("%d lines are unknown, %d are no JSON", s.Unknown, s.Garbage)
				}
				lines := w.entities()
				for i := range lines {
					lines[i] = shorter(lines[i])
				}
				golden(t, "testdata/golden/"+base+".txt", strings.Join(lines, "\n")+"\n")
			})
		}
		if count < 14 {
			t.Errorf("%s: only %d recordings", agent.name, count)
		}
	}
}
