package shell

import "strings"

// Zsh is the family of zsh.
const Zsh Family = "zsh"

var zsh = family{
	name:    Zsh,
	matches: func(_, file string) bool { return strings.HasPrefix(file, "zsh") }, // zsh5
	args:    zshArgs,
	title:   fixed(zshArgs),
	version: []string{"--version"},

	boot: []bootScript{
		{name: "zsh-copy", file: "zsh-copy.sh"},
		{name: "zsh-exit", file: "zsh-exit.sh"},
		{name: string(Zsh), file: "zsh.sh", fill: []string{"@COPY@", "@ZSH-COPY@"}},
	},
	login:         "login-zsh.sh",
	standbyScript: "zsh-copy",
	exitScript:    "zsh-exit",

	prefix:             builtinPrefix,
	exec:               builtinPrefix + "exec",
	copyReopensControl: true,

	source:         zshSource,
	packets:        zshPackets,
	done:           zshDone,
	undoAbort:      forgetAbort,
	undoIsHarmless: true,

	exported: func(name string) string { return "case ${" + name + "+${(t)" + name + "}} in *export*)" },
	cd:       builtinPrefix + "cd -q", // no chpwd hooks
}

func zshArgs(_, control string) []string { return []string{"zsh", "-f", control} }

// zshSource evaluates the command for the reasons that dashSource has.
func zshSource(f *family, command string, l *controlLine) string {
	_, redirs := l.redirections()
	return `__trl_b=1; [[ -z ${__trl_a-} ]] || ` + f.builtin("return") + " 143; " +
		l.restoreStatus() + f.builtin("eval") + " " + quoteZsh(command) + redirs + "\n"
}

// quoteZsh makes one word of s under any options, csh_junkie_quotes and rc_quotes too.
func quoteZsh(s string) string {
	return "$'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`).Replace(s) + "'"
}

func zshPackets(f *family, l *controlLine) []string {
	p := f.parts(l)
	errexit := "[[ -z ${__trl_E-} ]] || { __trl_E=; " + f.builtin("set") + " -e; }; "
	return []string{p.keep + " __trl_x=; " + errexit + p.base + p.enter + "{ " + f.builtin(".") + " " + l.script +
		"; } always { __trl_s=${__trl_x:-" + p.status + "} __trl_b= " + p.calm + "; TRY_BLOCK_ERROR=0 TRY_BLOCK_INTERRUPT=0; }; [[ -z $__trl_x ]] || " +
		f.builtin(".") + " " + l.exitScript + "; " + p.drop + "; " + p.leave + p.idle + f.doneLine(l, p.to)}
}

// zshDone also reports whether the command called exit, which its boot script caught.
func zshDone(f *family, l *controlLine, to string) string {
	return "if [[ -z $__trl_x ]]; then " + f.reportEnd(reportDone, l, to) + "; else " + f.reportEnd(reportCalledExit, l, to) + "; fi"
}
