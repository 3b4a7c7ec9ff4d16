package daemon

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/cell"
	"github.com/terminal-runtime/trl/internal/front"
	"github.com/terminal-runtime/trl/internal/holder"
)

// This file is the interface to a service manager, such as systemd: its environment
// variables and the sockets that it passes; front.Manager reports the status to it.
// Without a service manager nothing here has an effect.

// The variables that a service manager sets for the process that it starts, besides
// front.ManagerVariables.
const (
	listenVariable      = "LISTEN_FDS"
	listenPIDVariable   = "LISTEN_PID"
	listenPIDFDVariable = "LISTEN_PIDFDID"
	listenNamesVariable = "LISTEN_FDNAMES"
	storedFilesVariable = "FDSTORE"
	firstPassedFD       = 3
	firstDaemonFD       = holder.FirstFile
)

// listenVariables describe the passed sockets.
var listenVariables = []string{listenVariable, listenPIDVariable, listenPIDFDVariable, listenNamesVariable}

// managerVariables are all of them. Sessions must not get them: a program in a
// session could talk to the manager in the daemon's name.
var managerVariables = slices.Concat(front.ManagerVariables(), []string{storedFilesVariable, cell.Variable}, listenVariables)

// passedFiles returns the descriptors that the service manager passed to this
// process: none if LISTEN_PID is another process.
func passedFiles(env Environment, pid int) []int {
	if meant, _ := env.lookup(listenPIDVariable); meant != strconv.Itoa(pid) {
		return nil
	}
	return filesFrom(env, firstPassedFD)
}

func filesFrom(env Environment, first int) (fds []int) {
	count, _ := env.lookup(listenVariable)
	n, _ := strconv.Atoi(count)
	for i := range n {
		fds = append(fds, first+i)
	}
	return fds
}

// daemonEnv returns the environment for the daemon of this holder. Of the
// listenVariables it has only the number of descriptors, which follow the
// connection to the holder.
func daemonEnv(variables []string, passed int) []string {
	env := slices.DeleteFunc(slices.Clone(variables), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(listenVariables, name)
	})
	if passed > 0 {
		env = append(env, fmt.Sprintf("%s=%d", listenVariable, passed))
	}
	return env
}

// Managed reports whether a service manager started this process and waits for its
// reports, or passed sockets to it.
func Managed(env Environment) bool {
	isSet := func(name string) bool { _, ok := env.lookup(name); return ok }
	return slices.ContainsFunc(front.ManagerVariables(), isSet) || len(passedFiles(env, os.Getpid())) > 0
}

// sockets are those that the service manager passed; -1: none.
type sockets struct{ api, web int }

// sortSockets assigns the passed descriptors: a Unix socket serves the API, a TCP
// socket serves HTTP. Errors use the numbers that the manager gave them.
func sortSockets(fds []int) (sockets, error) {
	s := sockets{-1, -1}
	for i, fd := range fds {
		refuse := func(what string) (sockets, error) {
			return sockets{-1, -1}, fmt.Errorf("descriptor %d, passed by the service manager (%s), %s: pass one listening Unix stream socket, and optionally a TCP socket for HTTP",
				firstPassedFD+i, listenVariable, what)
		}
		address, err := unix.Getsockname(fd)
		if err != nil {
			return refuse("is not a socket")
		}
		if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
			return refuse("is not a stream socket")
		}
		if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens == 0 {
			return refuse("does not listen")
		}
		to := &s.api
		switch address.(type) {
		case *unix.SockaddrUnix:
		case *unix.SockaddrInet4, *unix.SockaddrInet6:
			to = &s.web
		default:
			return refuse("is a socket of another family")
		}
		if *to >= 0 {
			return refuse("is the second socket of its family")
		}
		*to = fd
	}
	return s, nil
}

// newManager returns the service manager of this daemon, and removes its variables
// from the environment of this process, which sessions inherit.
func newManager(env Environment, holder int, log *slog.Logger) *front.Manager {
	for _, name := range managerVariables {
		_ = os.Unsetenv(name) // it fails only for invalid names
	}
	return front.NewManager(env.lookup, holder, log) // on stdio, only the client that started it matters
}
