package escape

// The stage is the same for every attempt: it is in namespaces of its own, so paths and
// ports need not be unique on the machine.
const (
	stageDir   = "/srv"
	binary     = "/srv/bin/escape" // the test binary
	suidBinary = "/srv/bin/suid"   // a copy of it that is setuid root
	capBinary  = "/srv/bin/cap"    // a copy of it that has file capabilities

	work       = "/srv/project"       // the writable root
	bare       = "/srv/bare"          // a second one, without protected files
	vault      = "/srv/project/vault" // a denied directory inside the writable root
	deepVault  = "/srv/project/deep/vault"
	outside    = "/srv/outside" // owned by the user of the attempt, not writable inside
	canary     = "/srv/outside/canary"
	doorstep   = "/srv/outside/dir"
	secretDir  = "/srv/secret" // denied
	secretFile = "/srv/secret/key"
	covered    = "/srv/covered" // a mount hides covered/key for attempts that ask for it

	dockerSocket  = "/run/docker.sock"
	podmanSocket  = "/run/podman/podman.sock"
	containerd    = "/run/containerd/containerd.sock"
	systemBus     = "/run/dbus/system_bus_socket"
	systemdSocket = "/run/systemd/private"
	agentSocket   = "/run/agent/ssh.sock" // SSH_AUTH_SOCK
	daemonSocket  = "/run/trl/trl.sock"
	looseSocket   = "/srv/outside/loose.sock" // a socket that no list names
	abstractName  = "@escape-abstract"

	loopbackTCP  = "127.0.0.1:4001"
	loopbackTCP6 = "[::1]:4001"
	outsideTCP   = "192.0.2.1:4002" // TEST-NET-1, an address of the stage
	outsideUDP   = "192.0.2.1:4003"
	outsideDNS   = "192.0.2.1:53"
	outsideMPTCP = "192.0.2.1:4004"
	proxyPort    = 3128
	knockPort    = 4010 // the stage connects to this port of its loopback until a run ends

	hidden    = "hidden-value-7d1f"     // the content of everything secret
	untouched = "untouched-value-90ab"  // the content of everything that must not change
	overwrite = "overwritten-value-55c" // what attempts write; as long as untouched at most

	shmKey = 0x7d1f90ab // SysV shared memory of the victim
	mqName = "escape-queue"

	guestID = 12345 // user and group of unprivileged attempts
)

// scene is what an attempt must know about the outside, apart from the constants. Most
// of it an attacker would have to guess or find: giving it makes the refusals stronger.
type scene struct {
	UID        int    // user of the attempt and of the victim
	Victim     int    // its PID, outside
	Address    uint64 // of the canary in the victim's memory
	MemoryFD   int    // the victim's descriptor of a memfd that contains hidden
	SecretFD   int    // the victim's descriptor of secretFile
	Key        int    // serial number of the victim's key in the user keyring, 0 without
	HandleType int32  // file handle of secretFile
	Handle     []byte
	LastPID    int // of the stage; PIDs inside a confinement are lower
}
