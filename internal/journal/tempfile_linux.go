package journal

import (
	"os"

	"golang.org/x/sys/unix"
)

// openTmpfile returns nil if the file system of dir can't create a file without
// a name.
func openTmpfile(dir string) *os.File {
	// O_EXCL: it can't be given a name later either.
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "journal")
}
