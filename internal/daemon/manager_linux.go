package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/holder"
)

// This file is the interface to a service manager, such as systemd: its environment
// variables, the sockets that it passes, and the status reports to it. Without a
// service manager nothing here has an effect.

// The variables that a service manager sets for the process that it starts.
const (
	notifyVariable      = "NOTIFY_SOCKET"
	watchdogVariable    = "WATCHDOG_USEC"
	watchdogPIDVariable = "WATCHDOG_PID"
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
var managerVariables = append([]string{notifyVariable, watchdogVariable, watchdogPIDVariable, storedFilesVariable}, listenVariables...)

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

// manager reports the daemon's status to the service manager that started the
// holder, if there is one.
type manager struct {
	socket   *net.UnixAddr // nil: no reports
	watchdog time.Duration // it restarts the service after such a silence; 0: never
	holder   int           // pid of the process that it started
	log      *slog.Logger
}

// newManager reads the service manager's variables and removes them from the
// environment of this process, which sessions inherit. client is nil without a
// holder.
func newManager(env Environment, client *holder.Client, log *slog.Logger) *manager {
	for _, name := range managerVariables {
		_ = os.Unsetenv(name) // it fails only for invalid names
	}
	m := &manager{log: log}
	if client == nil {
		return m // on stdio, only the client that started it matters
	}
	m.holder = client.Hello().PID
	if path, ok := env.lookup(notifyVariable); ok && (path[0] == '/' || path[0] == '@') {
		m.socket = &net.UnixAddr{Net: "unixgram", Name: path}
	}
	text, _ := env.lookup(watchdogVariable)
	meant, given := env.lookup(watchdogPIDVariable)
	if usec, err := strconv.ParseInt(text, 10, 64); err == nil && usec > 0 && (!given || meant == strconv.Itoa(m.holder)) {
		m.watchdog = time.Duration(usec) * time.Microsecond
	}
	return m
}

// notifyTimeout bounds the wait for a manager that does not read.
const notifyTimeout = time.Second

// notify sends assignments to the service manager.
func (m *manager) notify(assignments ...string) {
	if m.socket == nil {
		return
	}
	conn, err := net.DialUnix(m.socket.Net, nil, m.socket)
	if err == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(notifyTimeout))
		_, err = conn.Write([]byte(strings.Join(assignments, "\n")))
		_ = conn.Close()
	}
	if err != nil {
		m.log.Warn("cannot notify the service manager", "error", err)
	}
}

func (m *manager) ready(status string) {
	m.notify("READY=1", "MAINPID="+strconv.Itoa(m.holder), "STATUS="+status, "WATCHDOG=1")
}

// starting restarts the watchdog interval for a daemon that takes over sessions.
func (m *manager) starting() {
	m.notify("STATUS=taking over the sessions of the previous daemon", "WATCHDOG=1")
}

func (m *manager) stopping() { m.notify("STOPPING=1", "STATUS=ending the sessions") }

// statusInterval is how often the status is reported without a watchdog.
const statusInterval = time.Minute

// watch reports to the manager until stop is closed. query asks the daemon for its
// status, through the same path as requests. If there is no answer in time, watch
// calls abort: the holder keeps the sessions and starts another daemon, while the
// manager could only end everything.
func (m *manager) watch(stop <-chan struct{}, query func() (status string), abort func()) {
	every := statusInterval
	if m.watchdog > 0 {
		every = m.watchdog / 2 // as sd_watchdog_enabled(3) advises
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := ""; ; {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		answer := make(chan string, 1)
		go func() { answer <- query() }()
		// The rest of the watchdog interval is for the next daemon to start.
		late := time.NewTimer(every / 2)
		select {
		case status := <-answer:
			if m.watchdog > 0 {
				m.notify("WATCHDOG=1")
			}
			if status != last {
				m.notify("STATUS=" + status)
			}
			last = status
		case <-late.C:
			if m.watchdog > 0 {
				abort()
				return
			}
		case <-stop:
		}
		late.Stop()
	}
}

// notifyManager keeps the service manager informed while the daemon serves.
func (d *daemon) notifyManager(stop context.Context) {
	if d.manager.socket == nil {
		return
	}
	d.manager.ready(d.status())
	d.tasks.start("notify the service manager", func() {
		d.manager.watch(stop.Done(), d.status, func() {
			d.log.Error("the daemon hangs; aborting so that the holder starts another", "event", "hung")
			_ = unix.Kill(os.Getpid(), unix.SIGABRT) // makes the runtime print all goroutines
		})
	})
}

// status returns a one-line status. It goes through the method table to the pool,
// the journals and the holder, so an answer shows that all of them respond.
func (d *daemon) status() string {
	ctx := access.With(context.Background(), access.Actor{UID: os.Geteuid(), Transport: "watchdog", Scope: access.ScopeAdmin})
	result, err := d.table.Call(ctx, api.MethodSystemStats, nil)
	stats, ok := result.(*api.SystemStats)
	if err != nil || !ok {
		return "cannot count the sessions"
	}
	return fmt.Sprintf("%d sessions idle, %d running, on %s", stats.Sessions[api.StateIdle], stats.Sessions[api.StateRunning], d.where())
}
