package confine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Sockets returns the paths of all Unix sockets that programs in this network
// namespace have bound and that still exist, free of symbolic links, sorted. A
// program can connect to a socket that it can see, even on a read-only mount, so
// callers hide them: an agent of keys or an engine of containers is a way out.
func Sockets() ([]string, error) {
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, fmt.Errorf("list sockets: %w", err)
	}
	var list []string
	for line := range strings.Lines(string(text)) {
		_, name, ok := strings.Cut(line, " /")
		if !ok {
			continue // the heading, abstract or without a name
		}
		target, err := filepath.EvalSymlinks("/" + strings.TrimSuffix(name, "\n"))
		if err != nil {
			continue // removed, or of another mount namespace
		}
		if st, err := os.Lstat(target); err == nil && st.Mode().Type() == os.ModeSocket {
			list = append(list, target)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}
