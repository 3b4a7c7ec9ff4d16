package escape

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelAttempts use interfaces of the kernel that a command of an agent has no need
// for, and that have been the way to most escapes.
func kernelAttempts() []attempt {
	call, none := []string{bySeccomp}, []syscall.Errno{unix.ENOSYS}
	rows := []attempt{
		{name: "keyctl_session", who: both, absent: none, try: func(*scene) error {
			_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true)
			return at("keyctl", err)
		}},
		{name: "keyctl_join", who: both, absent: none, try: func(*scene) error { _, err := unix.KeyctlJoinSessionKeyring("escape"); return at("keyctl", err) }},
		{name: "key_of_victim", who: both, absent: none, try: keyOfVictim},
		{name: "add_key", who: both, absent: none, try: func(*scene) error {
			_, err := unix.AddKey("user", "escape-added", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
			return at("add_key", err)
		}},
		{name: "request_key", who: both, absent: none, try: func(*scene) error {
			_, err := unix.RequestKey("user", "escape-unknown", "", 0)
			return past("request_key", err, unix.ENOKEY, unix.ENOENT) // without /sbin/request-key
		}},
		{name: "io_uring", who: both, absent: none, try: ioUring},
		{name: "bpf", who: root, absent: none, try: bpfMap},
		// Debian's kernels refuse it to users, by a setting of the whole machine.
		{name: "perf_event_open", who: both, absent: append([]syscall.Errno{unix.EACCES}, none...), try: perfEvent},
		{name: "userfaultfd", who: both, absent: none, try: func(*scene) error {
			const userModeOnly = 1
			_, err := raw(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
			return at("userfaultfd", err)
		}},
		{name: "fanotify", who: root, absent: none, try: func(*scene) error {
			_, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
			return at("fanotify_init", err)
		}},
		{name: "init_module", who: root, absent: none, try: func(*scene) error {
			return past("init_module", unix.InitModule([]byte("not a module"), ""), unix.ENOEXEC)
		}},
		{name: "finit_module", who: root, absent: none, try: finitModule},
		{name: "delete_module", who: root, absent: none, try: func(*scene) error { return past("delete_module", unix.DeleteModule("escape_none", 0), unix.ENOENT) }},
		{name: "kexec_load", who: root, absent: none, try: func(*scene) error { _, err := raw(unix.SYS_KEXEC_LOAD, 0, 0, 0); return at("kexec_load", err) }},
		{name: "kexec_file_load", who: root, absent: none, try: func(*scene) error {
			bad := ^uintptr(0)
			_, err := raw6(unix.SYS_KEXEC_FILE_LOAD, bad, bad, 0, 0, 0, 0)
			return past("kexec_file_load", err, unix.EBADF)
		}},
		{name: "reboot", who: root, ends: unix.SIGHUP, try: func(*scene) error {
			// In a PID namespace this ends its first process by SIGHUP.
			return at("reboot", unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART))
		}},
		{name: "settimeofday", who: root, try: func(*scene) error {
			var zone [2]int32 // the kernel keeps a time zone, too: that of UTC changes nothing
			_, err := raw(unix.SYS_SETTIMEOFDAY, 0, pointer(&zone), 0)
			return at("settimeofday", err)
		}},
		{name: "clock_settime", who: root, try: func(*scene) error {
			now := unix.NsecToTimespec(time.Now().UnixNano())
			return at("clock_settime", unix.ClockSettime(unix.CLOCK_REALTIME, &now))
		}},
		{name: "adjtimex", who: root, try: adjustClock},
		{name: "swapon", who: root, absent: none, try: swapCall(unix.SYS_SWAPON)},
		{name: "swapoff", who: root, absent: none, try: swapCall(unix.SYS_SWAPOFF)},
		{name: "quotactl", who: both, absent: none, try: func(*scene) error {
			const sync = 0x800001 << 8
			_, err := raw6(unix.SYS_QUOTACTL, sync, 0, 0, 0, 0, 0)
			return at("quotactl", err)
		}},
		{name: "personality", who: both, try: func(*scene) error {
			_, err := raw(unix.SYS_PERSONALITY, 0x0400000, 0, 0)
			return at("personality", err)
		}},
		{name: "syslog", who: root, absent: none, try: func(*scene) error {
			_, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, make([]byte, 4096))
			return at("syslog", err)
		}},
		{name: "terminal_input", who: both, absent: []syscall.Errno{unix.EIO}, try: func(*scene) error { return onTerminal("type") }},
		// The kernel looks at 32 bits of the request; a filter must too.
		{name: "terminal_input_high_bits", who: both, absent: []syscall.Errno{unix.EIO}, try: func(*scene) error { return onTerminal("type-high-bits") }},
		{name: "controlling_terminal", who: both, changes: true, try: openTerminal, prepare: giveTerminal},
		{name: "console_selection", who: root, absent: []syscall.Errno{unix.ENOENT, unix.ENXIO, unix.ENODEV, unix.ENOTTY, unix.EIO}, try: consoleSelection},
	}
	for i := range rows {
		rows[i].group, rows[i].alone = "kernel", call
	}
	return append(rows, foreignAttempts()...)
}

