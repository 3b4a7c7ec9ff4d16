package daemon

import (
	"fmt"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/place"
	"github.com/terminal-runtime/trl/internal/profile"
)

// Config has every setting of a daemon. Defaults returns it filled in; Load applies
// the file, the environment and the flags. Durations are in milliseconds and sizes
// in bytes, as on the wire.
type Config struct {
	Socket           string
	Node             string // "": ids have no name of a node
	MaxSessions      int64
	MaxRequestBytes  int64
	DefaultTimeoutMS int64
	IdleTTLMS        int64
	GraceMS          int64
	SessionRetention int64 // milliseconds
	ExecRetention    int64 // milliseconds
	MaxExecs         int64
	MaxTerminated    int64
	MaxOutputBytes   int64
	Labels           string
	LogLevel         string
	LogFormat        string
	Cgroup           string
	Unreadable       string
	SpillDir         string
	ExecMemory       int64
	InputBuffer      int64
	TotalMemory      int64
	ExecQuota        int64
	TotalQuota       int64

	HTTP               string // address; "": HTTP is off
	HTTPCert           string
	HTTPKey            string
	HTTPClientCA       string
	HTTPAllowedHosts   []string
	HTTPAllowedOrigins []string
	HTTPRate           int64
	HTTPMaxConcurrent  int64
	InsecureHTTP       bool
	TokenFile          string

	DefaultIsolation string // a profile; "": none
	MCPIsolation     string // a profile; "": none

	DefaultRuntime  string // "": host
	HostRuntime     string
	AllowedRuntimes []string
	PlaceTTLMS      int64
	DaemonTTLMS     int64

	// Places are the tables [place.NAME] of the file, by name. They are not settings:
	// no flag and no variable has them.
	Places map[string]place.Configured

	// File is the configuration file that was read, "" if there was none. It is not
	// a setting itself.
	File string
}

// Values of the settings that have a fixed set of them.
const (
	FormatAuto = "auto" // text on a terminal, else JSON
	FormatJSON = "json"
	FormatText = "text"

	CgroupAuto = "auto" // use cgroups if a cgroup v2 hierarchy is writable
	CgroupOff  = "off"

	LabelsOn  = "on"
	LabelsOff = "off"

	HostRuntimeOn  = "on"
	HostRuntimeOff = "off" // sessions run in places only
)

// What to do with the processes of a session that cannot be taken over from an
// earlier daemon.
const (
	UnreadableKeep = "keep" // until the session is destroyed
	UnreadableEnd  = "end"
)

// Headings under which help and documents show the settings.
const (
	groupDaemon   = "Daemon"
	groupSessions = "Sessions and commands"
	groupOutput   = "Input and output"
	groupLog      = "Log"
	groupHTTP     = "HTTP"
	groupConfine  = "Confinement"
	groupPlaces   = "Places"
)

