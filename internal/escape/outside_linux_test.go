package escape

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// mountAll covers the directories that attempts may change by file systems of the stage.
func (s *stage) mountAll() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(exe)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, m := range []struct{ kind, at, options string }{
		{"proc", "/proc", ""},
		{"tmpfs", stageDir, "mode=755"},
		{"tmpfs", "/run", "mode=755"},
		{"tmpfs", "/tmp", "mode=1777"},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"mqueue", "/dev/mqueue", ""},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, m.options); err != nil && m.kind != "mqueue" {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := os.Mkdir(filepath.Dir(binary), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(binary, nil, 0o755); err != nil {
		return err
	}
	return unix.Mount(fmt.Sprintf("/proc/self/fd/%d", from.Fd()), binary, "", unix.MS_BIND, "")
}

// files makes the files of the stage, owned by the user of the attempt.
func (s *stage) files() error {
	for name, text := range map[string]string{
		canary:                            untouched,
		doorstep + "/file":                untouched,
		secretFile:                        hidden,
		vault + "/key":                    hidden,
		deepVault + "/key":                hidden,
		covered + "/key":                  hidden,
		work + "/src/main.c":              "int main;",
		work + "/mine":                    "mine",
		work + "/.git/HEAD":               "ref: refs/heads/main\n",
		work + "/.git/config":             untouched,
		work + "/.git/hooks/pre-commit":   untouched,
		work + "/.claude/settings.json":   untouched,
		work + "/.vscode/tasks.json":      untouched,
		work + "/.mcp.json":               untouched,
		work + "/.bashrc":                 untouched,
		"/srv/home/.bashrc":               untouched,
		bare + "/README":                  "a writable root without any protected file\n",
		"/dev/shm/escape":                 untouched,
		filepath.Dir(agentSocket) + "/x":  "",
		filepath.Dir(daemonSocket) + "/x": "",
		runtimeDir(s.order.UID) + "/x":    "",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	owned := []string{outside, secretDir, covered, work, "/srv/home", bare, "/dev/shm/escape", filepath.Dir(agentSocket), filepath.Dir(daemonSocket), runtimeDir(s.order.UID)}
	for _, root := range owned {
		err := filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(name, s.order.UID, s.order.UID)
		})
		if err != nil {
			return err
		}
	}
	// Attempts rename directories of the stage itself, too.
	return os.Chown(stageDir, s.order.UID, s.order.UID)
}

// inside are the paths whose changes are not an escape. Protected files inside the
// writable root are looked at one by one.
var inside = []string{work, bare, binary, suidBinary, capBinary}

// protected are files inside the writable root that must not change.
var protected = []string{
	work + "/.git/config", work + "/.git/hooks/pre-commit", work + "/.claude/settings.json", work + "/.vscode/tasks.json",
	work + "/.mcp.json", work + "/.bashrc", vault + "/key",
}

// look returns everything outside that attempts try to change, by name.
func (s *stage) look() (map[string]string, error) {
	seen := map[string]string{}
	for _, root := range []string{stageDir, "/run", "/dev/shm"} {
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if slices.Contains(inside, name) {
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			seen[name] = describe(name)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, name := range protected {
		seen[name] = describe(name)
	}
	for _, name := range []string{"/proc/sys/kernel/core_pattern", "/proc/self/mountinfo", "/proc/sys/kernel/hostname"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		seen[name] = string(text)
	}
	for name, n := range s.servers.received() {
		seen["server "+name] = fmt.Sprint(n, " connections or bytes")
	}
	maps.Copy(seen, s.lookAtVictim())
	return seen, nil
}

// describe returns what attempts could change of a file.
func describe(name string) string {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("mode %o owner %d:%d links %d", st.Mode, st.Uid, st.Gid, st.Nlink)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return text // its times change with the sockets of the stage
	}
	text += fmt.Sprintf(" changed %d.%d", st.Mtim.Sec, st.Mtim.Nsec)
	if names := make([]byte, 4096); true {
		if n, err := unix.Llistxattr(name, names); err == nil {
			text += fmt.Sprintf(" attributes %q", names[:n])
		}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		content, err := os.ReadFile(name)
		if err != nil {
			return text + err.Error()
		}
		text += fmt.Sprintf(" content %x", sha256.Sum256(content))
	}
	return text
}

// lookAtVictim returns what attempts could change of the victim.
func (s *stage) lookAtVictim() map[string]string {
	seen := map[string]string{}
	pid := s.scene.Victim
	if s.scene.Victim != 0 {
		var status syscall.WaitStatus
		if got, err := syscall.Wait4(pid, &status, syscall.WNOHANG|syscall.WUNTRACED, nil); err != nil || got != 0 {
			return map[string]string{"victim": fmt.Sprintf("status %#x %v", int(status), err)}
		}
	}
	seen["victim"] = "runs"
	if _, err := fmt.Fprintln(s.ask); err != nil {
		return map[string]string{"victim": err.Error()}
	}
	state, err := s.victimAnswer()
	if err != nil {
		return map[string]string{"victim": err.Error()}
	}
	seen["victim's memory"], seen["victim's shared memory"], seen["victim's signals"] = state.Memory, state.Shared, fmt.Sprint(state.Signals)
	nice, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	seen["victim's priority"] = fmt.Sprint(nice, err)
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	seen["victim's limits"] = fmt.Sprint(string(limits), err)
	var cpus unix.CPUSet
	err = unix.SchedGetaffinity(pid, &cpus)
	seen["victim's processors"] = fmt.Sprint(cpus.Count(), err)
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	seen["victim's oom_score_adj"] = fmt.Sprint(string(score), err)
	return seen
}

// changes returns the names whose descriptions differ.
func changes(before, after map[string]string) []string {
	var changed []string
	for name, was := range before {
		if is, ok := after[name]; !ok {
			changed = append(changed, name+" is gone")
		} else if is != was {
			changed = append(changed, name)
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok && !strings.HasPrefix(name, "victim") {
			changed = append(changed, name+" is new")
		}
	}
	slices.Sort(changed)
	return changed
}
