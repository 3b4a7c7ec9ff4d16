package fold

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
)

// scripted is a script and the transcript that it must give.
type scripted struct {
	name   string
	agent  api.Agent
	script []step
	want   []string
}

// scriptedRecordings returns the recordings of all agents as scripts. Very large ones
// are left out: they would take most of the time.
func scriptedRecordings(t testing.TB) []scripted {
	t.Helper()
	const large = 512 << 10
	var all []scripted
	for _, r := range recordings(t, "claude") {
		if len(r.stdout) < large {
			all = append(all, scripted{name: r.name, agent: api.AgentClaude, script: claudeScript(t, r)})
		}
	}
	for _, agent := range rpcAgents {
		for _, runs := range runsOf(recordings(t, agent.name)) {
			if len(runs[0].stdout) < large {
				all = append(all, scripted{name: runs[0].name, agent: agent.agent, script: newRPCScript(t, agent.agent, runs).script})
			}
		}
	}
	for i := range all {
		all[i].want = foldScript(t, all[i].agent, all[i].script).entities()
	}
	return all
}

// random returns a source of random numbers whose seed is printed if the test fails.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

// randomFeed feeds a script in random pieces, with rewinds and repetitions, and at
// times restores the fold from a checkpoint.
func randomFeed(t *testing.T, rnd *rand.Rand, s *scripted) *watched {
	t.Helper()
	w := watch(t, New(Config{Agent: s.agent}))
	if rnd.IntN(16) != 0 {
		w.f.audit = nil // it takes long
	}
	restores := 0 // they take long, too
	if rnd.IntN(3) == 0 {
		restores = 1 + rnd.IntN(2)
	}
	for i := 0; i < len(s.script); {
		st := s.script[i]
		if st.out == nil {
			w.step(st)
			i++
			continue
		}
		// All output up to the next record.
		var out []byte
		for ; i < len(s.script) && s.script[i].out != nil; i++ {
			out = append(out, s.script[i].out...)
		}
		base := w.f.Offset()
		largest := 1 + rnd.IntN(1+len(out)/(1+rnd.IntN(20)))
		for pos := 0; pos < len(out); {
			to := min(len(out), pos+1+rnd.IntN(largest))
			from := pos
			if rnd.IntN(4) == 0 {
				from -= rnd.IntN(pos + 1)
			}
			w.f.Feed(Chunk{Offset: base + int64(from), Data: out[from:to]})
			w.drain()
			pos = to
			if restores > 0 && rnd.IntN(8) == 0 {
				restores--
				w.restore()
			}
		}
	}
	return w
}

// restore goes on with another fold, made of a checkpoint.
func (w *watched) restore() {
	w.t.Helper()
	audit := w.f.audit
	data := w.f.Checkpoint()
	f, err := Restore(w.f.cfg, data)
	if err != nil {
		w.t.Fatal(err)
	}
	if again := f.Checkpoint(); !bytes.Equal(data, again) {
		w.t.Fatalf("a checkpoint\n%s\nis restored as\n%s", data, again)
	}
	if got, want := f.Position(), w.f.Position(); got != want || f.Offset() != w.f.Offset() {
		w.t.Fatalf("restored at %v and %d, not %v and %d", got, f.Offset(), want, w.f.Offset())
	}
	w.f = f
	if audit != nil {
		watchAgain := f
		f.audit = func() { auditFold(w.t, watchAgain) }
	}
}

// TestAnyFeedGivesTheSameTranscript cuts, rewinds and repeats the output of the
// recordings at random, and restores the fold from checkpoints at any byte.
func TestAnyFeedGivesTheSameTranscript(t *testing.T) {
	rnd := random(t)
	all := scriptedRecordings(t)
	feeds := 4000 // each recording about 45 times
	if testing.Short() {
		feeds = 200
	}
	for i := range feeds {
		s := &all[i%len(all)]
		w := randomFeed(t, rnd, s)
		if diff := cmp.Diff(s.want, w.entities()); diff != "" {
			t.Fatalf("%s, feed %d (-want +got):\n%s", s.name, i, diff)
		}
	}
}

// TestEveryByteIsACheckpoint restores short recordings at each byte.
func TestEveryByteIsACheckpoint(t *testing.T) {
	every := 17
	if testing.Short() {
		every = 97
	}
	for _, s := range scriptedRecordings(t) {
		size := 0
		for _, st := range s.script {
			size += len(st.out)
		}
		if size > 4<<10 && !strings.HasSuffix(s.name, "/text") {
			continue
		}
		w := watch(t, New(Config{Agent: s.agent}))
		for _, st := range s.script {
			if st.out == nil {
				w.step(st)
				w.restore()
				continue
			}
			for i := range st.out {
				w.f.Feed(Chunk{Offset: w.f.Offset(), Data: st.out[i : i+1]})
				w.drain()
				if size < 2<<10 && !testing.Short() || i%every == 0 || i > len(st.out)-3 {
					w.restore()
				}
			}
		}
		if diff := cmp.Diff(s.want, w.entities()); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", s.name, diff)
		}
	}
}

