package shell

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) {
	process.RunChild()
	if err := process.CleanSelf(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	playPart()
	goleak.VerifyTestMain(m)
}

// driven is a shell under test.
type driven struct {
	*Shell
	t    testing.TB
	tree *process.Tree
	mark uint32
}

// open starts a shell with everything below it, all of which must be gone at
// the end of the test.
func open(t testing.TB, name string, grace time.Duration) *driven {
	t.Helper()
	host, err := process.NewHost(process.Config{})
	if err != nil {
		t.Fatal(err)
	}
	driver, err := OpenDriver(DriverConfig{})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := host.NewTree("test")
	if err != nil {
		t.Fatal(err)
	}
	program, ok := Find(name)
	if !ok {
		t.Fatalf("no %s here", name)
	}
	s, err := driver.Open(t.Context(), Config{Tree: tree, Program: program, Dir: "/", Env: []string{"PATH=" + os.Getenv("PATH")}, Grace: grace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Abandon()
		if left := tree.Kill(time.Now().Add(5 * time.Second)); len(left) > 0 {
			t.Errorf("left: %+v", left)
		}
		for _, err := range []error{s.Close(), driver.Close(), host.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return &driven{Shell: s, t: t, tree: tree}
}

// run runs a command and returns what it wrote to both streams, and the result.
func (d *driven) run(text string, stop <-chan struct{}) (string, Result) {
	d.t.Helper()
	d.mark++
	out := filepath.Join(d.t.TempDir(), "out")
	errs := out + ".err"
	res, err := d.Run(Command{ID: fmt.Sprint(d.mark), Text: text, Stdout: out, Stderr: errs, Mark: d.mark, Stop: stop})
	if err != nil {
		d.t.Fatal(err)
	}
	var said string
	for _, file := range []string{out, errs} {
		b, err := os.ReadFile(file)
		if err != nil && (!res.Stopped || !os.IsNotExist(err)) { // it may not have begun
			d.t.Fatal(err)
		}
		said += string(b)
	}
	return said, res
}

func each(t *testing.T, test func(t *testing.T, name string)) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) { test(t, name) })
	}
}

func TestEndings(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		d := open(t, name, 0)
		for _, tt := range []struct {
			text string
			want Result
		}{
			{"V=1; true", Result{}},
			{"(exit 7)", Result{Code: 7}},
			{"V=2; exit 5", Result{Code: 5, Ending: ShellExited}},
			{"sh -c 'kill -9 $PPID'; sleep 1", Result{Code: 137, Signal: unix.SIGKILL, Ending: ShellDied, RolledBack: true, RolledBackTo: "3"}},
			{"exec true", Result{Ending: ShellExited, RolledBack: true, RolledBackTo: "4"}},
		} {
			_, got := d.run(tt.text, nil)
			if name == "mksh" && tt.text == "exec true" {
				tt.want.RolledBack, tt.want.RolledBackTo = false, "" // exec runs its EXIT trap
			}
			if tt.want.RolledBackTo == "4" {
				tt.want.RolledBackTo = got.RolledBackTo // that command was itself rolled back
			}
			if got != tt.want {
				t.Errorf("%q: got %+v, want %+v", tt.text, got, tt.want)
			}
		}
		if out, _ := d.run(`echo "$V"`, nil); out != "2\n" {
			t.Errorf("state: %q", out)
		}
	})
}

// TestExits: however often a command ends its shell, the state is kept, functions
// can be nested as deep as in a new shell, and no descriptor is left open.
func TestExits(t *testing.T) {
	for name, times := range map[string]int{"dash": 520, "bash": 60, "mksh": 300} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, name, 0)
			var first int
			for i := range times {
				if _, res := d.run(fmt.Sprintf("V=%d; exit 5", i), nil); res != (Result{Code: 5, Ending: ShellExited}) {
					t.Fatalf("exit %d: %+v", i+1, res)
				}
				pid, _ := d.PID()
				fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					first = len(fds)
				} else if len(fds) > first+10 { // some are open for a moment
					t.Fatalf("the shell has %d descriptors after %d exits, %d after the first", len(fds), i+1, first)
				}
			}
			want := fmt.Sprintln(times - 1)
			if out, res := d.run(`f() { [ "$1" = 900 ] || f $(($1+1)); }; f 0; echo "$V"`, nil); out != want || res != (Result{}) {
				t.Errorf("%q, %+v", out, res)
			}
		})
	}
}

