package console

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/shellsyntax"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) { trltest.Main(m) }

// dial starts a daemon and returns a client of it.
func dial(t *testing.T) *client.Client {
	t.Helper()
	daemon, err := trltest.Start(trltest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := daemon.Stop(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(daemon.Dir)
	})
	c, err := client.Dial(t.Context(), daemon.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// sessionIn creates a session in a directory and a completer for it.
func sessionIn(t *testing.T, c *client.Client, shell, dir string, tty bool) *completer {
	t.Helper()
	params := api.SessionCreateParams{Shell: shell, Cwd: dir, Env: api.Env{"HOME": filepath.Join(dir, "home")}}
	if tty {
		params.TTY = &api.TTYSize{Rows: 24, Cols: 80}
	}
	s, err := c.CreateSession(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	return &completer{client: c, session: s.SessionID, dialect: shellsyntax.DialectOf(s.Shell)}
}

func run(t *testing.T, c *completer, command string) *api.ExecResult {
	t.Helper()
	r, err := c.client.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: c.session, Command: command}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func write(t *testing.T, dir string, mode os.FileMode, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
}

// Words are completed as the shell of the session sees them, in every shell, with
// a terminal and without, and whatever its options are.
func TestCompletion(t *testing.T) {
	c := dial(t)
	dir := t.TempDir()
	write(t, dir, 0o644, "alpha/one file", "sub/deep", "quo'te", "$dollar", "-dash", "nl/new\nline", "esc/\x1b[31mred", ".hidden/x", "home/mine", "same1", "same2", "link")
	write(t, dir, 0o755, "bin/trlcmd-one", "bin/trlcmd-two", "bin/two", "bin2/trlmore")
	write(t, dir, 0o644, "bin/trlcmd-not")
	for _, shell := range []string{"dash", "bash", "zsh", "mksh", "busybox"} {
		for _, tty := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,tty=%t", shell, tty), func(t *testing.T) {
				path, err := exec.LookPath(shell)
				trltest.Need(t, err)
				if shell == "busybox" {
					ash := filepath.Join(t.TempDir(), "ash")
					if err := os.Symlink(path, ash); err != nil {
						t.Fatal(err)
					}
					path = ash
				}
				testCompletion(t, sessionIn(t, c, path, dir, tty))
			})
		}
	}
}

func testCompletion(t *testing.T, c *completer) {
	run(t, c, `PATH=$PWD/bin:$PATH:$PWD/bin2; trlfunction() { :; }; alias trlalias=:; set -fu; IFS=x; mine=yes; (exit 7)`)
	before := c.state(t)
	newline, red := `$'nl/new\nline' `, `$'esc/\033[31mred' `
	if !c.dialect.DollarQuotes {
		newline, red = "'nl/new\nline' ", "'esc/\x1b[31mred' "
	}
	for line, want := range map[string]string{
		"ls al":           "alpha/",
		"ls alpha/":       `alpha/one\ file `,
		"ls 'alpha/":      `'alpha/one file' `,
		`ls "alpha/o`:     `"alpha/one file" `,
		"ls ~/":           "~/mine ",
		"cat <quo":        `quo\'te `,
		`ls \$`:           `\$dollar `,
		"ls nl/":          newline,
		"ls esc/":         red,
		"ls .h":           ".hidden/",
		"ls .":            ".hidden/",
		"cd ..":           "../",
		"ls ./-":          "./-dash ",
		"ls sa":           "same",
		"X=al":            "alpha/",
		"trlcm":           "trlcmd-",
		"trlcmd-o":        "trlcmd-one ",
		"if trlmo":        "trlmore ",
		"bin/trlcmd-o":    "bin/trlcmd-one ",
		"trlal":           "trlalias ",
		"unali":           "unalias ",
		"ls nothing-here": "",
		"trlnothing":      "",
	} {
		got, _, err := c.complete(t.Context(), line)
		if err != nil || got.replacement != want || len(got.names) > 0 {
			t.Errorf("%q: %q, want %q; %q, %v", line, got.replacement, want, got.names, err)
		}
	}
	if shell := filepath.Base(c.shell(t)); shell != "dash" && shell != "ash" { // these can't list functions
		if got, _, err := c.complete(t.Context(), "trlfunc"); err != nil || got.replacement != "trlfunction " {
			t.Errorf("a function is completed to %q, %v", got.replacement, err)
		}
	}
	got, _, err := c.complete(t.Context(), "ls same")
	if err != nil || !slices.Equal(got.names, []string{"same1", "same2"}) {
		t.Errorf("%q, %v", got.names, err)
	}
	if after := c.state(t); after != before {
		t.Errorf("the session was changed:\n%s\nis now\n%s", before, after)
	}
}

