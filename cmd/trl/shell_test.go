package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// shellWindow is a person in a window with `trl shell`.
type shellWindow struct {
	*window
	session string
	dir     string
}

// shell creates a session of the given shell in a directory with some files, and
// opens a prompt in it.
func (o *terminalRig) shell(name, shell string, tty bool) *shellWindow {
	o.t.Helper()
	dir := filepath.Join(o.daemon.Dir, "tmp", name)
	for _, file := range []string{"alpha/one file", "beta/b", "esc/\x1b]0;owned\a", "nl/two\nlines", "quo'te", "-dash"} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			o.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("content of "+filepath.Base(file)+"\n"), 0o600); err != nil {
			o.t.Fatal(err)
		}
	}
	params := api.SessionCreateParams{Shell: shell, Cwd: dir, Name: name, Env: api.Env{"LC_ALL": "C.UTF-8"}}
	if tty {
		params.TTY = &api.TTYSize{Rows: 24, Cols: 80}
	}
	s, err := o.agent.CreateSession(o.t.Context(), params)
	if err != nil {
		o.t.Fatal(err)
	}
	w := &shellWindow{window: o.window(name, 40, 120), session: s.SessionID, dir: dir}
	w.line("clear; trl shell " + s.SessionID)
	w.waitFor("^" + name + ": .* \\$$")
	return w
}

// commands returns how many commands were run in the session, without those that
// look up names.
func (w *shellWindow) commands() (n int) {
	w.t.Helper()
	list, err := w.agent.ExecList(w.t.Context(), api.SessionParams{SessionID: w.session})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range list.Execs {
		if e.Label != "completion" {
			n++
		}
	}
	return n
}

// fresh clears the window: only a prompt without text is left.
func (w *shellWindow) fresh() {
	w.t.Helper()
	w.keys("C-l")
	w.waitFor(`\A(\[.*\] )?` + w.name + `: .* \$\z`)
}

// runs checks that do, which begins at an empty prompt, runs as many commands, and
// that the window shows the pattern then.
func (w *shellWindow) runs(want int, pattern string, do func()) {
	w.t.Helper()
	w.fresh()
	before := w.commands()
	do()
	w.waitFor(pattern + `(.*\n)*(\[.*\] )?` + w.name + `: .* \$\z`)
	if got := w.commands() - before; got != want {
		w.t.Errorf("%q took %d commands, not %d", pattern, got, want)
	}
}

// paste pastes text, as one paste if the program asked for that and bracketed is
// set.
func (w *shellWindow) paste(text string, bracketed bool) {
	w.t.Helper()
	w.do("set-buffer", "-b", w.name, text)
	args := []string{"paste-buffer", "-b", w.name, "-t", w.name}
	if bracketed {
		args = append(args, "-p")
	}
	w.do(args...)
}

// A person works at a prompt as at that of a shell, whatever the shell of the
// session is, on a terminal and on pipes.
func TestPersonStaysInAShell(t *testing.T) {
	for shell, tty := range map[string]bool{"bash": true, "zsh": true, "mksh": false} {
		t.Run(shell, func(t *testing.T) {
			w := newTerminalRig(t, shell).shell(shell, shell, tty)
			w.completes()
			w.continues()
			w.pastes()
			w.searches()
			w.typesAhead()
			w.keys("C-d")
			w.waitFor("^% $")
		})
	}
}

func (w *shellWindow) completes() {
	w.t.Helper()
	w.runs(1, "^content of one file$", func() {
		w.typeText("cat al")
		w.keys("Tab")
		w.waitFor(`\$ cat alpha/$`)
		w.keys("Tab")
		w.waitFor(`\$ cat alpha/one\\ file$`)
		w.keys("Enter")
	})
	w.runs(1, `^content of two\nlines$`, func() {
		w.typeText("cat nl/")
		w.keys("Tab")
		w.waitFor(`\$ cat \$'nl/two\\nlines'$`)
		w.keys("Enter")
	})
	w.runs(1, "^content of -dash$", func() {
		w.typeText("cat ")
		w.keys("Tab") // shows a list
		w.waitFor(`^-dash +alpha/ +beta/ +esc/ +nl/ +quo'te\n.* \$ cat$`)
		w.typeText("./-")
		w.keys("Tab", "Enter")
	})
	w.runs(0, "", func() {
		w.typeText("ls esc/")
		w.keys("Tab")
		w.waitFor(`\$ ls \$'esc/\\033]0;owned\\007'$`)
		w.keys("C-u")
	})
	if last := w.trl("exec", "output", "--last", "-s", w.session); last != "content of -dash" {
		w.t.Errorf("the last command is not that of the user, but wrote %q", last)
	}
	if title := w.format("#{pane_title}"); title == "owned" {
		w.t.Error("the name of a file is the title of the window")
	}
	w.runs(2, "^from a function$", func() {
		w.line("my_function() { echo from a function; }")
		w.typeText("my_func")
		w.keys("Tab")
		w.waitFor(`\$ my_function$`)
		w.keys("Enter")
	})
}

