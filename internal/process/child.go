package process

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// The binary re-executes itself as a helper for work that must happen in the
// child before the program starts.
const (
	childCommand      = "be-child"
	childStart        = "start"       // wait for the gate, then exec the program that follows
	childStartKeepTTY = "start-there" // like childStart, but keep the controlling terminal
	childPause        = "pause"       // do nothing until killed
	childLeader       = "lead"        // lead the session of a terminal
)

// gateFD is the inherited end of the gate. Reading a byte from it means go. A
// successful exec closes it; an error before that is written to it.
const gateFD = 3

func childArgv(mode string, argv ...string) []string {
	return append([]string{"trl", childCommand, mode}, argv...)
}

// RunChild turns this process into a helper if it was started as one, and then
// does not return. It must be the first thing main does, in test binaries too.
func RunChild() {
	if len(os.Args) < 3 || os.Args[1] != childCommand {
		return
	}
	switch os.Args[2] {
	case childPause:
		for { // not select{}: with no other goroutine Go reports a deadlock
			time.Sleep(time.Hour)
		}
	case childLeader:
		runLeader(strings.Join(os.Args[3:], ""))
	case childStart, childStartKeepTTY:
		if os.Args[2] == childStart {
			leaveTerminal()
		}
		gate := os.NewFile(gateFD, "gate")
		err := becomeProgram(gate, os.Args[3:])
		fmt.Fprint(gate, err) // the parent returns it from Start
		os.Exit(127)
	default:
		os.Exit(2)
	}
}

// becomeProgram waits for the gate, and executes the program that follows the
// resource limits in args.
func becomeProgram(gate *os.File, args []string) error {
	if len(args) < 3 {
		return errors.New("no program to start")
	}
	if err := setRlimits(args[0]); err != nil {
		return err
	}
	if _, err := gate.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("wait for the gate: %w", err)
	}
	syscall.CloseOnExec(gateFD)
	return syscall.Exec(args[1], args[2:], os.Environ())
}

// setRlimits sets resource limits of this process, which what it starts inherits. It
// uses package syscall, which otherwise gives a child the limit of open files that
// this process began with.
func setRlimits(text string) error {
	if text == "" {
		return nil
	}
	var openFiles, fileSize uint64
	if _, err := fmt.Sscanf(text, "%d,%d", &openFiles, &fileSize); err != nil {
		return fmt.Errorf("read resource limits: %w", err)
	}
	for resource, value := range map[int]uint64{syscall.RLIMIT_NOFILE: openFiles, syscall.RLIMIT_FSIZE: fileSize} {
		if value == 0 {
			continue
		}
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value}); err != nil {
			return fmt.Errorf("set resource limits: %w", err)
		}
	}
	return nil
}
