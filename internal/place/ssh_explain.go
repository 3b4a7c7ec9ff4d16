package place

import (
	"fmt"
	"strings"

	"github.com/terminal-runtime/trl/internal/printable"
)

// explainLogin returns why ssh could not log in, by what it wrote to standard error.
// It exits with 255 whatever happened.
func explainLogin(host, stderr string) *refusal {
	says := func(texts ...string) bool {
		for _, text := range texts {
			if strings.Contains(stderr, text) {
				return true
			}
		}
		return false
	}
	r := &refusal{reason: unknown, message: fmt.Sprintf("ssh could not log in to %s", host), hint: fmt.Sprintf("run `ssh %s` in a terminal to see why", host)}
	switch {
	case says("REMOTE HOST IDENTIFICATION HAS CHANGED"):
		r.reason, r.message = badHostKey, fmt.Sprintf("the host key of %s has changed", host)
		r.hint = fmt.Sprintf("find out why; if the new key is right, run `ssh-keygen -R` with the name of the host and `ssh %s` once in a terminal", host)
	case says("Host key verification failed", "host key is known"):
		r.reason, r.message = badHostKey, fmt.Sprintf("ssh does not know the host key of %s", host)
		r.hint = fmt.Sprintf("run `ssh %s` once in a terminal, and compare the key before you accept it", host)
	case says(": Permission denied (", "Too many authentication failures", "No supported authentication methods", "Permission denied, please try again"):
		r.reason, r.message = noAccess, fmt.Sprintf("%s refuses the login", host)
		r.hint = fmt.Sprintf("`ssh -o BatchMode=yes %s true` must work for the daemon's user: with a key that has no passphrase, or with an agent that the daemon was started with", host)
	case says("Could not resolve hostname", "Connection refused", "timed out", "No route to host", "is unreachable",
		"Connection closed", "Connection reset", "Name or service not known", "not responding", "Broken pipe"):
		r.reason = unreachable
		r.message = fmt.Sprintf("ssh can't reach %s", host)
		r.hint = fmt.Sprintf("check the name and the network with `ssh %s true`", host)
	}
	r.message += lastLine(stderr)
	return r
}

// isChannelRefused reports whether the server, or the master, refuses one more
// session. Those that are there go on.
func isChannelRefused(stderr string) bool {
	return strings.Contains(stderr, "Session open refused by peer")
}

// isMasterLost reports whether ssh did not find its master, or lost it before the
// remote command ran. ssh has no other way to the host then: see channelOptions.
func isMasterLost(stderr string) bool {
	return strings.Contains(stderr, "mux_client_") || strings.Contains(stderr, "Connection closed by UNKNOWN port")
}

// lastLine returns the last words of ssh for the end of a message.
func lastLine(stderr string) string {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if last := strings.TrimSpace(printable.Text(lines[len(lines)-1])); last != "" {
		return ": " + last
	}
	return ""
}
