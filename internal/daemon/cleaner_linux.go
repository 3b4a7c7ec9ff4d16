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
	// undertakerTitle is what lists of processes call the undertaker. It is not
	// trl: who kills all that is called so should be survived by one, which then
	// ends the rest and itself.
	cleanerTitle      = "undertaker"
	cleanerSubcommand = "be-undertaker"

	// What it must know besides the name of the host is in its environment,
	// which is made of this alone, so that no path with a trl in it is in its
	// title.
	socketVar = "SOCKET"
	formatVar = "LOG_FORMAT"
)

const (
	// buryTime bounds how long the processes of the dead may take to go when
	// somebody waits for it: SIGKILL needs milliseconds.
	killOrphansTimeout = 10 * time.Second
	// undertakerPatience is for when nobody does: a disk that hangs may come
	// back.
	cleanerTimeout = time.Minute
	// removePatience is what dying processes have to let go of their socket.
	removeTimeout = 5 * time.Second
)

// undertakerCommand is how the undertaker of a host is started.
func cleanerCommand(name process.HostName, socket, format string) (argv, env []string) {
	return []string{cleanerTitle, cleanerSubcommand, name.String()}, []string{
		socketVar + "=" + socket, formatVar + "=" + format,
		"GOMAXPROCS=1", "GOGC=20", // it is to be small, and has time
	}
}

// RunUndertaker makes this process the undertaker of a holder if it was started
// as one, and then does not return. It waits until the holder is dead and every
// daemon of it too, ends what they left, and itself.
func RunCleaner() {
	if len(os.Args) != 3 || os.Args[1] != cleanerSubcommand {
		return
	}
	name, err := process.ParseHostName(os.Args[2])
	if err != nil {
		os.Exit(2)
	}
	// A service manager that stops everything sends these to everybody. The
	// holder ends us when the sessions are ended.
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
	process.SetName(cleanerTitle)
	debug.FreeOSMemory() // what the start of the program has left
	if holder.AwaitHolderDeath(name.Parent) {
		cleanUp(name, os.Getenv(socketVar), os.Getenv(formatVar))
	}
	os.Exit(0)
}

func cleanUp(name process.HostName, socket, format string) {
	began := time.Now()
	buried, err := name.KillOrphans(began.Add(cleanerTimeout))
	var removed error
	if socket != "" { // on stdio there is none
		removed = transport.RemoveUnix(socket, func(told string) bool {
			c, ok := parseLockInfo(told)
			return told == "" || ok && c.host == name
		}, removeTimeout)
	}
	log := newLogger(os.Stderr, Config{LogFormat: format}, false).With(
		"host", name.String(), "processes", buried.Found, "took", time.Since(began).String())
	if err != nil || removed != nil || len(buried.Left) > 0 || buried.CgroupLeft {
		log.Error("nobody keeps the sessions any more; not all that is left of them could be ended",
			"event", "not_ended", "left", buried.Left, "cgroup_left", buried.CgroupLeft, "error", err, "socket", removed)
		return
	}
	log.Warn("nobody keeps the sessions any more; all that was left of them is ended", "event", "undertaken")
}
