package escape

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processAttempts read, change, stop or signal a process outside.
func processAttempts() []attempt {
	pid, call := []string{byProcesses}, []string{byProcesses, bySeccomp}
	none := []syscall.Errno{unix.ENOSYS}
	rows := []attempt{
		{name: "ptrace_attach", alone: call, try: ptraceAttach},
		{name: "ptrace_seize", alone: call, try: ptraceSeize},
		{name: "process_vm_readv", alone: call, try: vmRead},
		{name: "process_vm_writev", alone: call, changes: true, try: vmWrite},
		{name: "process_madvise", who: root, alone: pid, absent: none, try: madvise},
		{name: "pidfd_getfd", alone: call, try: getDescriptor},
		{name: "kcmp", alone: call, absent: none, try: kcmp},
		{name: "kill", alone: pid, changes: true, try: func(s *scene) error { return at("kill", unix.Kill(s.Victim, unix.SIGKILL)) }},
		{name: "kill_stop", alone: pid, changes: true, try: func(s *scene) error { return at("kill", unix.Kill(s.Victim, unix.SIGSTOP)) }},
		{name: "kill_group", alone: pid, changes: true, try: func(s *scene) error { return at("kill", unix.Kill(-s.Victim, unix.SIGKILL)) }},
		{name: "kill_all", alone: pid, changes: true, try: killAll},
		{name: "tgkill", alone: pid, changes: true, try: func(s *scene) error { return at("tgkill", unix.Tgkill(s.Victim, s.Victim, unix.SIGUSR1)) }},
		{name: "sigqueue", alone: pid, changes: true, try: queueSignal},
		{name: "pidfd_send_signal", alone: pid, changes: true, try: signalDescriptor},
		{name: "signal_by_owner", alone: pid, changes: true, try: signalByOwner},
		{name: "prlimit", alone: pid, changes: true, try: func(s *scene) error {
			return at("prlimit", unix.Prlimit(s.Victim, unix.RLIMIT_CORE, &unix.Rlimit{Cur: 4096, Max: 4096}, nil))
		}},
		{name: "setpriority", alone: pid, changes: true, try: func(s *scene) error { return at("setpriority", unix.Setpriority(unix.PRIO_PROCESS, s.Victim, 19)) }},
		{name: "setpriority_user", alone: pid, changes: true, try: setUserPriority},
		{name: "sched_setaffinity", alone: pid, try: setAffinity},
		{name: "sched_setattr", alone: pid, try: setScheduler},
		{name: "ioprio_set", alone: pid, try: setIOPriority},
		{name: "proc_environ", alone: pid, try: func(s *scene) error { return readSecret(ofVictim(s, "environ")) }},
		{name: "proc_cmdline", alone: pid, try: func(s *scene) error { return readSecret(ofVictim(s, "cmdline")) }},
		{name: "proc_scan", alone: pid, try: scanProcesses},
		{name: "proc_memory_read", alone: pid, try: memoryRead},
		{name: "proc_memory_write", alone: pid, changes: true, try: memoryWrite},
		{name: "proc_descriptor", alone: pid, try: func(s *scene) error { return readSecret(ofVictim(s, fmt.Sprint("fd/", s.MemoryFD))) }},
		{name: "proc_oom_score_adj", alone: pid, changes: true, try: func(s *scene) error {
			return at("open", os.WriteFile(ofVictim(s, "oom_score_adj"), []byte("700"), 0))
		}},
		{name: "shared_memory", alone: pid, changes: true, try: sharedMemory},
		{name: "message_queue", alone: pid, absent: none, try: messageQueue, prepare: makeMessageQueue},
	}
	for i := range rows {
		rows[i].group = "processes"
		if rows[i].who == nil {
			rows[i].who = both
		}
	}
	return rows
}

// raw is a system call with three arguments and the errno as an error.
func raw(number, a, b, c uintptr) (uintptr, error) { return raw6(number, a, b, c, 0, 0, 0) }

