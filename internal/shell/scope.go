package shell

import (
	"fmt"
	"strconv"
	"strings"
)

// scope returns the scripts that give one command its own environment and working
// directory, and take them away again. Values are in the scripts, never in the
// control line or an argv.
//
// The previous value of a variable, and whether it was exported, are kept in
// variables of the driver, so that an exit copy can restore them too. They are
// restored once, however often leave is sourced.
func (f *family) scope(env []string, dir, gone string) (enter, leave string) {
	var in, out strings.Builder
	in.WriteString("__trl_n=1\n")
	out.WriteString("case ${__trl_n-} in 1)\n__trl_n=\n")
	export, unset := f.builtin("export"), f.builtin("unset")
	if len(env) > 0 {
		in.WriteString(f.exports)
	}
	for i, kv := range env {
		name, value, set := strings.Cut(kv, "=")
		was, exported := "__trl_v"+strconv.Itoa(i), "__trl_x"+strconv.Itoa(i)
		fmt.Fprintf(&in, "case ${%s+x} in x) %s=$%s;; *) %s %s;; esac\n", name, was, name, unset, was)
		fmt.Fprintf(&in, "%s %s=x;; *) %s=;; esac\n", f.exported(name), exported, exported)
		if set {
			fmt.Fprintf(&in, "%s %s=%s\n", export, name, quote(value))
		} else {
			fmt.Fprintf(&in, "%s %s\n", unset, name)
		}
		fmt.Fprintf(&out, "%s %s\ncase ${%s+x} in x) %s=$%s;; esac\n", unset, name, was, name, was)
		fmt.Fprintf(&out, "case $%s in x) %s %s;; esac\n%s %s %s\n", exported, export, name, unset, was, exported)
	}
	if dir != "" {
		fmt.Fprintf(&in, "__trl_f= __trl_od=$PWD __trl_op=${OLDPWD-}\n"+
			"%s -- %s >/dev/null 2>&1 && __trl_cd=$PWD || __trl_f=%s __trl_cd=\n", f.cd, quote(dir), gone)
		fmt.Fprintf(&out, "case $PWD in \"$__trl_cd\") %s -- \"$__trl_od\" >/dev/null 2>&1; OLDPWD=$__trl_op;; esac\n"+
			"%s __trl_f __trl_cd __trl_od __trl_op __trl_u\n", f.cd, unset)
	}
	out.WriteString("esac\n")
	return in.String(), out.String()
}

// quote makes one word of s in every shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
