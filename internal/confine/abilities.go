package confine

import (
	"fmt"
	"slices"
	"strings"
)

// The abilities of a machine.
const (
	AbilityUserNamespace = "user_namespace" // needed by the next four unless the daemon is privileged
	AbilityMount         = "mount"
	AbilityNetwork       = "network"
	AbilityProcesses     = "processes"
	AbilityDisk          = "disk" // a tmpfs with a size
	AbilityLandlock      = "landlock"
	AbilitySeccomp       = "seccomp"
	AbilityUser          = "user" // run as another user
)

// Ability is something that a machine can or cannot enforce.
type Ability struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"` // why not
	Hint      string `json:"hint,omitempty"`   // what a person can do about it
}

// Abilities are what a machine can enforce, for this user. See Probe.
type Abilities struct {
	List []Ability
	// ABI is the version of Landlock; 0 means none.
	ABI int
	// Privileged reports whether namespaces are made without a user namespace.
	Privileged bool
	// UID is the user of the daemon.
	UID int
}

// Has reports whether an ability is available.
func (a Abilities) Has(name string) bool {
	i := slices.IndexFunc(a.List, func(b Ability) bool { return b.Name == name })
	return i >= 0 && a.List[i].Available
}

// minABI is the first version of Landlock that protects files against truncation.
const minABI = 3

// Missing is the error of Check: everything of a spec that the machine cannot
// enforce. The names in Limits and Isolation are members of session.create.
type Missing struct {
	Limits    []string
	Isolation []string
	Abilities []string
	Reasons   map[string]string // by ability
	Hints     map[string]string // by ability; not every ability has one
}

func (m *Missing) Error() string {
	var why []string
	for _, name := range m.Abilities {
		why = append(why, name+": "+m.Reasons[name])
	}
	return "this machine cannot enforce " + strings.Join(slices.Concat(m.Isolation, m.Limits), ", ") + " (" + strings.Join(why, "; ") + ")"
}

// Check returns nil if everything in the spec can be enforced, and otherwise a
// *Missing with everything that cannot.
func (a Abilities) Check(s Spec) error {
	if err := s.validate(); err != nil {
		return err
	}
	m := &Missing{Reasons: map[string]string{}, Hints: map[string]string{}}
	need := func(member, ability string) {
		if !a.Has(ability) {
			a.miss(m, &m.Isolation, member, ability)
		}
	}
	if s.Files != nil {
		a.checkFiles(m, s)
	} else if s.needsMounts() {
		need("filesystem", AbilityMount)
	}
	if s.DiskBytes > 0 {
		a.checkDisk(m, s)
	}
	if s.Network != NetworkHost {
		need("network", AbilityNetwork)
		need("network", AbilitySeccomp) // not every kind of socket has namespaces
		if s.asRoot(a.UID) {
			need("network", AbilityMount) // root without capabilities still owns /proc/sys, and with it the host
		}
	}
	if s.Processes {
		need("processes", AbilityProcesses)
	}
	if s.User != nil && s.User.UID != a.UID {
		need("user", AbilityUser)
		if a.Has(AbilityUser) && !a.Privileged && a.flags(s).any() {
			a.missWhy(m, &m.Isolation, "user", AbilityUser, "the daemon may not make namespaces without a user namespace, which has only one user")
		}
	}
	if s.Seccomp {
		need("seccomp", AbilitySeccomp)
	}
	if len(m.Abilities) == 0 {
		return nil
	}
	return m
}

// checkFiles checks the view. Landlock alone is enough for reading and writing,
// except for root.
func (a Abilities) checkFiles(m *Missing, s Spec) {
	if a.Has(AbilityMount) {
		return
	}
	if s.needsMounts() || s.asRoot(a.UID) {
		a.miss(m, &m.Isolation, "filesystem", AbilityMount)
		return
	}
	if a.ABI < minABI {
		a.miss(m, &m.Isolation, "filesystem", AbilityMount)
		a.missWhy(m, &m.Isolation, "filesystem", AbilityLandlock, a.reason(AbilityLandlock, fmt.Sprintf("ABI %d is older than %d", a.ABI, minABI)))
	}
}

