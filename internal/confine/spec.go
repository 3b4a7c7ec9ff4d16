package confine

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Spec describes a confined program. It is plain data; the launcher gets it as
// JSON. All paths are absolute, clean and free of symbolic links: the caller
// resolves them. A path that has become a symbolic link since makes the start
// fail.
type Spec struct {
	// Program is the program to execute, a path in the view; "" means this binary.
	Program string `json:"program,omitempty"`
	// Args is the argument vector, with the name of the program.
	Args []string `json:"args"`
	Env  []string `json:"env,omitempty"`
	// Dir is the working directory, a path in the view; "" means "/".
	Dir string `json:"dir,omitempty"`

	// Files confines the file system; nil means that everything that the user may
	// write is writable, except Hide and Protect.
	Files *Files `json:"files,omitempty"`
	// Hide lists directories, files and sockets that do not exist for the program:
	// its view has an empty, inaccessible one in their place. Those that do not
	// exist are ignored.
	Hide []string `json:"hide,omitempty"`
	// Protect lists paths that the program cannot change, replace or rename, even
	// inside a writable directory.
	Protect []Protected `json:"protect,omitempty"`
	// DiskBytes limits everything that the program can write, together. It needs
	// Files without Write.
	DiskBytes int64 `json:"disk_bytes,omitempty"`

	Network Network `json:"network,omitempty"`
	// ProxyPort is the port on 127.0.0.1 of the listener that Launch.Open returns,
	// for NetworkProxy.
	ProxyPort int `json:"proxy_port,omitempty"`
	// Processes gives the program a PID namespace with its own /proc. A program
	// with a view has one anyway where it is possible.
	Processes bool `json:"processes,omitempty"`
	// User is the user that the program runs as; nil means the daemon's.
	User *User `json:"user,omitempty"`
	// NoNewPrivs is implied by everything else above, and by Seccomp.
	NoNewPrivs bool `json:"no_new_privs,omitempty"`
	Seccomp    bool `json:"seccomp,omitempty"`

	OpenFiles     uint64 `json:"open_files,omitempty"`      // 0 means as the daemon
	FileSizeBytes uint64 `json:"file_size_bytes,omitempty"` // 0 means as the daemon
	// OOMScoreAdj is raised to this value; 0 means as the daemon.
	OOMScoreAdj int `json:"oom_score_adj,omitempty"`
}

// Files is the view of the file system. Where paths lie inside each other, the
// innermost decides.
type Files struct {
	// Read lists what is visible; empty means everything.
	Read []string `json:"read,omitempty"`
	// Write lists what is visible and writable.
	Write []string `json:"write,omitempty"`
	// Deny lists what is visible by name only: an empty, inaccessible directory or
	// file.
	Deny []string `json:"deny,omitempty"`
	// PrivateTmp gives the program its own /tmp, /var/tmp and /dev/shm in memory.
	PrivateTmp bool `json:"private_tmp,omitempty"`
}

// all reports whether everything is visible.
func (f *Files) all() bool {
	return len(f.Read) == 0 || slices.Contains(f.Read, "/") || slices.Contains(f.Write, "/")
}

// Protected is a path that a program must not change.
type Protected struct {
	Path string `json:"path"`
	// Create is what to create if the path does not exist, so that the program
	// cannot: "dir", "file", or "" to do nothing. The launcher creates it in the
	// real file system, empty, and it stays there.
	Create string `json:"create,omitempty"`
}

// Network is what a program can reach.
type Network string

// The kinds of network.
const (
	NetworkHost     Network = ""         // as the daemon
	NetworkNone     Network = "none"     // no interface is up, not even lo
	NetworkLoopback Network = "loopback" // its own 127.0.0.1 and ::1
	NetworkProxy    Network = "proxy"    // like loopback, with a listener that the daemon serves
)

// User is the identity of a program.
type User struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups,omitempty"`
}

// validate checks what no ability can change.
func (s Spec) validate() error {
	if len(s.Args) == 0 {
		return fmt.Errorf("confine: no program")
	}
	for _, p := range s.paths() {
		if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) {
			return fmt.Errorf("confine: a path is not absolute and clean: %q", p)
		}
	}
	for _, p := range s.Protect {
		if !slices.Contains([]string{"", "dir", "file"}, p.Create) {
			return fmt.Errorf("confine: unknown kind of placeholder %q", p.Create)
		}
	}
	switch s.Network {
	case NetworkHost, NetworkNone, NetworkLoopback:
	case NetworkProxy:
		if s.ProxyPort < 1 || s.ProxyPort > 65535 {
			return fmt.Errorf("confine: no port for the proxy")
		}
	default:
		return fmt.Errorf("confine: unknown network %q", s.Network)
	}
	return nil
}

// paths returns every path of the spec.
func (s Spec) paths() []string {
	all := slices.Clone(s.Hide)
	if s.Files != nil {
		all = slices.Concat(all, s.Files.Read, s.Files.Write, s.Files.Deny)
	}
	for _, p := range s.Protect {
		all = append(all, p.Path)
	}
	for _, p := range []string{s.Program, s.Dir} {
		if p != "" {
			all = append(all, p)
		}
	}
	return all
}

// weak reports whether the spec asks for nothing but no_new_privs and resource
// limits. Then root keeps its capabilities.
func (s Spec) weak() bool {
	return s.Files == nil && len(s.Hide) == 0 && len(s.Protect) == 0 && s.DiskBytes == 0 &&
		s.Network == NetworkHost && !s.Processes && s.User == nil && !s.Seccomp
}

// asRoot reports whether the program runs as root if the daemon is the user uid.
func (s Spec) asRoot(uid int) bool { return uid == 0 && (s.User == nil || s.User.UID == 0) }

// needsMounts reports whether only a mount namespace can enforce the spec.
func (s Spec) needsMounts() bool {
	return len(s.Hide) > 0 || len(s.Protect) > 0 || s.DiskBytes > 0 ||
		s.Files != nil && (len(s.Files.Deny) > 0 || s.Files.PrivateTmp)
}
