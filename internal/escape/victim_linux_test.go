package escape

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// victimState is what the victim reports about itself, once at its start and whenever
// the stage asks.
type victimState struct {
	Address  uint64
	MemoryFD int
	SecretFD int
	Key      int
	Memory   string
	Shared   string
	Signals  int64
}

// runVictim is the process outside that attempts try to read, write, stop and signal.
// It runs as the user of the attempt.
func runVictim(string) int {
	if err := beVictim(); err != nil {
		fmt.Fprintln(os.Stderr, "victim:", err)
		return 1
	}
	return 0
}

func beVictim() error {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	copy(page, untouched)
	memory, err := unix.MemfdCreate("hidden", 0)
	if err != nil {
		return err
	}
	if _, err := unix.Write(memory, []byte(hidden)); err != nil {
		return err
	}
	secret, err := unix.Open(secretFile, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	segment, err := unix.SysvShmGet(shmKey, len(page), unix.IPC_CREAT|0o600)
	if err != nil {
		return err
	}
	shared, err := unix.SysvShmAttach(segment, 0, 0)
	if err != nil {
		return err
	}
	copy(shared, untouched)
	if err := unix.Chdir(secretDir); err != nil {
		return err
	}
	key := victimKey()
	var signals atomic.Int64
	caught := make(chan os.Signal, 16)
	signal.Notify(caught, syscall.SIGIO, syscall.SIGUSR1)
	go func() {
		for range caught {
			signals.Add(1)
		}
	}()
	state := func() victimState {
		return victimState{
			Address: uint64(uintptr(unsafe.Pointer(&page[0]))), MemoryFD: memory, SecretFD: secret, Key: key,
			Memory: string(page[:len(untouched)]), Shared: string(shared[:len(untouched)]), Signals: signals.Load(),
		}
	}
	out := json.NewEncoder(os.Stdout)
	questions := bufio.NewScanner(os.Stdin)
	for {
		if err := out.Encode(state()); err != nil {
			return err
		}
		if !questions.Scan() {
			return questions.Err()
		}
	}
}

// victimKey returns the serial number of a key in the keyring of the user, which any
// process of the user may read, or 0 if the kernel has no keyrings.
func victimKey() int {
	serial, err := unix.AddKey("user", "escape-victim", []byte(hidden), unix.KEY_SPEC_USER_KEYRING)
	if err != nil {
		return 0
	}
	const possessorAndUserAll = 0x3f3f0000
	if err := unix.KeyctlSetperm(serial, possessorAndUserAll); err != nil {
		return 0
	}
	const seconds = 120 // the keyring outlives the stage
	if _, err := unix.KeyctlInt(unix.KEYCTL_SET_TIMEOUT, serial, seconds, 0, 0); err != nil {
		return 0
	}
	return serial
}
