//go:build !linux

package daemon

import (
	"errors"
	"os"
)

// Hold is for Linux alone, as the daemon is.
func BecomeHolder(Config, []string, bool, *os.File) (int, error) {
	return 1, errors.New("the daemon runs on Linux only")
}
