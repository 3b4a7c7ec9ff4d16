package escape

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// readAttempts read what the confinement denies.
func readAttempts() []attempt {
	none := []syscall.Errno{unix.ENOSYS}
	rows := []attempt{
		{name: "secret_direct", try: func(*scene) error { return readSecret(secretFile) }},
		{name: "secret_stat", try: func(*scene) error { _, err := os.Stat(secretFile); return at("stat", err) }},
		{name: "secret_list", try: listSecrets},
		{name: "secret_symlink", try: secretSymlink},
		{name: "secret_hard_link", try: secretHardLink},
		{name: "secret_rename", try: secretRename},
		{name: "secret_rename_directory", try: secretRenameDirectory},
		{name: "secret_in_root", try: func(*scene) error { return readSecret(vault + "/key") }},
		{name: "secret_in_root_renamed", try: secretInRootRenamed},
		{name: "secret_parent_renamed", try: secretParentRenamed},
		{name: "secret_nested_namespace", try: secretNested},
		{name: "secret_path_descriptor", try: secretPathDescriptor},
		{name: "secret_execute", try: func(*scene) error { return at("execve", execSecret()) }},
		{name: "secret_proc_self_root", try: func(*scene) error { return readSecret("/proc/self/root" + secretFile) }},
		{name: "secret_proc_init_root", try: func(*scene) error { return readSecret("/proc/1/root" + secretFile) }, who: root},
		{name: "secret_victim_root", try: func(s *scene) error { return readSecret(ofVictim(s, "root"+secretFile)) }},
		{name: "secret_victim_cwd", try: func(s *scene) error { return readSecret(ofVictim(s, "cwd/key")) }},
		{name: "secret_victim_descriptor", try: func(s *scene) error { return readSecret(ofVictim(s, fmt.Sprint("fd/", s.SecretFD))) }},
		{name: "secret_file_handle", who: root, try: secretFileHandle},
		{name: "secret_bind_mount", who: root, try: secretBindMount, prepare: unshareWork},
		{name: "secret_unmount_cover", who: root, try: secretUnmountCover, prepare: coverSecret},
		{name: "secret_overlay", who: root, try: secretOverlay, absent: []syscall.Errno{unix.ENODEV}},
		{name: "secret_open_tree", who: root, try: secretOpenTree, absent: none},
		{name: "secret_chroot", who: root, try: chrootBreakOut},
		{name: "secret_inherited", try: inheritedSecret, prepare: leakSecret},
	}
	for i := range rows {
		rows[i].group = "read denied"
		if rows[i].who == nil {
			rows[i].who = both
		}
		rows[i].alone = []string{byFilesystem, byListed}
	}
	return rows
}

// readSecret gets through if the file contains what is hidden.
func readSecret(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return at("open", err)
	}
	if !strings.Contains(string(text), hidden) {
		return without("read", "another file is there")
	}
	return nil
}

// greeted gets through if a server sent its greeting.
func greeted(r io.Reader) error {
	const patience = 5 * time.Second // for a server that runs on a busy machine
	if c, ok := r.(net.Conn); ok {
		c.SetReadDeadline(time.Now().Add(patience))
	}
	text := make([]byte, len(hidden))
	if _, err := io.ReadFull(r, text); err != nil {
		return without("read", err.Error())
	}
	if string(text) != hidden {
		return without("read", "another server answered")
	}
	return nil
}

// ofVictim returns the path of an entry of the victim's directory in /proc.
func ofVictim(s *scene, entry string) string { return fmt.Sprintf("/proc/%d/%s", s.Victim, entry) }

func listSecrets(*scene) error {
	names, err := os.ReadDir(secretDir)
	if err != nil {
		return at("open", err)
	}
	if len(names) == 0 {
		return without("getdents", "the directory is empty")
	}
	return nil
}

func secretSymlink(*scene) error {
	if err := os.Symlink("../secret/key", work+"/look"); err != nil {
		return err
	}
	return readSecret(work + "/look")
}

func secretHardLink(*scene) error {
	if err := os.Link(secretFile, work+"/look"); err != nil {
		return at("link", err)
	}
	return readSecret(work + "/look")
}

func secretRename(*scene) error {
	if err := os.Rename(secretFile, work+"/look"); err != nil {
		return at("rename", err)
	}
	return readSecret(work + "/look")
}

// secretRenameDirectory moves the denied directory to a name that is not denied.
func secretRenameDirectory(*scene) error {
	if err := os.Rename(secretDir, stageDir+"/look"); err != nil {
		return at("rename", err)
	}
	return readSecret(stageDir + "/look/key")
}

// secretInRootRenamed moves a directory above the denied one, inside the writable root.
func secretInRootRenamed(*scene) error {
	if err := os.Rename(vault, work+"/open"); err != nil {
		return at("rename", err)
	}
	return readSecret(work + "/open/key")
}

