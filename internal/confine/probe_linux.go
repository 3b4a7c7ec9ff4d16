package confine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Starter forks a process as a Start describes, with the working directory "/"
// and /dev/null as its first three descriptors, and reaps it.
type Starter func(Start) error

// Probe finds out what this machine can enforce for this user, by doing each thing
// once in a child process. Callers keep the result for as long as they live.
func Probe(ctx context.Context, start Starter) Abilities {
	p := prober{ctx: ctx, start: start, found: Abilities{UID: os.Geteuid()}}
	user := p.try(namespaces{User: true}, "")
	p.add(AbilityUserNamespace, user)
	p.found.Privileged = p.try(namespaces{Mount: true}, AbilityMount) == nil
	for _, a := range []struct {
		name string
		n    namespaces
	}{
		{AbilityMount, namespaces{Mount: true}},
		{AbilityNetwork, namespaces{Net: true}},
		{AbilityProcesses, namespaces{Mount: true, PID: true}},
		{AbilityDisk, namespaces{Mount: true}},
	} {
		a.n.User = !p.found.Privileged
		p.add(a.name, p.try(a.n, a.name))
	}
	var err error
	if p.found.ABI, err = landlockABI(); err == nil {
		err = p.try(namespaces{}, AbilityLandlock)
	}
	if err == nil && p.found.ABI < minABI {
		err = fmt.Errorf("the kernel has ABI %d of Landlock; files are protected against truncation from ABI %d", p.found.ABI, minABI)
	}
	p.add(AbilityLandlock, err)
	p.add(AbilitySeccomp, p.try(namespaces{}, AbilitySeccomp))
	p.add(AbilityUser, p.try(namespaces{}, AbilityUser))
	return p.found
}

type prober struct {
	ctx   context.Context
	start Starter
	found Abilities
}

// add records whether an ability is there.
func (p *prober) add(name string, err error) {
	a := Ability{Name: name, Available: err == nil}
	if err != nil {
		a.Reason, a.Hint = err.Error(), hint(name, p.found)
	}
	p.found.List = append(p.found.List, a)
}

// try makes namespaces and does one thing in them, in a child.
func (p *prober) try(n namespaces, what string) error {
	o := order{Namespaces: n, Probe: what, UID: os.Geteuid(), GID: os.Getegid(), Landlock: p.found.ABI}
	l, err := prepare(o)
	if err != nil {
		return err
	}
	defer l.Close()
	switch err := p.start(l.Start); {
	case errors.Is(err, unix.ENOSPC):
		return errors.New("start a process with new namespaces: no more namespaces are allowed")
	case err != nil:
		return fmt.Errorf("start a process with new namespaces: %w", err)
	}
	listener, err := l.Open(p.ctx)
	if listener != nil {
		_ = listener.Close()
	}
	return err
}

// hint returns what a person can do to get an ability.
func hint(name string, a Abilities) string {
	switch name {
	case AbilityUser:
		return "run the daemon as root, or leave out `user`"
	case AbilityLandlock:
		return "boot a kernel of 6.2 or later with landlock in its lsm= list"
	case AbilitySeccomp:
		return ""
	}
	if a.UID == 0 {
		return "give the daemon CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined), or run it outside of the container"
	}
	if h := userNamespaceHint(); h != "" {
		return h
	}
	return "run the daemon as root, or allow user namespaces to ordinary users"
}

// userNamespaceHint returns which of the usual switches forbids user namespaces.
func userNamespaceHint() string {
	for _, s := range []struct {
		file string
		off  int
		fix  string
	}{
		{"/proc/sys/user/max_user_namespaces", 0, "sysctl user.max_user_namespaces=10000"},
		{"/proc/sys/kernel/unprivileged_userns_clone", 0, "sysctl kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1, "sysctl kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		text, err := os.ReadFile(s.file)
		if err != nil {
			continue // this kernel has no such switch
		}
		if value, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && value == s.off {
			return "run `" + s.fix + "` as root"
		}
	}
	return ""
}

// probe does the thing that an order names, in this process.
func probe(o order) error {
	if err := mapIDs(o); err != nil {
		return err
	}
	switch o.Probe {
	case AbilityMount, AbilityProcesses:
		o.Spec.Files = &Files{PrivateTmp: true}
		if err := enterView(o); err != nil {
			return err
		}
		return probeView(o)
	case AbilityDisk:
		o.Spec.Files, o.Spec.DiskBytes = &Files{PrivateTmp: true}, 1<<20
		if err := enterView(o); err != nil {
			return err
		}
		return probeDisk()
	case AbilityNetwork:
		return probeNetwork()
	case AbilityLandlock:
		return probeLandlock(o)
	case AbilitySeccomp:
		return probeFilter()
	case AbilityUser:
		return becomeUser(&User{UID: otherID, GID: otherID})
	}
	return nil
}

// otherID is an id that is not ours.
const otherID = 65534

// probeView checks that the view is read-only but for /tmp, and whose /proc it has.
func probeView(o order) error {
	var root unix.Statfs_t
	if err := unix.Statfs("/", &root); err != nil || root.Flags&unix.ST_RDONLY == 0 {
		return fmt.Errorf("the root of the view is writable (%v)", err)
	}
	if err := os.WriteFile("/tmp/probe", []byte("x"), 0o600); err != nil {
		return fmt.Errorf("write to a private /tmp: %w", err)
	}
	if self, err := os.Readlink("/proc/self"); o.Namespaces.PID && self != "1" {
		return fmt.Errorf("this is process %q of a new PID namespace, not 1 (%v)", self, err)
	}
	return nil
}

// probeDisk checks that a tmpfs of a mebibyte does not hold two.
func probeDisk() error {
	err := os.WriteFile("/tmp/probe", make([]byte, 2<<20), 0o600)
	if !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("a full tmpfs accepts more (%v)", err)
	}
	return nil
}

// probeNetwork checks that there is a loopback interface and nothing else.
func probeNetwork() error {
	if err := enterNetwork(Spec{Network: NetworkProxy, ProxyPort: 1024}); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// No packet is sent; the kernel looks for a route.
	err = unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}, Port: 9})
	if !errors.Is(err, unix.ENETUNREACH) {
		return fmt.Errorf("a new network namespace has a route (%v)", err)
	}
	return nil
}

// probeLandlock checks that a Landlock domain denies reading.
func probeLandlock(o order) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	o.Spec.Files = &Files{Read: []string{"/proc"}}
	exe, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := restrict(o, exe); err != nil {
		return err
	}
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if !errors.Is(err, unix.EACCES) {
		_ = unix.Close(fd)
		return fmt.Errorf("a Landlock domain does not deny reading (%v)", err)
	}
	return nil
}

// probeFilter checks that the filter refuses a call.
func probeFilter() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := installFilter(filterAll); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if !errors.Is(err, unix.EAFNOSUPPORT) {
		_ = unix.Close(fd)
		return fmt.Errorf("the filter of system calls does not refuse (%v)", err)
	}
	return nil
}
