package pty

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Size is the size of a terminal in characters.
type Size struct{ Rows, Cols int }

// maxSide is the largest number of rows or columns: the kernel stores 16 bits.
const maxSide = 1<<16 - 1

// ErrSize means that a size is not valid for a terminal.
var ErrSize = errors.New("pty: rows and cols must be from 1 to 65535")

// Valid reports whether a terminal can have this size.
func (s Size) Valid() bool {
	return s.Rows >= 1 && s.Rows <= maxSide && s.Cols >= 1 && s.Cols <= maxSide
}

// Open opens a pseudo-terminal of a size. The slave is for the programs; opening
// it does not make it a controlling terminal.
func Open(size Size) (master, slave *os.File, err error) {
	if !size.Valid() {
		return nil, nil, ErrSize
	}
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	peer, name, err := openPeer(fd)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open a pseudo-terminal: %w", err), unix.Close(fd))
	}
	// os.NewFile sees that the descriptor is non-blocking, and uses the poller.
	master, slave = os.NewFile(uintptr(fd), "/dev/ptmx"), os.NewFile(uintptr(peer), name)
	if err := SetSize(slave, size); err != nil {
		return nil, nil, errors.Join(err, master.Close(), slave.Close())
	}
	return master, slave, nil
}

// SetSize changes the size, through either end. The foreground processes of the
// terminal get SIGWINCH if the size differs.
func SetSize(f *os.File, size Size) error {
	if !size.Valid() {
		return ErrSize
	}
	ws := &unix.Winsize{Row: uint16(size.Rows), Col: uint16(size.Cols)}
	if err := Control(f, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, ws) }); err != nil {
		return fmt.Errorf("set the size of a terminal: %w", err)
	}
	return nil
}

// GetSize returns the size of the terminal.
func GetSize(f *os.File) (Size, error) {
	var ws *unix.Winsize
	err := Control(f, func(fd int) (err error) {
		ws, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		return err
	})
	if err != nil {
		return Size{}, fmt.Errorf("get the size of a terminal: %w", err)
	}
	return Size{Rows: int(ws.Row), Cols: int(ws.Col)}, nil
}

// Control calls fn with the descriptor of f. The descriptor stays open until fn
// returns, so its number can't be reused meanwhile. Unlike f.Fd, Control does not
// make it blocking.
func Control(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = fn(int(fd)) }); err != nil {
		return err
	}
	return failed
}
