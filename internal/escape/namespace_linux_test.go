package escape

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// namespaceAttempts get privileges, by namespaces, programs and mounts.
func namespaceAttempts() []attempt {
	call := []string{bySeccomp}
	none := []syscall.Errno{unix.ENOSYS}
	past1 := func(step string, number uintptr, args [3]uintptr, errnos ...syscall.Errno) func(*scene) error {
		return func(*scene) error {
			_, err := raw(number, args[0], args[1], args[2])
			return past(step, err, errnos...)
		}
	}
	rows := []attempt{
		{name: "unshare_user", who: both, alone: call, try: inChild("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWUSER)},
		{name: "unshare_mount", who: root, alone: call, try: inChild("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWNS)},
		{name: "unshare_network", who: root, alone: call, try: inChild("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWNET)},
		{name: "unshare_processes", who: root, alone: call, try: inChild("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWPID)},
		{name: "clone_user", who: both, alone: call, try: cloneFlags(unix.CLONE_NEWUSER)},
		{name: "clone_user_mount", who: both, alone: call, try: cloneFlags(unix.CLONE_NEWUSER | unix.CLONE_NEWNS)},
		{name: "clone_mount", who: root, alone: call, try: cloneFlags(unix.CLONE_NEWNS)},
		{name: "clone_time", who: root, alone: call, absent: []syscall.Errno{unix.EINVAL}, try: inChild("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWTIME)},
		{name: "clone3_user", who: both, alone: call, absent: none, try: clone3User},
		{name: "setns_network", who: root, alone: []string{byProcesses, bySeccomp}, try: setnsOf("net", unix.CLONE_NEWNET)},
		{name: "setns_mount", who: root, alone: []string{byProcesses, bySeccomp}, try: setnsOf("ipc", unix.CLONE_NEWIPC)},
		{name: "setns_pidfd", who: root, alone: []string{byProcesses, bySeccomp}, try: setnsPidfd},
		{name: "mount", who: root, alone: []string{byFilesystem, bySeccomp}, prepare: unshareWork, try: func(*scene) error {
			return at("mount", unix.Mount("tmpfs", work+"/mount", "tmpfs", 0, ""))
		}},
		{name: "mount_proc", who: root, alone: []string{byFilesystem, bySeccomp}, prepare: unshareWork, try: func(*scene) error {
			return at("mount", unix.Mount("proc", work+"/mount", "proc", 0, ""))
		}},
		{name: "remount_writable", who: root, alone: []string{byFilesystem, bySeccomp}, try: func(*scene) error {
			return past("mount", unix.Mount("", outside, "", unix.MS_REMOUNT|unix.MS_BIND, ""), unix.EINVAL)
		}},
		{name: "mount_setattr", who: root, alone: []string{byFilesystem, bySeccomp}, absent: none, try: mountSetattr},
		{name: "fsopen", who: root, alone: call, absent: none, try: func(*scene) error {
			fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
			if err != nil {
				return at("fsopen", err)
			}
			return unix.Close(fd)
		}},
		{name: "move_mount", who: root, alone: call, absent: none, try: func(*scene) error {
			return past("move_mount", unix.MoveMount(unix.AT_FDCWD, "/", unix.AT_FDCWD, work, 0), unix.EINVAL, unix.EBUSY, unix.ELOOP)
		}},
		{name: "pivot_root", who: root, alone: call, try: func(*scene) error {
			return past("pivot_root", unix.PivotRoot("/", "/"), unix.EBUSY, unix.EINVAL)
		}},
		{name: "setuid_program", who: user, alone: []string{byNoNewPrivs, byFilesystem, bySeccomp}, prepare: makeSetuid, try: func(*scene) error { return runsAs(suidBinary, "root") }},
		{name: "file_capabilities", who: user, alone: []string{byNoNewPrivs, byFilesystem, bySeccomp}, prepare: makeCapable, try: func(*scene) error { return runsAs(capBinary, "admin") }},
		{name: "capabilities_of_root", who: root, alone: []string{byFilesystem, byNetwork, byProcesses, bySeccomp}, try: func(*scene) error { return runsAs(binary, "admin") }},
		{name: "become_other_user", who: root, alone: []string{byFilesystem, bySeccomp}, try: inChild("setuid", unix.SYS_SETUID, guestID)},
		{name: "leave_cgroup", who: root, alone: []string{byFilesystem}, try: leaveCgroup, absent: []syscall.Errno{unix.ENODEV}},
		{name: "sethostname", who: root, alone: []string{byFilesystem, bySeccomp}, changes: true, try: func(*scene) error { return at("sethostname", unix.Sethostname([]byte("taken"))) }},
		{name: "acct", who: root, alone: call, absent: none, try: past1("acct", unix.SYS_ACCT, [3]uintptr{})},
	}
	for i := range rows {
		rows[i].group = "privileges"
	}
	return rows
}

// forked runs one system call in a child without threads, which calls that change
// namespaces ask for, and returns its errno.
//
//go:noinline
func forked(number, a, b, c uintptr) (syscall.Errno, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	if pid == 0 {
		_, _, errno := syscall.RawSyscall(number, a, b, c)
		for {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(errno)&0xff, 0, 0)
		}
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(int(pid), &status, 0, nil); err != nil {
		return 0, err
	}
	if !status.Exited() {
		return 0, fmt.Errorf("the child ended by %v", status)
	}
	return syscall.Errno(status.ExitStatus()), nil
}

// inChild is a system call of one argument in a child.
func inChild(step string, number, argument uintptr) func(*scene) error {
	return func(*scene) error {
		errno, err := forked(number, argument, 0, 0)
		if err != nil || errno == 0 {
			return err
		}
		return at(step, errno)
	}
}

// cloneFlags makes a child in new namespaces by clone(2).
func cloneFlags(flags uintptr) func(*scene) error {
	return func(*scene) error {
		pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			return at("clone", errno)
		}
		if pid == 0 {
			for {
				syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
			}
		}
		_, err := unix.Wait4(int(pid), nil, 0, nil)
		return err
	}
}

func clone3User(*scene) error {
	arguments := struct{ flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls uint64 }{
		flags: unix.CLONE_NEWUSER, exitSignal: uint64(unix.SIGCHLD),
	}
	pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, pointer(&arguments), unsafe.Sizeof(arguments), 0)
	if errno != 0 {
		return at("clone3", errno)
	}
	if pid == 0 {
		for {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}

// setnsOf enters a namespace of the victim.
func setnsOf(name string, kind int) func(*scene) error {
	return func(s *scene) error {
		fd, err := unix.Open(ofVictim(s, "ns/"+name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			// Without the victim's, its own namespace shows whether the call is possible.
			if fd, err = unix.Open("/proc/self/ns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
				return err
			}
			if err := unix.Setns(fd, kind); err != nil {
				return at("setns", err)
			}
			return without("open", "the victim has no entry in /proc")
		}
		if err != nil {
			return at("open", err)
		}
		return at("setns", unix.Setns(fd, kind))
	}
}

func setnsPidfd(s *scene) error {
	pidfd, err := unix.PidfdOpen(s.Victim, 0)
	if err != nil {
		return at("pidfd_open", err)
	}
	return at("setns", unix.Setns(pidfd, unix.CLONE_NEWNET))
}

func mountSetattr(*scene) error {
	// The root directory is a mount in every namespace; setting nothing changes nothing.
	attribute := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_NODIRATIME}
	return at("mount_setattr", unix.MountSetattr(unix.AT_FDCWD, "/", 0, &attribute))
}

// copyBinary copies the test binary: a bind mount has the mode of its origin.
func copyBinary(name string, mode os.FileMode) error {
	from, err := os.Open(binary)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	if err := to.Chmod(mode); err != nil {
		return err
	}
	return to.Close()
}

func makeSetuid(*stage) error { return copyBinary(suidBinary, 0o755|os.ModeSetuid) }

// makeCapable gives a copy of the binary CAP_SYS_ADMIN.
func makeCapable(*stage) error {
	if err := copyBinary(capBinary, 0o755); err != nil {
		return err
	}
	capability := [20]byte{0: 1, 3: 2, 4: 0, 6: 1 << (unix.CAP_SYS_ADMIN - 16)} // version 2, effective; permitted, little endian
	return unix.Setxattr(capBinary, "security.capability", capability[:], 0)
}

// runsAs executes a program and gets through if that has a privilege.
func runsAs(program, privilege string) error {
	out, err := exec.Command(program, roleInner, privilege).Output()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.ExitCode() == statusRefused:
		return without("execve", string(out))
	case errors.As(err, &exit):
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return at("execve", err)
}

// runInner is a part of an attempt in another process, or reports whether that has a
// privilege.
func runInner(args []string) int {
	switch args[0] {
	case "secret":
		return report(unmountAndRead())
	case "remount":
		return report(remountAndWrite())
	case "type":
		return report(typeAhead(unix.TIOCSTI))
	case "type-high-bits":
		return report(typeAhead(1<<32 | unix.TIOCSTI))
	}
	if args[0] == "root" && os.Geteuid() == 0 {
		return 0
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return statusBroken
	}
	if args[0] == "admin" && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0 {
		return 0
	}
	fmt.Printf("user %d, capabilities %#x", os.Geteuid(), data[0].Effective)
	return statusRefused
}

// leaveCgroup moves itself into a cgroup that no limit of its session applies to, and
// back, so that the cgroup can be removed.
func leaveCgroup(*scene) error {
	top, own, err := cgroupPaths()
	if err != nil {
		return err
	}
	if top == "" {
		return at("find cgroup", unix.ENODEV)
	}
	dir := fmt.Sprintf("%s/escape-%d", top, os.Getpid())
	if err := os.Mkdir(dir, 0o755); err != nil {
		return at("mkdir", err)
	}
	if err := os.WriteFile(dir+"/cgroup.procs", []byte("0"), 0); err != nil {
		return at("write cgroup.procs", errors.Join(err, os.Remove(dir)))
	}
	if err := os.WriteFile(top+own+"/cgroup.procs", []byte("0"), 0); err != nil {
		return err
	}
	return os.Remove(dir)
}

// cgroupPaths returns where cgroup v2 is mounted, "" for nowhere, and the cgroup of
// this process in it.
func cgroupPaths() (top, own string, err error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); strings.Contains(line, " - cgroup2 ") {
			top = fields[4]
		}
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			own = path
		}
	}
	return top, own, err
}
