package place

import (
	"fmt"
	"strings"
)

// remoteCommand returns a command line for the login shell of a remote user, which
// runs script in sh with args as its parameters and leaves standard input to it. The
// login shell may be of any family: POSIX, csh or fish.
//
// Between single quotes they differ in the meaning of a quote, a backslash before
// some characters, an exclamation mark and a newline. None of these is in the command
// line: printf makes them, and what else is special to it or between double quotes,
// from octal digits.
func remoteCommand(script string, args []string) string {
	var b strings.Builder
	b.WriteString(`exec sh -c 'eval "$(printf "`)
	if len(args) > 0 {
		escapeOctal(&b, "set --")
		for _, arg := range args {
			escapeOctal(&b, " '"+strings.ReplaceAll(arg, "'", `'\''`)+"'")
		}
		escapeOctal(&b, "\n")
	}
	escapeOctal(&b, script)
	b.WriteString(`")"'`)
	return b.String()
}

// escapeOctal writes s as a part of the format of printf.
func escapeOctal(b *strings.Builder, s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || strings.IndexByte("'\"\\!%$`^", c) >= 0 {
			fmt.Fprintf(b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
}

// checkHost returns what is wrong with [USER@]HOST; "" if nothing is. It becomes a
// word of the command line of ssh, and of commands of the user's ssh configuration
// (ProxyCommand, Match exec), which a shell runs.
func checkHost(address string) string {
	user, host := "", address
	if i := strings.LastIndexByte(address, '@'); i >= 0 {
		user, host = address[:i], address[i+1:]
		if user == "" {
			return "has no user before the @"
		}
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	switch {
	case host == "":
		return "has no host"
	case host[0] == '-' || strings.HasPrefix(user, "-"):
		return "has a name that begins with a dash"
	case strings.Trim(host, letters+"-._:%") != "" || strings.Trim(user, letters+"-._+@") != "":
		return "has a character that names of hosts and users do not have"
	}
	return ""
}
