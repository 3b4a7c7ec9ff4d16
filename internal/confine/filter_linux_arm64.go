package confine

import "golang.org/x/sys/unix"

const (
	auditArch    = unix.AUDIT_ARCH_AARCH64
	firstForeign = 0x40000000 // no call has such a number
)

// refusedHere are refused on this architecture only.
var refusedHere []refusal
