package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Variable names the directory with the kernels, vmlinux-6.1 and vmlinux-6.12, and
// with QEMU in its usual directories, if this machine's own is not to be used.
const Variable = "TRL_VM"

// emulator is the program that runs guests.
const emulator = "qemu-system-x86_64"

// tools are the files that a guest is made of.
type tools struct {
	qemu     string
	firmware []string // directories
	kernel   string
}

// find returns the tools for a kernel, or why there can't be a guest with it.
func find(kernel string) (tools, error) {
	dir := os.Getenv(Variable)
	switch {
	case runtime.GOARCH != "amd64":
		return tools{}, errors.New("guests have amd64 kernels, and run binaries of this machine")
	case dir == "":
		return tools{}, fmt.Errorf("%s is not set to a directory with kernels: run the tests with .ci/run vm", Variable)
	}
	found := tools{kernel: filepath.Join(dir, "vmlinux-"+kernel)}
	if _, err := os.Stat(found.kernel); err != nil {
		return tools{}, err
	}
	found.qemu = filepath.Join(dir, "usr", "bin", emulator)
	if _, err := os.Stat(found.qemu); err == nil {
		found.firmware = []string{filepath.Join(dir, "usr", "share", "qemu"), filepath.Join(dir, "usr", "share", "seabios")}
		return found, nil
	}
	var err error
	found.qemu, err = exec.LookPath(emulator)
	return found, err
}
