package confine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// enterNetwork prepares the new network namespace, whose only interface is lo.
func enterNetwork(s Spec) error {
	if s.Network != NetworkLoopback && s.Network != NetworkProxy {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, lo); err != nil {
		return fmt.Errorf("look at the loopback interface: %w", err)
	}
	lo.SetUint16(lo.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("start the loopback interface: %w", err)
	}
	if s.Network != NetworkProxy {
		return nil
	}
	// A socket stays in the namespace that it was made in, so the daemon can accept
	// on it from outside.
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: s.ProxyPort}); err != nil {
		return fmt.Errorf("bind the listener of the proxy: %w", err)
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return fmt.Errorf("listen for the proxy: %w", err)
	}
	if err := send(gateFD, messageListener, "", fd); err != nil {
		return fmt.Errorf("pass the listener of the proxy: %w", err)
	}
	return nil
}