// settings is the table of all keys. Defaults has their defaults.
var settings = []Setting{
	{
		Key: "socket", Group: groupDaemon, Takes: "PATH",
		Usage: "Unix socket to serve on; only its owner can connect",
		field: func(c *Config) any { return &c.Socket },
	},
	{
		Key: "node", Group: groupDaemon, Takes: "NAME",
		Usage: "name of this node in the ids of new sessions and commands, such as eu1-n7", optional: true, valid: checkNode,
		field: func(c *Config) any { return &c.Node },
	},
	{
		Key: "daemon_ttl_ms", Group: groupDaemon,
		Usage: "exit after this time without live sessions and clients; 0 means never",
		field: func(c *Config) any { return &c.DaemonTTLMS },
	},
	{
		Key: "max_sessions", Group: groupSessions,
		Usage: "maximum number of live sessions", min: 1,
		field: func(c *Config) any { return &c.MaxSessions },
	},
	{
		Key: "max_request_bytes", Group: groupOutput,
		Usage: "maximum size of a request; a larger one gets an error", min: minRequestBytes,
		field: func(c *Config) any { return &c.MaxRequestBytes },
	},
	{
		Key: "default_timeout_ms", Group: groupSessions,
		Usage: "timeout of commands in sessions that set none; 0 means no timeout",
		field: func(c *Config) any { return &c.DefaultTimeoutMS },
	},
	{
		Key: "idle_ttl_ms", Group: groupSessions,
		Usage: "destroy a session after this idle time, unless it sets its own TTL; 0 means never",
		field: func(c *Config) any { return &c.IdleTTLMS },
	},
	{
		Key: "grace_ms", Group: groupSessions,
		Usage: "time between SIGTERM and SIGKILL", min: 1,
		field: func(c *Config) any { return &c.GraceMS },
	},
	{
		Key: "session_retention_ms", Group: groupSessions,
		Usage: "how long a terminated session can still be queried", min: 1,
		field: func(c *Config) any { return &c.SessionRetention },
	},
	{
		Key: "exec_retention_ms", Group: groupSessions,
		Usage: "how long a finished command and its output are kept", min: 1,
		field: func(c *Config) any { return &c.ExecRetention },
	},
	{
		Key: "max_execs", Group: groupSessions,
		Usage: "finished commands kept for each session", min: 1,
		field: func(c *Config) any { return &c.MaxExecs },
	},
	{
		Key: "max_terminated", Group: groupSessions,
		Usage: "terminated sessions kept", min: 1,
		field: func(c *Config) any { return &c.MaxTerminated },
	},
	{
		Key: "max_output_bytes", Group: groupOutput,
		Usage: "how much of each stream a result contains (head and tail); exec.output returns the rest", min: 1,
		field: func(c *Config) any { return &c.MaxOutputBytes },
	},
	{
		Key: "labels", Group: groupSessions, Takes: "MODE",
		Usage: "on, or off to show no words of commands in lists; labels that callers give are always shown", choices: []string{LabelsOn, LabelsOff},
		field: func(c *Config) any { return &c.Labels },
	},
	{
		Key: "log_level", Group: groupLog, Takes: "LEVEL",
		Usage: "debug, info, warn or error", choices: []string{"debug", "info", "warn", "error"},
		field: func(c *Config) any { return &c.LogLevel },
	},
	{
		Key: "log_format", Group: groupLog, Takes: "FORMAT",
		Usage: "text, json, or auto (text on a terminal, otherwise json)", choices: []string{FormatAuto, FormatJSON, FormatText},
		field: func(c *Config) any { return &c.LogFormat },
	},
	{
		Key: "cgroup", Group: groupDaemon, Takes: "MODE",
		Usage: "auto, or off to track processes without cgroups", choices: []string{CgroupAuto, CgroupOff},
		field: func(c *Config) any { return &c.Cgroup },
	},
	{
		Key: "unreadable_sessions", Group: groupDaemon, Takes: "ACTION",
		Usage: "keep or end the processes of a session that cannot be taken over after a restart", choices: []string{UnreadableKeep, UnreadableEnd},
		field: func(c *Config) any { return &c.Unreadable },
	},
	{
		Key: "spill_dir", Group: groupOutput, Takes: "DIR",
		Usage: "directory for output that does not fit in memory; its files have no names",
		field: func(c *Config) any { return &c.SpillDir },
	},
	{
		Key: "exec_memory_bytes", Group: groupOutput,
		Usage: "maximum output of one command held in memory", min: 1,
		field: func(c *Config) any { return &c.ExecMemory },
	},
	{
		Key: "input_buffer_bytes", Group: groupOutput,
		Usage: "input of one command buffered until it reads; also the maximum size of one exec.input", min: 1,
		field: func(c *Config) any { return &c.InputBuffer },
	},
	{
		Key: "total_memory_bytes", Group: groupOutput,
		Usage: "maximum output of all commands held in memory", min: 1,
		field: func(c *Config) any { return &c.TotalMemory },
	},
	{
		Key: "exec_quota_bytes", Group: groupOutput,
		Usage: "maximum output kept of one command: half from its start, half from its end", min: 2,
		field: func(c *Config) any { return &c.ExecQuota },
	},
	{
		Key: "total_quota_bytes", Group: groupOutput,
		Usage: "maximum output of all commands kept on disk", min: 1,
		field: func(c *Config) any { return &c.TotalQuota },
	},
	{
		Key: "http", Group: groupHTTP, Takes: "ADDRESS",
		Usage: "also serve HTTP on this address, such as 127.0.0.1:7040; needs a token (trl token create)", optional: true,
		field: func(c *Config) any { return &c.HTTP },
	},
	{
		Key: "http_tls_cert", Group: groupHTTP, Takes: "FILE",
		Usage: "file with the HTTP server's certificate and its chain", optional: true,
		field: func(c *Config) any { return &c.HTTPCert },
	},
	{
		Key: "http_tls_key", Group: groupHTTP, Takes: "FILE",
		Usage: "file with the key of that certificate; both files are reloaded when they change", optional: true,
		field: func(c *Config) any { return &c.HTTPKey },
	},
	{
		Key: "http_client_ca", Group: groupHTTP, Takes: "FILE",
		Usage: "file with CA certificates; HTTP clients need a certificate signed by one of them", optional: true,
		field: func(c *Config) any { return &c.HTTPClientCA },
	},
	{
		Key: "http_allowed_hosts", Group: groupHTTP, Takes: "HOSTS",
		Usage: "allowed Host names in HTTP requests, in addition to the address and this machine's names",
		field: func(c *Config) any { return &c.HTTPAllowedHosts },
	},
	{
		Key: "http_allowed_origins", Group: groupHTTP, Takes: "ORIGINS",
		Usage: "origins of web pages that may call, such as https://ui.example.com",
		field: func(c *Config) any { return &c.HTTPAllowedOrigins },
	},
	{
		Key: "http_rate", Group: groupHTTP,
		Usage: "maximum HTTP requests per second for one token", min: 1,
		field: func(c *Config) any { return &c.HTTPRate },
	},
	{
		Key: "http_max_concurrent", Group: groupHTTP,
		Usage: "maximum open HTTP requests and streams for one token", min: 1,
		field: func(c *Config) any { return &c.HTTPMaxConcurrent },
	},
	{
		Key: "insecure_http", Group: groupHTTP,
		Usage: "allow HTTP without TLS to other machines; anyone on the network path can read the tokens",
		field: func(c *Config) any { return &c.InsecureHTTP },
	},
	{
		Key: "token_file", Group: groupHTTP, Takes: "FILE",
		Usage: "file with the hashes of the tokens; only its owner may read it",
		field: func(c *Config) any { return &c.TokenFile },
	},
	{
		Key: "default_isolation", Group: groupConfine, Takes: "PROFILE",
		Usage: "confine sessions on this machine that name no isolation: workspace, offline or readonly; empty means not", optional: true, valid: checkProfile,
		field: func(c *Config) any { return &c.DefaultIsolation },
	},
	{
		Key: "mcp_isolation", Group: groupConfine, Takes: "PROFILE",
		Usage: "confine sessions that agents create over MCP at least so: workspace, offline or readonly; empty means not", optional: true, valid: checkProfile,
		field: func(c *Config) any { return &c.MCPIsolation },
	},
	{
		Key: "default_runtime", Group: groupPlaces, Takes: "RUNTIME",
		Usage: "where sessions run that name no runtime, such as docker:web; host if it is empty", optional: true, valid: checkRuntime,
		field: func(c *Config) any { return &c.DefaultRuntime },
	},
	{
		Key: "host_runtime", Group: groupPlaces, Takes: "MODE",
		Usage: "on, or off to run no session on this machine itself, only in places", choices: []string{HostRuntimeOn, HostRuntimeOff},
		field: func(c *Config) any { return &c.HostRuntime },
	},
	{
		Key: "allowed_runtimes", Group: groupPlaces, Takes: "PATTERNS",
		Usage: "places that sessions may use, such as docker:* or ssh:build*; empty means all", valid: checkPattern,
		field: func(c *Config) any { return &c.AllowedRuntimes },
	},
	{
		Key: "place_ttl_ms", Group: groupPlaces,
		Usage: "how long the daemon that TRL starts in a place waits without live sessions and clients before it exits; 0 means for ever",
		field: func(c *Config) any { return &c.PlaceTTLMS },
	},
}