// TestRepeatedAndUnknownLines repeats lines that have a uuid, as an agent does that
// replays, and puts lines in between that nothing is known of.
func TestRepeatedAndUnknownLines(t *testing.T) {
	rnd := random(t)
	strange := []string{
		`{"type":"brand_new","a":{"b":[1,2,"c"]}}`, `{"type":"system","subtype":"brand_new"}`, `{"a":1}`, `{"type":7}`, `{"type":null,"uuid":5}`, `[]`, `7`, `null`,
		``, ` `, "\r", `debug: starting`, `{"type":"assistant"`, `{"type":"assistant"}}`, "\x1b[31mwarning\x1b[0m", "{\xff}", `{"type":"unheard` + "\xff" + `"}`, `"assistant"`,
		`{"type":"control_response","response":{"subtype":"success","request_id":"not-ours"}}`, `{"type":"control_cancel_request","request_id":"never-asked"}`, `{"type":"keep_alive"}`,
	}
	for _, s := range scriptedRecordings(t) {
		want := essence(t, s.want)
		times := 6
		if testing.Short() {
			times = 1
		}
		for range times {
			w := watch(t, New(Config{Agent: s.agent}))
			var had [][]byte
			for _, st := range s.script {
				w.step(st)
				if st.out == nil {
					continue
				}
				if bytes.Contains(st.out, []byte(`"uuid":"`)) {
					had = append(had, st.out)
				}
				if len(had) > 0 && rnd.IntN(3) == 0 {
					w.step(step{out: had[rnd.IntN(len(had))]})
				}
				if rnd.IntN(3) == 0 {
					w.step(step{out: []byte(strange[rnd.IntN(len(strange))] + "\n")})
				}
			}
			if diff := cmp.Diff(want, essence(t, w.entities())); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", s.name, diff)
			}
		}
	}
}

// essence takes the places of lines out of a transcript, and what stands for lines
// that are not known.
func essence(t *testing.T, lines []string) []string {
	t.Helper()
	var out []string
	for _, line := range lines[:len(lines)-1] {
		_, text, _ := strings.Cut(line, " ")
		var e api.DialogueEntity
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		if e.Type == api.EntityUnknown || e.Code == api.DialogueGarbage {
			continue
		}
		e.From, e.Raw = "", nil
		if e.Type == api.EntityMessage && e.Delivery == "" && strings.Contains(lines[len(lines)-1], `"confirms":false`) {
			e.ID = "" // an agent without names for its messages: the place is the name
		}
		out = append(out, asJSON(t, e))
	}
	return out
}

// TestPositions: they are ordered as the transcript, and read back as they are
// written.
func TestPositions(t *testing.T) {
	for _, s := range []string{"", "0.0.0.0", "1.2.3.4", "9.9223372036854775807.9223372036854775807.1"} {
		p, err := ParsePosition(s)
		if err != nil {
			t.Errorf("%q: %v", s, err)
		}
		if got := p.String(); got != s && s != "" {
			t.Errorf("%q is written as %q", s, got)
		}
	}
	for _, s := range []string{"1", "1.2.3", "1.2.3.4.5", "-1.0.0.0", "01.0.0.0", "1.0.0.x", "1.9223372036854775808.0.0", " 1.0.0.0", "1..0.0", "+1.0.0.0"} {
		if p, err := ParsePosition(s); err == nil {
			t.Errorf("%q is read as %v", s, p)
		}
	}
}

// FuzzPosition: what is read is written as it was.
func FuzzPosition(f *testing.F) {
	f.Add("1.2.3.4")
	f.Add("")
	f.Add("1.2.3")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePosition(s)
		if err == nil && s != "" && p.String() != s {
			t.Errorf("%q is read as %v", s, p)
		}
	})
}

// FuzzFeed feeds anything to each adapter, in two ways.
func FuzzFeed(f *testing.F) {
	for _, r := range recordings(f, "claude-2.1.325-dialogue") {
		for i, line := range bytes.SplitAfter(r.stdout, []byte("\n")) {
			if len(line) < 1<<10 && i%8 == 0 {
				f.Add(line, uint8(7))
			}
		}
	}
	f.Add([]byte(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"a","content":7}]},"parent_tool_use_id":"a"}`+"\n"), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, cut uint8) {
		for _, agent := range fuzzedAgents {
			one, two := fuzzFeed(t, agent, data, len(data)), fuzzFeed(t, agent, data, int(cut)+1)
			if diff := cmp.Diff(one, two); diff != "" {
				t.Fatalf("%s: another cut gives another transcript:\n%s", agent, diff)
			}
		}
	})
}

// fuzzedAgents are the agents that have an adapter of their own.
var fuzzedAgents = []api.Agent{api.AgentClaude, api.AgentCodex, api.AgentACP}

func fuzzFeed(t *testing.T, agent api.Agent, data []byte, piece int) []string {
	w := watch(t, New(Config{Agent: agent, MemoryBytes: 64 << 10}))
	w.step(step{rec: &Record{Kind: RecordRun, Run: 1, At: testTime, Start: &Start{Cwd: "/", NativeID: "n"}}})
	w.step(step{rec: &Record{Kind: RecordMessage, ID: "u:11111111-2222-4333-8444-555555555555", Text: "hello"}})
	for len(data) > 0 {
		n := min(piece, len(data))
		w.f.Feed(Chunk{Offset: w.f.Offset(), Data: data[:n]})
		w.drain()
		data = data[n:]
	}
	w.restore()
	if _, err := w.f.Lines(); err != nil {
		t.Fatal(err)
	}
	w.step(step{rec: &Record{Kind: RecordExit, Exit: &Exit{}}})
	w.step(step{rec: &Record{Kind: RecordEnd}})
	for _, p := range w.f.Entities() {
		if openness(&p.Entity) {
			t.Fatalf("%s is open at the end", p.Entity.ID)
		}
	}
	return append(w.entities(), fmt.Sprint(len(w.log)))
}
