package agents

import (
	"strings"
	"testing"
)

// TestSecret gives a secret to commands, typed and as a variable. The commands
// have it, and no request that reaches a model does, also if they print it.
func TestSecret(t *testing.T) {
	const pin = "pin-that-no-model-sees"
	for _, a := range []agent{claude, codex, geminiCLI} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			usual := a.env
			a.env = func(r *rig) []string { return append(usual(r), "TRL_SECRET_PIN="+pin) }
			r := start(t, a)
			exec := ""
			r.model.expect(
				func(given) reply {
					return use("run", object{"command": "read -rsp 'PIN: ' pin; echo; echo ${#pin} characters: $pin", "tty": true})
				},
				func(g given) reply {
					if !strings.Contains(g.said(), "password") {
						t.Errorf("the model is not told what is waited for:\n%s", g.said())
					}
					exec = execID.FindString(g.said())
					return use("input", object{"exec": exec, "secret": "PIN"})
				},
				func(given) reply { return use("output", object{"exec": exec, "until": "exit", "wait_s": 20}) },
				func(g given) reply {
					if !strings.Contains(g.said(), "22 characters: ") {
						t.Errorf("what was typed is not the secret:\n%s", g.said())
					}
					return use("run", object{"command": "echo ${#PIN} characters: $PIN", "secrets": []string{"PIN"}})
				},
				func(g given) reply {
					if !strings.Contains(g.said(), "22 characters: ") {
						t.Errorf("the variable is not the secret:\n%s", g.said())
					}
					return say("Done.")
				},
			)
			r.run(r.begin("Use the PIN."))
			for i, g := range r.model.over() {
				if strings.Contains(g.body, pin) {
					t.Errorf("the secret is before the model in turn %d", i+1)
				}
			}
		})
	}
}
