package shell

// Bash is the family of bash.
const Bash Family = "bash"

var bash = family{
	name:    Bash,
	matches: named("bash"),
	args:    bashArgs,
	title:   fixed(bashArgs),
	version: []string{"--version"},

	boot:  []bootScript{{name: string(Bash), file: "bash.sh"}},
	login: "login-bash.sh",

	prefix:             builtinPrefix,
	exec:               `\command \exec`, // `builtin exec` undoes its redirections again
	copyReopensControl: true,

	packets:   bashPackets,
	undoAbort: bashUndoAbort,
	emergency: `POSIXLY_CORRECT=1; \unset -f builtin command printf eval . trap set shopt read unset exit kill exec cd; \set +o posix; `,

	exported: func(name string) string { return "case ${" + name + "+${" + name + "@a}} in *x*)" },
	cd:       builtinPrefix + "cd",
}

// builtinPrefix is for shells that have the builtin `builtin`.
const builtinPrefix = `\builtin \`

// bashUndoAbort removes a DEBUG trap, which looks like one of the user's.
const bashUndoAbort = `__trl_v=; \builtin \trap - DEBUG; \builtin \shopt -u extdebug; \builtin \set +T`

func bashArgs(_, control string) []string {
	return []string{"bash", "--norc", "--noprofile", control}
}

func bashPackets(f *family, l *controlLine) []string {
	p := f.parts(l)
	if l.tty != "" {
		p.calm = `[[ -z ${__trl_i-} ]] || { ` + f.undoAbort + `; __trl_i=; }; `
	}
	if l.inCopy {
		// What redirections of the dot hide stays open in an exit copy, and in its
		// exit copies.
		p.base, p.redirs, p.idle = f.redirect(p.toStdout+p.redirs), "", f.redirect("</dev/null >/dev/null 2>&1")
	} else {
		p.base, p.idle = "", "" // its EXIT traps run before redirections are undone
		p.redirs += " " + p.toStdout
	}
	p.keep += " __trl_o=" + l.stdout + " __trl_u=" + l.stderr
	p.drop += " __trl_o= __trl_u="
	return []string{p.keep + "; " + p.base + p.enter + l.restoreStatus() + f.builtin(".") + " " + l.script + p.redirs +
		"; __trl_s=" + p.status + " " + p.drop + "; " + p.calm + p.leave + p.idle + f.doneLine(l, p.to)}
}
