package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFirstCommand goes from nothing to the first command that Claude Code runs
// through TRL, in three commands: one that brings the binary, the one of
// docs/agents.md, and the question itself. The home is empty but for them.
func TestFirstCommand(t *testing.T) {
	bare := claude
	bare.configure = func(*rig) {}
	r := start(t, bare)
	local := filepath.Join(r.home(), ".local", "bin")
	shell := func(line string) (out string, took time.Duration) {
		t.Helper()
		began := time.Now()
		cmd := r.command("sh", "-c", line)
		// Here trl is only where the first command puts it.
		cmd.Env = append(cmd.Env, "PATH="+strings.Join([]string{local, r.bin, os.Getenv("PATH")}, ":"))
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, text)
		}
		return string(text), time.Since(began)
	}
	r.model.expect(
		func(given) reply { return use("run", object{"command": "echo The first of $(uname)"}) },
		func(g given) reply { return say("It printed: " + g.said()) },
	)
	var times []string
	var out string
	for _, line := range []string{
		"install -D " + r.trl + " " + filepath.Join(local, "trl"),
		strings.TrimSpace(block(t, "claude mcp add")),
		`claude -p "Run a command." --allowedTools mcp__trl`,
	} {
		var took time.Duration
		out, took = shell(line)
		times = append(times, took.Round(time.Millisecond).String())
	}
	if !strings.Contains(out, "It printed: exit 0") || !strings.Contains(out, "The first of Linux") {
		t.Errorf("the agent says:\n%s", out)
	}
	r.model.over()
	t.Logf("three commands to the first one through Claude Code: %s", strings.Join(times, ", "))
}
