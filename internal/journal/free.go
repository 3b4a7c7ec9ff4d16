package journal

import (
	"math"

	"golang.org/x/sys/unix"
)

// freeSpace returns how many more bytes files in dir can take. If that is
// unknown it returns a very large number: a write will fail if there is no
// room.
func freeSpace(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return math.MaxInt64
	}
	return int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // their types differ between systems
}
