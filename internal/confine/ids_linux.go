package confine

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapIDs gives a new user namespace its only user and group: those of the daemon,
// under their own numbers. The launcher writes the maps itself, because the daemon
// cannot: files of a process that a non-dumpable daemon forks belong to root.
func mapIDs(o order) error {
	if !o.Namespaces.User {
		return nil
	}
	for _, f := range []struct{ name, text string }{
		{"setgroups", "deny"},
		{"uid_map", fmt.Sprintf("%d %d 1", o.UID, o.UID)},
		{"gid_map", fmt.Sprintf("%d %d 1", o.GID, o.GID)},
	} {
		if err := os.WriteFile("/proc/self/"+f.name, []byte(f.text), 0); err != nil {
			return fmt.Errorf("map the user: %w", err)
		}
	}
	return nil
}

// lockedBits are the securebits that keep root and changes of the user from
// gaining capabilities, and lock themselves.
const lockedBits = 1<<0 | 1<<1 | // SECBIT_NOROOT and its lock
	1<<2 | 1<<3 | // SECBIT_NO_SETUID_FIXUP
	1<<5 | // SECBIT_KEEP_CAPS is locked, unset
	1<<6 | 1<<7 // SECBIT_NO_CAP_AMBIENT_RAISE

// dropBounding empties the bounding set, while this process may still do that. An
// ordinary user without a user namespace may not: no_new_privs alone keeps its
// programs from gaining capabilities then.
func dropBounding(o order) error {
	may := o.UID == 0 || o.Namespaces.User
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) { // the last one was the highest that exists
			return nil
		}
		if errors.Is(err, unix.EPERM) && !may {
			return nil
		}
		if err != nil {
			return fmt.Errorf("drop a capability from the bounding set: %w", err)
		}
	}
}

// becomeUser changes the groups, the group and the user.
func becomeUser(u *User) error {
	if u == nil {
		return nil
	}
	if u.UID == os.Geteuid() && u.GID == os.Getegid() && u.UID != 0 {
		return nil
	}
	groups := make([]uint32, 0, len(u.Groups))
	for _, g := range u.Groups {
		groups = append(groups, uint32(g)) //nolint:gosec // ids are 32 bits wide
	}
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	// Raw calls, for this thread only: the others end at exec.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return fmt.Errorf("set the groups: %w", errno)
	}
	gid, uid := uintptr(u.GID), uintptr(u.UID)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return fmt.Errorf("set the group: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return fmt.Errorf("set the user: %w", errno)
	}
	return nil
}

// dropCapabilities empties all sets of this thread but the bounding set.
func dropCapabilities() error {
	// Only a thread with CAP_SETPCAP may; no_new_privs does the same for the others.
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, lockedBits, 0, 0, 0); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("lock the securebits: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear the ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop the capabilities: %w", err)
	}
	return nil
}