func secretPathDescriptor(*scene) error {
	fd, err := unix.Open(secretFile, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return at("open", err)
	}
	defer unix.Close(fd)
	return readSecret(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// execSecret maps the denied file as a program would be. Its content is not one, which
// the kernel finds out after it has checked the permission to read it.
func execSecret() error {
	fd, err := unix.Open(secretFile, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Mmap(fd, 0, len(hidden), unix.PROT_READ, unix.MAP_PRIVATE)
	return err
}

// secretFileHandle opens a file by its handle: no path is checked.
func secretFileHandle(s *scene) error {
	mount, err := unix.Open(work, unix.O_RDONLY|unix.O_CLOEXEC, 0) // on the same file system
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	fd, err := unix.OpenByHandleAt(mount, unix.NewFileHandle(s.HandleType, s.Handle), unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return at("open_by_handle_at", err)
	}
	defer unix.Close(fd)
	return readSecret(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// unshareWork makes a mount point in the writable root.
func unshareWork(*stage) error { return os.MkdirAll(work+"/mount", 0o755) }

func secretBindMount(*scene) error {
	if err := unix.Mount(stageDir, work+"/mount", "", unix.MS_BIND, ""); err != nil {
		return at("mount", err)
	}
	return readSecret(work + "/mount/secret/key")
}

// coverSecret mounts an empty file system over a directory, as confinements do.
func coverSecret(*stage) error { return unix.Mount("tmpfs", covered, "tmpfs", 0, "") }

func secretUnmountCover(*scene) error {
	if err := unix.Unmount(covered, unix.MNT_DETACH); err != nil {
		return at("umount2", err)
	}
	return readSecret(covered + "/key")
}

func secretOverlay(*scene) error {
	for _, dir := range []string{"/upper", "/overlay"} {
		if err := os.MkdirAll(work+dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("overlay", work+"/overlay", "overlay", 0, "lowerdir="+secretDir+":"+work+"/upper"); err != nil {
		return at("mount", err)
	}
	return readSecret(work + "/overlay/key")
}

func secretOpenTree(*scene) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, stageDir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return at("open_tree", err)
	}
	defer unix.Close(tree)
	return readSecret(fmt.Sprintf("/proc/self/fd/%d/secret/key", tree))
}

// chrootBreakOut leaves a root directory by the known way: a new root below the current
// directory, then upwards.
func chrootBreakOut(*scene) error {
	if err := os.MkdirAll(work+"/jail", 0o755); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Chroot(work + "/jail"); err != nil {
		return at("chroot", err)
	}
	const deep = 64
	for range deep {
		if err := os.Chdir(".."); err != nil {
			return at("chdir", err)
		}
	}
	if err := unix.Chroot("."); err != nil {
		return at("chroot", err)
	}
	return readSecret(secretFile)
}

// leakSecret leaves a descriptor of the denied directory open in the launcher.
func leakSecret(s *stage) error {
	dir, err := os.Open(secretDir)
	if err != nil {
		return err
	}
	s.extraFiles = append(s.extraFiles, dir, dir, dir, dir)
	return nil
}

func inheritedSecret(*scene) error {
	const most = 1024
	for dir := 3; dir < most; dir++ {
		fd, err := unix.Openat(dir, "key", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			return readSecret(fmt.Sprintf("/proc/self/fd/%d", fd))
		}
	}
	return at("openat", unix.EBADF)
}

// secretParentRenamed moves the directory above the denied one, so that the path which
// was denied is free.
func secretParentRenamed(*scene) error {
	if err := os.Rename(work+"/deep", work+"/moved"); err != nil {
		return at("rename", err)
	}
	return readSecret(work + "/moved/vault/key")
}

// secretNested removes all mounts that it can in namespaces of its own, where it has all
// capabilities.
func secretNested(s *scene) error { return nested(s, "secret") }

// nested runs a part of an attempt in a new user namespace and a new mount namespace.
func nested(s *scene, part string) error {
	cmd := exec.Command("/proc/self/exe", roleInner, part)
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: s.UID, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, UidMappings: ids, GidMappings: ids}
	return ended(cmd)
}

// ended returns how a part of an attempt ended that ran in another process.
func ended(cmd *exec.Cmd) error {
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return at("clone", err)
	}
	if exit.ExitCode() != statusRefused {
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	var r refusal
	if err := json.Unmarshal(out, &r); err != nil {
		return err
	}
	return &r
}

// unmountAndRead is the part of secretNested inside the namespaces.
func unmountAndRead() error {
	for _, dir := range []string{secretDir, vault, covered, stageDir, "/"} {
		_ = unix.Unmount(dir, unix.MNT_DETACH) // where nothing is mounted that is an error
	}
	return readSecret(secretFile)
}

// remountAndWrite makes a mount writable that is not, inside the namespaces.
func remountAndWrite() error {
	for _, dir := range []string{outside, stageDir, "/"} {
		_ = unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND, "")
		_ = unix.MountSetattr(unix.AT_FDCWD, dir, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	}
	if err := unix.Mount(outside, work, "", unix.MS_BIND, ""); err == nil {
		_ = unix.Mount("", work, "", unix.MS_REMOUNT|unix.MS_BIND, "")
		if writeTo(work+"/canary", 0) == nil {
			return nil
		}
	}
	return writeTo(canary, 0)
}