// state returns what a completion must not change: the last status, options,
// variables and the screen.
func (c *completer) state(t *testing.T) string {
	t.Helper()
	r := run(t, c, `(trl_s=$?; echo "$trl_s" "$-" "$mine" "${IFS}" "${_trl_word-none}" "${_trl_kind-none}"; exit "$trl_s")`)
	screen := ""
	if r.TTY != nil {
		shown, err := c.client.(*client.Client).Screen(t.Context(), api.SessionScreenParams{SessionID: c.session})
		if err != nil {
			t.Fatal(err)
		}
		screen = strings.ReplaceAll(shown.Text, strings.TrimSpace(r.Stdout), "")
	}
	return r.Stdout + strings.TrimSpace(screen)
}

func (c *completer) shell(t *testing.T) string {
	t.Helper()
	info, err := c.client.(*client.Client).SessionInfo(t.Context(), api.SessionParams{SessionID: c.session})
	if err != nil {
		t.Fatal(err)
	}
	return info.Shell
}

// A busy session is not waited for, and a session with `set -e` survives.
func TestCompletionIsPolite(t *testing.T) {
	c := dial(t)
	s := sessionIn(t, c, "bash", "/", false)
	run(t, s, "set -e; X=kept")
	if got, _, err := s.complete(t.Context(), "ls /us"); err != nil || got.replacement != "/usr/" {
		t.Errorf("%q, %v", got.replacement, err)
	}
	if r := run(t, s, "echo $X"); r.Stdout != "kept\n" || r.Outcome != api.OutcomeExited {
		t.Errorf("%+v", r)
	}
	wait, open := trltest.Gate(t)
	busy, err := c.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.session, Command: wait}, YieldMS: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = s.complete(t.Context(), "ls /us")
	if !api.IsCode(err, api.CodeSessionBusy) || !strings.Contains(s.why(err), "another command runs") {
		t.Errorf("%v: %s", err, s.why(err))
	}
	open()
	if _, err := c.Cancel(t.Context(), api.ExecCancelParams{ExecID: busy.ExecID}); err != nil {
		t.Fatal(err)
	}
}

// stalled is a daemon that does not answer.
type stalled struct{}

func (stalled) Run(ctx context.Context, _ api.ExecRunParams) (*api.ExecResult, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// From the key to the completed word on the terminal a completion takes at most
// twice as long as the look-up itself, as any client would run it.
func TestCompletionIsInstant(t *testing.T) {
	c := dial(t)
	s := sessionIn(t, c, "bash", "/", false)
	p, screen := newTestPrompt(t, s)
	go func() { _, _ = p.line(t.Context(), "$ ") }() // ends with the keys
	defer close(p.local.keys)
	read := func(text string) {
		var seen []byte
		for b := make([]byte, 4096); !bytes.Contains(seen, []byte(text)); {
			n, err := screen.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, b[:n]...)
		}
	}
	read("$ ")
	press := func() {
		p.local.keys <- []byte("\t")
		read("ls /usr/")
	}
	prepare := func() {
		p.local.keys <- []byte("\x15ls /us")
		read("ls /us")
	}
	bare := func() {
		if _, err := s.lookUp(t.Context(), "file", "/us"); err != nil {
			t.Fatal(err)
		}
	}
	trltest.Undisturbed(t, func() error {
		pressed := median(prepare, press)
		looked := median(func() {}, bare)
		t.Logf("a completion takes %s, the look-up alone %s", pressed, looked)
		if pressed > 2*looked {
			return fmt.Errorf("a completion takes %s, the look-up alone %s", pressed, looked)
		}
		return nil
	})
}

// median returns the median time of an action.
func median(prepare, action func()) time.Duration {
	var took []time.Duration
	for range 31 {
		prepare()
		began := time.Now()
		action()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// If the daemon does not answer, the prompt says so and goes on.
func TestCompletionOfASilentDaemon(t *testing.T) {
	p, screen := newTestPrompt(t, &completer{client: stalled{}})
	p.pending = []byte("ls /us\tx\r")
	line, err := p.line(t.Context(), "$ ")
	if line != "ls /usx" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	b := make([]byte, 4096)
	n, err := screen.Read(b)
	if err != nil || !strings.Contains(string(b[:n]), "the daemon does not answer") {
		t.Errorf("%q, %v", b[:n], err)
	}
}
