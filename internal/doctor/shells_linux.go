package doctor

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/internal/shell"
)

// shells checks which shells are available for sessions.
func shells(ctx context.Context) []Finding {
	var found []string
	seen := map[string]bool{}
	for _, name := range append([]string{"sh"}, shell.Names()...) {
		program, ok := shell.Find(name)
		if !ok || program.Family == "" {
			continue
		}
		text := name
		if string(program.Family) != name {
			text += fmt.Sprintf(" (%s)", program.Family)
		}
		if version := versionOf(ctx, program); version != "" && !seen[version] {
			seen[version] = true
			text += " " + version
		}
		found = append(found, text)
	}
	if len(found) == 0 {
		return []Finding{problem("shells", "sudo apt-get install dash", "found no shell that a session can use: %s", shell.Alternatives())}
	}
	return []Finding{ok("shells", "%s", strings.Join(found, ", "))}
}

// versionTimeout is how long a shell may take to print its version.
const versionTimeout = 2 * time.Second

// versionOf returns the version of a shell; "" if it cannot print one, like dash.
func versionOf(ctx context.Context, program shell.Program) string {
	args := program.VersionArgs()
	if args == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	file, err := filepath.EvalSymlinks(program.Path)
	if err != nil {
		return ""
	}
	output, _ := exec.CommandContext(ctx, file, args...).CombinedOutput() // busybox exits with 1, but prints it
	for field := range strings.FieldsSeq(string(output)) {
		field = strings.TrimPrefix(strings.TrimRight(field, ","), "v")
		if field != "" && field[0] >= '0' && field[0] <= '9' && strings.Contains(field, ".") {
			return field
		}
	}
	return ""
}
