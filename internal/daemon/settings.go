package daemon

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Config is every setting of a daemon. Defaults returns it filled in; Load
// applies the file, the environment and the flags. Durations are milliseconds
// and sizes are bytes, as on the wire.
type Config struct {
	Socket           string
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

	HTTP               string // address; "": nothing listens
	HTTPCert           string
	HTTPKey            string
	HTTPClientCA       string
	HTTPAllowedHosts   []string
	HTTPAllowedOrigins []string
	HTTPRate           int64
	HTTPMaxConcurrent  int64
	InsecureHTTP       bool
	TokenFile          string

	// File is the configuration file that was read, "" if there was none. It
	// is no setting itself.
	File string
}

// The values of the settings that have few.
const (
	FormatAuto = "auto" // text on a terminal, else JSON
	FormatJSON = "json"
	FormatText = "text"

	CgroupAuto = "auto" // where a cgroup v2 hierarchy is writable
	CgroupOff  = "off"
)

// What becomes of the processes of a session that can't be taken over from an
// earlier daemon.
const (
	UnreadableKeep = "keep" // they stay until the session is destroyed
	UnreadableEnd  = "end"
)

// Setting is one key. Its name is the same everywhere: max_sessions in the
// file, TRL_MAX_SESSIONS in the environment, --max-sessions as a flag.
type Setting struct {
	Key      string
	Usage    string // one line for a person
	choices  []string
	min      int64
	optional bool              // "" is a value: none
	field    func(*Config) any // *string, *int64, *bool or *[]string
}

// Variable is the name of the setting in the environment.
func (s Setting) Variable() string { return envPrefix + strings.ToUpper(s.Key) }

// Flag is the name of the setting on the command line.
func (s Setting) Flag() string { return strings.ReplaceAll(s.Key, "_", "-") }

// Value is what the setting is in c, as text.
func (s Setting) Value(c *Config) string {
	if list, ok := s.get(c).([]string); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(s.get(c))
}

// IsSwitch says whether the setting is on or off.
func (s Setting) IsSwitch() bool {
	_, ok := s.field(&Config{}).(*bool)
	return ok
}

// IsList says whether the setting takes several values: an array in the file,
// with commas between them elsewhere.
func (s Setting) IsList() bool {
	_, ok := s.field(&Config{}).(*[]string)
	return ok
}

// takes says what the setting takes in the file, to go after "must be".
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

// IsNumber says whether the setting takes a number.
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

// Settings lists every setting, in the order in which they are documented.
func Settings() []Setting { return slices.Clone(settings) }

// settings is the one table of the keys. The defaults are in Defaults.
var settings = []Setting{
	{
		Key: "socket", Usage: "Unix socket to serve on, for its owner alone",
		field: func(c *Config) any { return &c.Socket },
	},
	{
		Key: "max_sessions", Usage: "how many sessions may be alive at once", min: 1,
		field: func(c *Config) any { return &c.MaxSessions },
	},
	{
		Key: "max_request_bytes", Usage: "longest request that is read; a longer one is answered with an error", min: minRequestBytes,
		field: func(c *Config) any { return &c.MaxRequestBytes },
	},
	{
		Key: "default_timeout_ms", Usage: "timeout of commands in sessions that set none; 0 is none",
		field: func(c *Config) any { return &c.DefaultTimeoutMS },
	},
	{
		Key: "idle_ttl_ms", Usage: "destroy a session that was idle for so long and set no TTL of its own; 0 is never",
		field: func(c *Config) any { return &c.IdleTTLMS },
	},
	{
		Key: "grace_ms", Usage: "time between SIGTERM and SIGKILL", min: 1,
		field: func(c *Config) any { return &c.GraceMS },
	},
	{
		Key: "session_retention_ms", Usage: "how long a terminated session can still be looked at", min: 1,
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
		Key: "max_output_bytes", Usage: "how much of each stream a result carries, head and tail; exec.output has the rest", min: 1,
		field: func(c *Config) any { return &c.MaxOutputBytes },
	},
	{
		Key: "log_level", Usage: "debug, info, warn or error", choices: []string{"debug", "info", "warn", "error"},
		field: func(c *Config) any { return &c.LogLevel },
	},
	{
		Key: "log_format", Usage: "text, json, or auto: text on a terminal", choices: []string{FormatAuto, FormatJSON, FormatText},
		field: func(c *Config) any { return &c.LogFormat },
	},
	{
		Key: "cgroup", Usage: "auto, or off to track processes without cgroups", choices: []string{CgroupAuto, CgroupOff},
		field: func(c *Config) any { return &c.Cgroup },
	},
	{
		Key: "unreadable_sessions", Usage: "keep or end the processes of a session that can't be taken over after a restart", choices: []string{UnreadableKeep, UnreadableEnd},
		field: func(c *Config) any { return &c.Unreadable },
	},
	{
		Key: "spill_dir", Usage: "where output that is too long for memory goes; its files have no names",
		field: func(c *Config) any { return &c.SpillDir },
	},
	{
		Key: "exec_memory_bytes", Usage: "output of one command that is held in memory", min: 1,
		field: func(c *Config) any { return &c.ExecMemory },
	},
	{
		Key: "input_buffer_bytes", Usage: "input of one command that is held until it reads, and so the longest that exec.input writes as a whole", min: 1,
		field: func(c *Config) any { return &c.InputBuffer },
	},
	{
		Key: "total_memory_bytes", Usage: "output of all commands that is held in memory", min: 1,
		field: func(c *Config) any { return &c.TotalMemory },
	},
	{
		Key: "exec_quota_bytes", Usage: "output of one command that is kept: its first half and its last", min: 2,
		field: func(c *Config) any { return &c.ExecQuota },
	},
	{
		Key: "total_quota_bytes", Usage: "output of all commands that is kept on disk", min: 1,
		field: func(c *Config) any { return &c.TotalQuota },
	},
	{
		Key: "http", Usage: "address to serve HTTP on as well, such as 127.0.0.1:7040; it needs a token (trl token create)", optional: true,
		field: func(c *Config) any { return &c.HTTP },
	},
	{
		Key: "http_tls_cert", Usage: "file with the certificate of the HTTP server, and those it was signed by", optional: true,
		field: func(c *Config) any { return &c.HTTPCert },
	},
	{
		Key: "http_tls_key", Usage: "file with the key of that certificate; both are read again when they change", optional: true,
		field: func(c *Config) any { return &c.HTTPKey },
	},
	{
		Key: "http_client_ca", Usage: "file with certificates, one of which must have signed that of every HTTP client", optional: true,
		field: func(c *Config) any { return &c.HTTPClientCA },
	},
	{
		Key: "http_allowed_hosts", Usage: "names that HTTP clients may call the daemon by, besides its address and those of this machine",
		field: func(c *Config) any { return &c.HTTPAllowedHosts },
	},
	{
		Key: "http_allowed_origins", Usage: "origins of web pages that may call, such as https://ui.example.com",
		field: func(c *Config) any { return &c.HTTPAllowedOrigins },
	},
	{
		Key: "http_rate", Usage: "requests a second that one token may make over HTTP", min: 1,
		field: func(c *Config) any { return &c.HTTPRate },
	},
	{
		Key: "http_max_concurrent", Usage: "requests and streams that one token may have open over HTTP", min: 1,
		field: func(c *Config) any { return &c.HTTPMaxConcurrent },
	},
	{
		Key: "insecure_http", Usage: "serve HTTP without TLS to other machines, where anyone on the way can read the tokens",
		field: func(c *Config) any { return &c.InsecureHTTP },
	},
	{
		Key: "token_file", Usage: "file with the hashes of the tokens, for its owner alone",
		field: func(c *Config) any { return &c.TokenFile },
	},
}

