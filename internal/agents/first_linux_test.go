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

// TestFirstCommand goes from a fresh Debian, on which only Claude Code is installed,
// to the first command that Claude Code runs through TRL: the install script, the
// command of docs/agents.md, the prompt.
func TestFirstCommand(t *testing.T) {
	release := os.Getenv("TRL_DIST")
	if release == "" {
		trltest.Need(t, os.ErrNotExist) // `.ci/run agents` builds one
	}
	system := trltest.NewSystem(t)
	bare := claude
	bare.configure = func(*rig) {}
	r := start(t, bare)
	r.ownSystem = true
	files := httptest.NewServer(http.FileServer(http.Dir(release)))
	t.Cleanup(files.Close)
	// The agent, and wget to fetch the script.
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
		func(modelInput) reply { return use("run", object{"command": "echo The first of $(uname)"}) },
		func(g modelInput) reply { return say("It printed: " + g.toolText()) },
	)
	commands := []string{
		"wget -qO- " + files.URL + "/install.sh | sh",
		strings.TrimSpace(block(t, "claude mcp add")),
		`claude -p "Run a command." --allowedTools mcp__trl`,
	}
	// A login session has a directory for sockets, but agents do not always pass
	// its variable to their servers.
	script := "mkdir -p /root/project; cd /root/project; mkdir -p -m 700 /run/user/0; export PATH=/root/.local/bin:$PATH\n"
	for i, command := range commands {
		script += command + "\n" + "echo took " + strconv.Itoa(i+1) + " $(cut -d' ' -f1 /proc/uptime)\n"
	}
	out, err := system.Command("echo took 0 $(cut -d' ' -f1 /proc/uptime)\n"+script+"XDG_RUNTIME_DIR=/run/user/0 trl stop\n", append(r.env(r), "TRL_BASE_URL="+files.URL)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "It printed: exit 0") || !strings.Contains(string(out), "The first of Linux") {
		t.Errorf("the agent printed:\n%s", out)
	}
	r.model.checkDone()
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
