package journal

import (
	"math"

	"golang.org/x/sys/unix"
)

// freeSpace returns how many bytes files in dir may still take. Where that can't
// be told it is as if there were room: a write will say.
func freeSpace(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return math.MaxInt64
	}
	return int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // their types differ between systems
}