// minRequestBytes keeps a daemon usable: a request with an id, a method and a
// short command fits, so that there is something left to correct the setting
// with.
const minRequestBytes = 1 << 10

// Defaults is the configuration of a daemon for whom nobody set anything. The
// environment says where the user's directories are.
func Defaults(env Environment) Config {
	return Config{
		Socket: env.defaultSocket(),
		// What one node is built and tested for.
		MaxSessions: 10_000,
		// The contract's: a whole source file with room to spare as the stdin
		// of a command.
		MaxRequestBytes: 8 << 20,
		// None: an agent knows its commands, TRL does not.
		DefaultTimeoutMS: 0,
		// Never: what looks idle may be waiting for a person.
		IdleTTLMS: 0,
		// Enough for a build tool to remove its lock files; the contract's.
		GraceMS: 5_000,
		// Long enough to ask what became of a session that is gone.
		SessionRetention: 10 * 60 * 1000,
		// An agent comes back to the output of a long build after others.
		ExecRetention: 60 * 60 * 1000,
		// The recent past of a session; of a busy one, minutes.
		MaxExecs: 100,
		// Some hundred bytes each.
		MaxTerminated: 1_000,
		// About as much as fits a model's context.
		MaxOutputBytes: 128 << 10,
		LogLevel:       "info",
		LogFormat:      FormatAuto,
		Cgroup:         CgroupAuto,
		Unreadable:     UnreadableKeep,
		SpillDir:       env.defaultSpillDir(),
		// What nearly every command stays below, so that it costs no file.
		ExecMemory: 64 << 10,
		// Twice the longest request.
		InputBuffer: 16 << 20,
		// A small machine can spare it.
		TotalMemory: 64 << 20,
		// The longest build logs fit whole.
		ExecQuota: 256 << 20,
		// What a workstation's disk can spare.
		TotalQuota: 8 << 30,
		// More than any agent calls, and what one core serves beside others.
		HTTPRate: 1_000,
		// As many as on one connection of the socket.
		HTTPMaxConcurrent: 1_024,
		TokenFile:         env.defaultTokenFile(),
	}
}

// set gives the setting a value written as text.
func (s Setting) set(c *Config, text string) error {
	switch field := s.field(c).(type) {
	case *int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is no whole number", text)
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

// Check says what is wrong with a value written as text.
func (s Setting) Check(text string) error { return s.set(&Config{}, text) }

// check says what is wrong with the value in c.
func (s Setting) check(c *Config) error {
	switch value := s.get(c).(type) {
	case int64:
		if value < s.min {
			return fmt.Errorf("%d is too small: the least is %d", value, s.min)
		}
	case string:
		if s.choices == nil && value == "" && !s.optional {
			return fmt.Errorf("it must not be empty")
		}
		if s.choices != nil && !slices.Contains(s.choices, value) {
			return fmt.Errorf("%q is none of %s", value, strings.Join(s.choices, ", "))
		}
	}
	return nil
}

// Public is the configuration as system.info shows it. No setting is a secret;
// one that becomes so is left out here.
func (c Config) Public() map[string]any {
	public := make(map[string]any, len(settings)+1)
	for _, s := range settings {
		value := s.get(&c)
		if list, ok := value.([]string); ok && list == nil {
			value = []string{} // a list on the wire, and not null
		}
		public[s.Key] = value
	}
	if c.File != "" {
		public["config_file"] = c.File
	}
	return public
}
