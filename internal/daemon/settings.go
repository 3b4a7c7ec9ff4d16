package daemon

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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
)

// What to do with the processes of a session that cannot be taken over from an
// earlier daemon.
const (
	UnreadableKeep = "keep" // until the session is destroyed
	UnreadableEnd  = "end"
)

// Setting describes one key of the configuration. Its name is the same everywhere:
// max_sessions in the file, TRL_MAX_SESSIONS in the environment, --max-sessions as a
// flag.
type Setting struct {
	Key      string
	Usage    string // one line of help
	choices  []string
	min      int64
	optional bool               // "" is allowed
	valid    func(string) error // further check of a string that is not ""; nil: none
	field    func(*Config) any  // *string, *int64, *bool or *[]string
}

// Variable returns the name of the setting in the environment.
func (s Setting) Variable() string { return envPrefix + strings.ToUpper(s.Key) }

// Flag returns the name of the setting on the command line.
func (s Setting) Flag() string { return strings.ReplaceAll(s.Key, "_", "-") }

// Value returns the setting's value in c, as text.
func (s Setting) Value(c *Config) string {
	if list, ok := s.get(c).([]string); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(s.get(c))
}

// IsSwitch reports whether the setting is a bool.
func (s Setting) IsSwitch() bool {
	_, ok := s.field(&Config{}).(*bool)
	return ok
}

// IsList reports whether the setting takes several values: an array in the file,
// separated by commas elsewhere.
func (s Setting) IsList() bool {
	_, ok := s.field(&Config{}).(*[]string)
	return ok
}

// expects describes the value that the setting takes in the file, to go after
// "must be".
func (s Setting) expects() string {
	switch {
	case s.IsNumber():
		return "a whole number"
	case s.IsSwitch():
		return "true or false"
	case s.IsList():
		return "an array of strings in quotes"
	default:
		return "a string in quotes"
	}
}

// IsNumber reports whether the setting is a number.
func (s Setting) IsNumber() bool {
	_, ok := s.field(&Config{}).(*int64)
	return ok
}

func (s Setting) get(c *Config) any {
	switch field := s.field(c).(type) {
	case *int64:
		return *field
	case *string:
		return *field
	case *bool:
		return *field
	case *[]string:
		return *field
	default:
		panic(fmt.Sprintf("daemon: setting %s is a %T", s.Key, field))
	}
}

// Settings returns every setting, in the order in which they are documented.
func Settings() []Setting { return slices.Clone(settings) }

