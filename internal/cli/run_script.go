package cli

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/internal/shell"
)

// scriptReader is a stdin from which the shell that started us reads its script.
// It warns once there was something to read: from then on that part of the script
// is the command's input, and the shell does not run it.
type scriptReader struct {
	io.Reader
	warn   func(string)
	warned bool
}

func (r *scriptReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if n > 0 && !r.warned {
		r.warned = true
		r.warn("the command reads the rest of the script from stdin; use `trl run -n` in a script that your shell reads from stdin")
	}
	return n, err
}

// isScriptOf reports whether a process, given by its directory in /proc, is a
// shell that reads its script from stdin. It is false where it can't be known:
// the warning must never be wrong.
func isScriptOf(process string, stdin io.Reader) bool {
	file, ok := stdin.(*os.File)
	if !ok {
		return false
	}
	ours, err := file.Stat()
	if err != nil {
		return false
	}
	theirs, err := os.Stat(filepath.Join(process, "fd", "0"))
	if err != nil || !os.SameFile(ours, theirs) {
		return false
	}
	cmdline, err := os.ReadFile(filepath.Join(process, "cmdline"))
	return err == nil && readsScriptFromStdin(strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00"))
}

// readsScriptFromStdin reports whether the arguments start a shell that reads its
// commands from stdin: without -c and without a script, or with -s.
func readsScriptFromStdin(argv []string) bool {
	name := strings.TrimPrefix(filepath.Base(argv[0]), "-") // a login shell has the dash
	if name != "sh" && !slices.Contains(shell.Names(), name) {
		return false
	}
	for i := 1; i < len(argv); i++ {
		switch arg := argv[i]; {
		case arg == "-" || arg == "--":
			return i == len(argv)-1
		case strings.HasPrefix(arg, "--"):
			if arg == "--rcfile" || arg == "--init-file" {
				i++ // its file
			}
		case strings.HasPrefix(arg, "-") || strings.HasPrefix(arg, "+"):
			switch {
			case strings.Contains(arg, "c"):
				return false
			case strings.Contains(arg, "s"):
				return true
			case strings.ContainsAny(arg, "oO"):
				i++ // the name of an option
			}
		default:
			return false
		}
	}
	return true
}
