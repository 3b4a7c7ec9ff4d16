//go:build !linux

package journal

import "golang.org/x/sys/unix"

func growPipe(int) {}

// pipeWaiting always returns 0, which means unknown: every pull goes through a
// buffer.
func pipeWaiting(int) int { return 0 }

func pipeState(int) error { return errNoSplice }

func splicePipe(_, _, _ int, _ bool) (int, error) { return 0, unix.EINVAL }
