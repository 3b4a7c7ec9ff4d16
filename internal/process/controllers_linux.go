package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
)

// A tree can be limited if its cgroup has controllers. The kernel gives a group
// those that its parent enables for its children (cgroup.subtree_control). So they
// are enabled in the group that contains the host's group, and in the host's group
// itself; there only once a tree has a limit, because they make every group larger.
//
// A group that enables controllers for its children must not contain processes
// itself, unless it is the root of all. If this process is in the group that
// contains the host's group, it moves into a leaf next to the host's group first,
// together with the holder and its other children.

// controllers are those that limit a tree.
var controllers = []string{"memory", "cpu", "pids"}

// leafName is the group that this process and the holder move into.
const leafName = "trl-self"

// The hints of what a machine lacks.
const (
	hintDelegate = "run the daemon as a service with Delegate=yes, as the units of TRL do"
	hintUnified  = "boot with cgroup v2 alone: systemd.unified_cgroup_hierarchy=1 on the kernel command line"
)

// Abilities says for each limit of a tree whether it can be enforced here, as found
// by trying it when the host began.
func (h *Host) Abilities() []api.Ability { return slices.Clone(h.abilities) }

// abilityName returns the name of the ability to use a controller.
func abilityName(controller string) string { return "cgroup_" + controller }

// probeControllers finds out which controllers the trees can have.
func (h *Host) probeControllers() {
	for _, controller := range controllers {
		a := api.Ability{Name: abilityName(controller)}
		err := &unlimitedError{reason: h.noCgroupReason, hint: hintDelegate}
		if h.cgroup != nil {
			err = h.cgroup.probe(controller, h.ours)
		}
		if a.Available = err == nil; !a.Available {
			a.Reason, a.Hint = err.reason, err.hint
		}
		h.abilities = append(h.abilities, a)
	}
	if i := slices.IndexFunc(h.abilities, func(a api.Ability) bool { return !a.Available }); i >= 0 {
		h.log.Info("some limits of sessions cannot be enforced", "event", "limits_unavailable",
			"missing", h.abilities[i].Name, "reason", h.abilities[i].Reason)
	}
}

// unlimitedError says why a controller can't be used, and what to do.
type unlimitedError struct{ reason, hint string }

func (e *unlimitedError) Error() string { return e.reason }

// probe finds out whether the trees can have a controller, by giving it to one.
// ours reports whether a process may be moved to another group.
func (r *cgroupRoot) probe(controller string, ours func(pid int) bool) *unlimitedError {
	parent := filepath.Dir(r.path)
	if err := enableIn(parent, controller, ours); err != nil {
		return err
	}
	if r.enabled(controller) {
		return nil // an earlier daemon has tried it, and trees may have limits
	}
	failed := func(err error) *unlimitedError {
		return &unlimitedError{fmt.Sprintf("cannot use the controller %s in %s: %v", controller, r.path, err), hintDelegate}
	}
	if err := r.enable(controller); err != nil {
		return failed(err)
	}
	defer r.disable(controller)
	const name = "probe"
	if err := unix.Mkdirat(r.fd, name, 0o755); err != nil {
		return failed(err)
	}
	defer func() { _ = r.removeGroup(name) }()
	_, err := r.setLimits(name, probedLimits[controller])
	if err != nil {
		return failed(err)
	}
	return nil
}

// enableIn enables a controller for the children of a group.
func enableIn(dir, controller string, ours func(pid int) bool) *unlimitedError {
	if hasWord(filepath.Join(dir, subtreeControl), controller) {
		return nil
	}
	if !hasWord(filepath.Join(dir, "cgroup.controllers"), controller) {
		if mount := mountOf(dir); !hasWord(filepath.Join(mount, "cgroup.controllers"), controller) {
			return &unlimitedError{fmt.Sprintf("the cgroup v2 hierarchy at %s has no controller %s", mount, controller), hintUnified}
		}
		return &unlimitedError{fmt.Sprintf("the controller %s is not delegated to %s", controller, dir), hintDelegate}
	}
	var err error
	if !isRootGroup(dir) {
		// First, and not only if the kernel asks for it: the kernel lets a group with
		// processes enable cpu and pids, but then no process can be started in the groups
		// below it.
		err = moveToLeaf(dir, ours)
	}
	if err == nil {
		err = writeControl(dir, subtreeControl, "+"+controller)
	}
	if err != nil {
		return &unlimitedError{fmt.Sprintf("cannot enable the controller %s in %s: %v", controller, dir, err), hintDelegate}
	}
	return nil
}

