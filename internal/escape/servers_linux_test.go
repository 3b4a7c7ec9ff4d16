package escape

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// servers stand for everything that listens outside. Each greets its clients and counts
// what arrives; attempts get through when they are greeted or when a server counted.
type servers struct {
	mu    sync.Mutex
	count map[string]int
}

func (s *servers) add(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[name] += n
}

func (s *servers) received() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.count)
}

// network brings the loopback interface up, gives it the address that stands for other
// machines, and starts the servers.
func (s *stage) network() error {
	s.servers = &servers{count: map[string]int{}}
	if err := loopbackUp(); err != nil {
		return err
	}
	// An ordinary user may ping, and TCP fast open works for clients and servers.
	for name, value := range map[string]string{"ping_group_range": "0 65535", "tcp_fastopen": "3"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0); err != nil {
			return err
		}
	}
	config := net.ListenConfig{Control: fastOpen}
	for _, address := range []string{loopbackTCP, loopbackTCP6, outsideTCP, outsideMPTCP} {
		config.SetMultipathTCP(address == outsideMPTCP)
		listener, err := config.Listen(context.Background(), "tcp", address)
		if err != nil {
			return err
		}
		go s.servers.accept(address, listener)
	}
	for _, address := range []string{outsideUDP, outsideDNS} {
		socket, err := net.ListenPacket("udp", address)
		if err != nil {
			return err
		}
		go s.servers.echo(address, socket)
	}
	paths := []string{
		dockerSocket, podmanSocket, containerd, systemBus, systemdSocket, agentSocket, daemonSocket, looseSocket, abstractName,
		userBus(s.order.UID),
	}
	for _, path := range paths {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		listener, err := net.Listen("unix", path)
		if err != nil {
			return err
		}
		if path != abstractName {
			if err := os.Chmod(path, 0o666); err != nil {
				return err
			}
		}
		go s.servers.accept(path, listener)
	}
	go s.servers.knock()
	return nil
}

// loopbackUp brings lo up with the addresses of the stage.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, name := range []string{"lo", "lo:1"} {
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if name == "lo:1" {
			if err := request.SetInet4Addr(net.IPv4(192, 0, 2, 1).To4()); err != nil {
				return err
			}
			if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, request); err != nil {
				return fmt.Errorf("address: %w", err)
			}
			continue
		}
		request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
			return fmt.Errorf("lo up: %w", err)
		}
	}
	return nil
}

func fastOpen(_, _ string, c syscall.RawConn) error {
	const queue = 16
	var failed error
	err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_FASTOPEN, queue) })
	if err != nil {
		return err
	}
	if failed == unix.EOPNOTSUPP || failed == unix.ENOPROTOOPT { // a multipath socket of an old kernel
		return nil
	}
	return failed
}

func (s *servers) accept(name string, listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		s.add(name, 1)
		go func() {
			io.WriteString(c, hidden)
			n, _ := io.Copy(io.Discard, io.LimitReader(c, 1<<20))
			s.add(name, int(n))
			c.Close()
		}()
	}
}

func (s *servers) echo(name string, socket net.PacketConn) {
	buffer := make([]byte, 4096)
	for {
		n, from, err := socket.ReadFrom(buffer)
		if err != nil {
			return
		}
		s.add(name, n)
		socket.WriteTo([]byte(hidden), from)
	}
}

// knock connects to a port of the stage's loopback again and again, as a person outside
// would who believes that the listener is theirs.
func (s *servers) knock() {
	for {
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", knockPort))
		if err == nil {
			s.add("knock", 1)
			io.WriteString(c, hidden)
			c.Close()
		}
		time.Sleep(20 * time.Millisecond) // poll: until an attempt listens there; the stage ends the loop
	}
}
