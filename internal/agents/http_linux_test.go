package agents

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestOverHTTP lets agents use a daemon over HTTP, as in docs/agents.md, where every
// request gets its own server.
func TestOverHTTP(t *testing.T) {
	for _, c := range []struct {
		agent
		block, file string
	}{
		{claude, "claude over HTTP", ".mcp.json"},
		{codex, "codex over HTTP", filepath.Join(".codex", "config.toml")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			address, token := fmt.Sprint("127.0.0.1:", freePort(t)), ""
			env := c.env
			c.env = func(r *rig) []string { return append(env(r), "TRL_TOKEN="+token) }
			configure := c.configure
			c.configure = func(r *rig) {
				configure(r)
				config := strings.ReplaceAll(block(t, c.block), "127.0.0.1:7040", address)
				if c.wire == codex.wire {
					r.write(filepath.Join(r.home(), c.file), codexModel(r)+config)
				} else {
					r.write(filepath.Join(r.project, c.file), config)
				}
			}
			r := start(t, c.agent)
			out, err := r.command(r.trl, "token", "create", "--scope", "run").Output()
			if err != nil {
				t.Fatal(err)
			}
			token = strings.TrimSpace(string(out))
			if out, err := r.command(r.trl, "serve", "--detach", "--http", address).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var exec string
			r.model.expect(
				func(modelInput) reply { return use("run", object{"command": "cd /usr; x=41", "session": "web"}) },
				func(modelInput) reply {
					return use("run", object{"command": "echo $((x+1)) in $PWD; sleep 3; echo late", "session": "web", "wait_s": 0.5})
				},
				func(g modelInput) reply {
					exec = execID.FindString(g.toolText())
					if !strings.HasPrefix(g.toolText(), "running") && !strings.Contains(g.toolText(), `"state":"running"`) || !strings.Contains(g.toolText(), "42 in /usr") {
						t.Errorf("the model got:\n%s", g.toolText())
					}
					return use("output", object{"exec": exec, "until": "exit"})
				},
				func(g modelInput) reply {
					if !strings.Contains(g.toolText(), "exit 0") || !strings.Contains(g.toolText(), "late") {
						t.Errorf("the model got:\n%s", g.toolText())
					}
					return say("All is done.")
				},
			)
			if out := r.run(r.begin("Work.")); !strings.Contains(out, "All is done.") {
				t.Errorf("the agent does not print its model's last message:\n%s", out)
			}
			r.model.checkDone()
		})
	}
}
