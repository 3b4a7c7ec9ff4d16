package shell

import "strings"

// Ash is the family of the shell of busybox.
const Ash Family = "ash"

var ash = family{
	name: Ash,
	// busybox runs the applet that it is called by.
	matches: func(called, file string) bool {
		if strings.HasPrefix(file, "busybox") {
			return called == "ash" || called == "sh" || strings.HasPrefix(called, "busybox")
		}
		return named("ash")(called, file)
	},
	fallback: "busybox", // Debian's comes without links for its applets
	args:     ashArgs,
	title:    fixed(ashArgs),
	version:  []string{"--help"},

	boot: []bootScript{
		// An error in a subshell inside `command .` never ends, and one in a copy
		// ends the copy: there a key ends the program, and not the line.
		{name: "ash-copy", file: "dash-copy.sh", fill: []string{
			"@DOT@", `\.`, "@KEYS@", "case $__trl_y in ?*) \\trap 'case ${__trl_b:+$?} in 130|131) __trl_i=$?;; esac' INT QUIT;; esac",
		}},
		{name: string(Ash), file: "dash.sh", fill: []string{"@COPY@", "@ASH-COPY@"}},
	},
	login: "login-posix.sh",

	prefix:     posixPrefix,
	exec:       posixPrefix + "exec",
	packetPipe: true,

	packets:        ashPackets,
	undoAbort:      forgetAbort,
	undoIsHarmless: true,
	emergency:      posixEmergency,

	exports:  posixExports,
	exported: posixExported,
	cd:       posixPrefix + "cd",
}

// ashArgs makes the shell interactive, because a fatal error must return to its top
// level instead of ending it, and switches job control off, which would need the
// foreground of a terminal. The applet's name comes first.
func ashArgs(_, control string) []string { return []string{"ash", "-i", "+m", control} }

// ashPackets: an error drops the line that the shell is in the middle of, so what
// follows the command is a separate packet. An error in a copy ends the copy.
func ashPackets(f *family, l *controlLine) []string {
	p := f.parts(l)
	run := p.base + p.enter + "case ${__trl_a-} in ?*) ;; *) " + l.restoreStatus() + `\. ` + l.script + p.redirs
	end := "__trl_b= " + p.calm + " " + p.drop + "; " + p.leave + p.idle + f.doneLine(l, p.to)
	if l.inCopy {
		return []string{p.keep + " __trl_s=0 __trl_b=1; " + run + " || __trl_s=$?;; esac; " + p.late + end}
	}
	return []string{p.keep + " __trl_b=1; " + run + ";; esac\n", "__trl_s=" + p.status + " " + end}
}
