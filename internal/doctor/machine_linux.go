package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/process"
)

// machine runs the checks of this system.
func (p Target) machine(ctx context.Context, info *api.SystemInfo) []Finding {
	h := host{process: "self", uid: os.Geteuid(), maxSessions: p.MaxSessions}
	if info != nil {
		h.process = strconv.Itoa(info.PID)
	}
	found := []Finding{h.kernel(), h.features()}
	// Before the cgroup check, which reaps all children of this process.
	shells := shells(ctx)
	holder, _ := p.Holder()
	found = append(found, cgroups(info), h.descriptors(), h.tasks(), h.memory(), p.spill(), h.proc(), h.yama(), oomScore(holder), h.container())
	return append(append(found, shells...), clock())
}

// host reads the properties of the system from files and limits.
type host struct {
	root        string // "" except in tests
	process     string // in /proc, whose limits count: the daemon, or this process without one
	uid         int
	maxSessions int64 // the setting max_sessions
}

// limit returns a hard limit of the process: the daemon raises its soft limits to
// them.
func (h host) limit(name string) uint64 {
	for line := range strings.Lines(h.read("/proc/" + h.process + "/limits")) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if fields := strings.Fields(rest); len(fields) > 1 {
				return parseLimit(fields[1])
			}
		}
	}
	return unix.RLIM_INFINITY
}

// read returns the contents of a file without surrounding white space; "" if it
// cannot be read.
func (h host) read(name string) string {
	text, err := os.ReadFile(filepath.Join(h.root, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// number returns the number in a file. A missing file and "max" mean no limit.
func (h host) number(name string) uint64 {
	return parseLimit(h.read(name))
}

// parseLimit returns the number in text, or RLIM_INFINITY if it is not a number.
func parseLimit(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return unix.RLIM_INFINITY
	}
	return n
}

// TRL always needs pidfd_open(2), and it needs cgroup.kill to use cgroups.
var (
	minKernel    = [2]int{5, 3}
	cgroupKernel = [2]int{5, 14}
)

func (h host) kernel() Finding {
	const check = "kernel"
	release := h.read("/proc/sys/kernel/osrelease")
	var version [2]int
	if _, err := fmt.Sscanf(release, "%d.%d", &version[0], &version[1]); err != nil {
		return problem(check, "uname -r", "can't parse its version %q", release)
	}
	older := func(than [2]int) bool {
		return version[0] < than[0] || version[0] == than[0] && version[1] < than[1]
	}
	switch {
	case older(minKernel):
		return problem(check, "sudo apt-get install linux-image-amd64 # or what your system calls it", "Linux %s is older than 5.3 and lacks pidfd_open, which TRL needs", release)
	case older(cgroupKernel):
		return note(check, "", "Linux %s is older than 5.14: sessions are tracked by tags, not by cgroups", release)
	}
	return ok(check, "Linux %s", release)
}

// features tries the required system calls: a container may forbid them, whatever the
// kernel version.
func (h host) features() Finding {
	const check = "system calls"
	var missing []string
	try := func(name string, err error) {
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s (%v)", name, err))
		}
	}
	fd, err := unix.MemfdCreate("trl-doctor", unix.MFD_CLOEXEC)
	try("memfd_create", err)
	if err == nil {
		again, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), os.O_RDWR, 0)
		try("opening a descriptor by its path", err)
		if err == nil {
			_ = again.Close()
		}
		_ = unix.Close(fd)
	}
	fd, err = unix.PidfdOpen(os.Getpid(), 0)
	try("pidfd_open", err)
	if err == nil {
		_ = unix.Close(fd)
	}
	// This is harmless in a process that is about to exit.
	try("prctl(PR_SET_CHILD_SUBREAPER)", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	try("socketpair(SOCK_SEQPACKET)", err)
	if err == nil {
		_, _ = unix.Close(pair[0]), unix.Close(pair[1])
	}
	if len(missing) > 0 {
		return problem(check, "docker run --security-opt seccomp=unconfined … # if this is a container", "refused: %s", strings.Join(missing, ", "))
	}
	return ok(check, "memfd, pidfd and subreaper work")
}

