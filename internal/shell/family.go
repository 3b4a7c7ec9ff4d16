package shell

import (
	"embed"
	"strconv"
	"strings"
)

// Family names a kind of shell that the driver can drive. The name is persisted
// with each session, so a name that was released must not change.
type Family string

// family is everything the driver knows about one kind of shell. Each family is
// one value, in its own file family_NAME.go, and one entry of families.
//
// The functions get the family as f, because the value cannot refer to itself.
type family struct {
	name Family
	// matches reports whether an executable is a shell of this family, given the
	// name it is called by and the name of its file, with symbolic links resolved.
	matches func(called, file string) bool
	// fallback is the program to look up when there is none of the family's name;
	// "" means none.
	fallback string
	// args starts the shell on its control pipe. As a script it has no prompt, no
	// history and reads no startup files.
	args func(argv0, control string) []string
	// title is how the command line of a driven shell begins, up to what
	// controlPath matches.
	title func(argv0 string) string
	// version are the arguments that print the version; nil means that the shell
	// cannot print it.
	version []string

	// boot lists the family's embedded scripts. The last one has the family's name:
	// a new shell sources it.
	boot []bootScript
	// login is the embedded script that sources the startup files of a login shell.
	login string
	// standbyScript is the boot script that forks a standby when it is sourced;
	// "" means that the function __trl_t does.
	standbyScript string
	// exitScript is the boot script that packets source after a caught exit; ""
	// means that the family has none.
	exitScript string

	// prefix precedes the name of a builtin so that no alias and (except for
	// `command` itself in POSIX shells) no function of the user replaces it.
	prefix string
	// exec changes the shell's own streams permanently.
	exec string
	// print is the command that writes a newline and a line, which ends with what arg
	// expands to unless that is empty; nil means printf.
	print func(f *family, line, arg string) string
	// packetPipe puts the control pipe into packet mode: what was written as one
	// packet is read as one, so the shell never has a second line in its buffer
	// when an error makes it discard the buffer.
	packetPipe bool
	// copyReopensControl is true if a promoted copy opens the control pipe by path
	// for every line, so the driver must keep the reading end.
	copyReopensControl bool

	// source returns the script for a command; nil means the command as it is.
	source func(f *family, command string, l *controlLine) string
	// packets are the packets that run a command.
	packets func(f *family, l *controlLine) []string
	// done reports the end of a command; nil means one report of kind reportDone.
	done func(f *family, l *controlLine, to string) string
	// undoAbort removes what soft aborts have set. A trap that is still pending
	// runs after the first assignment.
	undoAbort string
	// undoIsHarmless is true if undoAbort changes nothing of the user's, so that it
	// may be sent to a shell that may not have been aborted.
	undoIsHarmless bool
	// emergency removes the user's functions that replace what reports; "" means
	// that the family has no emergency line.
	emergency string

	// exports is run once before exported tests; "" means nothing.
	exports string
	// exported is the beginning of a case clause that applies if the variable is
	// exported.
	exported func(name string) string
	// cd is the builtin that changes the directory without running hooks.
	cd string
}

// bootScript is an embedded script. It may refer to an earlier one by @NAME@.
type bootScript struct {
	name string
	file string
	fill []string // pairs for strings.NewReplacer, applied before the names
}

//go:embed boot/*.sh
var bootFiles embed.FS

// commonScripts are the boot scripts that all families use.
var commonScripts = []bootScript{{name: "gone", file: "cwd-gone.sh"}}

// named returns a family's matches: NAME, NAME-anything or NAME.anything.
func named(names ...string) func(called, file string) bool {
	return func(_, file string) bool {
		for _, name := range names {
			if file == name || strings.HasPrefix(file, name+"-") || strings.HasPrefix(file, name+".") {
				return true
			}
		}
		return false
	}
}

// fixed returns a family's title for arguments that end with the control path.
func fixed(args func(argv0, control string) []string) func(argv0 string) string {
	return func(argv0 string) string { return strings.Join(args(argv0, ""), " ") }
}

// builtin returns the call of a builtin.
func (f *family) builtin(name string) string { return f.prefix + name }

// redirect returns the command that changes the shell's own streams permanently.
func (f *family) redirect(redirs string) string { return f.exec + " " + redirs + "; " }

// report is the command that writes a report to its stdout. It carries a number and,
// unless arg is empty, what arg expands to.
func (f *family) report(token string, kind reportKind, seq int, arg string) string {
	line := token + " " + string(kind) + " " + strconv.Itoa(seq)
	switch {
	case f.print != nil:
		return f.print(f, line, arg)
	case arg != "":
		return f.builtin("printf") + ` '\n` + line + ` %s\n' ` + arg
	default:
		return f.builtin("printf") + ` '\n` + line + `\n'`
	}
}

