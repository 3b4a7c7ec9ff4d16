package agents

import (
	"strings"
	"testing"
)

// TestSecret passes a secret to commands, typed and as a variable. The commands get
// it, and no request to a model contains it, even if they print it.
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
				func(modelInput) reply {
					return use("run", object{"command": "read -rsp 'PIN: ' pin; echo; echo ${#pin} characters: $pin", "tty": true})
				},
				func(g modelInput) reply {
					if !strings.Contains(g.toolText(), "password") {
						t.Errorf("the model does not see that a password is wanted:\n%s", g.toolText())
					}
					exec = execID.FindString(g.toolText())
					return use("input", object{"exec": exec, "secret": "PIN"})
				},
				func(modelInput) reply { return use("output", object{"exec": exec, "until": "exit", "wait_s": 20}) },
				func(g modelInput) reply {
					if !strings.Contains(g.toolText(), "22 characters: ") {
						t.Errorf("the typed text is not the secret:\n%s", g.toolText())
					}
					return use("run", object{"command": "echo ${#PIN} characters: $PIN", "secrets": []string{"PIN"}})
				},
				func(g modelInput) reply {
					if !strings.Contains(g.toolText(), "22 characters: ") {
						t.Errorf("the variable is not the secret:\n%s", g.toolText())
					}
					return say("Done.")
				},
			)
			r.run(r.begin("Use the PIN."))
			for i, g := range r.model.checkDone() {
				if strings.Contains(g.body, pin) {
					t.Errorf("the secret is in the request to the model in turn %d", i+1)
				}
			}
		})
	}
}
