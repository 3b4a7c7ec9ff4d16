//go:build linux && !amd64 && !arm64

package confine

import (
	"errors"
	"runtime"
)

type filterKind int

const (
	filterAll filterKind = iota
	filterSockets
)

// installFilter fails: there is no table of system calls for this architecture.
func installFilter(filterKind) error {
	return errors.New("no table of system calls for " + runtime.GOARCH)
}