// A loop of builtins that is stopped leaves the shell with its state, its pid and its
// jobs.
func TestSoftAbort(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		d := open(t, name, 2*time.Second)
		before, _ := d.PID()
		mark, stop := stopAt(t)
		_, res := d.run("V=kept; "+mark.code+"; while :; do :; done; echo NOT", stop)
		if !res.Stopped || res.Signal != unix.SIGTERM || res.Ending != Exited || res.RolledBack {
			t.Errorf("got %+v", res)
		}
		if out, _ := d.run(`echo "$V"`, nil); out != "kept\n" {
			t.Errorf("state: %q", out)
		}
		if after, _ := d.PID(); after != before {
			t.Errorf("the shell was %d and is %d", before, after)
		}
	})
}

// mark is a place in a command that the test can see the command reach.
type mark struct {
	t    *testing.T
	file string
	code string // for the shell
}

// since returns how long ago the command reached the mark.
func (m mark) since() time.Duration {
	m.t.Helper()
	info, err := os.Stat(m.file)
	if err != nil {
		m.t.Fatal(err)
	}
	return time.Since(info.ModTime())
}

// stopAt returns a mark, and a channel that is closed once a command has reached it:
// when that stops the command, it has done what comes before.
func stopAt(t *testing.T) (m mark, stop <-chan struct{}) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "here")
	reached := make(chan struct{})
	go func() {
		for end := time.Now().Add(trltest.Patience); time.Now().Before(end); {
			if _, err := os.Stat(file); err == nil {
				break
			}
			time.Sleep(time.Millisecond) // poll: until the command is there
		}
		close(reached)
	}()
	return mark{t, file, ": >'" + file + "'"}, reached
}

// A shell that ignores the abort is killed after the grace, and its standby is
// promoted.
func TestHardAbort(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		d := open(t, name, 200*time.Millisecond)
		trltest.Undisturbed(t, func() error {
			d.run("V=before", nil)
			id := fmt.Sprint(d.mark)
			mark, stop := stopAt(t)
			_, res := d.run("trap '' 16; V=lost; "+mark.code+"; while :; do :; done", stop)
			took := mark.since()
			if !res.Stopped || res.Signal != unix.SIGKILL || !res.RolledBack || res.RolledBackTo != id {
				t.Errorf("got %+v", res)
			}
			if out, _ := d.run(`echo "$V"`, nil); out != "before\n" {
				t.Errorf("state: %q", out)
			}
			if took > 200*time.Millisecond+lastChance+2*time.Second {
				return fmt.Errorf("took %v", took)
			}
			return nil
		})
	})
}

// A burst must not wait for standbys, and must have one soon after.
func TestStandbyIsTakenInThePause(t *testing.T) {
	d := open(t, "dash", 0)
	for range 50 {
		d.run("N=$((N+1))", nil)
	}
	d.run("LAST=1", nil)
	trltest.Eventually(t, "a standby has the last command", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.standby != nil && d.standby.id == d.lastID
	})
	if _, res := d.run("kill -9 $$", nil); res.RolledBackTo != "51" {
		t.Errorf("got %+v", res)
	}
	if out, _ := d.run(`echo "$N $LAST"`, nil); out != "50 1\n" {
		t.Errorf("state: %q", out)
	}
}

// The copyFDs of a shell that is too slow to fork its standby stay reserved: the shell
// knows their paths, and another session that got them would be mixed up with it.
func TestSlowStandbyKeepsItsFDs(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		d := open(t, name, 0)
		d.run("V=1", nil)
		d.mu.Lock()
		d.awaitStandby()
		d.proc.Signal(unix.SIGSTOP)
		d.askStandby()
		asked := d.pendingStandby
		d.awaitStandby() // times out
		if asked == nil || d.pendingStandby != asked {
			t.Error("the copyFDs were released")
		}
		d.proc.Signal(unix.SIGCONT)
		d.mu.Unlock()
		if out, _ := d.run(`echo "$V"`, nil); out != "1\n" {
			t.Errorf("got %q", out)
		}
		if _, res := d.run("kill -9 $$", nil); !res.RolledBack || res.RolledBackTo == "" {
			t.Errorf("got %+v", res)
		}
	})
}

