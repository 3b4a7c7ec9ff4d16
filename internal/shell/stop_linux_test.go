package shell

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// A stop that finds the exit copy of a shell before the shell's reports have come
// spares it, while it sends SIGTERM and while it kills.
func TestStopSparesTheExitCopy(t *testing.T) {
	term := Result{Code: 143, Signal: unix.SIGTERM, Ending: ShellExited, Stopped: true}
	kill := Result{Code: 137, Signal: unix.SIGKILL, Ending: ShellExited, Stopped: true}
	for _, tt := range []struct {
		shell string
		grace time.Duration
		want  Result
		late  bool // the shell exits after the stop has begun: that of bash is gone before its copy sleeps
	}{
		{"dash", 2 * time.Second, term, false},
		{"dash", time.Nanosecond, kill, false},
		{"mksh", 2 * time.Second, term, false},
		{"mksh", time.Nanosecond, kill, false},
		{"dash", 2 * time.Second, term, true},
		{"bash", 2 * time.Second, term, true},
	} {
		t.Run(fmt.Sprint(tt.shell, tt.grace, tt.late), func(t *testing.T) {
			d := open(t, tt.shell, tt.grace)
			text, stop := "V=kept; exit 5", (<-chan struct{})(nil)
			hold := d.driver.router.mu.Lock // which keeps reports from being delivered
			stopNow := make(chan struct{})
			if tt.late {
				var m mark
				m, stop = stopAt(t)
				goes := filepath.Join(t.TempDir(), "go")
				text = "V=kept; trap '' 16; " + m.code + "; while [ ! -e " + goes + " ]; do :; done; exit 5"
				hold = func() {
					<-stop
					d.driver.router.mu.Lock()
					if err := os.WriteFile(goes, nil, 0o600); err != nil {
						t.Error(err)
					}
				}
			} else {
				stop = stopNow
				hold()
				hold = func() {}
			}
			go func() {
				hold()
				defer d.driver.router.mu.Unlock()
				trltest.Eventually(t, "the exit copy sleeps", func() bool {
					for _, pid := range d.tree.Marked(1) {
						if _, reads := process.ReadingFD(pid); reads && process.Forked(pid) {
							return true
						}
					}
					return false
				})
				close(stopNow)
				time.Sleep(50 * time.Millisecond) // absence: of a signal to the copy
			}()
			if _, res := d.run(text, stop); res != tt.want {
				t.Errorf("%+v, want %+v", res, tt.want)
			}
			if out, res := d.run(`echo "$V"`, nil); out != "kept\n" || res != (Result{}) {
				t.Errorf("%q, %+v", out, res)
			}
		})
	}
}

// An abort that comes while a shell exits, at the moment at which it leaves its exit
// copy, does not keep it from that, and can be repeated in the copy.
func TestAbortOfAnExit(t *testing.T) {
	abort := "kill -16 $$"
	for name, text := range map[string]string{
		"dash": `o=$__trl_h; __trl_h=FILE; echo '` + abort + `; __trl_h=$o; . "$o"' >FILE`,
		"bash": `o=$(declare -f __trl_t); __trl_t() { ` + abort + `; :; eval "$o"; __trl_t; }`,
		"mksh": `o=$(typeset -f __trl_t); __trl_t() { ` + abort + `; :; eval "$o"; __trl_t; }`,
		"zsh":  `builtin() { unfunction builtin; ` + abort + `; :; builtin "$@"; }; set -e; false`,
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name, 2*time.Second)
			text = strings.ReplaceAll(text, "FILE", filepath.Join(t.TempDir(), "f"))
			_, res := d.run("V=kept; "+text+"; exit 5", nil)
			if res.Ending != ShellExited || res.RolledBack {
				t.Errorf("%+v", res)
			}
			if out, res := d.run(`set +e; echo "$V"`, nil); out != "kept\n" || res != (Result{}) {
				t.Errorf("%q, %+v", out, res)
			}
			mark, stop := stopAt(t)
			if _, res := d.run(mark.code+"; while :; do :; done", stop); !res.Stopped || res.Signal != unix.SIGTERM || res.RolledBack {
				t.Errorf("a stop of the copy: %+v", res)
			}
			if out, res := d.run(`echo "$V"`, nil); out != "kept\n" || res != (Result{}) {
				t.Errorf("%q, %+v", out, res)
			}
		})
	}
}

// A stop under `set -e` costs neither the state nor the exit copy of a later exit.
func TestStopUnderErrexit(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		for _, text := range []string{"while :; do :; done", "sleep 100"} {
			d := open(t, name, 2*time.Second)
			mark, stop := stopAt(t)
			_, res := d.run("V=kept; set -e; "+mark.code+"; "+text, stop)
			if !res.Stopped || res.Signal != unix.SIGTERM || res.RolledBack {
				t.Errorf("%s: %+v", text, res)
			}
			if out, res := d.run(`echo "$V $-"`, nil); !strings.HasPrefix(out, "kept ") || !strings.Contains(out[5:], "e") || res != (Result{}) {
				t.Errorf("%s: %q, %+v", text, out, res)
			}
			exits := res.Ending != ShellExited || name != "ash" // whose exit copies leave none
			if _, res := d.run("V=exit; exit 5", nil); res.Code != 5 || res.RolledBack && exits {
				t.Errorf("%s, exit: %+v", text, res)
			}
			if out, _ := d.run(`echo "$V"`, nil); out != "exit\n" && exits {
				t.Errorf("%s, exit: %q", text, out)
			}
		}
	})
}
