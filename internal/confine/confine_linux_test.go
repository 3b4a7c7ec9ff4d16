//go:build linux && (amd64 || arm64)

package confine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// RunHelper does what a test wants of a process of its own.
func RunHelper() {
	if len(os.Args) < 3 {
		return
	}
	switch os.Args[1] {
	case "dial": // a Unix socket
		c, err := net.Dial("unix", os.Args[2])
		if err == nil {
			_ = c.Close()
		}
		fmt.Println(err)
		os.Exit(0)
	case "chmod": // a file
		fmt.Println(os.Chmod(os.Args[2], 0o777))
		os.Exit(0)
	case "listening": // on the inherited descriptor
		_, err := net.FileListener(os.NewFile(3, "listener"))
		fmt.Println(err, os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()))
		os.Exit(0)
	case "family": // a socket of a family
		family, _ := strconv.Atoi(os.Args[2])
		_, err := unix.Socket(family, unix.SOCK_STREAM, 0)
		fmt.Println(err)
		os.Exit(0)
	case "without": // run a program without some system calls
		fmt.Println(switchOff(os.Args[2], os.Args[3:]))
		os.Exit(1)
	}
}

// testUser is an ordinary user, who needs no entry in /etc/passwd.
const testUser = 12345

// eachUser runs a test as root and as an ordinary user, in a process of its own.
func eachUser(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	able := func(t *testing.T) {
		t.Helper()
		for _, b := range probeOnce().List {
			if !b.Available && b.Name != AbilityUser && os.Getenv("CI") != "true" {
				t.Skipf("this machine has no %s: %s", b.Name, b.Reason)
			}
		}
		test(t)
	}
	if os.Getuid() != 0 {
		able(t)
		return
	}
	t.Run("root", able)
	t.Run("user", func(t *testing.T) { rerun(t, testUser, nil) })
}

// rerun runs the top-level test that t belongs to in a process of another user.
func rerun(t *testing.T, uid uint32, env []string, wrap ...string) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	argv := slices.Concat(wrap, []string{"/proc/self/exe", "-test.run=^" + name + "$", "-test.v"})
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir, c.Env = "/", append(os.Environ(), env...)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// fork starts a process as the daemon would, with files as its first three
// descriptors, and returns a function that waits for it.
func fork(s Start, files [3]*os.File) (wait func() syscall.WaitStatus, err error) {
	attr := &syscall.ProcAttr{Dir: "/", Env: s.Env, Sys: &syscall.SysProcAttr{Setpgid: true, Cloneflags: s.Cloneflags, AmbientCaps: s.AmbientCaps}}
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	for _, fd := range s.Files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	pid, err := syscall.ForkExec(s.Path, s.Argv, attr)
	if err != nil {
		return nil, err
	}
	return func() (status syscall.WaitStatus) {
		for {
			if _, err := syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
				return status
			}
		}
	}, nil
}

// startProbe is a Starter.
func startProbe(s Start) error {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	wait, err := fork(s, [3]*os.File{null, null, null})
	if err == nil {
		go wait()
	}
	return err
}

var probeOnce = sync.OnceValue(func() Abilities { return Probe(context.Background(), startProbe) })

// run runs a confined program to its end and returns its output.
func run(t *testing.T, s Spec) (output string, status syscall.WaitStatus) {
	t.Helper()
	output, status, err := tryRun(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return output, status
}

func tryRun(t *testing.T, s Spec, listeners ...int) (output string, status syscall.WaitStatus, err error) {
	t.Helper()
	l, err := probeOnce().Launch(s, listeners...)
	if err != nil {
		return "", 0, err
	}
	defer l.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	wait, err := fork(l.Start, [3]*os.File{null, w, w})
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Open(t.Context()); err != nil {
		wait()
		return "", 0, err
	}
	var b bytes.Buffer
	_, _ = io.Copy(&b, r)
	return b.String(), wait(), nil
}

// script returns a spec that runs a shell script.
func script(text string) Spec {
	return Spec{Program: "/bin/sh", Args: []string{"sh", "-c", text}, Env: []string{"PATH=/usr/bin:/bin"}}
}
