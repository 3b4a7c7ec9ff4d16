package agents

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestOverHTTP lets agents use a daemon that they reach over HTTP, as docs/agents.md
// says: every request there has a server of its own.
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
				if c.wire == (openai{}) {
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
				func(given) reply { return use("run", object{"command": "cd /usr; x=41", "session": "web"}) },
				func(given) reply {
					return use("run", object{"command": "echo $((x+1)) in $PWD; sleep 3; echo late", "session": "web", "wait_s": 0.5})
				},
				func(g given) reply {
					exec = execID.FindString(g.said())
					if !strings.HasPrefix(g.said(), "running") && !strings.Contains(g.said(), `"state":"running"`) || !strings.Contains(g.said(), "42 in /usr") {
						t.Errorf("the model is told:\n%s", g.said())
					}
					return use("output", object{"exec": exec, "until": "exit"})
				},
				func(g given) reply {
					if !strings.Contains(g.said(), "exit 0") || !strings.Contains(g.said(), "late") {
						t.Errorf("the model is told:\n%s", g.said())
					}
					return say("All is done.")
				},
			)
			if out := r.run(r.begin("Work.")); !strings.Contains(out, "All is done.") {
				t.Errorf("the agent does not tell what its model said:\n%s", out)
			}
			r.model.over()
		})
	}
}
