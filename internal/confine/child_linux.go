package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// childCommand is the argument of a launcher.
const childCommand = "be-confined"

// RunChild turns this process into a launcher if it was started as one, and then
// does not return. It must be called first in main, in test binaries too.
func RunChild() {
	if len(os.Args) != 2 || os.Args[1] != childCommand {
		return
	}
	// Credentials, Landlock and seccomp belong to a thread. The thread that executes
	// the program is the one that counts; exec ends all others.
	runtime.LockOSThread()
	err := runChild()
	_ = send(gateFD, messageFailure, err.Error(), -1) // if the daemon still listens
	os.Exit(127)
}

func runChild() error {
	unix.CloseOnExec(gateFD)
	if n, err := unix.Read(gateFD, make([]byte, 1)); err != nil || n == 0 {
		return errors.New("the daemon did not let the launcher go")
	}
	var o order
	if err := json.NewDecoder(os.NewFile(specFD, "order")).Decode(&o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	if len(o.Spec.Args) > 0 {
		return launch(o)
	}
	if err := probe(o); err != nil {
		return err
	}
	if err := send(gateFD, messageReady, "", -1); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}
