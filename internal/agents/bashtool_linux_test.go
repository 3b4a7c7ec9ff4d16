package agents

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// bashToolVariable names the directory where npm has installed the frameworks, at
// the versions of bashtool/package.json.
const bashToolVariable = "TRL_BASH_TOOL_DIR"

// example is a program of docs/bash-tool.md.
type example struct {
	name string // of its block, without .ts
	wire wire
	env  func(url string) []string // the address of the model
	tool string
	// args returns the arguments of a call; a timeout of 0 is none.
	args func(command string, timeoutMS int) object
	// ended is what the model reads of a command that ended by itself, and timedOut
	// of one that was killed.
	ended, timedOut string
	// session is the name of the session, and kept says that it outlives the program.
	session string
	kept    bool
}

// ownTool is the tool of bash-tool.ts.
func ownTool(name string, w wire, env func(url string) []string) example {
	return example{
		name: name, wire: w, env: env, tool: "bash", session: "agent",
		args: func(command string, timeoutMS int) object {
			if timeoutMS == 0 {
				return object{"command": command, "timeoutMs": nil}
			}
			return object{"command": command, "timeoutMs": timeoutMS}
		},
		ended: "[exit code 0; in ", timedOut: "[timed out and was killed; in ",
	}
}

func anthropicAt(url string) []string { return []string{"ANTHROPIC_BASE_URL=" + url} }

// vercelAt is anthropicAt for a client that adds no version to the path.
func vercelAt(url string) []string { return []string{"ANTHROPIC_BASE_URL=" + url + "/v1"} }

func openaiAt(url string) []string {
	return []string{"OPENAI_BASE_URL=" + url + "/v1", "OPENAI_AGENTS_DISABLE_TRACING=1"}
}

func examples() []example {
	return []example{
		ownTool("claude", anthropic{prefix: claudePrefix}, anthropicAt),
		{
			name: "claude-mcp", wire: anthropic{prefix: claudePrefix}, env: anthropicAt, tool: "run", session: "main", kept: true,
			args: func(command string, timeoutMS int) object {
				return object{"command": command, "timeout_s": float64(timeoutMS) / 1000}
			},
			ended: "exit 0 in ", timedOut: "timed out",
		},
		ownTool("openai", openai{}, openaiAt),
		ownTool("langchain", anthropic{}, anthropicAt),
		ownTool("vercel", anthropic{}, vercelAt),
	}
}

// TestBashTool runs each program of docs/bash-tool.md with a scripted model: its
// commands run in one session, whose state stays, one after the other. The model
// reads what they print, and that one timed out.
func TestBashTool(t *testing.T) {
	dir := compileExamples(t)
	for _, e := range examples() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			e.run(t, filepath.Join(dir, e.name+".js"))
		})
	}
}

func (e example) run(t *testing.T, program string) {
	r := newRig(t, agent{
		name: e.name, wire: e.wire, configure: func(*rig) {},
		env: func(r *rig) []string {
			return append(e.env(r.model.URL), "ANTHROPIC_API_KEY="+r.key(), "OPENAI_API_KEY="+r.key(),
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1")
		},
	}, filepath.Dir(program))
	run := func(command string, timeoutMS int) call { return call{e.tool, e.args(command, timeoutMS)} }
	calls := func(c ...call) turn { return func(modelInput) reply { return reply{calls: c} } }
	r.model.expect(
		calls(run("mkdir sub && cd sub; greeting=bonjour; echo first; echo oops >&2", 0)),
		calls(run(`echo "$greeting from ${PWD##*/}"`, 0)),
		calls(run("echo begun; sleep 600", 500)),
		calls(run("sleep 0.3; echo one of two", 0), run("echo two of two", 0)),
		func(modelInput) reply { return say("The script is done.") },
	)
	out, err := r.command("node", program, "Run five commands.").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "The script is done.") {
		t.Errorf("the program printed:\n%s", out)
	}
	wants := [][]string{
		nil, {"first\noops", e.ended}, {"bonjour from sub", e.ended}, {"begun", e.timedOut}, {"one of two", "two of two", e.ended},
	}
	for i, input := range r.model.checkDone() {
		read := texts(input.results)
		for _, want := range wants[i] {
			if !strings.Contains(read, want) {
				t.Errorf("turn %d: %q is not in what the model reads:\n%s", i+1, want, read)
			}
		}
		if strings.Contains(input.body, `"name":"Bash"`) {
			t.Errorf("turn %d: the model has the built-in tool too", i+1)
		}
	}
	e.checkSession(t, r)
}

// checkSession checks that all commands ran in one session of the daemon that was
// started for the program.
func (e example) checkSession(t *testing.T, r *rig) {
	c, err := client.DialWith(t.Context(), filepath.Join(r.dir, "run", "trl", "trl.sock"), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list, err := c.ListSessions(t.Context(), api.SessionListParams{})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s: 5 commands, kept: %t", e.session, e.kept)
	var got []string
	for _, s := range list.Sessions {
		got = append(got, fmt.Sprintf("%s: %d commands, kept: %t", s.Name, s.ExecCount, s.State != api.StateTerminated))
	}
	if len(got) != 1 || got[0] != want {
		t.Errorf("the sessions are %q, want %q", got, want)
	}
}

// compileExamples compiles the programs as the page says, where the frameworks and
// the client of this tree are found, and returns the directory.
func compileExamples(t *testing.T) string {
	installed := os.Getenv(bashToolVariable)
	if installed == "" {
		trltest.Need(t, fmt.Errorf("%s is not set: it names the directory of the frameworks (`.ci/run agents` installs them)", bashToolVariable))
	}
	dir, err := os.MkdirTemp(installed, "run-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	sdk, err := filepath.Abs("../../sdk/typescript")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "node_modules"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sdk, filepath.Join(dir, "node_modules", "trl-client")); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"package.json": `{"type": "module"}`, "bash-tool.ts": blockOf(t, bashToolPage, "bash-tool.ts")}
	args := []string{"--target", "es2022", "--module", "nodenext", "--rewriteRelativeImportExtensions", "--skipLibCheck", "--strict"}
	for _, e := range examples() {
		files[e.name+".ts"] = blockOf(t, bashToolPage, e.name+".ts")
		args = append(args, e.name+".ts")
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tsc := exec.CommandContext(t.Context(), filepath.Join(installed, "node_modules", ".bin", "tsc"), args...)
	tsc.Dir = dir
	if out, err := tsc.CombinedOutput(); err != nil {
		t.Fatalf("tsc: %v\n%s", err, out)
	}
	return dir
}
