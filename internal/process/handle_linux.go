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

// Other is a process that this one did not start, known by a descriptor: a
// number that is used again is not taken for it.
type Handle struct{ pid, fd int }

// StartOf is when a process was started, since the boot of the machine.
func StartTime(pid int) (time.Duration, error) {
	st, err := readStat(pid)
	return st.start, err
}

// OpenOther finds the process of that number if it is the one that was started
// then, and lives.
func OpenHandle(pid int, started time.Duration) (*Handle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	// It is looked at after it was opened, so what is seen is what was opened.
	if st, err := readStat(pid); err != nil || st.start != started || st.dead() {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("process %d: %w", pid, unix.ESRCH)
	}
	return &Handle{pid, fd}, nil
}

// UserOf returns the effective user of a process.
func UserOf(pid int) (int, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return -1, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Uid:"); ok {
			var uid, effective int
			_, err := fmt.Sscan(rest, &uid, &effective)
			return effective, err
		}
	}
	return -1, fmt.Errorf("process %d: %w", pid, errStat)
}

// ParentOf returns the parent of a process that lives.
func ParentOf(pid int) (int, error) {
	st, err := readStat(pid)
	if err == nil && st.dead() {
		err = unix.ESRCH
	}
	return st.ppid, err
}

// HasLock reports whether a process has an open descriptor by which the file at
// path is locked with flock(2), whichever process took that lock. The caller must
// be allowed to look at the descriptors of the process.
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

// PID is its number.
func (o *Handle) PID() int { return o.pid }

// Signal sends a signal to it.
func (o *Handle) Signal(sig unix.Signal) error {
	if err := unix.PidfdSendSignal(o.fd, sig, nil, 0); err != nil {
		return fmt.Errorf("signal process %d: %w", o.pid, err)
	}
	return nil
}

// Gone waits until the process has ended, for so long at most, and says whether
// it has.
func (o *Handle) WaitExit(wait time.Duration) bool {
	deadline := time.Now().Add(wait)
	for {
		left := max(time.Until(deadline), 0)
		poll := []unix.PollFd{{Fd: int32(o.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, int((left+time.Millisecond-1)/time.Millisecond))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}

// Close forgets the process.
func (o *Handle) Close() { _ = unix.Close(o.fd) }

// AwaitEnd waits until processes that are about to end have, or the limit.
func AwaitExit(pids []int, limit time.Duration) {
	deadline := time.Now().Add(limit)
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has
		}
		o := Handle{pid, fd}
		o.WaitExit(time.Until(deadline))
		o.Close()
	}
}

// Output runs a program to its end and returns what it wrote to stdout; what it
// wrote to stderr is in the error of one that failed. Its stdin is empty if that
// is nil. It is for a process whose children nobody else waits for.
func Output(ctx context.Context, path string, args, env []string, dir string, stdin *os.File) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Dir = env, dir
	if stdin != nil {
		cmd.Stdin = stdin
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second // a child of it may hold the pipes
	if err := cmd.Run(); err != nil {
		if said := strings.TrimSpace(stderr.String()); said != "" {
			err = errors.New(said)
		}
		return "", err
	}
	return stdout.String(), nil
}
