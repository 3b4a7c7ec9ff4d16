package escape

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// permitted returns the second table: what even a full confinement does not stop. Each
// row must get through, so that the table stays true. A row that a later kernel stops
// names the Landlock ABI in until.
func permitted() []attempt {
	rows := []attempt{
		// A program can be executed that no file system has. It is confined as every other.
		{name: "run_from_memory", try: runFromMemory},
		{name: "run_from_writable_root", try: runFromWork},
		// A program may harm itself and the others in its confinement.
		{name: "own_memory", try: ownMemory},
		{name: "kill_inside", try: killInside},
		{name: "delete_writable_root", try: func(*scene) error { return at("unlink", os.RemoveAll(work+"/src")) }},
		// Files that are not denied can be read, if the user may.
		{name: "read_outside", try: readOutside},
		{name: "machine_facts", try: machineFacts},
		// Only hooks and settings at the top of a writable root are protected. A repository
		// below it, entered in the index as a submodule, runs its own when git looks at it.
		{name: "nested_repository", try: create(work + "/src/.git/config")},
		{name: "new_repository", try: create(bare + "/.git/hooks/pre-commit")},
		// Settings that do not exist cannot be protected without creating them.
		{name: "new_codex_settings", try: create(work + "/.codex/config.toml")},
		{name: "new_gemini_settings", try: create(work + "/.gemini/settings.json")},
		{name: "new_idea_settings", try: create(work + "/.idea/workspace.xml")},
		// This file makes git use the settings and hooks of another directory.
		{name: "git_common_directory", try: create(work + "/.git/commondir")},
		// A file with this bit acts with the rights of its owner for other users outside.
		{name: "setuid_file", try: func(*scene) error { return at("chmod", unix.Chmod(work+"/mine", 0o4755)) }},
		// A server that begins to listen later, on a socket with a path outside /run, can be
		// reached before ABI 9.
		{name: "later_socket", until: 9, try: laterSocket, prepare: listenLater},
		// Landlock alone protects the content of files, not their metadata.
		{name: "landlock_chmod", who: user, with: []string{byLandlock}, try: func(*scene) error { return at("chmod", unix.Chmod(canary, 0o777)) }},
		{name: "landlock_utimes", who: user, with: []string{byLandlock}, try: func(*scene) error {
			return at("utimes", os.Chtimes(canary, time.Unix(1, 0), time.Unix(1, 0)))
		}},
		{name: "landlock_shared_memory_file", who: user, with: []string{byLandlock}, try: func(*scene) error { return writeTo("/dev/shm/escape", 0) }},
		{name: "landlock_socket", until: 9, who: user, with: []string{byLandlock}, try: func(*scene) error { return dialUnix(looseSocket) }},
	}
	for i := range rows {
		rows[i].group = "permitted"
		if rows[i].who == nil {
			rows[i].who = both
		}
	}
	return rows
}

func runFromMemory(*scene) error {
	fd, err := unix.MemfdCreate("program", 0)
	if err != nil {
		return at("memfd_create", err)
	}
	to := os.NewFile(uintptr(fd), "program")
	if err := copyTo(to); err != nil {
		return err
	}
	return runs(fmt.Sprintf("/proc/self/fd/%d", fd))
}

func runFromWork(*scene) error {
	to, err := os.OpenFile(work+"/program", os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return at("create", err)
	}
	if err := errors.Join(copyTo(to), to.Close()); err != nil {
		return err
	}
	return runs(work + "/program")
}

// copyTo writes this program to a file.
func copyTo(to io.Writer) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = io.Copy(to, from)
	return err
}

// runs gets through if a copy of this program can be executed.
func runs(program string) error {
	err := exec.Command(program, roleInner, "nothing").Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == statusRefused {
		return nil // it ran: it has no privilege, which is not the question here
	}
	return at("execve", err)
}

func ownMemory(*scene) error {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	f, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return at("open", err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{1}, int64(uintptr(unsafe.Pointer(&page[0])))); err != nil {
		return at("write", err)
	}
	return nil
}