// A burst gets the first standbys at once and then one now and then, the less often
// the more they cost.
func TestBudget(t *testing.T) {
	for _, c := range []struct {
		cost, every time.Duration
	}{
		{0, 40 * time.Millisecond},
		{100 * time.Microsecond, 40 * time.Millisecond},
		{5 * time.Millisecond, 200 * time.Millisecond},
		{time.Minute, 2 * time.Second},
	} {
		var b budget
		now := time.Now()
		for range 50 {
			b.recordCost(c.cost)
		}
		if got, want := b.pause(), c.every/8; got < want*9/10 || got > want {
			t.Errorf("standbys that cost %v are taken after a pause of %v, want %v", c.cost, got, want)
		}
		taken := 0
		for i := range 100000 { // a command each 0.1 ms
			if b.take(now.Add(time.Duration(i) * 100 * time.Microsecond)) {
				taken++
			}
		}
		if want := int(budgetMax) + int(10*time.Second/c.every); taken < want*9/10 || taken > want*10/9 {
			t.Errorf("%d standbys that cost %v in 10 s, want about %d", taken, c.cost, want)
		}
	}
}

// Any process of the user can write to the status pipe. Lines that are not reports do
// no harm.
func TestForgedReports(t *testing.T) {
	d := open(t, "dash", 0)
	status := d.driver.router.statusW.path
	garbage := "printf 'x%.0s' 1 2 3 4 5 6 7 8 9 >" + status + "; printf '\\n0123456789abcdef d 1 0\\nno report\\n" + strings.Repeat("z", 300) + "' >" + status
	if _, res := d.run(garbage+"; (exit 6)", nil); res.Code != 6 {
		t.Errorf("got %+v", res)
	}
	if out, res := d.run("echo fine", nil); out != "fine\n" || res != (Result{}) {
		t.Errorf("got %q, %+v", out, res)
	}
}

// A shell that can't open the status pipe, as when the system has no free file, reports
// later and not into the output of its command.
func TestStatusPipeCannotBeOpened(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		d := open(t, name, 0)
		d.run("X=kept", nil)
		status := d.driver.router.statusW.path
		d.driver.router.statusW.path = filepath.Join(t.TempDir(), "none", "status")
		d.mark++
		out := filepath.Join(t.TempDir(), "out")
		res, err := d.Run(Command{
			ID: "unreported", Text: "echo output; sleep 0.1; (exit 9)", Stdout: out, Stderr: out + ".err", Mark: d.mark,
			StillRunning: func() { d.driver.router.statusW.path = status },
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(out); err != nil || string(got) != "output\n" {
			t.Errorf("the command wrote %q, %v", got, err)
		}
		// zsh has no emergency line: a shell that does not report is replaced.
		if survives := name != "zsh"; survives && res.Code != 9 || res.RolledBack == survives {
			t.Errorf("got %+v", res)
		}
		if out, res := d.run("echo $X", nil); out != "kept\n" || res.Code != 0 {
			t.Errorf("after it: %q, %+v", out, res)
		}
	})
}

func TestClose(t *testing.T) {
	d := open(t, "dash", 0)
	var wg sync.WaitGroup
	started := make(chan struct{})
	wg.Go(func() {
		close(started)
		_, err := d.Run(Command{Text: "sleep 100", Stdout: os.DevNull, Stderr: os.DevNull, Mark: 1})
		if err == nil {
			t.Error("a command of an abandoned shell returned no error")
		}
	})
	<-started
	d.Abandon()
	d.tree.Kill(time.Now().Add(5 * time.Second))
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if _, err := d.Run(Command{}); err == nil {
		t.Error("an abandoned shell runs commands")
	}
}

