package shell

// Mksh is the family of the MirBSD Korn shell.
const Mksh Family = "mksh"

var mksh = family{
	name:    Mksh,
	matches: named("mksh"),
	// As dash: the last word is $0, with which its messages begin.
	args:  func(argv0, control string) []string { return []string{argv0, "-c", ". " + control, argv0} },
	title: func(argv0 string) string { return argv0 + " " },

	boot:  []bootScript{{name: string(Mksh), file: "mksh.sh"}},
	login: "login-posix.sh",

	prefix:             builtinPrefix,
	exec:               builtinPrefix + "exec",
	print:              mkshPrint,
	copyReopensControl: true,

	source:         mkshSource,
	packets:        mkshPackets,
	undoAbort:      mkshDisarm + forgetAbort,
	undoIsHarmless: true,
	emergency:      `\unset -f builtin print read kill cd typeset; `,

	exported: func(name string) string {
		return "case $(" + builtinPrefix + "typeset -p " + name + " 2>/dev/null) in 'typeset -x'*)"
	},
	cd: builtinPrefix + "cd",
}

const (
	// mkshDisarm removes the ERR trap of an abort. That of the user is lost. It
	// restores `set -e`.
	mkshDisarm = `case ${__trl_R-} in ?*) __trl_R=; \trap - ERR;; esac; case ${__trl_E-} in ?*) __trl_E=; \set -e;; esac; `
	// mkshStatus is `__trl_s=$?` in an expansion, which is not traced.
	mkshStatus = "case $((__trl_s=$?)) in *) ;; esac"
	// mkshTrace sets __trl_G to what makes traces go to the stderr of the command:
	// they go to what stderr was at the last `set -x`. $? is 0 after it.
	mkshTrace = `case $- in *x*) __trl_G='\set -x; ';; *) __trl_G=;; esac; `
	// mkshEnd undoes mkshTrace, with a copy's stderr as it is between commands, and
	// `set -n`, after which the shell would execute no other line.
	mkshEnd = `case $- in *x*) \set +x; \exec 2>/dev/null; \set -x;; esac; case $- in *n*) \set +n;; esac; `
)

// mkshPrint: printf is not a builtin of mksh.
func mkshPrint(f *family, line, arg string) string {
	if arg != "" {
		line += " "
	}
	return f.builtin("print") + ` '\n` + line + "'" + arg
}

// mkshSource evaluates the command for the reasons that dashSource has. A copy
// evaluates it without a dot; see mkshPackets.
func mkshSource(_ *family, command string, l *controlLine) string {
	if l.inCopy {
		return command + "\n"
	}
	_, redirs := l.redirections()
	return `__trl_b=1; case ${__trl_a-} in ?*) \return 143;; esac; ` + mkshTrace +
		`case $- in *e*) __trl_g=$'\n\n` + mkshStatus + `';; *) __trl_g=;; esac; ` +
		l.restoreStatus() + `\eval "$__trl_G"` + quote(command) + `"$__trl_g"` + redirs + "\n"
}

// mkshPackets: an exit copy keeps the descriptors of the dot that it was forked in,
// and what redirections of a command hide. mksh has room for 118 of them, and a copy
// may be the last of many. So copies have neither: there an abort, or a return, ends
// the copy, which leaves an exit copy.
func mkshPackets(f *family, l *controlLine) []string {
	p := f.parts(l)
	if l.tty != "" {
		p.late += mkshDisarm
	}
	end := mkshEnd + p.late + "__trl_b= " + p.calm + " " + p.drop + "; " + p.leave
	if !l.inCopy {
		return []string{p.keep + " __trl_s=0; " + p.base + p.enter + f.builtin(".") + " " + l.script + " || " + mkshStatus +
			"; " + end + f.reportAsStdout(l, p.to)}
	}
	run := l.restoreStatus() + `\eval "$__trl_G$(<` + l.script + `)" || ` + mkshStatus
	return []string{p.keep + " __trl_s=0; " + f.redirect(p.toStdout+p.redirs) + p.enter + mkshTrace + "__trl_b=1; " +
		"case ${__trl_a:+a}${__trl_f:+f} in a*) __trl_s=143;; f) " + f.builtin(".") + ` "$__trl_f" || ` + mkshStatus + ";; *) " + run + ";; esac; " +
		end + f.reportAsStdout(l, "</dev/null 2>&1"+p.to)}
}
