package shell

import (
	"fmt"
	"strconv"
	"strings"
)

// scope makes the texts that give one command its own environment and working
// directory, and take them away again. Values stand in the texts, never in the
// control line or an argv.
//
// What a variable was before, its value and whether it was exported, is kept
// in variables of the driver's own, so that an heir can put it back too. It is
// put back once, however often it is said.
func (f Family) scope(env []string, dir, gone string) (enter, leave string) {
	var in, out strings.Builder
	in.WriteString("__trl_n=1\n")
	out.WriteString("case ${__trl_n-} in 1)\n__trl_n=\n")
	export, unset := f.builtin("export"), f.builtin("unset")
	if len(env) > 0 && (f == Dash || f == Ash) {
		// These two tell what is exported only by printing it.
		fmt.Fprintf(&in, "__trl_l='\n'$(%s -p)\n", export)
	}
	for i, kv := range env {
		name, value, set := strings.Cut(kv, "=")
		was, exported := "__trl_v"+strconv.Itoa(i), "__trl_x"+strconv.Itoa(i)
		fmt.Fprintf(&in, "case ${%s+x} in x) %s=$%s;; *) %s %s;; esac\n", name, was, name, unset, was)
		switch f {
		case Bash:
			fmt.Fprintf(&in, "case ${%s@a} in *x*) %s=x;; *) %s=;; esac\n", name, exported, exported)
		case Zsh:
			fmt.Fprintf(&in, "case ${(t)%s} in *export*) %s=x;; *) %s=;; esac\n", name, exported, exported)
		default:
			fmt.Fprintf(&in, "case $__trl_l in *'\nexport %s='*) %s=x;; *) %s=;; esac\n", name, exported, exported)
		}
		if set {
			fmt.Fprintf(&in, "%s %s=%s\n", export, name, quote(value))
		} else {
			fmt.Fprintf(&in, "%s %s\n", unset, name)
		}
		fmt.Fprintf(&out, "%s %s\ncase ${%s+x} in x) %s=$%s;; esac\n", unset, name, was, name, was)
		fmt.Fprintf(&out, "case $%s in x) %s %s;; esac\n%s %s %s\n", exported, export, name, unset, was, exported)
	}
	if dir != "" {
		cd := f.builtin("cd")
		if f == Zsh {
			cd += " -q" // no chpwd hooks
		}
		fmt.Fprintf(&in, "__trl_f= __trl_od=$PWD __trl_op=${OLDPWD-}\n"+
			"%s -- %s >/dev/null 2>&1 && __trl_cd=$PWD || __trl_f=%s __trl_cd=\n", cd, quote(dir), gone)
		fmt.Fprintf(&out, "case $PWD in \"$__trl_cd\") %s -- \"$__trl_od\" >/dev/null 2>&1; OLDPWD=$__trl_op;; esac\n"+
			"%s __trl_f __trl_cd __trl_od __trl_op __trl_u\n", cd, unset)
	}
	out.WriteString("esac\n")
	return in.String(), out.String()
}

// quote makes one word of s in every shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
