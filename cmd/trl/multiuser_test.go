package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// These tests run people and an agent in real terminals: each person has a tmux
// window, which the test types into and reads. The agent is a client.

// terminalRig is a daemon, an agent, and windows of people.
type terminalRig struct {
	t      *testing.T
	daemon *trltest.Daemon
	agent  *client.Client
	env    []string
}

// patience is how long a window may take to show something on a machine that is
// busy with other tests.
const patience = trltest.Patience

func newTerminalRig(t *testing.T, programs ...string) *terminalRig {
	t.Helper()
	for _, program := range append(programs, "tmux") {
		_, err := exec.LookPath(program)
		trltest.Need(t, err)
	}
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := trltest.Start(trltest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	o := &terminalRig{t: t, daemon: daemon}
	for _, entry := range trltest.Environ(daemon.Dir) {
		if path, ok := strings.CutPrefix(entry, "PATH="); ok {
			entry = "PATH=" + filepath.Dir(binary) + string(os.PathListSeparator) + path
		}
		o.env = append(o.env, entry)
	}
	// tmux keeps its socket in the daemon's directory, apart from other tmux
	// servers.
	o.env = append(o.env, "TRL_SOCKET="+daemon.Socket, "TMUX_TMPDIR="+filepath.Join(daemon.Dir, "tmp"), "TERM=xterm-256color", "LC_ALL=C.UTF-8")
	t.Cleanup(func() {
		_ = o.tmux("kill-server").Run() // it fails if there is no window
		if t.Failed() {
			t.Log("the daemon's log:\n" + daemon.Log())
		}
		if err := daemon.Stop(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(daemon.Dir)
	})
	if o.agent, err = client.Dial(t.Context(), daemon.Socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.agent.Close() })
	return o
}

func (o *terminalRig) tmux(args ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-f", "/dev/null"}, args...)...)
	cmd.Env = o.env
	return cmd
}

// trl runs a command that must succeed and returns its output.
func (o *terminalRig) trl(args ...string) string {
	o.t.Helper()
	cmd := exec.Command(o.binary(), args...)
	cmd.Env = o.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		o.t.Fatalf("trl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (o *terminalRig) binary() string {
	binary, err := trltest.Binary()
	if err != nil {
		o.t.Fatal(err)
	}
	return binary
}

// session creates a session on a terminal; with argv it runs that command.
func (o *terminalRig) session(rows, cols int, argv ...string) string {
	o.t.Helper()
	s, err := o.agent.CreateSession(o.t.Context(), api.SessionCreateParams{
		Argv: argv, TTY: &api.TTYSize{Rows: rows, Cols: cols}, Env: map[string]string{"PS1": "> ", "LC_ALL": "C.UTF-8"},
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return s.SessionID
}

// start starts a command as the agent and returns its exec id.
func (o *terminalRig) start(session, command string) string {
	o.t.Helper()
	r, err := o.agent.Run(o.t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: session, Command: command}, YieldMS: 1})
	if err != nil {
		o.t.Fatal(err)
	}
	return r.ExecID
}

// typeText sends input as the agent.
func (o *terminalRig) typeText(execID, text string) error {
	_, err := o.agent.Input(o.t.Context(), api.ExecInputParams{ExecID: execID, Data: text})
	return err
}

func (o *terminalRig) screen(session string) *api.SessionScreenResult {
	o.t.Helper()
	r, err := o.agent.Screen(o.t.Context(), api.SessionScreenParams{SessionID: session})
	if err != nil {
		o.t.Fatal(err)
	}
	return r
}

// await polls until is returns true.
func (o *terminalRig) await(what string, is func() bool) {
	o.t.Helper()
	trltest.Eventually(o.t, what, is)
}

// awaitProgram waits until a program runs in some session: a key that arrives
// before is read by its shell.
func (o *terminalRig) awaitProgram(name string) {
	o.t.Helper()
	o.await(name+" runs", func() bool {
		list, err := o.agent.ListSessions(o.t.Context(), api.SessionListParams{State: api.StateRunning})
		if err != nil {
			o.t.Fatal(err)
		}
		return slices.ContainsFunc(list.Sessions, func(s api.Session) bool {
			info, err := o.agent.SessionInfo(o.t.Context(), api.SessionParams{SessionID: s.SessionID})
			return err == nil && slices.ContainsFunc(info.Processes, func(p api.Process) bool {
				return strings.HasPrefix(p.Command, name)
			})
		})
	})
}

// window is a person's terminal with their own shell in it.
type window struct {
	*terminalRig
	name string
}

func (o *terminalRig) window(name string, rows, cols int) *window {
	o.t.Helper()
	w := &window{terminalRig: o, name: name}
	w.do("new-session", "-d", "-s", name, "-x", strconv.Itoa(cols), "-y", strconv.Itoa(rows),
		"exec env PS1='% ' bash --norc --noprofile", ";", "set-option", "-g", "status", "off")
	w.size(rows, cols) // including the row of the status line, which is off now
	w.waitFor(`^% $`)
	return w
}

func (w *window) do(args ...string) {
	w.t.Helper()
	if out, err := w.tmux(args...).CombinedOutput(); err != nil {
		w.t.Fatalf("tmux %s: %v\n%s", args[0], err, out)
	}
}

func (w *window) size(rows, cols int) {
	w.t.Helper()
	w.do("resize-window", "-t", w.name, "-x", strconv.Itoa(cols), "-y", strconv.Itoa(rows))
}

// keys presses keys by name, such as C-c or Enter.
func (w *window) keys(names ...string) {
	w.t.Helper()
	w.do(append([]string{"send-keys", "-t", w.name}, names...)...)
}

// typeText types text.
func (w *window) typeText(text string) {
	w.t.Helper()
	w.do("send-keys", "-t", w.name, "-l", text)
}

// line types a line.
func (w *window) line(text string) {
	w.t.Helper()
	w.typeText(text)
	w.keys("Enter")
}

// waitForPrompt waits for the prompt of `trl shell` after a command, and
// returns its pattern. The prompt shows the status if it is not 0, and the
// duration if it is over a second, which it may be on a busy machine.
func (w *window) waitForPrompt(session string, status int, dir string) (pattern string) {
	w.t.Helper()
	w.await(fmt.Sprintf("%s has a prompt in %s after status %d", w.name, dir, status), func() bool {
		list, err := w.agent.ExecList(w.t.Context(), api.SessionParams{SessionID: session})
		if err != nil {
			w.t.Fatal(err)
		}
		if len(list.Execs) == 0 {
			return false // the input has not arrived yet
		}
		var notes []string
		if status != 0 {
			notes = append(notes, strconv.Itoa(status))
		}
		if last := list.Execs[len(list.Execs)-1]; last.DurationMS > 1000 {
			notes = append(notes, `[0-9.]+m?s`)
		}
		pattern = regexp.QuoteMeta(dir) + ` \$`
		if len(notes) > 0 {
			pattern = `\[` + strings.Join(notes, ", ") + `\] ` + pattern
		}
		return windowPattern("^" + pattern + "$").MatchString(w.text())
	})
	return pattern
}

// attach clears the window and runs `trl attach` in it.
func (w *window) attach(args string) {
	w.t.Helper()
	w.line("clear; trl attach " + args)
}

// text returns what the window shows.
func (w *window) text() string {
	w.t.Helper()
	out, err := w.tmux("capture-pane", "-p", "-t", w.name).Output()
	if err != nil {
		w.t.Fatal(err)
	}
	lines := strings.Split(string(out), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// windowPattern compiles a pattern for the lines of a window, which have no
// trailing blanks.
func windowPattern(pattern string) *regexp.Regexp {
	return regexp.MustCompile("(?m)" + strings.ReplaceAll(pattern, " $", "$"))
}

// pressUntil presses a key until the window shows the pattern. It paces the key
// presses: two at once are one signal.
func (w *window) pressUntil(key, pattern string) {
	w.t.Helper()
	re := windowPattern(pattern)
	pressed := time.Time{}
	w.await(fmt.Sprintf("%s shows %q", w.name, pattern), func() bool {
		if time.Since(pressed) > time.Second {
			w.keys(key)
			pressed = time.Now()
		}
		return re.MatchString(w.text())
	})
}

// waitFor waits until the window matches the pattern.
func (w *window) waitFor(pattern string) {
	w.t.Helper()
	re := windowPattern(pattern)
	var last string
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // poll: until the window shows it
		if last = w.text(); re.MatchString(last) {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s does not show %q, but:\n%s", w.name, pattern, last)
		}
	}
}

// waitForScreen waits until the window shows the session's screen.
func (w *window) waitForScreen(session string) {
	w.t.Helper()
	w.await("the window is the session's screen", func() bool { return w.text() == w.screen(session).Text })
}

// format expands a tmux format for the window.
func (w *window) format(f string) string {
	w.t.Helper()
	out, err := w.tmux("display-message", "-p", "-t", w.name, f).Output()
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// attached returns the process of the `trl attach` in the window.
func (w *window) attached() int {
	w.t.Helper()
	var pid int
	w.await("trl runs in the window", func() bool {
		out, _ := exec.Command("pgrep", "-P", w.format("#{pane_pid}"), "-x", "trl").Output() // it fails if there is no match
		n, err := strconv.Atoi(strings.TrimSpace(string(out)))
		pid = n
		return err == nil
	})
	return pid
}

const detach = `C-\`

func (o *terminalRig) leaseHolder(session string) string {
	o.t.Helper()
	info, err := o.agent.SessionInfo(o.t.Context(), api.SessionParams{SessionID: session})
	if err != nil {
		o.t.Fatal(err)
	}
	if info.Held == nil {
		return ""
	}
	return info.Held.Holder
}
