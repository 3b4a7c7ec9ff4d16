package session

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
)

// checkDir returns an error if dir can't be a working directory. "" stands for the
// daemon's.
func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	st, err := os.Stat(dir)
	if err == nil && !st.IsDir() {
		err = unix.ENOTDIR
	}
	if err == nil {
		err = unix.Access(dir, unix.X_OK)
	}
	if err != nil {
		return api.Errorf(api.CodeCwdNotFound, "cwd: %s", reason(err)).With("cwd", dir).
			WithHint("give an existing directory, or create it first with a command")
	}
	return nil
}

// reason returns the cause of a file error without the path.
func reason(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// errNUL is the error for a text with a NUL byte, which no program can be passed.
func errNUL(field string) error {
	return api.Errorf(api.CodeInvalidParams, "%s has a NUL byte", field).With("field", field).
		WithHint("remove it; to pass such bytes to a program, use its stdin")
}
