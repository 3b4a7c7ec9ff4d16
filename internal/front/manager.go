package front

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
)

// The variables by which a service manager such as systemd asks for reports.
const (
	notifyVariable      = "NOTIFY_SOCKET"
	watchdogVariable    = "WATCHDOG_USEC"
	watchdogPIDVariable = "WATCHDOG_PID"
)

// ManagerVariables returns the names of the variables that NewManager reads.
// Sessions must not get them: a program in a session could talk to the manager in
// the daemon's name.
func ManagerVariables() []string {
	return []string{notifyVariable, watchdogVariable, watchdogPIDVariable}
}

// Manager reports the daemon's status to the service manager that started it, if
// there is one.
type Manager struct {
	socket   *net.UnixAddr // nil: no reports
	watchdog time.Duration // it restarts the service after such a silence; 0: never
	pid      int           // of the process that it started
	log      *slog.Logger
}

// NewManager reads the service manager's variables with lookup, which returns false
// for unset ones. pid is the process that the manager started; 0 means that there
// are no reports.
func NewManager(lookup func(name string) (string, bool), pid int, log *slog.Logger) *Manager {
	m := &Manager{log: log, pid: pid}
	if pid == 0 {
		return m
	}
	if path, ok := lookup(notifyVariable); ok && (path[0] == '/' || path[0] == '@') {
		m.socket = &net.UnixAddr{Net: "unixgram", Name: path}
	}
	text, _ := lookup(watchdogVariable)
	meant, given := lookup(watchdogPIDVariable)
	if usec, err := strconv.ParseInt(text, 10, 64); err == nil && usec > 0 && (!given || meant == strconv.Itoa(pid)) {
		m.watchdog = time.Duration(usec) * time.Microsecond
	}
	return m
}

// notifyTimeout bounds the wait for a manager that does not read.
const notifyTimeout = time.Second

// notify sends assignments to the service manager.
func (m *Manager) notify(assignments ...string) {
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

func (m *Manager) ready(status string) {
	m.notify("READY=1", "MAINPID="+strconv.Itoa(m.pid), "STATUS="+status, "WATCHDOG=1")
}

// Starting restarts the watchdog interval for a daemon that takes over sessions.
func (m *Manager) Starting() {
	m.notify("STATUS=taking over the sessions of the previous daemon", "WATCHDOG=1")
}

// Stopping reports that the daemon shuts down.
func (m *Manager) Stopping() { m.notify("STOPPING=1", "STATUS=ending the sessions") }

// statusInterval is how often the status is reported without a watchdog.
const statusInterval = time.Minute

// watch reports to the manager until stop is closed. query asks the daemon for its
// status, through the same path as requests. If there is no answer in time, watch
// calls abort: the holder keeps the sessions and starts another daemon, while the
// manager could only end everything.
func (m *Manager) watch(stop <-chan struct{}, query func() (status string), abort func()) {
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

// Notify keeps the service manager informed while the Front serves, until stop is
// closed.
func (f *Front) Notify(m *Manager, stop <-chan struct{}) {
	if m.socket == nil {
		return
	}
	m.ready(f.status())
	f.cfg.Go("notify the service manager", func() {
		m.watch(stop, f.status, func() {
			f.log.Error("the daemon hangs; aborting so that the holder starts another", "event", "hung")
			_ = syscall.Kill(os.Getpid(), syscall.SIGABRT) // makes the runtime print all goroutines
		})
	})
}

// status returns a one-line status. It asks as a client does, so an answer shows
// that everything that serves requests responds: the pool, the journals and the
// holder.
func (f *Front) status() string {
	self := handlerCaller{f.cfg.Handler, access.Actor{UID: os.Geteuid(), Transport: "watchdog", Scope: access.ScopeAdmin}}
	var stats api.SystemStats
	if err := self.Call(context.Background(), api.MethodSystemStats, nil, &stats); err != nil {
		return "cannot count the sessions"
	}
	return fmt.Sprintf("%d sessions idle, %d running, on %s", stats.Sessions[api.StateIdle], stats.Sessions[api.StateRunning], f.Where())
}
