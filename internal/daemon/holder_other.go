//go:build !linux

package daemon

import (
	"errors"
	"os"
)

// BecomeHolder returns an error: the daemon runs on Linux only.
func BecomeHolder(Config, []string, bool, *os.File) (int, error) {
	return 1, errors.New("the daemon runs on Linux only")
}
