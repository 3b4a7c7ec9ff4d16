package daemon

import (
	"os"
	"os/signal"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/transport"
)

const (
	// cleanerTitle is the cleaner's name in process lists. It does not contain
	// trl, so that the cleaner survives a kill of all processes named trl; it
	// then kills the remaining processes and exits.
	cleanerTitle      = "cleaner"
	cleanerSubcommand = "be-cleaner"

	// Apart from the host name the cleaner gets everything through its
	// environment, which contains nothing else, so that no path with trl in it
	// shows in its command line.
	socketVar = "SOCKET"
	formatVar = "LOG_FORMAT"
)

const (
	// killOrphansTimeout bounds how long killed processes may take to exit while
	// a caller waits: SIGKILL takes milliseconds.
	killOrphansTimeout = 10 * time.Second
	// cleanerTimeout is longer because no caller waits for the cleaner: a hanging
	// disk may recover.
	cleanerTimeout = time.Minute
	// removeTimeout is how long dying processes have to close their socket.
	removeTimeout = 5 * time.Second
)

// cleanerCommand returns the command line and environment of a host's cleaner.
func cleanerCommand(name process.HostName, socket, format string) (argv, env []string) {
	return []string{cleanerTitle, cleanerSubcommand, name.String()}, []string{
		socketVar + "=" + socket, formatVar + "=" + format,
		"GOMAXPROCS=1", "GOGC=20", // small rather than fast
	}
}

// RunCleaner turns this process into the cleaner of a holder if it was started as
// one, and then does not return. The cleaner waits until the holder and its
// daemons are dead, kills the processes that they left, and exits.
func RunCleaner() {
	if len(os.Args) != 3 || os.Args[1] != cleanerSubcommand {
		return
	}
	name, err := process.ParseHostName(os.Args[2])
	if err != nil {
		os.Exit(2)
	}
	// A service manager that stops the service sends these to all of its
	// processes. The holder kills the cleaner once the sessions have ended.
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
	process.SetName(cleanerTitle)
	debug.FreeOSMemory() // garbage of the program's start
	if holder.AwaitHolderDeath(name.Parent) {
		cleanUp(name, os.Getenv(socketVar), os.Getenv(formatVar))
	}
	os.Exit(0)
}

func cleanUp(name process.HostName, socket, format string) {
	began := time.Now()
	report, err := name.KillOrphans(began.Add(cleanerTimeout))
	var removeErr error
	if socket != "" { // on stdio there is none
		removeErr = transport.RemoveUnix(socket, func(text string) bool {
			info, ok := parseLockInfo(text)
			return text == "" || ok && info.host == name
		}, removeTimeout)
	}
	log := newLogger(os.Stderr, Config{LogFormat: format}, false).With(
		"host", name.String(), "processes", report.Found, "took", time.Since(began).String())
	if err != nil || removeErr != nil || len(report.Left) > 0 || report.CgroupLeft {
		log.Error("holder and daemon died; cannot kill all leftover processes",
			"event", "not_ended", "left", report.Left, "cgroup_left", report.CgroupLeft, "error", err, "socket", removeErr)
		return
	}
	log.Warn("holder and daemon died; killed leftover processes", "event", "undertaken")
}