// settings is the table of all keys. Defaults has their defaults.
var settings = []Setting{
	{
		Key: "socket", Usage: "Unix socket to serve on; only its owner can connect",
		field: func(c *Config) any { return &c.Socket },
	},
	{
		Key: "node", Usage: "name of this node in the ids of new sessions and commands, such as eu1-n7", optional: true, valid: checkNode,
		field: func(c *Config) any { return &c.Node },
	},
	{
		Key: "max_sessions", Usage: "maximum number of live sessions", min: 1,
		field: func(c *Config) any { return &c.MaxSessions },
	},
	{
		Key: "max_request_bytes", Usage: "maximum size of a request; a larger one gets an error", min: minRequestBytes,
		field: func(c *Config) any { return &c.MaxRequestBytes },
	},
	{
		Key: "default_timeout_ms", Usage: "timeout of commands in sessions that set none; 0 means no timeout",
		field: func(c *Config) any { return &c.DefaultTimeoutMS },
	},
	{
		Key: "idle_ttl_ms", Usage: "destroy a session after this idle time, unless it sets its own TTL; 0 means never",
		field: func(c *Config) any { return &c.IdleTTLMS },
	},
	{
		Key: "grace_ms", Usage: "time between SIGTERM and SIGKILL", min: 1,
		field: func(c *Config) any { return &c.GraceMS },
	},
	{
		Key: "session_retention_ms", Usage: "how long a terminated session can still be queried", min: 1,
		field: func(c *Config) any { return &c.SessionRetention },
	},
	{
		Key: "exec_retention_ms", Usage: "how long a finished command and its output are kept", min: 1,
		field: func(c *Config) any { return &c.ExecRetention },
	},
	{
		Key: "max_execs", Usage: "finished commands kept for each session", min: 1,
		field: func(c *Config) any { return &c.MaxExecs },
	},
	{
		Key: "max_terminated", Usage: "terminated sessions kept", min: 1,
		field: func(c *Config) any { return &c.MaxTerminated },
	},
	{
		Key: "max_output_bytes", Usage: "how much of each stream a result contains (head and tail); exec.output returns the rest", min: 1,
		field: func(c *Config) any { return &c.MaxOutputBytes },
	},
	{
		Key: "labels", Usage: "on, or off to show no words of commands in lists; labels that callers give are always shown", choices: []string{LabelsOn, LabelsOff},
		field: func(c *Config) any { return &c.Labels },
	},
	{
		Key: "log_level", Usage: "debug, info, warn or error", choices: []string{"debug", "info", "warn", "error"},
		field: func(c *Config) any { return &c.LogLevel },
	},
	{
		Key: "log_format", Usage: "text, json, or auto (text on a terminal, otherwise json)", choices: []string{FormatAuto, FormatJSON, FormatText},
		field: func(c *Config) any { return &c.LogFormat },
	},
	{
		Key: "cgroup", Usage: "auto, or off to track processes without cgroups", choices: []string{CgroupAuto, CgroupOff},
		field: func(c *Config) any { return &c.Cgroup },
	},
	{
		Key: "unreadable_sessions", Usage: "keep or end the processes of a session that cannot be taken over after a restart", choices: []string{UnreadableKeep, UnreadableEnd},
		field: func(c *Config) any { return &c.Unreadable },
	},
	{
		Key: "spill_dir", Usage: "directory for output that does not fit in memory; its files have no names",
		field: func(c *Config) any { return &c.SpillDir },
	},
	{
		Key: "exec_memory_bytes", Usage: "maximum output of one command held in memory", min: 1,
		field: func(c *Config) any { return &c.ExecMemory },
	},
	{
		Key: "input_buffer_bytes", Usage: "input of one command buffered until it reads; also the maximum size of one exec.input", min: 1,
		field: func(c *Config) any { return &c.InputBuffer },
	},
	{
		Key: "total_memory_bytes", Usage: "maximum output of all commands held in memory", min: 1,
		field: func(c *Config) any { return &c.TotalMemory },
	},
	{
		Key: "exec_quota_bytes", Usage: "maximum output kept of one command: half from its start, half from its end", min: 2,
		field: func(c *Config) any { return &c.ExecQuota },
	},
	{
		Key: "total_quota_bytes", Usage: "maximum output of all commands kept on disk", min: 1,
		field: func(c *Config) any { return &c.TotalQuota },
	},
	{
		Key: "http", Usage: "also serve HTTP on this address, such as 127.0.0.1:7040; needs a token (trl token create)", optional: true,
		field: func(c *Config) any { return &c.HTTP },
	},
	{
		Key: "http_tls_cert", Usage: "file with the HTTP server's certificate and its chain", optional: true,
		field: func(c *Config) any { return &c.HTTPCert },
	},
	{
		Key: "http_tls_key", Usage: "file with the key of that certificate; both files are reloaded when they change", optional: true,
		field: func(c *Config) any { return &c.HTTPKey },
	},
	{
		Key: "http_client_ca", Usage: "file with CA certificates; HTTP clients need a certificate signed by one of them", optional: true,
		field: func(c *Config) any { return &c.HTTPClientCA },
	},
	{
		Key: "http_allowed_hosts", Usage: "allowed Host names in HTTP requests, in addition to the address and this machine's names",
		field: func(c *Config) any { return &c.HTTPAllowedHosts },
	},
	{
		Key: "http_allowed_origins", Usage: "origins of web pages that may call, such as https://ui.example.com",
		field: func(c *Config) any { return &c.HTTPAllowedOrigins },
	},
	{
		Key: "http_rate", Usage: "maximum HTTP requests per second for one token", min: 1,
		field: func(c *Config) any { return &c.HTTPRate },
	},
	{
		Key: "http_max_concurrent", Usage: "maximum open HTTP requests and streams for one token", min: 1,
		field: func(c *Config) any { return &c.HTTPMaxConcurrent },
	},
	{
		Key: "insecure_http", Usage: "allow HTTP without TLS to other machines; anyone on the network path can read the tokens",
		field: func(c *Config) any { return &c.InsecureHTTP },
	},
	{
		Key: "token_file", Usage: "file with the hashes of the tokens; only its owner may read it",
		field: func(c *Config) any { return &c.TokenFile },
	},
}

// minRequestBytes keeps a daemon usable: a request with an id, a method and a short
// command fits, so that the setting can still be corrected.
const minRequestBytes = 1 << 10

// Defaults returns the default configuration. The environment determines the user's
// directories.
func Defaults(env Environment) Config {
	return Config{
		Socket: env.defaultSocket(),
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
	}
}

// set parses text as the setting's value and stores it in c.
func (s Setting) set(c *Config, text string) error {
	switch field := s.field(c).(type) {
	case *int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		*field = n
	case *string:
		*field = text
	case *bool:
		on, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		*field = on
	case *[]string:
		*field = nil
		for word := range strings.SplitSeq(text, ",") {
			if word = strings.TrimSpace(word); word != "" {
				*field = append(*field, word)
			}
		}
	}
	return s.check(c)
}

// Check returns an error if text is not a valid value of the setting.
func (s Setting) Check(text string) error { return s.set(&Config{}, text) }

// check returns an error if the value in c is not valid.
func (s Setting) check(c *Config) error {
	switch value := s.get(c).(type) {
	case int64:
		if value < s.min {
			return fmt.Errorf("%d is too small: the minimum is %d", value, s.min)
		}
	case string:
		if s.choices == nil && value == "" && !s.optional {
			return fmt.Errorf("must not be empty")
		}
		if s.choices != nil && !slices.Contains(s.choices, value) {
			return fmt.Errorf("%q is not one of %s", value, strings.Join(s.choices, ", "))
		}
		if s.valid != nil && value != "" {
			return s.valid(value)
		}
	}
	return nil
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
		wrong = fmt.Sprintf("it has %d parts", len(parts))
	}
	for _, part := range parts {
		switch {
		case wrong != "":
		case part == "":
			wrong = "a part is empty"
		case strings.ContainsFunc(part, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }):
			wrong = fmt.Sprintf("its part %q has characters other than a-z and 0-9", part)
		case len(part) > maxNodePart:
			wrong = fmt.Sprintf("its part %q has %d characters", part, len(part))
		}
	}
	if wrong == "" {
		return nil
	}
	return fmt.Errorf("%q is not a valid node name: %s; use 1 to %d parts of 1 to %d characters a-z and 0-9, joined by \"-\", such as \"eu1-n7\"",
		name, wrong, maxNodeParts, maxNodePart)
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