// isRootGroup reports whether a group is the root of all, which may have processes and
// controllers: only the others have a type.
func isRootGroup(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.type"))
	return errors.Is(err, fs.ErrNotExist)
}

// moveRounds is how often moveToLeaf looks for processes that were forked meanwhile.
const moveRounds = 5

// moveToLeaf moves the processes of a group into a leaf of it, if all of them are
// ours: otherwise another manager has put them there.
func moveToLeaf(dir string, ours func(pid int) bool) error {
	leaf := filepath.Join(dir, leafName)
	for range moveRounds {
		pids, err := pidsIn(dir)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if !ours(pid) {
				return fmt.Errorf("process %d, which the daemon did not start, is in the same cgroup", pid)
			}
		}
		if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := movePIDs(leaf, pids); err != nil {
			return errors.Join(err, leaveLeaf(dir))
		}
	}
	return errors.New("new processes keep appearing in the cgroup")
}

// leaveLeaf returns to the group that the host found this process in. No tree may be
// left. If it fails, an empty group is left when this process has ended.
func (h *Host) leaveLeaf() {
	if _, inLeaf := ownCgroup(); !inLeaf {
		return
	}
	if err := leaveLeaf(filepath.Dir(h.cgroup.path)); err != nil {
		h.log.Warn("cannot return to the cgroup of the service", "error", err)
	}
}

// leaveLeaf undoes moveToLeaf, if there is a leaf.
func leaveLeaf(dir string) error {
	leaf := filepath.Join(dir, leafName)
	pids, err := pidsIn(leaf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, controller := range controllers {
		_ = writeControl(dir, subtreeControl, "-"+controller) // processes can't return while one is enabled
	}
	if err == nil {
		err = movePIDs(dir, pids)
	}
	if err == nil {
		err = os.Remove(leaf)
	}
	return err
}

// pidsIn lists the processes of a group; 0 stands for one of another PID namespace.
func pidsIn(dir string) (pids []int, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for word := range strings.FieldsSeq(string(text)) {
		pid, _ := strconv.Atoi(word) // the kernel writes only numbers
		pids = append(pids, pid)
	}
	return pids, err
}

// movePIDs moves processes into a group.
func movePIDs(dir string, pids []int) error {
	for _, pid := range pids {
		if err := writeControl(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("move process %d: %w", pid, err)
		}
	}
	return nil
}

// ours reports whether a process is this one, the holder, or a descendant of them.
func (h *Host) ours(pid int) bool {
	if pid == os.Getpid() || pid == h.parent {
		return true
	}
	st, err := readStat(pid)
	return err == nil && descends(pid, st, func(ancestor int) bool { return ancestor == h.parent })
}

// subtreeControl lists the controllers that a group enables for its children.
const subtreeControl = "cgroup.subtree_control"

// enabled reports whether the groups of trees have a controller.
func (r *cgroupRoot) enabled(controller string) bool {
	return hasWord(filepath.Join(r.path, subtreeControl), controller)
}

// enable gives a controller to the groups of all trees.
func (r *cgroupRoot) enable(controller string) error {
	return r.write(".", subtreeControl, "+"+controller)
}

// disable undoes enable.
func (r *cgroupRoot) disable(controller string) { _ = r.write(".", subtreeControl, "-"+controller) }

// hasWord reports whether a file of words has one.
func hasWord(path, word string) bool {
	text, err := os.ReadFile(path)
	return err == nil && slices.Contains(strings.Fields(string(text)), word)
}

func writeControl(dir, file, value string) error {
	fd, err := unix.Open(filepath.Join(dir, file), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// mountOf returns the root of the hierarchy that a group is in: the topmost
// directory that is a group.
func mountOf(dir string) string {
	for {
		above := filepath.Dir(dir)
		if _, err := os.Stat(filepath.Join(above, "cgroup.procs")); err != nil || above == dir {
			return dir
		}
		dir = above
	}
}
