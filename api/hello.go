package api

// Hello is what the relay of a place (`trl connect`) sends first: which TRL is at
// the far end. It is the params of the notification system.hello.
type Hello struct {
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
	Digest   string `json:"digest,omitempty"` // SHA-256 of the program that the daemon runs, in hex
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Node     string `json:"node,omitempty"` // the name in the ids of its sessions
	Boot     string `json:"boot,omitempty"` // another value means that all earlier sessions are gone
	User     string `json:"user,omitempty"` // whose sessions they are
}

// HelloFrom returns the hello of a daemon that describes itself with info.
func HelloFrom(info *SystemInfo) *Hello {
	return &Hello{
		Version: info.Version, Protocol: info.Protocol, Digest: info.Digest, OS: info.OS, Arch: info.Arch,
		Node: info.Node, Boot: info.Boot, User: info.User,
	}
}

// Method returns system.hello.
func (*Hello) Method() string { return NotifySystemHello }