// minRequestBytes keeps a daemon usable: a request with an id, a method and a short
// command fits, so that the setting can still be corrected.
const minRequestBytes = 1 << 10

// Defaults returns the default configuration. The environment determines the user's
// directories.
func Defaults(env Environment) Config {
	return Config{
		Socket: env.user().Socket(),
		// The number that one node is built and tested for.
		MaxSessions: 10_000,
		// As in the contract: a whole source file fits, with room to spare, as the
		// stdin of a command.
		MaxRequestBytes: 8 << 20,
		// None: agents know how long their commands take, TRL does not.
		DefaultTimeoutMS: 0,
		// Never: a session that looks idle may be waiting for a person.
		IdleTTLMS: 0,
		// Enough for a build tool to remove its lock files; as in the contract.
		GraceMS: 5_000,
		// Long enough to ask how a session ended.
		SessionRetention: 10 * 60 * 1000,
		// An agent may return to the output of a long build after other work.
		ExecRetention: 60 * 60 * 1000,
		// The recent history of a session; minutes for a busy one.
		MaxExecs: 100,
		// A few hundred bytes each.
		MaxTerminated: 1_000,
		// About as much as fits into a model's context.
		MaxOutputBytes: 128 << 10,
		// A list that does not say which command is which is of little use.
		Labels:     LabelsOn,
		LogLevel:   "info",
		LogFormat:  FormatAuto,
		Cgroup:     CgroupAuto,
		Unreadable: UnreadableKeep,
		SpillDir:   env.defaultSpillDir(),
		// Nearly every command writes less, and so needs no file.
		ExecMemory: 64 << 10,
		// Twice the longest request.
		InputBuffer: 16 << 20,
		// A small machine can spare it.
		TotalMemory: 64 << 20,
		// Even the longest build logs fit.
		ExecQuota: 256 << 20,
		// A workstation's disk can spare it.
		TotalQuota: 8 << 30,
		// More than any agent needs, and what one core can serve.
		HTTPRate: 1_000,
		// The same as for one connection to the socket.
		HTTPMaxConcurrent: 1_024,
		TokenFile:         env.defaultTokenFile(),
		HostRuntime:       HostRuntimeOn,
		// Starting it again takes less than a second.
		PlaceTTLMS: 60 * 60 * 1000,
	}
}

