package agents

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tools are the names of the tools of `trl mcp`.
var tools = []string{"input", "output", "run", "screen", "sessions", "stop"}

// execID matches the id of a command in a reply.
var execID = regexp.MustCompile(`\be-[0-9a-z]+`)

// step is a call, and what the model must read in its result.
type step struct {
	about string
	// call makes the call. exec is the id of the last command that was run.
	call func(exec string) reply
	// begins is a prefix of the result, has are parts of it.
	begins string
	has    []string
	// failed means that the call itself must fail.
	failed bool
}

// allSteps calls every tool, as a model would.
var allSteps = []step{
	{
		about: "run", call: with("run", object{"command": "mkdir -p sub && cd sub && echo first $((40+2))"}),
		begins: "exit 0", has: []string{"first 42"},
	},
	{
		about: "the session keeps its directory", call: with("run", object{"command": "basename \"$PWD\"; exit_with() { return 3; }; exit_with"}),
		begins: "exit 3", has: []string{"\nsub"},
	},
	{
		about: "the agent's variables are not in the session", call: with("run", object{"command": "env | grep -E '_KEY=|TOKEN|CLAUDE|CODEX|GEMINI' || echo nothing"}),
		begins: "exit 0", has: []string{"\nnothing"},
	},
	{
		about: "the command keeps running after wait_s", call: with("run", object{"command": "echo begun; read -r line; echo got $line", "wait_s": 1, "session": "asks", "tty": true}),
		has: []string{"begun"},
	},
	{about: "screen", call: with("screen", object{"session": "asks"}), has: []string{"begun"}},
	{about: "input", call: onExec("input", object{"text": "words", "keys": []string{"enter"}}), has: []string{"words"}},
	{
		about: "output until exit", call: onExec("output", object{"until": "exit", "wait_s": 20}),
		begins: "exit 0", has: []string{"got words"},
	},
	{
		// The process gets its name only a moment after the fork.
		about: "a process that is left running", call: with("run", object{"command": "sleep 1000 & until grep -q sleep /proc/$!/comm; do :; done; echo left"}),
		begins: "exit 0", has: []string{"left", "sleep 1000"},
	},
	{about: "sessions", call: with("sessions", nil), has: []string{"main", "asks", "sleep 1000"}},
	{about: "stop", call: onExec("stop", nil), has: []string{"e-"}},
	{about: "nothing runs", call: with("run", object{"command": "kill -0 $! 2>&1 || echo none"}), begins: "exit 0", has: []string{"none"}},
	{about: "a call for an unknown command", call: with("output", object{"exec": "e-0000000000"}), has: []string{"EXEC_NOT_FOUND"}, failed: true},
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

// check checks the result of a step, and returns the id of the command for the next
// steps.
func (s step) check(t *testing.T, text, exec string) string {
	t.Helper()
	if !strings.HasPrefix(text, s.begins) {
		t.Errorf("%s: the result does not begin with %q:\n%s", s.about, s.begins, text)
	}
	for _, part := range s.has {
		if !strings.Contains(text, part) {
			t.Errorf("%s: the result does not contain %q:\n%s", s.about, part, text)
		}
	}
	if s.call(exec).calls[0].tool == "run" {
		return execID.FindString(text)
	}
	return exec
}

// TestTools lets each agent call every tool, and checks what its model gets.
func TestTools(t *testing.T) {
	for _, a := range []agent{claude, codex, geminiCLI} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel() // agents mostly wait
			r := start(t, a)
			exec := ""
			var script []turn
			for i := range allSteps {
				script = append(script, func(g modelInput) reply {
					if i > 0 {
						exec = allSteps[i-1].check(t, g.toolText(), exec)
					}
					return allSteps[i].call(exec)
				})
			}
			script = append(script, func(g modelInput) reply {
				allSteps[len(allSteps)-1].check(t, g.toolText(), exec)
				return say("All tools were called.")
			})
			r.model.expect(script...)
			if out := r.run(r.begin("Call every tool.")); !strings.Contains(out, "All tools were called.") {
				t.Errorf("the agent does not print its model's last message:\n%s", out)
			}
			seen := r.model.checkDone()
			if len(seen) == 0 {
				return
			}
			listed := slices.Clone(seen[0].tools)
			slices.Sort(listed)
			if diff := cmp.Diff(tools, listed); diff != "" {
				t.Errorf("tools in the request to the model (-want +got):\n%s", diff)
			}
			if !strings.Contains(seen[0].body, "sessions first") {
				t.Error("the model does not get the instructions of the server")
			}
			for i, g := range seen[1:] {
				if failed := g.results[0].failed; a.wire != codex.wire && failed != allSteps[i].failed {
					t.Errorf("%s: the result is marked as failed: %v", allSteps[i].about, failed)
				}
			}
		})
	}
}