// cgroups checks how the processes of sessions are tracked.
func cgroups(info *api.SystemInfo) Finding {
	const check = "cgroups"
	support := process.Support{}
	uses, usesNone := "the daemon uses", "the daemon may use none"
	if info != nil {
		support = process.Support{Cgroup: info.Process.Cgroup, Reason: info.Process.Reason}
	} else {
		uses, usesNone = "a daemon started here would use", "a daemon started here could use none"
		tried, err := process.NewHost(process.Config{OnlySupport: true})
		if err != nil {
			return problem(check, "trl serve", "%v", err)
		}
		support = tried.Support()
		if err := tried.Close(); err != nil {
			return problem(check, "cat /proc/self/cgroup", "the test cgroup could not be removed: %v", err)
		}
	}
	if support.Cgroup == "" {
		return note(check, "Delegate=yes # in the [Service] of its unit, or: systemd-run --user -p Delegate=yes trl serve",
			"%s (%s): sessions are tracked by tags; a kill takes several rounds instead of one step", usesNone, strings.Join(strings.Fields(support.Reason), " "))
	}
	return ok(check, "%s %s", uses, filepath.Dir(support.Cgroup))
}

// What an ordinary session needs at most: on a terminal, with a running command.
// Measured on 20 of these: 10 descriptors in the holder and 11 in the daemon; the
// shell, its copy, the terminal's session leader and the command are 4 processes. An
// idle session on pipes needs 1 and 2.
const (
	filesPerSession     = 12
	processesPerSession = 4
	baseFiles           = 1100 // where the holder's slots begin, and the daemon's own
	baseProcesses       = 64   // threads of the holder and the daemon
)

// capacity grades a limit by the number of sessions that it allows.
func (h host) capacity(check, what, run string, limit, beside, each uint64) Finding {
	if limit == unix.RLIM_INFINITY {
		return ok(check, "%s: no limit", what)
	}
	allowed := int64(0)
	if limit > beside {
		allowed = int64(min((limit-beside)/each, 1<<40))
	}
	text := fmt.Sprintf("%s is %d: room for about %d busy sessions", what, limit, allowed)
	switch {
	case allowed < 10: // too few even for one person
		return problem(check, run, "%s", text)
	case allowed < h.maxSessions:
		return note(check, run, "%s, but max_sessions is %d", text, h.maxSessions)
	}
	return ok(check, "%s", text)
}

func (h host) descriptors() Finding {
	const check = "descriptors"
	what, run, least := "the limit of open files", "LimitNOFILE=1048576 # in the [Service] of its unit; manually, as root: ulimit -n 1048576", h.limit("Max open files")
	// The descriptors of a session are open in both the holder and the daemon.
	if machine := h.number("/proc/sys/fs/file-max"); machine/2 < least {
		what, run, least = "half of fs.file-max", "sudo sysctl -w fs.file-max=4194304", machine/2
	}
	if most := h.number("/proc/sys/fs/nr_open"); most < least {
		what, run, least = "fs.nr_open", "sudo sysctl -w fs.nr_open=1048576", most
	}
	return h.capacity(check, what, run, least, baseFiles, filesPerSession)
}

func (h host) tasks() Finding {
	const check = "processes"
	what, run, least := "the limit of processes", "LimitNPROC=infinity # in the [Service] of its unit; manually, as root: ulimit -u unlimited", h.limit("Max processes")
	if h.uid == 0 {
		least = unix.RLIM_INFINITY // it is not enforced for root
	}
	for _, other := range []struct{ file, name, run string }{
		{"/proc/sys/kernel/pid_max", "kernel.pid_max", "sudo sysctl -w kernel.pid_max=4194304"},
		{"/proc/sys/kernel/threads-max", "kernel.threads-max", "sudo sysctl -w kernel.threads-max=1000000"},
	} {
		if n := h.number(other.file); n < least {
			what, run, least = other.name, other.run, n
		}
	}
	if n := h.cgroupLimit("pids", "pids.max", "pids.max"); n < least {
		what, run, least = "pids.max of the cgroup", "TasksMax=infinity # in the [Service] of its unit, or --pids-limit -1 for a container", n
	}
	return h.capacity(check, what, run, least, baseProcesses, processesPerSession)
}