func (w *shellWindow) continues() {
	w.t.Helper()
	w.runs(1, "^1, 2, $", func() {
		w.line("for i in 1 2; do")
		w.waitFor("^>$")
		w.line(`printf '%s, ' "$i"`)
		w.waitFor("^>$")
		w.line("done")
	})
	w.runs(1, `^it's\n  indented$`, func() {
		w.line("cat <<END")
		w.line("it's")
		w.line("  indented")
		w.line("END")
	})
	w.runs(0, `\^C$`, func() { // what was begun is dropped
		w.line("echo 'not")
		w.waitFor("^>$")
		w.typeText("said")
		w.keys("C-c")
	})
	w.runs(1, "", func() { // ctrl-d sends it as it is
		w.line("echo 'not")
		w.waitFor("^>$")
		w.keys("C-d")
	})
}

// tenLines is a command of ten lines.
const tenLines = `total=0
for i in 1 2 3
do
	if [ "$i" -gt 1 ]
	then
		total=$((total + i))
	fi
	: "$i"
done
echo "total: $total"`

func (w *shellWindow) pastes() {
	w.t.Helper()
	w.runs(1, "^total: 5$", func() {
		w.paste(tenLines+"\n", true)
		w.waitFor(`^> echo "total: \$total"$`) // it is shown and not run
		w.keys("Enter")
	})
	// Without the marks of a paste these are three commands, as when typed.
	w.runs(3, "^total: 5$", func() { w.paste(tenLines+"\n", false) })
	w.runs(3, `^a$(.*\n)*b$(.*\n)*c$`, func() { w.paste("echo a\necho b\necho c\n", false) })
}

func (w *shellWindow) searches() {
	w.t.Helper()
	w.runs(2, "^total: 5$", func() {
		w.line("echo something else")
		w.waitFor(`^something else\n.*\$\z`)
		w.keys("C-r")
		w.typeText("total=0")
		w.waitFor(`^\(search: total=0\) total=0$`)
		w.keys("C-r")
		w.waitFor(`^\(search: total=0\) total=0$(.*\n)*> echo "total: \$total"$`)
		w.keys("Enter")
	})
	w.runs(1, "^something else$", func() {
		for range 1 + strings.Count(tenLines, "\n") + 1 { // through the lines of the last command
			w.keys("Up")
		}
		w.keys("Enter")
	})
}

// typesAhead checks what becomes of lines that are typed while a command runs: the
// command reads them, or they are the next commands.
func (w *shellWindow) typesAhead() {
	w.t.Helper()
	wait, open := trltest.Gate(w.t)
	w.runs(2, "^for the prompt$", func() {
		w.line(wait + "; read -r line; echo \"got $line\"")
		w.awaitProgram("sleep")
		w.line("for the command")
		w.line("echo for the prompt")
		open()
		w.waitFor("got for the command$") // perhaps behind the echo of the next line
	})
}

// A prompt outlives a daemon that does not answer, and a window that changes its
// size.
func TestPersonAtAShellIsNotDisturbed(t *testing.T) {
	o := newTerminalRig(t)
	w := o.shell("steady", "bash", true)
	w.typeText("ls al")
	if err := syscall.Kill(o.daemon.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	w.keys("Tab")
	w.waitFor("trl: no completion: the daemon does not answer")
	w.typeText("pha/")
	w.waitFor(`\$ ls alpha/$`)
	if err := syscall.Kill(o.daemon.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.keys("Enter")
	w.waitFor("one file")

	w.fresh()
	w.typeText("echo " + strings.Repeat("wide ", 20) + "end")
	w.waitFor("end$")
	w.size(40, 70)
	w.waitFor(`\A(\[\d+s\] )?steady: (.*\n)*.*end\z`)
	w.keys("Left")
	w.typeText("x")
	w.waitFor(`\A(\[\d+s\] )?steady: (.*\n)*.*enxd\z`)
	w.size(40, 120)
	w.keys("C-e")
	w.typeText("!")
	w.waitFor(`\A(\[\d+s\] )?steady: (.*\n)*.*enxd!\z`)
	w.keys("Enter")
	w.waitFor("^wide wide .* enxd!$|enxd!\n.*enxd!$")

	wait, open := trltest.Gate(t)
	w.line("clear; sleep 1000 & " + wait)
	open()
	w.waitFor(`1 in background\] steady: `)
}
