package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Handle refers to a process that this one did not start. It holds a pidfd, so it
// never refers to a later process with the same pid.
type Handle struct{ pid, fd int }

// StartTime returns when a process was started, since boot.
func StartTime(pid int) (time.Duration, error) {
	st, err := readStat(pid)
	return st.start, err
}

// OpenHandle returns a handle for the process pid if it is alive and was started
// at that time.
func OpenHandle(pid int, started time.Duration) (*Handle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	// Read after opening, so that it describes the process that was opened.
	if st, err := readStat(pid); err != nil || st.start != started || st.dead() {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("process %d: %w", pid, unix.ESRCH)
	}
	return &Handle{pid, fd}, nil
}

// UserOf returns the effective uid of a process.
func UserOf(pid int) (int, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return -1, err
	}
	uid, err := parseUser(string(text))
	if err != nil {
		return -1, fmt.Errorf("process %d: %w", pid, err)
	}
	return uid, nil
}

var errStatus = errors.New("malformed /proc/PID/status")

// parseUser returns the effective uid in the content of /proc/PID/status.
func parseUser(status string) (int, error) {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "Uid:"); ok {
			var uid, effective int
			if _, err := fmt.Sscan(rest, &uid, &effective); err != nil {
				return -1, errStatus
			}
			return effective, nil
		}
	}
	return -1, errStatus
}

// ParentOf returns the parent of a live process.
func ParentOf(pid int) (int, error) {
	st, err := readStat(pid)
	if err == nil && st.dead() {
		err = unix.ESRCH
	}
	return st.ppid, err
}

// HasLock reports whether a process has an open descriptor that holds a flock(2)
// lock on the file at path, whichever process took that lock. The caller must
// have permission to inspect the process's descriptors.
func HasLock(pid int, path string) bool {
	var file unix.Stat_t
	if unix.Lstat(path, &file) != nil {
		return false
	}
	proc := "/proc/" + strconv.Itoa(pid)
	for _, fd := range numbersIn(proc + "/fd/") {
		var open unix.Stat_t
		if unix.Stat(proc+"/fd/"+strconv.Itoa(fd), &open) != nil || open.Dev != file.Dev || open.Ino != file.Ino {
			continue
		}
		info, err := os.ReadFile(proc + "/fdinfo/" + strconv.Itoa(fd))
		if err == nil && strings.Contains(string(info), "FLOCK") {
			return true
		}
	}
	return false
}

// PID returns the pid of the process.
func (h *Handle) PID() int { return h.pid }

// Signal sends a signal to the process.
func (h *Handle) Signal(sig unix.Signal) error {
	if err := unix.PidfdSendSignal(h.fd, sig, nil, 0); err != nil {
		return fmt.Errorf("signal process %d: %w", h.pid, err)
	}
	return nil
}

// WaitExit waits at most for wait until the process has exited, and reports
// whether it has.
func (h *Handle) WaitExit(wait time.Duration) bool {
	deadline := time.Now().Add(wait)
	for {
		left := max(time.Until(deadline), 0)
		poll := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, int((left+time.Millisecond-1)/time.Millisecond))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}

// Close closes the handle.
func (h *Handle) Close() { _ = unix.Close(h.fd) }

// AwaitExit waits until all of the processes have exited, at most for limit.
func AwaitExit(pids []int, limit time.Duration) {
	deadline := time.Now().Add(limit)
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has exited
		}
		o := Handle{pid, fd}
		o.WaitExit(time.Until(deadline))
		o.Close()
	}
}

// Output runs a program to its end and returns what it wrote to stdout. If the
// program fails, the error contains what it wrote to stderr. A nil stdin means
// empty input. Only a process that has no other waiter for its children may call
// it.
func Output(ctx context.Context, path string, args, env []string, dir string, stdin *os.File) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Dir = env, dir
	if stdin != nil {
		cmd.Stdin = stdin
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second // a grandchild may hold the pipes open
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			err = errors.New(text)
		}
		return "", err
	}
	return stdout.String(), nil
}
