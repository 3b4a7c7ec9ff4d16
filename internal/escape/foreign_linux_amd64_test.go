package escape

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// foreignAttempts make system calls by the other conventions of the processor, whose
// numbers a filter for the usual one does not mean.
func foreignAttempts() []attempt {
	none := []syscall.Errno{unix.ENOSYS}
	const (
		keyctl386, ioUringSetup386, ptrace386, personality386 = 288, 425, 26, 136
		x32                                                   = 0x40000000
	)
	rows := []attempt{
		{name: "int80_keyctl", absent: none, try: func(*scene) error { return int80(keyctl386, 0, uintptr(uint32(0xfffffffc)), 1) }},
		{name: "int80_personality", absent: none, try: func(*scene) error { return int80(personality386, 0x0400000, 0, 0) }},
		{name: "int80_io_uring", absent: none, try: func(*scene) error { return past("int 0x80", int80(ioUringSetup386, 4, 0, 0), unix.EFAULT) }},
		{name: "int80_ptrace", absent: none, try: func(s *scene) error { return int80(ptrace386, unix.PTRACE_SEIZE, uintptr(s.Victim), 0) }},
		{name: "x32_keyctl", absent: none, try: func(*scene) error {
			_, err := raw(x32|unix.SYS_KEYCTL, 0, ^uintptr(3), 1)
			return at("syscall", err)
		}},
		{name: "modify_ldt", absent: none, try: func(*scene) error { _, err := raw(unix.SYS_MODIFY_LDT, 0, 0, 0); return at("modify_ldt", err) }},
		{name: "ioperm", who: root, absent: none, try: func(*scene) error { _, err := raw(unix.SYS_IOPERM, 0x80, 1, 1); return at("ioperm", err) }},
		{name: "iopl", who: root, absent: none, try: func(*scene) error { _, err := raw(unix.SYS_IOPL, 3, 0, 0); return at("iopl", err) }},
	}
	for i := range rows {
		rows[i].group, rows[i].alone, rows[i].killed = "kernel", []string{bySeccomp}, unix.SIGSYS
		if rows[i].who == nil {
			rows[i].who = both
		}
	}
	return rows
}

// int80Code is mov r12, rdx; mov eax, [r12+8]; mov ebx, [r12+16]; mov ecx, [r12+24];
// mov edx, [r12+32]; xor esi, esi; xor edi, edi; int 0x80; mov [r12+40], rax; ret.
var int80Code = []byte{
	0x49, 0x89, 0xd4,
	0x41, 0x8b, 0x44, 0x24, 0x08,
	0x41, 0x8b, 0x5c, 0x24, 0x10,
	0x41, 0x8b, 0x4c, 0x24, 0x18,
	0x41, 0x8b, 0x54, 0x24, 0x20,
	0x31, 0xf6,
	0x31, 0xff,
	0xcd, 0x80,
	0x49, 0x89, 0x44, 0x24, 0x28,
	0xc3,
}

// int80 makes a system call of 32-bit programs. A function value of Go points to its
// code, and the code finds what follows the pointer in rdx.
func int80(number, a, b, c uintptr) error {
	page, err := unix.Mmap(-1, 0, len(int80Code), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	copy(page, int80Code)
	if err := unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		return err
	}
	closure := &struct {
		code                    uintptr
		number, a, b, c, result uintptr
	}{code: uintptr(unsafe.Pointer(&page[0])), number: number, a: a, b: b, c: c}
	call := *(*func())(unsafe.Pointer(&closure))
	call()
	if result := int32(closure.result); result < 0 && result > -4096 {
		return at("int 0x80", syscall.Errno(-result))
	}
	return nil
}
