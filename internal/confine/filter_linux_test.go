//go:build linux && (amd64 || arm64)

package confine

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// call is what the kernel shows to a filter (struct seccomp_data).
type call struct {
	nr, arch uint32
	args     [6]uint64
}

// evaluate runs a filter in user space.
func evaluate(t *testing.T, program []unix.SockFilter, c call) uint32 {
	t.Helper()
	data := binary.LittleEndian.AppendUint32(nil, c.nr)
	data = binary.LittleEndian.AppendUint32(data, c.arch)
	data = binary.LittleEndian.AppendUint64(data, 0) // the instruction pointer
	for _, a := range c.args {
		data = binary.LittleEndian.AppendUint64(data, a)
	}
	var a uint32
	for pc := 0; pc < len(program); pc++ {
		i := program[pc]
		var jump bool
		switch i.Code {
		case load:
			a = binary.LittleEndian.Uint32(data[i.K:])
			continue
		case result:
			return i.K
		case ifEqual:
			jump = a == i.K
		case ifLeast:
			jump = a >= i.K
		case ifHas:
			jump = a&i.K != 0
		default:
			t.Fatalf("unknown instruction %+v", i)
		}
		if jump {
			pc += int(i.Jt)
		} else {
			pc += int(i.Jf)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

func TestFilter(t *testing.T) {
	program := filter(filterAll)
	refused := func(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }
	check := func(what string, c call, want uint32) {
		t.Helper()
		if got := evaluate(t, program, c); got != want {
			t.Errorf("%s %+v: %#x, want %#x", what, c, got, want)
		}
	}
	// Every call below the highest number, with arguments of zero, with the upper
	// halves set, and in the other modes of the processor.
	for nr := range uint32(600) {
		want := uint32(unix.SECCOMP_RET_ALLOW)
		for _, r := range slices.Concat(refusedEverywhere, refusedHere) {
			if r.call == nr {
				want = refused(r.errno)
			}
		}
		conditional := slices.ContainsFunc(conditions, func(c condition) bool { return c.call == nr })
		if !conditional {
			check("plain", call{nr: nr, arch: auditArch}, want)
			check("all bits", call{nr: nr, arch: auditArch, args: [6]uint64{^uint64(0), ^uint64(0)}}, want)
		}
		check("x32", call{nr: nr | firstForeign, arch: auditArch}, refused(unix.ENOSYS))
		check("i386", call{nr: nr, arch: unix.AUDIT_ARCH_I386}, unix.SECCOMP_RET_KILL_PROCESS)
		check("arm", call{nr: nr, arch: unix.AUDIT_ARCH_ARM}, unix.SECCOMP_RET_KILL_PROCESS)
	}
	for _, c := range conditions {
		for _, k := range c.ks {
			for _, high := range []uint64{0, 1 << 32, 0xffffffff << 32} { // the kernel ignores these
				args := [6]uint64{}
				args[c.arg] = uint64(k) | high
				want := refused(c.errno)
				if c.test == testIsNot {
					want = unix.SECCOMP_RET_ALLOW
				}
				check("listed", call{nr: c.call, arch: auditArch, args: args}, want)
				args[c.arg] = uint64(0x7ffffe) | high // in no list, and without a flag of a namespace
				want = unix.SECCOMP_RET_ALLOW
				if c.test == testIsNot {
					want = refused(c.errno)
				}
				if c.test != testHas {
					check("not listed", call{nr: c.call, arch: auditArch, args: args}, want)
				}
			}
		}
	}
	for bit := range 32 {
		want := uint32(unix.SECCOMP_RET_ALLOW)
		if newNamespaces&(1<<bit) != 0 {
			want = refused(unix.EPERM)
		}
		check("a flag of clone", call{nr: unix.SYS_CLONE, arch: auditArch, args: [6]uint64{1<<bit | 1<<40}}, want)
	}
	sockets := filter(filterSockets)
	if got := evaluate(t, sockets, call{nr: unix.SYS_IO_URING_SETUP, arch: auditArch}); got != refused(unix.ENOSYS) {
		t.Errorf("io_uring: %#x", got)
	}
	if got := evaluate(t, sockets, call{nr: unix.SYS_PTRACE, arch: auditArch}); got != unix.SECCOMP_RET_ALLOW {
		t.Errorf("ptrace: %#x", got)
	}
	for family := range uint64(64) {
		want := uint32(unix.SECCOMP_RET_ALLOW)
		if !slices.Contains(families, uint32(family)) {
			want = refused(unix.EAFNOSUPPORT)
		}
		c := call{nr: unix.SYS_SOCKET, arch: auditArch, args: [6]uint64{family | 7<<32}}
		check("a socket", c, want)
		if got := evaluate(t, sockets, c); got != want {
			t.Errorf("only sockets: %+v: %#x, want %#x", c, got, want)
		}
	}
}