// cgroupLimit returns the lowest value of a limit in the cgroup of the process and in
// those above it: file v2 of cgroup v2, or file v1 in the v1 hierarchy of a controller.
func (h host) cgroupLimit(controller, v2, v1 string) uint64 {
	least := uint64(unix.RLIM_INFINITY)
	for line := range strings.Lines(h.read("/proc/"+h.process+"/cgroup") + "\n") {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		dirs, file := []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}, v2
		if parts[1] != "" {
			if !strings.Contains(","+parts[1]+",", ","+controller+",") {
				continue
			}
			dirs, file = []string{"/sys/fs/cgroup/" + parts[1]}, v1
		}
		for _, dir := range dirs {
			for group := parts[2]; ; group = filepath.Dir(group) {
				least = min(least, h.number(filepath.Join(dir, group, file)))
				if group == "/" || group == "." {
					break
				}
			}
		}
	}
	return least
}

// minMemory is what a daemon and a few sessions need.
const minMemory = 64 << 20

func (h host) memory() Finding {
	const check = "memory"
	var free uint64
	for line := range strings.Lines(h.read("/proc/meminfo")) {
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &free); err == nil {
			free <<= 10
			break
		}
	}
	text := fmt.Sprintf("%d MiB are available", free>>20)
	if most := h.cgroupLimit("memory", "memory.max", "memory.limit_in_bytes"); most < 1<<60 { // v1 has a huge number for no limit
		text += fmt.Sprintf(", and the cgroup is limited to %d MiB", most>>20)
		free = min(free, most)
	}
	switch {
	case free < minMemory:
		return problem(check, "MemoryMax=infinity # in the [Service] of its unit, or --memory for a container; or stop other programs", "%s: too little for the daemon and its sessions", text)
	case h.number("/proc/sys/vm/overcommit_memory") == 2:
		return note(check, "sudo sysctl -w vm.overcommit_memory=0", "%s; vm.overcommit_memory is 2, so forks of large programs fail before memory is used up", text)
	}
	return ok(check, "%s", text)
}

// minSpillSpace is the free space below which the disk counts as full: a few long
// outputs.
const minSpillSpace = 64 << 20

// The statfs(2) types of file systems in memory.
const (
	tmpfs = 0x01021994
	ramfs = 0x858458f6
)

func (p Target) spill() Finding {
	const check = "spill directory"
	another := "TRL_SPILL_DIR=DIRECTORY trl serve"
	var at unix.Statfs_t
	if err := unix.Statfs(p.SpillDir, &at); err != nil {
		return problem(check, "mkdir -p "+p.Quote(p.SpillDir)+" # or spill_dir elsewhere", "%s: %v", p.SpillDir, err)
	}
	file, err := os.CreateTemp(p.SpillDir, "trl-doctor-")
	if err != nil {
		return problem(check, another, "uid %d can't write there: %v", os.Geteuid(), err)
	}
	_, err = file.Write(make([]byte, at.Bsize))
	err = errors.Join(err, file.Close(), os.Remove(file.Name()))
	free := at.Bavail * uint64(at.Bsize)
	where := fmt.Sprintf("%s has %d MiB free", p.SpillDir, free>>20)
	switch {
	case err != nil || free < minSpillSpace:
		return problem(check, "df -h "+p.Quote(p.SpillDir)+" # and make room, or spill_dir elsewhere", "%s: long output would lose its middle", where)
	case at.Type == tmpfs || at.Type == ramfs:
		return note(check, another, "%s and is in memory: spilling output there frees no memory", where)
	case free < uint64(p.TotalQuota):
		return note(check, fmt.Sprintf("TRL_TOTAL_QUOTA_BYTES=%d trl serve", free/2), "%s, but total_quota_bytes allows %d MiB", where, p.TotalQuota>>20)
	}
	return ok(check, "%s", where)
}

