package escape

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// writeAttempts change what is outside the writable roots.
func writeAttempts() []attempt {
	// Landlock does not know metadata, and leaves /dev/shm writable.
	metadata := []string{byFilesystem, byListed}
	rows := []attempt{
		{name: "create", try: createOutside},
		{name: "truncate_open", try: func(*scene) error { return at("open", os.WriteFile(canary, nil, 0)) }},
		{name: "truncate_path", try: func(*scene) error { return at("truncate", unix.Truncate(canary, 0)) }},
		{name: "append", try: func(*scene) error { return writeTo(canary, unix.O_APPEND) }},
		{name: "write_mapped", try: writeMapped},
		{name: "rename_over", try: func(*scene) error { return at("rename", os.Rename(work+"/mine", canary)) }},
		{name: "rename_away", try: func(*scene) error { return at("rename", os.Rename(canary, work+"/taken")) }},
		{name: "rename_exchange", try: renameExchange},
		{name: "rename_directory", try: func(*scene) error { return at("rename", os.Rename(outside, stageDir+"/moved")) }},
		{name: "unlink", try: func(*scene) error { return at("unlink", os.Remove(canary)) }},
		{name: "mkdir", try: func(*scene) error { return at("mkdir", os.Mkdir(outside+"/new", 0o755)) }},
		{name: "symlink", try: func(*scene) error { return at("symlink", os.Symlink("canary", outside+"/new")) }},
		{name: "bind_socket", try: bindOutside},
		{name: "hard_link_in", try: hardLinkIn},
		{name: "hard_link_out", try: func(*scene) error { return at("link", os.Link(work+"/mine", outside+"/new")) }},
		{name: "symlink_follow", try: symlinkFollow},
		{name: "symlink_race", try: symlinkRace},
		{name: "tmpfile_outside", try: func(*scene) error { return tmpfile(outside) }},
		{name: "tmpfile_link_out", try: func(*scene) error { return tmpfile(work) }},
		{name: "proc_self_root", try: func(*scene) error { return writeTo("/proc/self/root"+canary, 0) }},
		{name: "dot_dot", try: func(*scene) error { return writeTo(work+"/../outside/canary", 0) }},
		{name: "chmod", alone: metadata, try: func(*scene) error { return at("chmod", unix.Chmod(canary, 0o777)) }},
		{name: "chmod_descriptor", alone: metadata, try: chmodDescriptor},
		{name: "chown", who: root, try: func(*scene) error { return at("chown", unix.Chown(canary, guestID, guestID)) }},
		{name: "utimes", alone: metadata, try: func(*scene) error { return at("utimes", os.Chtimes(canary, time.Unix(1, 0), time.Unix(1, 0))) }},
		{name: "setxattr", alone: metadata, absent: []syscall.Errno{unix.EOPNOTSUPP}, try: func(*scene) error {
			return at("setxattr", unix.Setxattr(canary, "user.escape", []byte(overwrite), 0))
		}},
		{name: "shared_memory_file", alone: metadata, try: func(*scene) error { return writeTo("/dev/shm/escape", 0) }},
		{name: "home_startup_file", try: func(*scene) error { return writeTo("/srv/home/.bashrc", unix.O_APPEND) }},
		{name: "inherited_directory", try: inheritedDirectory, prepare: leakDirectory},
		{name: "nested_remount", alone: metadata, try: func(s *scene) error { return nested(s, "remount") }},
		{name: "mkfifo", try: func(*scene) error { return at("mkfifo", unix.Mkfifo(outside+"/new", 0o644)) }},
	}
	for i := range rows {
		rows[i].group, rows[i].changes = "write outside", true
		if rows[i].who == nil {
			rows[i].who = both
		}
		if rows[i].alone == nil {
			rows[i].alone = []string{byFilesystem, byListed, byLandlock}
		}
	}
	return rows
}

func createOutside(*scene) error {
	f, err := os.Create(outside + "/new")
	if err != nil {
		return at("create", err)
	}
	return f.Close()
}

