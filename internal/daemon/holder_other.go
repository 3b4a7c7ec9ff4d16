//go:build !linux

package daemon

import "os"

// BecomeHolder returns an error: without sessions there is nothing to hold.
func BecomeHolder(Config, []string, bool, *os.File) (int, error) {
	return 1, errLinuxOnly
}
