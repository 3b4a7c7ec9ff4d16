package api

// None is the parameters of a method that takes none.
type None struct{}

// PingResult is the answer to system.ping.
type PingResult struct {
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
	UptimeMS int64  `json:"uptime_ms"`
	Caller   string `json:"caller,omitempty"` // the caller, as it appears in the owner of its sessions; "" from a daemon without owners
}

// SystemInfo describes the daemon and what it can enforce on its machine.
type SystemInfo struct {
	Version     string         `json:"version"`
	Protocol    int            `json:"protocol"`
	OS          string         `json:"os"`
	Arch        string         `json:"arch"`
	PID         int            `json:"pid"`
	Config      map[string]any `json:"config"` // effective settings; no secrets
	Runtimes    []string       `json:"runtimes"`
	Shells      []string       `json:"shells"` // supported shells found on this host
	Process     ProcessSupport `json:"process"`
	Limits      []string       `json:"limits"`                // limits that can be enforced here
	Isolates    []string       `json:"isolation"`             // isolations that can be enforced here
	Confinement []Ability      `json:"confinement,omitempty"` // what limits and isolations need, each tried once
	Node        string         `json:"node,omitempty"`        // its name in ids
	User        string         `json:"user,omitempty"`        // whose daemon it is
	Digest      string         `json:"digest,omitempty"`      // SHA-256 of the program that it runs, in hex
	Boot        string         `json:"boot,omitempty"`        // another value means that all earlier sessions are gone
	Places      []Place        `json:"places,omitempty"`
}

// ProcessSupport says how this daemon finds and kills processes.
type ProcessSupport struct {
	Tracking  string `json:"tracking"`         // "cgroup", "tags" (process walk) or "none" (no sessions here)
	Cgroup    string `json:"cgroup,omitempty"` // parent of the session cgroups
	Reason    string `json:"reason,omitempty"` // why not cgroup
	Subreaper bool   `json:"subreaper"`
}

// SystemStats counts what the daemon does and holds.
type SystemStats struct {
	UptimeMS       int64         `json:"uptime_ms"`
	Sessions       map[State]int `json:"sessions"`
	SessionsTotal  int64         `json:"sessions_total"`
	ExecsRunning   int           `json:"execs_running"`
	ExecsTotal     int64         `json:"execs_total"`
	ExecsRetained  int           `json:"execs_retained"`
	BytesCaptured  int64         `json:"bytes_captured"`
	JournalMemory  int64         `json:"journal_memory_bytes"`
	JournalSpilled int64         `json:"journal_spilled_bytes"`
	Memory         int64         `json:"memory_bytes"` // resident set of the daemon
	FDs            int           `json:"fds"`
	Goroutines     int           `json:"goroutines"`
	Orphans        int64         `json:"orphans_reaped"`
}

// UpgradeResult is the answer to system.upgrade: the daemon is about to be replaced.
type UpgradeResult struct {
	Version string `json:"version"` // of the binary that takes over
}

// Actor is the member "actor" of every request over a connection that acts for
// others: the caller for whom the request is made; see system.delegate.
type Actor struct {
	Scope      string `json:"scope"`                // read, run or admin
	Tag        string `json:"tag,omitempty"`        // limits the caller to sessions with this tag; "": no limit
	Token      string `json:"token,omitempty"`      // id of the caller's token; "": it has none
	Name       string `json:"name,omitempty"`       // of the token
	User       string `json:"user,omitempty"`       // the caller's user name, or uid:N
	Connection string `json:"connection,omitempty"` // a name for the caller's own connection; "": it has none
}

// DelegateResult is the answer to system.delegate.
type DelegateResult struct {
	MaxConnections int `json:"max_connections"` // names of callers' connections that this connection may use at once
}

// DisconnectParams names the connection of a caller that has left.
type DisconnectParams struct {
	Connection string `json:"connection"`
}

// DisconnectResult is the answer to system.disconnect.
type DisconnectResult struct {
	Connection   string `json:"connection"`
	Disconnected bool   `json:"disconnected"` // false: no request has used the name, or it has ended already
}
