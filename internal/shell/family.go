package shell

import (
	"embed"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Family is a kind of shell that the driver can drive.
type Family string

// The families.
const (
	Dash Family = "dash" // and other strictly POSIX shells of its descent
	Ash  Family = "ash"  // busybox
	Bash Family = "bash"
	Zsh  Family = "zsh"
)

//go:embed boot/*.sh
var bootFiles embed.FS

// bootTexts are the embedded texts in the order they are loaded: a text may
// refer to an earlier one by @NAME@.
var bootScripts = []struct {
	name, file string
	fill       []string // before the names
}{
	{name: "gone", file: "cwd-gone.sh"},
	{name: "dash-copy", file: "dash-copy.sh", fill: []string{"@DOT@", `\command \.`, "@KEYS@", `\:`}},
	{name: string(Dash), file: "dash.sh", fill: []string{"@COPY@", "@DASH-COPY@"}},
	// busybox: an error in a subshell inside `command .` never ends, and one in
	// a copy ends the copy: there a key ends the program, and not the line.
	{name: "ash-copy", file: "dash-copy.sh", fill: []string{
		"@DOT@", `\.`, "@KEYS@", "case $__trl_y in ?*) \\trap 'case ${__trl_b:+$?} in 130|131) __trl_i=$?;; esac' INT QUIT;; esac",
	}},
	{name: string(Ash), file: "dash.sh", fill: []string{"@COPY@", "@ASH-COPY@"}},
	{name: string(Bash), file: "bash.sh"},
	{name: "zsh-copy", file: "zsh-copy.sh"},
	{name: "zsh-exit", file: "zsh-exit.sh"},
	{name: string(Zsh), file: "zsh.sh", fill: []string{"@COPY@", "@ZSH-COPY@"}},
}

// loginTexts are what a login shell of each family reads.
var loginScripts = map[Family]string{Dash: "login-posix.sh", Ash: "login-posix.sh", Bash: "login-bash.sh", Zsh: "login-zsh.sh"}

// Program is a shell found on this host.
type Program struct {
	Path   string // absolute
	Family Family
	Argv0  string
}

// Find looks a shell up: a path, or a name on PATH. An empty name is /bin/sh.
// ok is false when there is no such program; family is empty when the program
// is no shell the driver knows.
func Find(name string) (p Program, ok bool) {
	if name == "" {
		name = "/bin/sh"
	}
	p.Argv0 = filepath.Base(name)
	path, err := exec.LookPath(name)
	if err != nil && name == string(Ash) {
		// Debian's busybox comes without links for its applets.
		path, err = exec.LookPath("busybox")
	}
	if err != nil {
		return p, false
	}
	if path, err = filepath.Abs(path); err != nil {
		return p, false
	}
	p.Path = path
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		file = path
	}
	p.Family = familyOf(p.Argv0, filepath.Base(file))
	return p, true
}

// familyOf tells a shell by the name of its real file; busybox's applets by
// the name they are called by.
func familyOf(called, file string) Family {
	if strings.HasPrefix(file, "busybox") {
		if called == "ash" || called == "sh" || strings.HasPrefix(called, "busybox") {
			return Ash
		}
		return ""
	}
	for prefix, f := range map[string]Family{"dash": Dash, "ash": Ash, "bash": Bash, "rbash": "", "zsh": Zsh} {
		if file == prefix || strings.HasPrefix(file, prefix+"-") || strings.HasPrefix(file, prefix+".") {
			return f
		}
	}
	if strings.HasPrefix(file, "zsh") { // zsh5
		return Zsh
	}
	return ""
}

// argv starts the shell on its control pipe: as a script it has no prompt, no
// history and reads no startup files.
func (p Program) argv(control string) []string {
	switch p.Family {
	case Ash:
		// Interactive, because a fatal error must return to its top level
		// instead of ending it. (The applet's name comes first.)
		// Without job control, which would want the foreground of a terminal.
		return []string{"ash", "-i", "+m", control}
	case Bash:
		return []string{"bash", "--norc", "--noprofile", control}
	case Zsh:
		return []string{"zsh", "-f", control}
	default:
		// $0 is what its messages begin with.
		return []string{p.Argv0, "-c", ". " + control, p.Argv0}
	}
}