// sourced returns the contents of the script for a command.
func (f *family) sourced(command string, l *controlLine) string {
	if f.source == nil {
		return command + "\n"
	}
	return f.source(f, command, l)
}

// reportEnd reports the end of the command to its stdout, with the status that the
// trap of an abort has found, or else the one in __trl_s.
func (f *family) reportEnd(kind reportKind, l *controlLine, to string) string {
	return f.report(l.token, kind, l.seq, `"${__trl_v:-${__trl_s:-0}}"`) + to
}

// doneLine is the last part of what runs a command: it reports the end.
func (f *family) doneLine(l *controlLine, to string) string {
	if f.done != nil {
		return f.done(f, l, to) + "\n"
	}
	return f.reportEnd(reportDone, l, to) + "\n"
}

// reportAsStdout redirects the shell itself to where it reports, and reports there. If
// that can't be opened, the shell still has the stdout of the command: then it reports
// nothing, and leaves that too.
func (f *family) reportAsStdout(l *controlLine, to string) string {
	return f.exec + " " + to + " && " + strings.TrimSuffix(f.doneLine(l, ""), "\n") + " || " + f.exec + " >/dev/null\n"
}

// emergencyLine reports the end of the command with nothing that a function can
// replace; "" means that the family has no such line.
func (f *family) emergencyLine(l *controlLine) string {
	if f.emergency == "" {
		return ""
	}
	return f.emergency + f.doneLine(l, " >|"+l.status)
}

// standby asks the shell to fork a standby. script is the path of standbyScript.
func (f *family) standby(wake, traps, script string) string {
	fork := `__trl_t "$@"`
	if f.standbyScript != "" {
		fork = f.builtin(".") + " " + script
	}
	return "__trl_k=t __trl_w=" + wake + " __trl_q=" + traps + "; " + fork + "; __trl_w= __trl_q=\n"
}

// controlLine is what the driver writes to the control pipe for one command.
type controlLine struct {
	seq           int
	last          int // what $? must be for the user
	script        string
	stdin         string
	stdout        string
	stderr        string
	tty           string // replaces the three above
	wake, traps   string // of the copyFDs
	enter, leave  string // scripts around the command, "" if it needs none
	inCopy        bool   // the shell is an exit copy or a standby that was promoted
	token, status string
	exitScript    string
}

// redirections returns those of the command: what stdout is for the shell itself
// while the command runs, and the rest. An EXIT trap of the user runs after the
// redirections of the command have been undone, so it needs the first.
func (l *controlLine) redirections() (stdout, rest string) {
	if l.tty != "" {
		return "1<>" + l.tty, " <>" + l.tty + " 2<>" + l.tty
	}
	return ">|" + l.stdout, " <" + l.stdin + " 2>|" + l.stderr
}

// restoreStatus precedes what runs the command, and gives $? the status of the
// command before.
func (l *controlLine) restoreStatus() string {
	if l.last == 0 {
		return ""
	}
	return "__trl_r " + strconv.Itoa(l.last) + " || "
}

// packetParts are the parts that the families put together to packets.
type packetParts struct {
	keep, drop       string // assignments of the copyFDs, before and after the command
	toStdout, redirs string // see controlLine.redirections
	base, idle       string // redirect the shell itself to the command's stdout, and away from it
	status           string // the status of the command, after it
	late             string // corrects __trl_s on a terminal
	calm             string // assignment that clears a key of the terminal
	enter, leave     string // source the scripts around the command
	to               string // redirects a report
}

func (f *family) parts(l *controlLine) packetParts {
	p := packetParts{
		keep: "__trl_v= __trl_w=" + l.wake + " __trl_q=" + l.traps, drop: "__trl_w= __trl_q=",
		status: "$?", to: " >|" + l.status, idle: f.redirect(">/dev/null"),
	}
	p.toStdout, p.redirs = l.redirections()
	p.base = f.redirect(p.toStdout)
	if l.tty != "" {
		// The trap for the terminal's keys, in the boot scripts, has set __trl_i.
		p.status, p.late, p.calm = "${__trl_i:-$?}", "__trl_s=${__trl_i:-$__trl_s}; ", "__trl_i="
	}
	if l.enter != "" {
		p.enter = "__trl_u=" + l.stderr + "; " + f.builtin(".") + " " + l.enter + "; "
		p.leave = f.builtin(".") + " " + l.leave + "; "
	}
	return p
}
