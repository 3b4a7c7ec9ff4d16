package shell

// Dash is the family of dash and other strictly POSIX shells derived from it.
const Dash Family = "dash"

var dash = family{
	name:    Dash,
	matches: named("dash"),
	// The last word is $0, with which its messages begin.
	args: func(argv0, control string) []string { return []string{argv0, "-c", ". " + control, argv0} },
	// Without -c: older daemons started it like that. controlPath allows both.
	title: func(argv0 string) string { return argv0 + " " },

	boot: []bootScript{
		{name: "dash-copy", file: "dash-copy.sh", fill: []string{"@DOT@", `\command \.`, "@KEYS@", `\:`}},
		{name: string(Dash), file: "dash.sh", fill: []string{"@COPY@", "@DASH-COPY@"}},
	},
	login: "login-posix.sh",

	prefix: posixPrefix,
	exec:   posixPrefix + "exec",

	source:         dashSource,
	packets:        dashPackets,
	undoAbort:      forgetAbort,
	undoIsHarmless: true,
	emergency:      posixEmergency,

	exports:  posixExports,
	exported: posixExported,
	cd:       posixPrefix + "cd",
}

// What dash, ash and others have in common.
const (
	posixPrefix    = `\command \`
	posixEmergency = `\unset -f command printf read kill; `
	// posixExports is for shells that show what is exported only by printing it.
	posixExports = "__trl_l='\n'$(" + posixPrefix + "export -p)\n"
	// forgetAbort clears the note of an abort that came before a command began.
	forgetAbort = "__trl_a=; __trl_a="
)

func posixExported(name string) string { return "case $__trl_l in *'\nexport " + name + "='*)" }

// dashSource evaluates the command, because messages of dash begin with the path of
// what it sources, but not with that of what is evaluated in it. The evaluation has
// the redirections, so that `set -x` does not show it to the user. A command that is
// aborted before it begins returns at once.
//
// Under `set -e` the evaluation itself must not end the shell when a list like
// `false && x` is all that it did, so it ends with something that succeeds. The empty
// line is for a command that ends with a backslash.
func dashSource(_ *family, command string, l *controlLine) string {
	_, redirs := l.redirections()
	return `__trl_b=1; case $-${__trl_a-} in *1*) \return 143;; *e*) __trl_g='` + "\n\n" + `__trl_s=$?';; *) __trl_g=;; esac; ` +
		l.restoreStatus() + `\eval ` + quote(command) + `"$__trl_g"` + redirs + "\n"
}

// dashPackets redirects the shell to the status pipe instead of /dev/null, which
// saves two redirections.
func dashPackets(f *family, l *controlLine) []string {
	p := f.parts(l)
	return []string{p.keep + " __trl_s=0; " + p.base + p.enter + f.builtin(".") + " " + l.script +
		" || __trl_s=$?; " + p.late + "__trl_b= " + p.calm + " " + p.drop + "; " + p.leave + f.reportAsStdout(l, p.to)}
}
