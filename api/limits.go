package api

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// Limits bounds what all processes of a session may use together, and how long
// the session may live. A limit that is left out does not exist.
type Limits struct {
	// The tags min and max are the range that the daemon accepts and the schema has.
	// Bytes end where JSON numbers are no longer exact in every language.

	MemoryBytes   int64   `json:"memory_bytes,omitempty" min:"1048576" max:"9007199254740991"` // a shell does not start with less than the minimum
	CPU           float64 `json:"cpu,omitempty" min:"0.01" max:"8192"`                         // in cores; the kernel's smallest share, and its most processors
	PIDs          int64   `json:"pids,omitempty" min:"1" max:"4000000"`                        // the kernel has 4194304 pids
	OpenFiles     int64   `json:"open_files,omitempty" min:"32" max:"2147483584"`              // of each process; shells need 24, the kernel has the maximum
	FileSizeBytes int64   `json:"file_size_bytes,omitempty" min:"1" max:"9007199254740991"`    // of each file
	WallMS        int64   `json:"wall_ms,omitempty" min:"1"`
	DiskBytes     int64   `json:"disk_bytes,omitempty" min:"4096" max:"9007199254740991"`
}

// LimitsInForce is the limits that hold in a session, with the values that the
// kernel enforces.
type LimitsInForce struct {
	Limits
	PIDsReserved int64 `json:"pids_reserved,omitempty"` // on top of PIDs, for the shell and its copies
}

// Limit names a limit that a command has reached.
type Limit string

// The limits that a command can reach.
const (
	LimitMemory    Limit = "memory"
	LimitCPU       Limit = "cpu"
	LimitPIDs      Limit = "pids"
	LimitOpenFiles Limit = "open_files"
	LimitFileSize  Limit = "file_size"
	LimitWall      Limit = "wall"
	LimitDisk      Limit = "disk"
)

// Profile is a named isolation.
type Profile string

// The profiles.
const (
	ProfileWorkspace Profile = "workspace"
	ProfileReadonly  Profile = "readonly"
	ProfileOffline   Profile = "offline"
)

// Isolation is what a session is kept from. A string is short for an object that
// has only this profile. An object with a profile narrows it by its other members,
// after Add has widened it.
type Isolation struct {
	Profile    Profile     `json:"profile,omitempty" trl:"word" enum:"workspace,readonly,offline"`
	Add        *Addition   `json:"add,omitempty"` // only with a profile
	Filesystem *Filesystem `json:"filesystem,omitempty"`
	Network    *Network    `json:"network,omitempty"`
	Processes  string      `json:"processes,omitempty" enum:"own"` // see only its own processes
	User       string      `json:"user,omitempty"`                 // a name or a uid
	NoNewPrivs bool        `json:"no_new_privs,omitempty"`
	Seccomp    string      `json:"seccomp,omitempty" enum:"default"`
}

// The only values of these members of Isolation.
const (
	IsolationProcessesOwn   = "own"
	IsolationSeccompDefault = "default"
)

// Addition is what a session may do besides what its profile lets it do.
type Addition struct {
	Write []string `json:"write,omitempty"` // paths
	Allow []string `json:"allow,omitempty"` // "host:port", as in Network
}

// Filesystem says which paths a session can read and write.
type Filesystem struct {
	Read       []string `json:"read,omitempty"`
	Write      []string `json:"write,omitempty"`
	Deny       []string `json:"deny,omitempty"`
	PrivateTmp bool     `json:"private_tmp,omitempty"`
}

// Network says what a session can connect to: a word, or an object with a list of
// what is allowed.
type Network struct {
	Mode  string   `json:"-" trl:"word" enum:"none,loopback"` // "" with a list
	Allow []string `json:"allow"`                             // "host:port", "*.host:443"
}

// The modes of Network.
const (
	NetworkNone     = "none"
	NetworkLoopback = "loopback"
)

// IsolationInForce is the isolation that holds in a session, and what enforces it.
type IsolationInForce struct {
	Isolation
	LandlockABI int      `json:"landlock_abi,omitempty"`
	Mechanisms  []string `json:"mechanisms,omitempty"`
}

// Ability is something that a daemon can do on its machine, or why it can't.
type Ability struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"` // why not
	Hint      string `json:"hint,omitempty"`   // what to do about it
}

// UnmarshalJSON accepts the name of a profile, or an object.
func (i *Isolation) UnmarshalJSON(b []byte) error {
	*i = Isolation{}
	if isJSONText(b) {
		return json.Unmarshal(b, &i.Profile)
	}
	type object Isolation
	return json.Unmarshal(b, (*object)(i))
}

// UnmarshalJSON accepts what Isolation does, and its own members.
func (i *IsolationInForce) UnmarshalJSON(b []byte) error {
	*i = IsolationInForce{}
	if err := json.Unmarshal(b, &i.Isolation); err != nil || isJSONText(b) {
		return err
	}
	var own struct {
		LandlockABI int      `json:"landlock_abi"`
		Mechanisms  []string `json:"mechanisms"`
	}
	err := json.Unmarshal(b, &own)
	i.LandlockABI, i.Mechanisms = own.LandlockABI, own.Mechanisms
	return err
}

// MarshalJSON writes a mode as a string, and a list as an object.
func (n Network) MarshalJSON() ([]byte, error) {
	if n.Mode != "" {
		return json.Marshal(n.Mode)
	}
	type object Network
	if n.Allow == nil {
		n.Allow = []string{}
	}
	return json.Marshal(object(n))
}

// UnmarshalJSON accepts a mode, or an object.
func (n *Network) UnmarshalJSON(b []byte) error {
	*n = Network{}
	if isJSONText(b) {
		return json.Unmarshal(b, &n.Mode)
	}
	type object Network
	return json.Unmarshal(b, (*object)(n))
}

// isJSONText reports whether b is a JSON string.
func isJSONText(b []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte(`"`)) }

// Names returns the members that are set, as they are called on the wire; none for
// nil.
func (l *Limits) Names() []string { return membersOf(l) }

// Names returns the members that are set, as they are called on the wire; none for
// nil.
func (i *Isolation) Names() []string { return membersOf(i) }

// membersOf returns the members of the object that v is encoded as, which holds no
// value that can't be encoded.
func membersOf(v any) []string {
	text, _ := json.Marshal(v)
	var members map[string]json.RawMessage
	_ = json.Unmarshal(text, &members)
	return slices.Sorted(maps.Keys(members))
}