func raw6(number, a, b, c, d, e, f uintptr) (uintptr, error) {
	r, _, errno := unix.Syscall6(number, a, b, c, d, e, f)
	if errno != 0 {
		return r, errno
	}
	return r, nil
}

// ptraceAttach leaves the victim traced; the end of the attempt detaches it.
func ptraceAttach(s *scene) error {
	if err := unix.PtraceAttach(s.Victim); err != nil {
		return at("ptrace", err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(s.Victim, &status, unix.WALL, nil); err != nil {
		return err
	}
	return unix.PtraceDetach(s.Victim)
}

func ptraceSeize(s *scene) error { return at("ptrace", unix.PtraceSeize(s.Victim)) }

func vmRead(s *scene) error {
	buffer := make([]byte, len(untouched))
	local := []unix.Iovec{{Base: &buffer[0], Len: uint64(len(buffer))}}
	if _, err := unix.ProcessVMReadv(s.Victim, local, []unix.RemoteIovec{{Base: uintptr(s.Address), Len: len(buffer)}}, 0); err != nil {
		return at("process_vm_readv", err)
	}
	if string(buffer) != untouched {
		return errors.New("read something else")
	}
	return nil
}

func vmWrite(s *scene) error {
	buffer := []byte(overwrite[:8])
	local := []unix.Iovec{{Base: &buffer[0], Len: uint64(len(buffer))}}
	_, err := unix.ProcessVMWritev(s.Victim, local, []unix.RemoteIovec{{Base: uintptr(s.Address), Len: len(buffer)}}, 0)
	return at("process_vm_writev", err)
}

func madvise(s *scene) error {
	pidfd, err := unix.PidfdOpen(s.Victim, 0)
	if err != nil {
		return at("pidfd_open", err)
	}
	defer unix.Close(pidfd)
	remote := unix.RemoteIovec{Base: uintptr(s.Address), Len: os.Getpagesize()}
	_, err = raw6(unix.SYS_PROCESS_MADVISE, uintptr(pidfd), pointer(&remote), 1, unix.MADV_COLD, 0, 0)
	return at("process_madvise", err)
}

func getDescriptor(s *scene) error {
	pidfd, err := unix.PidfdOpen(s.Victim, 0)
	if err != nil {
		return at("pidfd_open", err)
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, s.MemoryFD, 0)
	if err != nil {
		return at("pidfd_getfd", err)
	}
	defer unix.Close(fd)
	return readSecret(fmt.Sprintf("/proc/self/fd/%d", fd))
}

func kcmp(s *scene) error {
	const kcmpVM = 1
	_, err := raw6(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(s.Victim), kcmpVM, 0, 0, 0)
	return at("kcmp", err)
}

// killAll signals every process that it may. Inside a PID namespace that is nothing
// outside: then the call finds no process or only those inside.
func killAll(s *scene) error {
	if err := unix.Kill(-1, unix.SIGKILL); err != nil {
		return at("kill", err)
	}
	if err := unix.Kill(s.Victim, 0); err != nil && os.Getpid() < s.LastPID {
		return without("kill", "no process outside was found")
	}
	return nil
}

func queueSignal(s *scene) error {
	var info [128]byte
	*(*int32)(unsafe.Pointer(&info[0])) = int32(unix.SIGUSR1)
	*(*int32)(unsafe.Pointer(&info[8])) = -1 // SI_QUEUE
	_, err := raw(unix.SYS_RT_SIGQUEUEINFO, uintptr(s.Victim), uintptr(unix.SIGUSR1), pointer(&info))
	return at("rt_sigqueueinfo", err)
}

func signalDescriptor(s *scene) error {
	pidfd, err := unix.PidfdOpen(s.Victim, 0)
	if err != nil {
		return at("pidfd_open", err)
	}
	defer unix.Close(pidfd)
	return at("pidfd_send_signal", unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0))
}

// signalByOwner makes the victim the owner of a pipe, so that the kernel signals it
// when there is something to read.
func signalByOwner(s *scene) error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(pipe[0]), unix.F_SETOWN, s.Victim); err != nil {
		return at("fcntl", err)
	}
	if _, err := unix.FcntlInt(uintptr(pipe[0]), unix.F_SETFL, unix.O_ASYNC); err != nil {
		return err
	}
	_, err := unix.Write(pipe[1], []byte{1})
	return err
}