// controlPath is how a driven shell is told where its commands come from.
var controlPath = regexp.MustCompile(`^(-c \. )?/proc/\d+/fd/\d+( \S+)?$`)

// IsDriven reports whether a command line, its words joined by blanks, is that of a
// driven shell of this program: of the shell itself, or of what it has forked and
// what has not become another program.
func (p Program) IsDriven(command string) bool {
	name := p.argv("")
	if p.Family == Dash {
		name = []string{p.Argv0, ""} // older daemons have started it without -c
	}
	control, found := strings.CutPrefix(command, strings.Join(name, " "))
	return found && controlPath.MatchString(control)
}

// builtin prefixes a builtin so that no alias and (but for `command` itself in
// POSIX shells) no function of the user's stands in for it.
func (f Family) builtin(name string) string {
	if f == Dash || f == Ash {
		return `\command \` + name
	}
	return `\builtin \` + name
}

// redirect changes the shell's own streams for good. In bash only `command
// exec` does; `builtin exec` undoes it again.
func (f Family) redirect(redirs string) string {
	if f == Bash {
		return `\command \exec ` + redirs + "; "
	}
	return f.builtin("exec") + " " + redirs + "; "
}

// line is what is said to the shell for one command.
type controlLine struct {
	seq           int
	last          int // what $? must be for the user
	script        string
	stdin         string
	stdout        string
	stderr        string
	tty           string // instead of the three above
	wake, traps   string // of the kit
	enter, leave  string // texts around the command, "" if it needs none
	inCopy        bool   // the shell is an heir or a standby that took over
	token, status string
	exitScript    string // zsh
}

// redirections are those of the command: what stdout is for the shell itself while
// the command runs, and the rest. An EXIT trap of the user's runs after the
// redirections of the command have been undone, so it needs the first.
func (l *controlLine) redirections() (stdout, rest string) {
	if l.tty != "" {
		return "1<>" + l.tty, " <>" + l.tty + " 2<>" + l.tty
	}
	return ">|" + l.stdout, " <" + l.stdin + " 2>|" + l.stderr
}

// source makes the text to be sourced of that of the command. The messages of dash and
// zsh begin with the path of what they source, but not with that of what is evaluated
// in it; bash always gives the path, and ash that of its control pipe. What is
// evaluated has its own redirections, so that `set -x` does not show the evaluation to
// the user. A command that is to be given up before it begins returns at once.
func (f Family) source(command string, l *controlLine) string {
	_, redirs := l.redirections()
	switch f {
	case Dash:
		// Under `set -e` the evaluation itself must not end the shell, when a list
		// like `false && x` is all that it did: so it ends with something that
		// succeeds. The empty line is for a command that ends with a backslash.
		return `__trl_b=1; case $-${__trl_a-} in *1*) \return 143;; *e*) __trl_g='` + "\n\n" + `__trl_s=$?';; *) __trl_g=;; esac; ` +
			l.restoreStatus() + `\eval ` + quote(command) + `"$__trl_g"` + redirs + "\n"
	case Zsh:
		return `__trl_b=1; [[ -z ${__trl_a-} ]] || \builtin \return 143; ` +
			l.restoreStatus() + `\builtin \eval ` + quoteZsh(command) + redirs + "\n"
	default:
		return command + "\n"
	}
}

// status0 precedes what runs the command, and gives it the status of the one before.
func (l *controlLine) restoreStatus() string {
	if l.last == 0 {
		return ""
	}
	return "__trl_r " + strconv.Itoa(l.last) + " || "
}

// quoteZsh makes one word of s under any options, csh_junkie_quotes and rc_quotes too.
func quoteZsh(s string) string {
	return "$'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`).Replace(s) + "'"
}

// undoAbort takes away what soft aborts have put in place. A trap that was still to
// run does so after the first assignment.
func (f Family) undoAbort() string {
	if f == Bash {
		return `__trl_v=; \builtin \trap - DEBUG; \builtin \shopt -u extdebug; \builtin \set +T`
	}
	return "__trl_a=; __trl_a="
}

// report is the command that reports a kind with a number, to its stdout.
func (f Family) report(token string, kind reportKind, operands string) string {
	return f.builtin("printf") + ` '\n` + token + " " + string(kind) + " " + operands
}

// done reports the end of the command to its stdout, with the status that the trap of
// an abort has found, or that in __trl_s.
func (l *controlLine) done(f Family, to string) string {
	number := strconv.Itoa(l.seq) + ` %s\n' "${__trl_v:-${__trl_s:-0}}"` + to
	end := f.report(l.token, reportDone, number)
	if f == Zsh {
		end = "if [[ -z $__trl_x ]]; then " + end + "; else " + f.report(l.token, reportCalledExit, number) + "; fi"
	}
	return end + "\n"
}

// packets are the writes that run a command. Each shell gets one line, but
// for ash: there an error drops the line that it is in the middle of, so what
// follows the command is a packet of its own.
func (f Family) packets(l *controlLine) []string {
	keep := "__trl_v= __trl_w=" + l.wake + " __trl_q=" + l.traps
	drop := "__trl_w= __trl_q="
	toStdout, redirs := l.redirections() // and stdout is that of base; see also source
	status, late, calm := "$?", "", ""
	if l.tty != "" {
		// The trap for the terminal's keys, in the boot texts, has put it there.
		status, late, calm = "${__trl_i:-$?}", "__trl_s=${__trl_i:-$__trl_s}; ", "__trl_i="
		if f == Bash { // and more; see afterAbort
			calm = `[[ -z ${__trl_i-} ]] || { ` + f.undoAbort() + `; __trl_i=; }; `
		}
	}
	base := f.redirect(toStdout)
	to := " >|" + l.status
	rest := f.redirect(">/dev/null") // dash has the status pipe instead: two redirections less
	enter, leave := "", ""
	if l.enter != "" {
		enter = "__trl_u=" + l.stderr + "; " + f.builtin(".") + " " + l.enter + "; "
		leave = f.builtin(".") + " " + l.leave + "; "
	}
	switch {
	case f == Dash:
		return []string{keep + " __trl_s=0; " + base + enter + `\command \. ` + l.script +
			" || __trl_s=$?; " + late + "__trl_b= " + calm + " " + drop + "; " + leave + f.redirect(to) + l.done(f, "")}
	case f == Ash && l.inCopy:
		return []string{keep + " __trl_s=0 __trl_b=1; " + base + enter + "case ${__trl_a-} in ?*) ;; *) " + l.restoreStatus() + `\. ` + l.script + redirs +
			" || __trl_s=$?;; esac; " + late + "__trl_b= " + calm + " " + drop + "; " + leave + rest + l.done(f, to)}
	case f == Ash:
		return []string{
			keep + " __trl_b=1; " + base + enter + "case ${__trl_a-} in ?*) ;; *) " + l.restoreStatus() + `\. ` + l.script + redirs + ";; esac\n",
			"__trl_s=" + status + " __trl_b= " + calm + " " + drop + "; " + leave + rest + l.done(f, to),
		}
	case f == Bash:
		if l.inCopy {
			// What redirections of the dot hide stays open in an heir, and in its heirs.
			base, redirs, rest = f.redirect(toStdout+redirs), "", f.redirect("</dev/null >/dev/null 2>&1")
		} else {
			base, rest = "", "" // its EXIT traps run before redirections are undone
			redirs += " " + toStdout
		}
		keep += " __trl_o=" + l.stdout + " __trl_u=" + l.stderr
		drop += " __trl_o= __trl_u="
		return []string{keep + "; " + base + enter + l.restoreStatus() + `\builtin \. ` + l.script + redirs +
			"; __trl_s=" + status + " " + drop + "; " + calm + leave + rest + l.done(f, to)}
	default: // zsh
		return []string{keep + " __trl_x=; " + base + enter + "{ " + `\builtin \. ` + l.script +
			"; } always { __trl_s=${__trl_x:-" + status + "} __trl_b= " + calm + "; TRY_BLOCK_ERROR=0 TRY_BLOCK_INTERRUPT=0; }; [[ -z $__trl_x ]] || " +
			`\builtin \. ` + l.exitScript + "; " + drop + "; " + leave + rest + l.done(f, to)}
	}
}
