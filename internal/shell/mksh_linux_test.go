package shell

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// An error that ends a script ends mksh too, and its exit copy continues with the
// state, however often that happens.
func TestMkshErrors(t *testing.T) {
	d := open(t, "mksh", 0)
	d.run("V=kept; f() { echo F; }; cd /usr", nil)
	for _, text := range []string{"set -e; false", "set +e; echo ${nope?}", "x=(1", "return 1", "exit 1"} {
		if _, res := d.run(text, nil); res != (Result{Code: 1, Ending: ShellExited}) {
			t.Errorf("%q: %+v", text, res)
		}
		if out, res := d.run(`f; echo "$V $PWD"`, nil); out != "F\nkept /usr\n" || res != (Result{}) {
			t.Errorf("after %q: %q, %+v", text, out, res)
		}
	}
}

// A stop unwinds functions that call each other, and leaves no trap behind. It ends a
// copy, whose exit copy continues with the state.
func TestMkshAbortsFunctions(t *testing.T) {
	d := open(t, "mksh", 2*time.Second)
	for _, want := range []Ending{Exited, ShellExited} {
		mark, stop := stopAt(t)
		out, res := d.run("g() { "+mark.code+"; while :; do :; done; }; f() { g; echo NOT; }; V=kept; f; echo NOT", stop)
		if out != "" || !res.Stopped || res.Signal != unix.SIGTERM || res.Ending != want || res.RolledBack {
			t.Errorf("%q, %+v", out, res)
		}
		if out, res := d.run(`false; echo "$V"`, nil); out != "kept\n" || res != (Result{}) {
			t.Errorf("%q, %+v", out, res)
		}
		if _, res := d.run("exit 5", nil); res.Ending != ShellExited || res.RolledBack {
			t.Fatalf("%+v", res)
		}
	}
}
