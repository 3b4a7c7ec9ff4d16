package trltest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// all reads the process table. It omits processes that exit meanwhile.
func all() []Process {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var found []Process
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue
		}
		if p, ok := parseStat(string(stat)); ok {
			found = append(found, p)
		}
	}
	return found
}

// parseStat parses a line of /proc/PID/stat. The name in parentheses may itself
// contain spaces and parentheses, so the last one ends it.
func parseStat(line string) (Process, bool) {
	open, shut := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || shut < open {
		return Process{}, false
	}
	// From the third field on: state, ppid, … and as the 22nd the start time.
	fields := strings.Fields(line[shut+1:])
	if len(fields) < 20 {
		return Process{}, false
	}
	pid, err1 := strconv.Atoi(strings.TrimSpace(line[:open]))
	ppid, err2 := strconv.Atoi(fields[1])
	if err1 != nil || err2 != nil {
		return Process{}, false
	}
	return Process{PID: pid, PPID: ppid, State: fields[0], Name: line[open+1 : shut], start: fields[19]}, true
}

// helpers returns the children of a daemon's first process that are part of the
// daemon: their first argument is be-something.
func helpers(pid int) (found []int) {
	for _, p := range all() {
		if p.PPID != pid {
			continue
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if words := strings.Split(string(line), "\x00"); err == nil && len(words) > 1 && strings.HasPrefix(words[1], "be-") {
			found = append(found, p.PID)
		}
	}
	return found
}

// WithEnv returns the processes that were started with variable (NAME=value) in
// their environment. Zombies have none.
func WithEnv(variable string) []Process {
	var found []Process
	for _, p := range all() {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
		if err != nil {
			continue
		}
		for entry := range bytes.SplitSeq(environ, []byte{0}) {
			if string(entry) == variable {
				found = append(found, p)
				break
			}
		}
	}
	return found
}

// orphaned reports whether the process that serves on a socket has lost its
// holder: such a daemon is about to exit and is not the one that was started.
func orphaned(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return true
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return true
	}
	var peer *unix.Ucred
	if controlErr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil || controlErr != nil {
		return true
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", peer.Pid))
	if err != nil || !strings.Contains(string(line), "\x00be-daemon\x00") {
		return err != nil // other kinds of daemon have no holder to lose
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", peer.Pid))
	if err != nil {
		return true
	}
	p, _ := parseStat(string(stat))
	line, err = os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PPID))
	return err != nil || !strings.Contains(string(line), "\x00serve\x00")
}
