package agents

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tools are what `trl mcp` offers.
var tools = []string{"input", "output", "run", "screen", "sessions", "stop"}

// execID is the id of a command, as tools tell it.
var execID = regexp.MustCompile(`\be-[0-9a-z]+`)

// step is a call and what the model must read of its result.
type step struct {
	about string
	// call is made with the id of the last command that was run.
	call func(exec string) reply
	// begins is how the result begins, has what is in it.
	begins string
	has    []string
	// failed says that the call itself is refused.
	failed bool
}

// every calls every tool, as a model would.
var every = []step{
	{
		about: "run", call: with("run", object{"command": "mkdir -p sub && cd sub && echo first $((40+2))"}),
		begins: "exit 0", has: []string{"first 42"},
	},
	{
		about: "the session keeps its directory", call: with("run", object{"command": "basename \"$PWD\"; exit_with() { return 3; }; exit_with"}),
		begins: "exit 3", has: []string{"\nsub"},
	},
	{
		about: "nothing of the agent's own is in the session", call: with("run", object{"command": "env | grep -E '_KEY=|TOKEN|CLAUDE|CODEX|GEMINI' || echo nothing"}),
		begins: "exit 0", has: []string{"\nnothing"},
	},
	{
		about: "run goes on beyond wait_s", call: with("run", object{"command": "echo begun; read -r line; echo got $line", "wait_s": 1, "session": "asks", "tty": true}),
		has: []string{"begun"},
	},
	{about: "screen", call: with("screen", object{"session": "asks"}), has: []string{"begun"}},
	{about: "input", call: onExec("input", object{"text": "words", "keys": []string{"enter"}}), has: []string{"words"}},
	{
		about: "output until exit", call: onExec("output", object{"until": "exit", "wait_s": 20}),
		begins: "exit 0", has: []string{"got words"},
	},
	{
		// It is told by its name, which it has a moment after it was forked.
		about: "a process that is left behind", call: with("run", object{"command": "sleep 1000 & until grep -q sleep /proc/$!/comm; do :; done; echo left"}),
		begins: "exit 0", has: []string{"left", "sleep 1000"},
	},
	{about: "sessions", call: with("sessions", nil), has: []string{"main", "asks", "sleep 1000"}},
	{about: "stop", call: onExec("stop", nil), has: []string{"e-"}},
	{about: "nothing runs", call: with("run", object{"command": "kill -0 $! 2>&1 || echo none"}), begins: "exit 0", has: []string{"none"}},
	{about: "a call that can't be", call: with("output", object{"exec": "e-0000000000"}), has: []string{"EXEC_NOT_FOUND"}, failed: true},
	{about: "stop a session", call: with("stop", object{"session": "asks"}), has: []string{"asks"}},
}

func with(tool string, args object) func(string) reply {
	return func(string) reply { return use(tool, args) }
}

// onExec calls a tool about the last command.
func onExec(tool string, args object) func(string) reply {
	return func(exec string) reply {
		all := object{"exec": exec}
		for name, value := range args {
			all[name] = value
		}
		return use(tool, all)
	}
}

// check says what is wrong with what the model was told of a step, and returns
// the command that the next steps are about.
func (s step) check(t *testing.T, said, exec string) string {
	t.Helper()
	if !strings.HasPrefix(said, s.begins) {
		t.Errorf("%s: the result does not begin with %q:\n%s", s.about, s.begins, said)
	}
	for _, part := range s.has {
		if !strings.Contains(said, part) {
			t.Errorf("%s: the result does not have %q:\n%s", s.about, part, said)
		}
	}
	if s.call(exec).calls[0].tool == "run" {
		return execID.FindString(said)
	}
	return exec
}

// TestTools lets each agent call every tool, and looks at what its model is told.
func TestTools(t *testing.T) {
	for _, a := range []agent{claude, codex, geminiCLI} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel() // agents mostly wait
			r := start(t, a)
			exec := ""
			var script []turn
			for i := range every {
				script = append(script, func(g given) reply {
					if i > 0 {
						exec = every[i-1].check(t, g.said(), exec)
					}
					return every[i].call(exec)
				})
			}
			script = append(script, func(g given) reply {
				every[len(every)-1].check(t, g.said(), exec)
				return say("All tools were called.")
			})
			r.model.expect(script...)
			if out := r.run(r.begin("Call every tool.")); !strings.Contains(out, "All tools were called.") {
				t.Errorf("the agent does not tell what its model said:\n%s", out)
			}
			seen := r.model.over()
			if len(seen) == 0 {
				return
			}
			listed := slices.Clone(seen[0].tools)
			slices.Sort(listed)
			if diff := cmp.Diff(tools, listed); diff != "" {
				t.Errorf("tools before the model (-want +got):\n%s", diff)
			}
			if !strings.Contains(seen[0].body, "sessions first") {
				t.Error("the model is not told the instructions of the server")
			}
			for i, g := range seen[1:] {
				if told := g.results[0].failed; a.wire != (openai{}) && told != every[i].failed {
					t.Errorf("%s: the model is told that the call failed: %v", every[i].about, told)
				}
			}
		})
	}
}