func (a Abilities) checkDisk(m *Missing, s Spec) {
	switch {
	case !a.Has(AbilityDisk):
		a.miss(m, &m.Limits, "disk_bytes", AbilityDisk)
	case s.Files == nil || len(s.Files.Write) > 0:
		a.missWhy(m, &m.Limits, "disk_bytes", AbilityDisk, "only files in memory can be limited, and the session may write to disks")
	}
}

func (a Abilities) miss(m *Missing, list *[]string, member, ability string) {
	a.missWhy(m, list, member, ability, a.reason(ability, "not available"))
}

func (a Abilities) missWhy(m *Missing, list *[]string, member, ability, why string) {
	if !slices.Contains(*list, member) {
		*list = append(*list, member)
	}
	if !slices.Contains(m.Abilities, ability) {
		m.Abilities = append(m.Abilities, ability)
	}
	m.Reasons[ability] = why
	for _, b := range a.List {
		if b.Name == ability && b.Hint != "" {
			m.Hints[ability] = b.Hint
		}
	}
}

func (a Abilities) reason(ability, otherwise string) string {
	for _, b := range a.List {
		if b.Name == ability && b.Reason != "" {
			return b.Reason
		}
	}
	return otherwise
}

// Force is what is in force for a confined program.
type Force struct {
	// Mechanisms names what confines the program, of: user_namespace, mount,
	// processes, network, disk, user, capabilities, no_new_privs, landlock, seccomp.
	Mechanisms  []string
	LandlockABI int // 0 means that Landlock is not used
}

// InForce returns what the launcher puts in force for a spec that passed Check.
func (a Abilities) InForce(s Spec) Force {
	var f Force
	add := func(name string, yes bool) {
		if yes {
			f.Mechanisms = append(f.Mechanisms, name)
		}
	}
	flags := a.flags(s)
	add(AbilityUserNamespace, flags.User)
	add(AbilityMount, flags.Mount)
	add(AbilityProcesses, flags.PID)
	add(AbilityNetwork, flags.Net)
	add(AbilityDisk, s.DiskBytes > 0)
	add(AbilityUser, s.User != nil)
	add("capabilities", !s.weak())
	add("no_new_privs", true)
	f.LandlockABI = a.landlock(s)
	add(AbilityLandlock, f.LandlockABI > 0)
	add(AbilitySeccomp, s.Seccomp)
	return f
}

// landlock returns the version of Landlock to use for a spec.
func (a Abilities) landlock(s Spec) int {
	if s.weak() || !a.Has(AbilityLandlock) || a.ABI < minABI {
		return 0
	}
	if s.Files == nil && a.ABI < 6 { // only the scopes of ABI 6 would be of use
		return 0
	}
	return a.ABI
}

// namespaces are those that a program gets.
type namespaces struct {
	User  bool `json:"user,omitempty"`
	Mount bool `json:"mount,omitempty"`
	PID   bool `json:"pid,omitempty"`
	Net   bool `json:"net,omitempty"`
}

func (n namespaces) any() bool { return n.Mount || n.PID || n.Net }

// flags decides which namespaces a program gets. Wherever a view can be made, it
// is made, because the sockets and the /proc of the host are the ways around every
// other mechanism; and a view comes with a PID namespace, because /proc/PID/root
// is a way around the view.
func (a Abilities) flags(s Spec) namespaces {
	if s.weak() {
		return namespaces{}
	}
	n := namespaces{
		Mount: a.Has(AbilityMount),
		Net:   s.Network != NetworkHost,
	}
	n.PID = s.Processes || n.Mount && a.Has(AbilityProcesses)
	n.Mount = n.Mount || n.PID // it has its own /proc
	n.User = n.any() && !a.Privileged
	return n
}
