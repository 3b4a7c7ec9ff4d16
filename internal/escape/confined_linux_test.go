package escape

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/terminal-runtime/trl/internal/confine"
)

// The fields of an isolation, and limits.
const (
	byFilesystem = "filesystem"
	byListed     = "filesystem.read" // only what is listed can be read
	byLandlock   = "landlock"        // filesystem, on a machine without namespaces
	byNetwork    = "network"
	byLoopback   = "network.loopback"
	byProxy      = "network.allow"
	byProcesses  = "processes"
	bySeccomp    = "seccomp"
	byNoNewPrivs = "no_new_privs"
	byDisk       = "disk_bytes"   // a limit, with a file system of its own
	byPids       = "pids"         // a limit, by a cgroup of the stage
	byMemory     = "memory_bytes" // the same
)

// full are the fields of a full confinement.
var full = []string{byFilesystem, byNetwork, byProcesses, bySeccomp, byNoNewPrivs}

// system are the directories that programs need.
var system = []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"}

// spec returns the confinement by some of the fields.
func spec(fields []string) confine.Spec {
	has := func(field string) bool { return slices.Contains(fields, field) }
	s := confine.Spec{Seccomp: has(bySeccomp), Processes: has(byProcesses), NoNewPrivs: has(byNoNewPrivs)}
	switch {
	case has(byNetwork):
		s.Network = confine.NetworkNone
	case has(byLoopback):
		s.Network = confine.NetworkLoopback
	case has(byProxy):
		s.Network, s.ProxyPort = confine.NetworkProxy, proxyPort
	}
	if has(byListed) {
		s.Files = &confine.Files{Write: []string{work, bare}, Deny: []string{vault, deepVault}, Read: []string{filepath.Dir(binary)}}
		for _, dir := range system {
			if st, err := os.Lstat(dir); err == nil && st.IsDir() {
				s.Files.Read = append(s.Files.Read, dir)
			}
		}
	}
	if has(byLandlock) {
		s.Files = &confine.Files{Write: []string{work, bare}}
	}
	if has(byFilesystem) {
		s.Files = &confine.Files{Write: []string{work, bare}, Deny: []string{secretDir, vault, deepVault, covered}}
	}
	if has(byFilesystem) || has(byListed) {
		s.Protect = confine.ProtectedIn(s.Files.Write)
	}
	if has(byDisk) {
		s.Files, s.DiskBytes = &confine.Files{PrivateTmp: true}, diskLimit
	}
	return s
}

// keeperOrder is what the keeper of a confinement gets.
type keeperOrder struct {
	order
	Argv  []string
	Env   []string
	Extra int // descriptors from 3 on to leave open in the launcher
}

// statusDenied is the exit status of the keeper if the confinement cannot be made.
const statusDenied = 43

// statusSignal is added to the signal that killed an attempt, in the exit status of the
// keeper.
const statusSignal = 128

// confined returns the command of the keeper, which has the part of the daemon: it
// starts the attempt in its confinement, as the same user, and exits like it.
func (s *stage) confined(argv []string) (*exec.Cmd, error) {
	encoded, err := json.Marshal(keeperOrder{order: s.order, Argv: argv, Env: s.environment(), Extra: len(s.extraFiles)})
	if err != nil {
		return nil, err
	}
	return exec.Command(binary, roleKeeper, string(encoded)), nil
}

// runKeeper starts an attempt in a confinement and exits like it.
func runKeeper(arg string) int {
	var o keeperOrder
	if err := json.Unmarshal([]byte(arg), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return statusBroken
	}
	if len(o.Argv) == 0 {
		if err := json.NewEncoder(os.Stdout).Encode(probe()); err != nil {
			return statusBroken
		}
		return 0
	}
	status, err := keep(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return statusDenied
	}
	if status.Signaled() {
		return statusSignal + int(status.Signal())
	}
	return status.ExitStatus()
}

// probe returns what this machine can enforce.
func probe() confine.Abilities {
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	return confine.Probe(ctx, func(s confine.Start) error {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer null.Close()
		pid, err := fork(s, false, []*os.File{null, null, null})
		if err == nil {
			go wait(pid)
		}
		return err
	})
}

// withoutNamespaces are the abilities of a machine that forbids namespaces.
func withoutNamespaces(a confine.Abilities) confine.Abilities {
	a.Privileged = false
	for i, b := range a.List {
		if b.Name != confine.AbilityLandlock && b.Name != confine.AbilitySeccomp {
			a.List[i].Available, a.List[i].Reason = false, "the test says so"
		}
	}
	return a
}

// keep returns how the attempt ended, or why it could not be confined.
func keep(o keeperOrder) (syscall.WaitStatus, error) {
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	s := spec(o.Fields)
	s.Program, s.Args, s.Env, s.Dir = binary, o.Argv, o.Env, work
	if o.Keeper != o.UID {
		s.User = &confine.User{UID: o.UID, GID: o.UID}
	}
	abilities := o.Abilities
	if slices.Contains(o.Fields, byLandlock) {
		abilities = withoutNamespaces(abilities)
	} else if !slices.Equal(o.Fields, []string{byNoNewPrivs}) {
		// A daemon hides all sockets in every cell.
		var err error
		if s.Hide, err = confine.Sockets(); err != nil {
			return 0, err
		}
	}
	launch, err := abilities.Launch(s)
	if err != nil {
		return 0, err
	}
	defer launch.Close()
	for i := range o.Extra {
		launch.Start.Files = append(launch.Start.Files, 3+i)
	}
	pid, err := fork(launch.Start, len(o.Fields) == 1, []*os.File{os.Stdin, os.Stdout, os.Stderr})
	if err != nil {
		return 0, err
	}
	listener, opened := launch.Open(ctx)
	if listener != nil {
		listener.Close()
	}
	status, err := wait(pid)
	return status, errors.Join(opened, err)
}

// fork starts a launcher, in a process group of its own if group is set.
func fork(s confine.Start, group bool, files []*os.File) (int, error) {
	attr := &syscall.ProcAttr{Dir: "/", Env: s.Env, Sys: &syscall.SysProcAttr{
		Cloneflags: s.Cloneflags, AmbientCaps: s.AmbientCaps,
		Setpgid: group,
	}}
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	for _, fd := range s.Files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	return syscall.ForkExec(s.Path, s.Argv, attr)
}

func wait(pid int) (status syscall.WaitStatus, err error) {
	for {
		if _, err = syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			return status, err
		}
	}
}