func keyOfVictim(s *scene) error {
	if s.Key == 0 {
		return at("keyctl", unix.ENOSYS) // the victim could not make one
	}
	buffer := make([]byte, 64)
	n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, s.Key, buffer, 0)
	if err != nil {
		return at("keyctl", err)
	}
	if string(buffer[:n]) != hidden {
		return errors.New("read something else")
	}
	return nil
}

func ioUring(*scene) error {
	var parameters [120]byte
	_, err := raw(unix.SYS_IO_URING_SETUP, 4, pointer(&parameters), 0)
	return at("io_uring_setup", err)
}

func bpfMap(*scene) error {
	attribute := [4]uint32{unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1}
	_, err := raw(unix.SYS_BPF, unix.BPF_MAP_CREATE, pointer(&attribute), unsafe.Sizeof(attribute))
	return at("bpf", err)
}

func perfEvent(*scene) error {
	attribute := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	attribute.Size = uint32(unsafe.Sizeof(attribute))
	_, err := unix.PerfEventOpen(&attribute, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	return at("perf_event_open", err)
}

func finitModule(*scene) error {
	f, err := os.Open(work + "/mine")
	if err != nil {
		return err
	}
	defer f.Close()
	return past("finit_module", unix.FinitModule(int(f.Fd()), "", 0), unix.ENOEXEC)
}

// adjustClock sets the frequency of the clock to what it is.
func adjustClock(*scene) error {
	var now unix.Timex
	if _, err := unix.Adjtimex(&now); err != nil {
		return err
	}
	const frequency = 2
	_, err := unix.Adjtimex(&unix.Timex{Modes: frequency, Freq: now.Freq})
	return at("adjtimex", err)
}

// swapCall names a file that does not exist, which the kernel notices after it has
// checked the privilege.
func swapCall(number uintptr) func(*scene) error {
	return func(*scene) error {
		name := []byte(work + "/no-such-file\x00")
		_, err := raw(number, pointer(&name[0]), 0, 0)
		return past("swap", err, unix.ENOENT)
	}
}

// newTerminal returns both ends of a new terminal.
func newTerminal() (master, terminal *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	peer, err := raw(unix.SYS_IOCTL, master.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY)
	if err != nil {
		return nil, nil, err
	}
	return master, os.NewFile(peer, "terminal"), nil
}

// onTerminal runs a part of an attempt on a controlling terminal of its own.
func onTerminal(part string) error {
	master, terminal, err := newTerminal()
	if err != nil {
		return err
	}
	defer master.Close()
	defer terminal.Close()
	cmd := exec.Command("/proc/self/exe", roleInner, part)
	cmd.Stdin = terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return ended(cmd)
}

// typeAhead puts a letter into the input of its terminal, for the next program there.
func typeAhead(request uintptr) error {
	letter := byte('x')
	_, err := raw(unix.SYS_IOCTL, 0, request, pointer(&letter))
	return at("ioctl", err)
}

// giveTerminal makes a new terminal the controlling terminal of the daemon, and counts
// what is written to it.
func giveTerminal(s *stage) error {
	master, terminal, err := newTerminal()
	if err != nil {
		return err
	}
	s.terminal = terminal
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			if err != nil {
				return
			}
			s.servers.add("terminal", n)
		}
	}()
	return terminal.Chown(s.order.UID, s.order.UID)
}

// openTerminal writes to the terminal of the daemon, as a program would that asks for a
// password there.
func openTerminal(*scene) error { return writeTo("/dev/tty", unix.O_NOCTTY) }

// consoleSelection asks for the state of the shift keys, the most harmless of the
// calls by which a program pastes into a console.
func consoleSelection(*scene) error {
	fd, err := unix.Open("/dev/tty1", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return at("open", err)
	}
	defer unix.Close(fd)
	const shiftState = 6
	command := byte(shiftState)
	_, err = raw(unix.SYS_IOCTL, uintptr(fd), unix.TIOCLINUX, pointer(&command))
	return at("ioctl", err)
}

// writeSame opens a file of the kernel for writing and writes what it contains.
func writeSame(names ...string) func(*scene) error {
	return func(*scene) error {
		var last error = unix.ENOENT
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				last = err
				continue
			}
			value := strings.TrimSpace(string(text))
			if _, chosen, ok := strings.Cut(value, "["); ok { // the values with the chosen one in brackets
				value, _, _ = strings.Cut(chosen, "]")
			}
			return at("write "+name, os.WriteFile(name, []byte(value), 0))
		}
		return at("open", last)
	}
}