func TestFind(t *testing.T) {
	for name, want := range map[string]Family{"dash": Dash, "bash": Bash, "zsh": Zsh, "ash": Ash, "mksh": Mksh, "/bin/bash": Bash, "cat": ""} {
		p, ok := Find(name)
		if !ok || p.Family != want {
			t.Errorf("%s: %+v, %v", name, p, ok)
		}
	}
	if _, ok := Find("no-such-shell"); ok {
		t.Error("found a shell that does not exist")
	}
	for _, tt := range []struct {
		called, real string
		want         Family
	}{
		{"sh", "dash", Dash},
		{"sh", "busybox", Ash},
		{"sh", "bash", Bash},
		{"bash", "bash-5.2", Bash},
		{"zsh", "zsh5", Zsh},
		{"ksh", "mksh", Mksh},
		{"ksh", "ksh93", ""},
		{"ls", "busybox", ""},
		{"fish", "fish", ""},
		{"rbash", "rbash", ""},
	} {
		if got := familyOf(tt.called, tt.real); got != tt.want {
			t.Errorf("%s → %s: got %q", tt.called, tt.real, got)
		}
	}
}

// Every embedded script must parse in the shells that source it.
func TestBootScriptsParse(t *testing.T) {
	parsed := map[string][]string{
		"dash.sh": {"dash", "ash"}, "dash-copy.sh": {"dash", "ash"}, "mksh.sh": {"mksh"}, "login-posix.sh": {"dash", "ash", "mksh"}, "bash.sh": {"bash"}, "login-bash.sh": {"bash"},
		"zsh.sh": {"zsh"}, "zsh-copy.sh": {"zsh"}, "zsh-exit.sh": {"zsh"}, "login-zsh.sh": {"zsh"}, "cwd-gone.sh": Names(),
	}
	for file, shells := range parsed {
		for _, name := range shells {
			p, ok := Find(name)
			if !ok {
				t.Fatalf("no %s here", name)
			}
			cmd := exec.Command(p.Path, "-n", "boot/"+file)
			cmd.Args[0] = name // busybox runs the applet of this name
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s in %s: %v: %s", file, name, err, out)
			}
		}
	}
	entries, err := bootFiles.ReadDir("boot")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if parsed[entry.Name()] == nil {
			t.Errorf("no shell parses boot/%s: add it to the list above", entry.Name())
		}
	}
}

func TestQuote(t *testing.T) {
	for _, s := range []string{"", "plain", "it's", "''", `\`, `\n\'`, "a\n\nb\n", "$x `y` \"z\" !w", "é\xff"} {
		say := func(name, prefix, word string) {
			t.Helper()
			p, _ := Find(name)
			cmd := exec.Command(p.Path, "-c", prefix+"printf %s "+word)
			cmd.Args[0] = name
			if out, err := cmd.Output(); err != nil || string(out) != s {
				t.Errorf("%s: %q became %q, %v", name, s, out, err)
			}
		}
		for _, name := range Names() {
			say(name, "", quote(s))
		}
		say("zsh", "", quoteZsh(s))
		say("zsh", "setopt rc_quotes csh_junkie_quotes ksh_glob\n", quoteZsh(s))
	}
}

// Messages begin with the usual name of the shell, in a copy of the first shell too.
// Neither they nor traces show how the driver runs a command.
func TestMessagesNameTheShell(t *testing.T) {
	type step struct{ text, want string }
	for name, steps := range map[string][]step{
		"dash": {
			{"nosuch", "dash: 1: eval: nosuch: not found\n"},
			{"\n\ncd /nope", "dash: 3: cd: can't cd to /nope\n"},
			{"echo \"it's\" $?\nx=(1", "it's 2\ndash: 2: eval: Syntax error: \"(\" unexpected\n"},
			{"f() { nosuch; }", ""},
			{"\nf", "dash: 1: eval: nosuch: not found\n"},
			{"echo $0 $LINENO >&2; nosuch >/nope/x", "dash\ndash: 1: eval: cannot create /nope/x: Directory nonexistent\n"},
			{"set -x", ""},
			{"echo out\n(exit 3)", "out\n+ echo out\n+ exit 3\n"},
			{"echo $? $-; set +x", "3 x\n+ echo 3 x\n+ set +x\n"},
		},
		"mksh": {
			{"nosuch", "E: mksh: nosuch: inaccessible or not found\n"},
			{"\n\ncd /nope", "E: mksh: cd: /nope: No such file or directory\n"},
			{"f() { nosuch; }", ""},
			{"\nf", "E: mksh: nosuch: inaccessible or not found\n"},
			{"echo $0 >&2", "mksh\n"},
			{"set -x", "+ set +x\n"}, // one line of the driver
			{"echo out\n(exit 3)", "out\n+ echo out\n+ exit 3\n+ set +x\n"},
			{"set +x", "+ set +x\n"},
		},
		"zsh": {
			{"nosuch", "(eval):1: command not found: nosuch\n"},
			{"\n\ncd /nope", "(eval):cd:3: no such file or directory: /nope\n"},
			{"echo \"it's\" $?\nx=(1", "(eval):2: parse error near `1'\n"},
			{"f() { nosuch; }", ""},
			{"\nf", "f: command not found: nosuch\n"},
			{"echo $LINENO >&2; nosuch >/nope/x", "1\n(eval):1: no such file or directory: /nope/x\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name, 0)
			for _, where := range []string{"first", "copy"} {
				for _, s := range steps {
					if out, res := d.run(s.text, nil); out != s.want || res.Ending != Exited {
						t.Errorf("%s, %q: %+v and\n%swant\n%s", where, s.text, res, out, s.want)
					}
				}
				if _, res := d.run("exit 7", nil); res.Ending != ShellExited || res.RolledBack {
					t.Fatalf("%s: %+v", where, res)
				}
			}
		})
	}
}