// Limits of a node's name. Four parts are enough for a region, a machine and two
// levels below it. A part is shorter than the ten random characters at the end of an
// id, so the two can't be mistaken for each other.
const (
	maxNodeParts = 4
	maxNodePart  = 8
)

// checkNode returns an error if name can't be the name of a node.
func checkNode(name string) error {
	wrong := ""
	parts := strings.Split(name, "-")
	if len(parts) > maxNodeParts {
		wrong = fmt.Sprintf("has %d parts", len(parts))
	}
	for _, part := range parts {
		switch {
		case wrong != "":
		case part == "":
			wrong = "has an empty part"
		case strings.ContainsFunc(part, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }):
			wrong = fmt.Sprintf("has other characters in %q", part)
		case len(part) > maxNodePart:
			wrong = fmt.Sprintf("has %d characters in %q", len(part), part)
		}
	}
	if wrong == "" {
		return nil
	}
	return fmt.Errorf("must be 1 to %d parts of 1 to %d characters a-z and 0-9, joined by \"-\", such as \"eu1-n7\" (got %q, which %s)",
		maxNodeParts, maxNodePart, name, wrong)
}

// checkRuntime returns an error if no session can have the runtime.
func checkRuntime(runtime string) error {
	if runtime == api.RuntimeHost {
		return nil
	}
	if err := place.CheckRuntime(runtime); err != nil {
		return fmt.Errorf("must be host or the runtime of a place (got %q): %w", runtime, err)
	}
	return nil
}

// checkProfile returns an error unless it is the name of a profile.
func checkProfile(name string) error {
	if !slices.Contains(profile.Names(), name) {
		return fmt.Errorf("must be one of %s (got %q)", strings.Join(profile.Names(), ", "), name)
	}
	return nil
}

// checkPattern returns an error if no runtime can match the pattern.
func checkPattern(pattern string) error {
	if err := place.CheckPattern(pattern); err != nil {
		return fmt.Errorf("must have patterns such as \"docker:*\" (got %q): %w", pattern, err)
	}
	return nil
}

// Public returns the configuration as system.info shows it. No setting is secret; if
// one ever is, leave it out here.
func (c Config) Public() map[string]any {
	public := make(map[string]any, len(settings)+1)
	for _, s := range settings {
		value := s.get(&c)
		if list, ok := value.([]string); ok && list == nil {
			value = []string{} // an empty list on the wire, not null
		}
		public[s.Key] = value
	}
	if c.File != "" {
		public["config_file"] = c.File
	}
	return public
}