func (h host) proc() Finding {
	const check = "/proc"
	if h.read("/proc/self/stat") == "" {
		return problem(check, "sudo mount -t proc proc /proc", "it is not mounted: processes can't be seen")
	}
	for line := range strings.Lines(h.read("/proc/self/mountinfo")) {
		before, options, _ := strings.Cut(line, " - proc ")
		fields := strings.Fields(before)
		if options == "" || len(fields) < 5 || fields[4] != "/proc" {
			continue
		}
		for _, option := range strings.FieldsFunc(options, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
			switch option {
			case "hidepid=1", "hidepid=2", "hidepid=noaccess", "hidepid=invisible":
				if h.uid != 0 {
					return note(check, "", "it is mounted with %s: processes that a session runs as another user, with sudo, can't be seen", option)
				}
			case "hidepid=4", "hidepid=ptraceable":
				return problem(check, "sudo mount -o remount,hidepid=0 /proc", "it is mounted with %s: the processes of sessions can't be seen", option)
			}
		}
	}
	return ok(check, "processes can be seen")
}

// yama checks the restrictions on inspecting processes, which the daemon does to find
// out whether a command waits for input.
func (h host) yama() Finding {
	const check = "ptrace"
	scope := h.read("/proc/sys/kernel/yama/ptrace_scope")
	if scope == "" || scope == "0" || h.uid == 0 && scope != "3" {
		return ok(check, "whether a command waits for input can be seen")
	}
	return note(check, "sudo sysctl -w kernel.yama.ptrace_scope=0", "kernel.yama.ptrace_scope is %s: as uid %d the daemon may be unable to see that a command waits for input (yield_on_input)", scope, h.uid)
}

// oomScore checks whether the holder may lower its oom_score_adj. It restores the
// value. holder is the pid of the running one, 0 if there is none.
func oomScore(holder int) Finding {
	const check, file = "out of memory", "/proc/self/oom_score_adj"
	before, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte("-900"), 0)
	}
	if err != nil {
		run := "sudo choom -n -900 -p PID # of `trl serve`, after its start;"
		if holder != 0 {
			run = fmt.Sprintf("sudo choom -n -900 -p %d #", holder)
		}
		return note(check, run+" or --cap-add SYS_RESOURCE for a container that runs as root",
			"uid %d can't lower oom_score_adj (%v): when memory runs out, the kernel may kill the holder, and with it all sessions", os.Geteuid(), withoutPath(err))
	}
	_ = os.WriteFile(file, before, 0)
	return ok(check, "the holder of the sessions is among the last processes that the kernel kills")
}

// withoutPath returns err without the name of the file.
func withoutPath(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

func (h host) container() Finding {
	const check = "container"
	kind := h.read("/run/systemd/container")
	for file, name := range map[string]string{"/.dockerenv": "docker", "/run/.containerenv": "podman"} {
		if _, err := os.Stat(filepath.Join(h.root, file)); err == nil {
			kind = name
		}
	}
	if strings.Contains(h.read("/proc/1/cgroup"), "kubepods") {
		kind = "kubernetes"
	}
	if kind == "" {
		return ok(check, "none detected")
	}
	return note(check, "", "this is one (%s): sessions end with it, and its limits apply to them", kind)
}

// clock checks the time: output is timestamped, and tokens expire by it.
func clock() Finding {
	const check = "clock"
	var state unix.Timex
	_, err := unix.Adjtimex(&state)
	now := time.Now()
	switch {
	case now.Year() < 2025: // older than this program
		return problem(check, "sudo timedatectl set-ntp true", "it shows %s, which must be wrong", now.UTC().Format(time.DateTime))
	case err == nil && state.Status&unix.STA_UNSYNC != 0:
		return note(check, "sudo timedatectl set-ntp true", "%s; it is not synchronised, and tokens expire by it", now.UTC().Format(time.DateTime+" MST"))
	}
	return ok(check, "%s", now.UTC().Format(time.DateTime+" MST"))
}
