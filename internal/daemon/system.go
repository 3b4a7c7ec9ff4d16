package daemon

import (
	"context"
	"fmt"
	"os"
	osuser "os/user"
	"runtime"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// identity answers what every daemon can say about itself, whether or not it has
// sessions.
type identity struct {
	version string
	start   time.Time
}

func newIdentity(version string) identity { return identity{version: version, start: time.Now()} }

func (i identity) uptime() int64 { return time.Since(i.start).Milliseconds() }

// Ping answers system.ping.
func (i identity) Ping(context.Context) *api.PingResult {
	return &api.PingResult{Version: i.version, Protocol: api.Protocol, UptimeMS: i.uptime()}
}

// describe returns system.info without what depends on the sessions.
func (i identity) describe(cfg Config, stdio bool) *api.SystemInfo {
	config := cfg.Public()
	if stdio {
		delete(config, "socket") // there is none
	}
	return &api.SystemInfo{
		Version: i.version, Protocol: api.Protocol,
		OS: runtime.GOOS, Arch: runtime.GOARCH, PID: os.Getpid(),
		Config:   config,
		Limits:   []string{},
		Isolates: []string{},
		Node:     cfg.Node, User: userName(), Digest: programDigest(),
	}
}

// userName returns the name of this process's user, or "" if it has none.
var userName = sync.OnceValue(func() string {
	u, err := osuser.Current()
	if err != nil {
		return ""
	}
	return u.Username
})

// measure returns system.stats without what depends on the sessions. Values that
// cannot be read are 0.
func (i identity) measure() *api.SystemStats {
	return &api.SystemStats{
		UptimeMS: i.uptime(), Memory: residentBytes(), FDs: openFiles(), Goroutines: runtime.NumGoroutine(),
	}
}

func residentBytes() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64 // in pages
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries) - 1 // the directory itself was open
}
