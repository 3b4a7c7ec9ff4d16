package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/trust"
)

// answerTimeout is how long a daemon may take to answer. It answers from memory.
const answerTimeout = 5 * time.Second

// daemon checks the daemon. info is nil if none answers.
func (p Target) daemon(ctx context.Context) (f Finding, info *api.SystemInfo) {
	const check = "daemon"
	there, err := os.Lstat(p.Socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if pid, waiting := p.Holder(); waiting {
			return note(check, p.serve(), "process %d keeps the sessions of %s, and waits for a daemon", pid, p.Socket), nil
		}
		if locked(p.Socket + ".lock") {
			return problem(check, "trl doctor # again in a moment; `fuser "+p.Quote(p.Socket+".lock")+"` shows which process has it",
				"a daemon has the lock of %s but no socket: it starts, stops or hangs", p.Socket), nil
		}
		return note(check, p.serve(), "none is serving on %s", p.Socket), nil
	case err != nil:
		return problem(check, "sudo trl --socket "+p.Quote(p.Socket)+" doctor", "uid %d can't access %s: %v", os.Geteuid(), p.Socket, err), nil
	case there.Mode().Type() != fs.ModeSocket:
		return problem(check, "mv "+p.Quote(p.Socket)+" "+p.Quote(p.Socket+".old"), "%s is in the way: it is not a socket", p.Socket), nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	info, err = p.Info(ctx)
	switch {
	case err == nil && info.Version != p.Version:
		return note(check, "trl upgrade", "version %s answers on %s (pid %d), but this program is version %s", info.Version, p.Socket, info.PID, p.Version), info
	case err == nil:
		return ok(check, "version %s answers on %s (pid %d)", info.Version, p.Socket, info.PID), info
	case errors.Is(err, syscall.ECONNREFUSED) && !locked(p.Socket+".lock"):
		return note(check, p.serve(), "%s was left by a daemon that is gone; the next one replaces it", p.Socket), nil
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return problem(check, "sudo trl --socket "+p.Quote(p.Socket)+" doctor",
			"%s is for its owner, uid %d, and root, but this is uid %d", p.Socket, ownerOf(there), os.Geteuid()), nil
	default:
		return problem(check, "fuser -v "+p.Quote(p.Socket)+" # then run kill -ABRT on the `trl be-daemon`: its holder keeps the sessions and starts another",
			"a daemon has %s but does not answer: %v", p.Socket, err), nil
	}
}

// sessions checks the sessions of the daemon.
func (p Target) sessions(ctx context.Context) Finding {
	const check = "sessions"
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	all, err := p.Sessions(ctx)
	if err != nil {
		return problem(check, "trl session list", "the daemon does not list its sessions: %v", err)
	}
	return Sessions(all)
}

// Sessions checks a daemon's sessions for those that it could not take over.
func Sessions(all []api.Session) Finding {
	const check = "sessions"
	var unreadable []string
	for _, s := range all {
		if s.Unreadable != "" && s.Terminated == nil {
			unreadable = append(unreadable, s.SessionID)
		}
	}
	if len(unreadable) == 0 {
		return ok(check, "%d; the daemon can read them all", len(all))
	}
	return problem(check, "trl session info "+unreadable[0]+" # shows why; trl session destroy ends its processes",
		"the daemon could not take over %d of %d: %s", len(unreadable), len(all), strings.Join(unreadable, ", "))
}

// locked reports whether a process holds the lock in a file.
func locked(name string) bool {
	file, err := os.Open(name)
	if err != nil {
		return false
	}
	defer file.Close() // also releases the lock if we got it
	return errors.Is(syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// directory checks the directory of the socket.
func (p Target) directory() Finding {
	const check, elsewhere = "socket directory", "trl serve --socket DIRECTORY/trl.sock # in your own directory"
	dir := filepath.Dir(p.Socket)
	err := trust.Directory(dir, os.Geteuid())
	switch {
	case err == nil:
		return ok(check, "%s: only its owner can write to it", dir)
	case errors.Is(err, fs.ErrNotExist):
		parent := dir
		for errors.Is(err, fs.ErrNotExist) && parent != "/" {
			parent = filepath.Dir(parent)
			_, err = os.Stat(parent)
		}
		if err := syscall.Access(parent, 2); err != nil { // 2 is W_OK
			return problem(check, elsewhere, "%s does not exist and can't be created by uid %d: %v", dir, os.Geteuid(), err)
		}
		return ok(check, "%s will be created", dir)
	}
	if there, statErr := os.Stat(dir); statErr == nil && ownerOf(there) == os.Geteuid() {
		return problem(check, "chmod go-w "+p.Quote(dir), "%v", err)
	}
	return problem(check, elsewhere, "%v", err)
}

// config checks who can write the configuration file. The caller has read its
// contents.
func (p Target) config() Finding {
	const check = "configuration"
	if p.ConfigFile == "" {
		return ok(check, "no file: defaults, TRL_… variables and flags")
	}
	file, err := os.Open(p.ConfigFile)
	if err != nil {
		return problem(check, "ls -l "+p.Quote(p.ConfigFile), "%v", err)
	}
	defer file.Close()
	info, err := file.Stat()
	switch refused := trust.File(file, os.Geteuid()); {
	case err != nil:
		return problem(check, "ls -l "+p.Quote(p.ConfigFile), "%v", err)
	case refused != nil && ownerOf(info) != 0 && ownerOf(info) != os.Geteuid():
		return problem(check, "sudo chown "+strconv.Itoa(os.Geteuid())+" "+p.Quote(p.ConfigFile), "%s belongs to uid %d, who can decide with it whom the daemon admits", p.ConfigFile, ownerOf(info))
	case refused != nil:
		return problem(check, "chmod go-w "+p.Quote(p.ConfigFile), "others may write %s, and so decide whom the daemon admits", p.ConfigFile)
	}
	return ok(check, "%s", p.ConfigFile)
}

// tokens checks the token file.
func (p Target) tokens() Finding {
	const check = "tokens"
	if _, err := os.Stat(p.TokenFile); errors.Is(err, fs.ErrNotExist) {
		return ok(check, "none; HTTP needs one (trl token create)")
	}
	tokens, err := access.File{Path: p.TokenFile}.List()
	if err != nil {
		return problem(check, "chmod 600 "+p.Quote(p.TokenFile)+" # as its owner", "%v", err)
	}
	valid := 0
	for _, token := range tokens {
		if !token.Expired(time.Now()) {
			valid++
		}
	}
	return ok(check, "%d in %s, %d of them valid", len(tokens), p.TokenFile, valid)
}

// timeLimits checks whether forgotten sessions or commands ever end.
func (p Target) timeLimits(info *api.SystemInfo) Finding {
	const check = "time limits"
	timeout, ttl := p.DefaultTimeoutMS, p.IdleTTLMS
	if info != nil {
		timeout, ttl = setting(info, "default_timeout_ms"), setting(info, "idle_ttl_ms")
	}
	if timeout == 0 && ttl == 0 {
		return note(check, "TRL_IDLE_TTL_MS=24h trl serve # or idle_ttl_ms in the configuration",
			"neither idle_ttl_ms nor default_timeout_ms is set: a forgotten session or command runs until the daemon stops")
	}
	of := func(ms int64) string {
		if ms == 0 {
			return "none"
		}
		return (time.Duration(ms) * time.Millisecond).String()
	}
	return ok(check, "timeout of commands: %s; idle TTL of sessions: %s", of(timeout), of(ttl))
}

// setting returns a number from the settings of a daemon; 0 if it is missing.
func setting(info *api.SystemInfo, key string) int64 {
	switch n := info.Config[key].(type) {
	case float64: // as JSON numbers arrive
		return int64(n)
	case int64:
		return n
	}
	return 0
}

func (p Target) serve() string { return "trl serve --socket " + p.Quote(p.Socket) }

func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