func killInside(*scene) error {
	cmd := exec.Command("/proc/self/exe", roleVictim, "")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := unix.Kill(cmd.Process.Pid, unix.SIGKILL); err != nil {
		return at("kill", err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		return fmt.Errorf("the child ended by %w", err)
	}
	return nil
}

func readOutside(*scene) error {
	text, err := os.ReadFile(canary)
	if err == nil && string(text) != untouched {
		return errors.New("read something else")
	}
	return at("open", err)
}

const lateSocket = outside + "/late.sock"

// listenLater makes the stage listen once the attempt runs.
func listenLater(s *stage) error {
	go func() {
		for range 1000 {
			if _, err := os.Stat(work + "/ready"); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond) // poll: until the attempt runs; the stage ends the loop
		}
		const fresh = lateSocket + ".new" // the attempt must not find it before it may connect
		listener, err := net.Listen("unix", fresh)
		if err != nil || os.Chmod(fresh, 0o666) != nil || os.Rename(fresh, lateSocket) != nil {
			return // the attempt reports that it is missing
		}
		s.servers.accept(lateSocket, listener)
	}()
	return nil
}

func laterSocket(*scene) error {
	if err := os.WriteFile(work+"/ready", nil, 0o644); err != nil {
		return err
	}
	var err error
	for range 500 {
		if err = dialUnix(lateSocket); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED) {
			break
		}
		time.Sleep(10 * time.Millisecond) // poll: until the stage listens
	}
	return err
}

// machineFacts reads what programs need to know about the processor.
func machineFacts(*scene) error {
	for _, name := range []string{"/proc/cpuinfo", "/proc/meminfo", "/proc/uptime", "/proc/self/mountinfo"} {
		if _, err := os.ReadFile(name); err != nil {
			return at("open", err)
		}
	}
	return nil
}

// limitAttempts use up what is shared. The rows that need a cgroup run only where the
// stage can make one with the controller.
func limitAttempts() []attempt {
	return []attempt{
		{name: "disk_flood", group: "limits", who: both, with: []string{byDisk}, try: func(*scene) error { return flood("/tmp/flood") }},
		{name: "disk_flood_shared_memory", group: "limits", who: both, with: []string{byDisk}, try: func(*scene) error { return flood("/dev/shm/flood") }},
		{name: "disk_flood_run", group: "limits", who: root, with: []string{byDisk}, try: func(*scene) error { return flood("/run/flood") }},
		{name: "inode_flood", group: "limits", who: both, with: []string{byDisk}, try: inodeFlood},
		{name: "process_flood", group: "limits", who: both, with: append([]string{byPids}, full...), try: processFlood},
		{name: "memory_flood", group: "limits", who: both, with: append([]string{byMemory}, full...), killed: unix.SIGKILL, try: memoryFlood},
	}
}

// The limits, and how far attempts try to get beyond them.
const (
	diskLimit, diskWanted     = 8 << 20, 32 << 20
	inodesWanted              = 20000
	pidsLimit, pidsWanted     = 64, 300
	memoryLimit, memoryWanted = 48 << 20, 128 << 20
)

func flood(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer os.Remove(name)
	defer f.Close()
	block := []byte(strings.Repeat("x", 1<<20))
	for range diskWanted / len(block) {
		if _, err := f.Write(block); err != nil {
			return at("write", err)
		}
	}
	return nil
}

func inodeFlood(*scene) error {
	for i := range inodesWanted {
		fd, err := unix.Open(fmt.Sprint("/tmp/flood-", i), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return at("create", err)
		}
		unix.Close(fd)
	}
	return nil
}

// processFlood forks children that wait until this process ends.
func processFlood(*scene) error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	var letter byte
	for range pidsWanted {
		pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			return at("clone", errno)
		}
		if pid == 0 {
			syscall.RawSyscall(unix.SYS_CLOSE, uintptr(pipe[1]), 0, 0)
			syscall.RawSyscall(unix.SYS_READ, uintptr(pipe[0]), uintptr(unsafe.Pointer(&letter)), 1)
			for {
				syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
			}
		}
	}
	return nil
}

func memoryFlood(*scene) error {
	memory, err := unix.Mmap(-1, 0, memoryWanted, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return at("mmap", err)
	}
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	return nil
}
