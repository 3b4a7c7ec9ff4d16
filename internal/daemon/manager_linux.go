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

// This file is the daemon's side of a service manager, such as systemd: what
// it has said in the environment, the sockets that it has passed, and what it
// is told. Without one nothing here has an effect.

// The variables by which a service manager speaks to the process that it
// started.
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

// listenVariables are about passed sockets.
var listenVariables = []string{listenVariable, listenPIDVariable, listenPIDFDVariable, listenNamesVariable}

// managerVariables are all of them. They are not for sessions: a program in
// one would speak to the manager in our place.
var managerVariables = append([]string{notifyVariable, watchdogVariable, watchdogPIDVariable, storedFilesVariable}, listenVariables...)

// passedFiles are the descriptors that the service manager has passed to this
// process: none, unless it is the one that was meant.
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

// forDaemon is the environment of the daemon of this holder: it says how many
// descriptors follow the connection, and nothing else of them.
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

// sockets are those that the service manager has passed; -1: none.
type sockets struct{ api, web int }

// sortSockets says which of the passed descriptors is for what: a Unix socket
// for the API, one of TCP for HTTP. Errors have the numbers that the manager
// gave them.
func sortSockets(fds []int) (sockets, error) {
	s := sockets{-1, -1}
	for i, fd := range fds {
		refuse := func(what string) (sockets, error) {
			return sockets{-1, -1}, fmt.Errorf("descriptor %d, passed by the service manager (%s), %s: pass one listening Unix stream socket, and one of TCP for HTTP if it is wanted",
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
			return refuse("is a second one of its kind")
		}
		*to = fd
	}
	return s, nil
}

// manager is who started the holder, if it wants to be told how it goes.
type manager struct {
	socket   *net.UnixAddr // nil: nobody
	watchdog time.Duration // it restarts everything after as long a silence; 0: it does not
	holder   int           // the process that it started
	log      *slog.Logger
}

// takeManager reads what the service manager has said, for the daemon of a
// holder, and takes it out of the environment of this process, which sessions
// inherit.
func newManager(env Environment, held *holder.Client, log *slog.Logger) *manager {
	for _, name := range managerVariables {
		_ = os.Unsetenv(name) // it fails for names that can't be one alone
	}
	m := &manager{log: log}
	if held == nil {
		return m // its one client is the one that started it
	}
	m.holder = held.Hello().PID
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

// tellTime bounds how long a manager that does not read is waited for.
const notifyTimeout = time.Second

// tell sends assignments to the service manager.
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
		m.log.Warn("the service manager can't be told how it goes", "error", err)
	}
}

func (m *manager) ready(status string) {
	m.notify("READY=1", "MAINPID="+strconv.Itoa(m.holder), "STATUS="+status, "WATCHDOG=1")
}

// starting gives a daemon that takes over sessions the whole time of the
// watchdog for it.
func (m *manager) starting() {
	m.notify("STATUS=taking over the sessions of a daemon that ended", "WATCHDOG=1")
}

func (m *manager) stopping() { m.notify("STOPPING=1", "STATUS=ending the sessions") }

// statusTime is how often the status is told where no watchdog asks for more.
const statusInterval = time.Minute

// watch tells the manager how it goes until stop is closed. look asks the
// daemon, by the way that requests take. One that does not answer in time is
// given up: the holder keeps the sessions and starts another, while the manager
// could only end it all.
func (m *manager) watch(stop <-chan struct{}, look func() (status string), giveUp func()) {
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
		go func() { answer <- look() }()
		// The other half of what is left is for the daemon to come.
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
				giveUp()
				return
			}
		case <-stop:
		}
		late.Stop()
	}
}

// superviseSelf keeps the service manager informed while the daemon serves.
func (d *daemon) notifyManager(stop context.Context) {
	if d.manager.socket == nil {
		return
	}
	d.manager.ready(d.status())
	d.tasks.start("tell the service manager", func() {
		d.manager.watch(stop.Done(), d.status, func() {
			d.log.Error("the daemon does not answer itself and ends, for the holder to start another", "event", "hung")
			_ = unix.Kill(os.Getpid(), unix.SIGABRT) // the runtime tells where everything stands
		})
	})
}

// status is what is said of a daemon in a line. It comes through the method
// table and from the pool, the journals and the holder: who gets it knows that
// they all answer.
func (d *daemon) status() string {
	ctx := access.With(context.Background(), access.Actor{UID: os.Geteuid(), Transport: "watchdog", Scope: access.ScopeAdmin})
	result, err := d.table.Call(ctx, api.MethodSystemStats, nil)
	stats, ok := result.(*api.SystemStats)
	if err != nil || !ok {
		return "it can't be told how many sessions there are"
	}
	return fmt.Sprintf("%d sessions idle, %d running, on %s", stats.Sessions[api.StateIdle], stats.Sessions[api.StateRunning], d.where())
}