// writeTo overwrites the beginning of a file, or appends to it.
func writeTo(name string, flags int) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return at("open", err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(overwrite))
	return at("write", err)
}

func writeMapped(*scene) error {
	fd, err := unix.Open(canary, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return at("open", err)
	}
	defer unix.Close(fd)
	page, err := unix.Mmap(fd, 0, len(untouched), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return at("mmap", err)
	}
	copy(page, overwrite)
	return at("msync", unix.Msync(page, unix.MS_SYNC))
}

func renameExchange(*scene) error {
	return exchange(work+"/mine", canary)
}

func bindOutside(*scene) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return at("bind", unix.Bind(fd, &unix.SockaddrUnix{Name: outside + "/new"}))
}

func hardLinkIn(*scene) error {
	if err := os.Link(canary, work+"/linked"); err != nil {
		return at("link", err)
	}
	return writeTo(work+"/linked", 0)
}

func symlinkFollow(*scene) error {
	if err := os.Symlink(canary, work+"/follow"); err != nil {
		return err
	}
	return writeTo(work+"/follow", 0)
}

// symlinkRace exchanges a directory inside with a symbolic link to one outside while it
// creates files below that name, so that a check of the path is true when it is made
// and false when it is used.
func symlinkRace(*scene) error {
	inner, link := work+"/race", work+"/race-link"
	if err := os.Mkdir(inner, 0o755); err != nil {
		return err
	}
	if err := os.Symlink(doorstep, link); err != nil {
		return err
	}
	done := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, inner, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				done <- err
				return
			}
		}
	}()
	const enough, most = 3000, 1 << 20
	var last error
	through := func() bool {
		text, err := os.ReadFile(doorstep + "/file")
		return err == nil && string(text) == overwrite
	}
	for i := range most {
		if err := os.WriteFile(inner+"/file", []byte(overwrite), 0o644); err != nil {
			last = err
		}
		if i%100 == 0 && through() || i > enough && last != nil {
			break
		}
		runtime.Gosched()
	}
	close(stop)
	if err := <-done; err != nil {
		return err
	}
	if through() {
		return nil
	}
	if last == nil {
		return errors.New("the race was never lost")
	}
	return at("open", last)
}

// tmpfile makes a file without a name in a directory, and links it outside.
func tmpfile(dir string) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return at("open", err)
	}
	defer unix.Close(fd)
	return at("linkat", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, outside+"/new", unix.AT_SYMLINK_FOLLOW))
}

// chmodDescriptor changes the mode of a file that it may open for reading.
func chmodDescriptor(*scene) error {
	fd, err := unix.Open(canary, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return at("open", err)
	}
	defer unix.Close(fd)
	return at("fchmod", unix.Fchmod(fd, 0o777))
}

// leakDirectory leaves a descriptor of the directory outside open in the launcher.
func leakDirectory(s *stage) error {
	dir, err := os.Open(filepath.Dir(canary))
	if err != nil {
		return err
	}
	for range 4 { // the launcher may need some numbers itself
		s.extraFiles = append(s.extraFiles, dir)
	}
	return nil
}

// inheritedDirectory writes by any descriptor of the directory that it was left.
func inheritedDirectory(*scene) error {
	const most = 1024
	for dir := 3; dir < most; dir++ {
		fd, err := unix.Openat(dir, filepath.Base(canary), unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = unix.Write(fd, []byte(overwrite))
			return at("write", err)
		}
		if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
			return at("openat", err)
		}
	}
	return at("openat", unix.EBADF)
}

// dialUnix connects to a socket by its path and reads the greeting.
func dialUnix(path string) error {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return at("connect", err)
	}
	defer c.Close()
	return greeted(c)
}

// pointer returns the address of a value for a raw system call. The value must stay
// reachable until the call returned.
func pointer[T any](v *T) uintptr { return uintptr(unsafe.Pointer(v)) }

// exchange swaps two files or directories in one step.
func exchange(a, b string) error {
	return at("renameat2", unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE))
}
