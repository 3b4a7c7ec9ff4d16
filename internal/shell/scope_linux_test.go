package shell

import (
	"os"
	"path/filepath"
	"testing"
)

// A variable for one command may be new to a session in which unset variables are
// errors.
func TestScopeUnderNounset(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		d := open(t, name, 0)
		d.run("set -u; KEPT=1", nil)
		d.mark++
		out := filepath.Join(t.TempDir(), "out")
		got, err := d.Run(Command{ID: "scope", Text: `echo "$NEW"`, Env: []string{"NEW=value"}, Stdout: out, Stderr: out, Mark: d.mark})
		if err != nil || got != (Result{}) {
			t.Errorf("%+v, %v", got, err)
		}
		if said, err := os.ReadFile(out); string(said) != "value\n" || err != nil {
			t.Errorf("%q, %v", said, err)
		}
		if said, _ := d.run(`echo "${NEW-gone} $KEPT"`, nil); said != "gone 1\n" {
			t.Errorf("%q", said)
		}
	})
}
