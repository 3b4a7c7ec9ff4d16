package daemon

import (
	"os"
	"strconv"
	"strings"
)

// LogTarget returns where the holder and its daemon log to, in the kernel's words:
// the path of a file or a terminal, or the likes of "pipe:[4711]".
func (h *Holder) LogTarget() (string, error) {
	return os.Readlink("/proc/" + strconv.Itoa(h.PID()) + "/fd/2")
}

// Unit returns the systemd unit that the holder belongs to, and whether it is one of
// a user's own; "" if it belongs to none.
func (h *Holder) Unit() (name string, ofUser bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(h.PID()) + "/cgroup")
	if err != nil {
		return "", false
	}
	return unitOf(string(text))
}

// unitOf returns the unit in the contents of a /proc/PID/cgroup. The service of a
// user's manager contains everything that the user runs, and says nothing.
func unitOf(cgroups string) (name string, ofUser bool) {
	for line := range strings.Lines(cgroups) {
		for part := range strings.SplitSeq(strings.TrimSpace(line), "/") {
			switch {
			case !strings.HasSuffix(part, ".service"):
			case strings.HasPrefix(part, "user@"):
				name, ofUser = "", true
			default:
				name = part
			}
		}
		if name != "" {
			return name, ofUser
		}
	}
	return "", false
}