// setUserPriority changes the priority of all processes of the user.
func setUserPriority(s *scene) error {
	if err := unix.Setpriority(unix.PRIO_USER, s.UID, 15); err != nil {
		return at("setpriority", err)
	}
	if nice, err := unix.Getpriority(unix.PRIO_PROCESS, s.Victim); err != nil {
		return at("getpriority", err)
	} else if nice != 20-15 { // as the kernel returns it
		return without("setpriority", "the victim has its priority still")
	}
	return nil
}

func setAffinity(s *scene) error {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		return err
	}
	return at("sched_setaffinity", unix.SchedSetaffinity(s.Victim, &cpus))
}

func setScheduler(s *scene) error {
	const batch = 3
	return at("sched_setattr", unix.SchedSetAttr(s.Victim, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: batch}, 0))
}

func setIOPriority(s *scene) error {
	const process, idle = 1, 3 << 13
	_, err := raw(unix.SYS_IOPRIO_SET, process, uintptr(s.Victim), idle)
	return at("ioprio_set", err)
}

// scanProcesses looks for the victim by its arguments, as a program would that does not
// know its PID.
func scanProcesses(*scene) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		text, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		if err == nil && strings.Contains(string(text), roleVictim) {
			return nil
		}
	}
	return without("read", "no process outside is listed")
}

func memoryRead(s *scene) error {
	f, err := os.Open(ofVictim(s, "mem"))
	if err != nil {
		return at("open", err)
	}
	defer f.Close()
	buffer := make([]byte, len(untouched))
	_, err = f.ReadAt(buffer, int64(s.Address))
	return at("read", err)
}

func memoryWrite(s *scene) error {
	f, err := os.OpenFile(ofVictim(s, "mem"), os.O_RDWR, 0)
	if err != nil {
		return at("open", err)
	}
	defer f.Close()
	_, err = f.WriteAt([]byte(overwrite[:8]), int64(s.Address))
	return at("write", err)
}

func sharedMemory(*scene) error {
	id, err := unix.SysvShmGet(shmKey, os.Getpagesize(), 0)
	if err != nil {
		return at("shmget", err)
	}
	shared, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return at("shmat", err)
	}
	copy(shared, overwrite)
	return nil
}

// makeMessageQueue makes a POSIX message queue outside, of the user.
func makeMessageQueue(s *stage) error {
	fd, err := openQueue(unix.O_CREAT | unix.O_RDWR)
	if errors.Is(err, unix.ENOSYS) {
		return nil // the attempt reports it
	}
	if err != nil {
		return err
	}
	return unix.Fchown(fd, s.order.UID, s.order.UID)
}

func openQueue(flags int) (int, error) {
	name := []byte(mqName + "\x00")
	fd, err := raw6(unix.SYS_MQ_OPEN, pointer(&name[0]), uintptr(flags|unix.O_CLOEXEC), 0o600, 0, 0, 0)
	return int(fd), err
}

func messageQueue(*scene) error {
	fd, err := openQueue(unix.O_WRONLY)
	if err != nil {
		return at("mq_open", err)
	}
	text := []byte(overwrite)
	deadline := unix.NsecToTimespec(time.Now().Add(time.Second).UnixNano())
	_, err = raw6(unix.SYS_MQ_TIMEDSEND, uintptr(fd), pointer(&text[0]), uintptr(len(text)), 0, pointer(&deadline), 0)
	return at("mq_timedsend", err)
}