// Under `set -e` a command that fails ends its shell, and a list that may fail does
// not in dash. In the others the sourcing of the command, which failed, ends it.
func TestErrexit(t *testing.T) {
	d := open(t, "dash", 0)
	for _, tt := range []struct {
		text, out string
		code      int
		want      Ending
	}{
		{"set -e", "", 0, Exited},
		{"false && true", "", 1, Exited},
		{"(exit 3) && echo \\", "", 3, Exited},
		{"echo $?; ! true # not", "3\n", 1, Exited},
		{"false || echo or; ! true; echo on", "or\non\n", 0, Exited},
		{"x=(1", "dash: 1: eval: Syntax error: \"(\" unexpected\n", 2, Exited},
		{"echo in; false; echo no", "in\n", 1, ShellExited},
		{"case $- in *e*) echo still;; esac", "still\n", 0, Exited},
		{"false && true", "", 1, Exited},
		{"set +e; false; echo on", "on\n", 0, Exited},
		{"false; echo off", "off\n", 0, Exited},
	} {
		out, res := d.run(tt.text, nil)
		if out != tt.out || res.Code != tt.code || res.Ending != tt.want {
			t.Errorf("%q: %q, %+v", tt.text, out, res)
		}
	}
}

// A command that is stopped before its shell has begun with it does nothing, its shell
// survives, and the stop does not hit the next command.
func TestStopBeforeItBegins(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		d := open(t, name, 5*time.Second)
		d.run("X=kept", nil)
		for i := range 50 {
			stop := make(chan struct{})
			if i%2 == 0 {
				close(stop)
			} else {
				time.AfterFunc(time.Duration(i)*20*time.Microsecond, func() { close(stop) })
			}
			out, res := d.run("sleep 300; echo went on", stop)
			if strings.Contains(out, "went on") || !res.Stopped || res.Signal != unix.SIGTERM || res.RolledBack || res.Ending != Exited {
				t.Errorf("round %d: %q, %+v", i, out, res)
			}
			if out, res := d.run("echo $X", nil); out != "kept\n" || res.Code != 0 {
				t.Fatalf("after round %d: %q, %+v", i, out, res)
			}
		}
	})
}

func FuzzReport(f *testing.F) {
	f.Add([]byte("0123456789abcdef d 12 0"))
	f.Add([]byte("0123456789abcdef t 1 2"))
	f.Add([]byte("0123456789abcdef x 255"))
	f.Add([]byte("0123456789abcdef r 99999999999"))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, ok := parseReport(line)
		if !ok {
			return
		}
		if len(r.token) != tokenLen || operands[r.kind] == 0 || r.a < 0 || r.b < 0 {
			t.Errorf("%q became %+v", line, r)
		}
		text := r.token + " " + string(rune(r.kind))
		for _, n := range []int{r.a, r.b}[:operands[r.kind]] {
			text += fmt.Sprintf(" %d", n)
		}
		if again, ok := parseReport([]byte(text)); !ok || again != r {
			t.Errorf("%q is parsed again as %+v", text, again)
		}
	})
}
