package agents

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// TestFirstCommand goes from nothing to the first command that Claude Code runs
// through TRL, on a Debian on which nothing was ever installed but Claude Code:
// the script that brings the binary, the command of docs/agents.md, the question.
func TestFirstCommand(t *testing.T) {
	release := os.Getenv("TRL_DIST")
	if release == "" {
		trltest.Need(t, os.ErrNotExist) // `.ci/run agents` makes one
	}
	system := trltest.NewSystem(t)
	bare := claude
	bare.configure = func(*rig) {}
	r := start(t, bare)
	r.apart = true
	files := httptest.NewServer(http.FileServer(http.Dir(release)))
	t.Cleanup(files.Close)
	// The agent, and what a person fetches the script with.
	native, err := filepath.EvalSymlinks(filepath.Join(r.bin, "claude"))
	if err != nil {
		t.Fatal(err)
	}
	busybox, err := exec.LookPath("busybox")
	trltest.Need(t, err)
	for from, to := range map[string]string{native: "usr/local/bin/claude", busybox: "usr/local/bin/wget"} {
		if out, err := exec.Command("cp", from, system.Path(to)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	r.model.expect(
		func(given) reply { return use("run", object{"command": "echo The first of $(uname)"}) },
		func(g given) reply { return say("It printed: " + g.said()) },
	)
	commands := []string{
		"wget -qO- " + files.URL + "/install.sh | sh",
		strings.TrimSpace(block(t, "claude mcp add")),
		`claude -p "Run a command." --allowedTools mcp__trl`,
	}
	// A person's login has a directory for sockets, which agents do not always
	// tell their servers.
	script := "mkdir -p /root/project; cd /root/project; mkdir -p -m 700 /run/user/0; export PATH=/root/.local/bin:$PATH\n"
	for i, command := range commands {
		script += command + "\n" + "echo took " + strconv.Itoa(i+1) + " $(cut -d' ' -f1 /proc/uptime)\n"
	}
	out, err := system.Command("echo took 0 $(cut -d' ' -f1 /proc/uptime)\n"+script+"XDG_RUNTIME_DIR=/run/user/0 trl stop\n", append(r.env(r), "TRL_BASE_URL="+files.URL)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "It printed: exit 0") || !strings.Contains(string(out), "The first of Linux") {
		t.Errorf("the agent says:\n%s", out)
	}
	r.model.over()
	var before float64
	var times []string
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "took" {
			continue
		}
		now, err := strconv.ParseFloat(fields[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		if fields[1] != "0" {
			times = append(times, strconv.FormatFloat(now-before, 'f', 2, 64)+" s")
		}
		before = now
	}
	t.Logf("%d commands to the first one through Claude Code: %s", len(commands), strings.Join(times, ", "))
}
