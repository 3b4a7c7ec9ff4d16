package process

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ParseSignal parses a signal name (TERM, SIGTERM, in any case) or number.
func ParseSignal(s string) (unix.Signal, bool) {
	if n, err := strconv.Atoi(s); err == nil {
		return unix.Signal(n), n >= 1 && n <= 64
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	sig := unix.SignalNum(name)
	return sig, sig != 0
}

// SignalName returns the signal's name as the protocol spells it: SIGTERM.
func SignalName(sig unix.Signal) string {
	if sig == 0 {
		return ""
	}
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(int(sig))
}
