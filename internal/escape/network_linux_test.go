package escape

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// networkAttempts reach or are reached by something outside over a network.
func networkAttempts() []attempt {
	absent := []syscall.Errno{unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT, unix.ENOPROTOOPT}
	wire, either := []string{byNetwork, byLoopback, byProxy}, []string{bySeccomp}
	rows := []attempt{
		{name: "tcp_loopback", who: both, alone: wire, changes: true, try: func(*scene) error { return dial("tcp", loopbackTCP) }},
		{name: "tcp_loopback_ipv6", who: both, alone: wire, changes: true, absent: absent, try: func(*scene) error { return dial("tcp", loopbackTCP6) }},
		{name: "tcp_out", who: both, alone: wire, changes: true, try: func(*scene) error { return dial("tcp", outsideTCP) }},
		{name: "udp_out", who: both, alone: wire, changes: true, try: func(*scene) error { return datagram(outsideUDP, []byte(overwrite)) }},
		{name: "dns_udp", who: both, alone: wire, changes: true, try: func(*scene) error { return datagram(outsideDNS, dnsQuestion) }},
		{name: "tcp_fast_open", who: both, alone: wire, changes: true, try: tcpFastOpen},
		{name: "mptcp", who: both, alone: wire, changes: true, absent: absent, try: multipath},
		{name: "listen_loopback", who: both, alone: wire, changes: true, try: listenLoopback},
		{name: "ping_socket", who: both, alone: wire, absent: absent, try: pingSocket},
		{name: "raw_socket", who: root, alone: []string{byNetwork, byFilesystem, bySeccomp}, absent: absent, try: rawSocket},
		{name: "packet_socket", who: root, alone: []string{byNetwork, bySeccomp}, absent: absent, try: openSocket(unix.AF_PACKET, unix.SOCK_RAW, 0)},
		{name: "netlink_address", who: root, alone: []string{byNetwork, byFilesystem, bySeccomp}, try: netlinkAddress},
		{name: "interface_down", who: root, alone: []string{byNetwork, byFilesystem, bySeccomp}, try: interfaceDown},
		{name: "crypto_socket", who: both, alone: either, absent: absent, try: openSocket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0)},
		{name: "vsock_socket", who: both, alone: either, absent: absent, try: openSocket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)},
		{name: "netfilter_socket", who: root, alone: []string{byNetwork, byFilesystem}, absent: absent, try: netfilterSocket},
	}
	for i := range rows {
		rows[i].group = "network"
	}
	return rows
}

// socketAttempts reach servers outside by Unix sockets.
func socketAttempts() []attempt {
	var rows []attempt
	for name, path := range map[string]string{
		"socket_docker": dockerSocket, "socket_podman": podmanSocket, "socket_containerd": containerd, "socket_agent": agentSocket,
		"socket_daemon": daemonSocket, "socket_unlisted": looseSocket, "socket_system_bus": systemBus, "socket_systemd": systemdSocket, "socket_user_bus": "",
	} {
		rows = append(rows, attempt{name: name, alone: []string{byFilesystem, byProcesses, bySeccomp}, try: func(s *scene) error {
			if path == "" {
				path = userBus(s.UID)
			}
			return dialUnix(path)
		}})
	}
	rows = append(rows,
		attempt{name: "socket_abstract", alone: []string{byNetwork}, try: func(*scene) error { return dialUnix(abstractName) }},
		attempt{name: "socket_proc_root", alone: []string{byProcesses}, try: func(s *scene) error { return dialUnix(ofVictim(s, "root"+dockerSocket)) }},
	)
	for i := range rows {
		rows[i].group, rows[i].who, rows[i].changes = "sockets", both, true
	}
	return rows
}

// dialTimeout bounds a connection that no answer comes for. Servers of the stage
// answer at once.
const dialTimeout = 3 * time.Second

func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, dialTimeout)
	if err != nil {
		return at("connect", err)
	}
	defer c.Close()
	return greeted(c)
}

// datagram sends one datagram and waits for the answer.
func datagram(address string, text []byte) error {
	c, err := net.Dial("udp", address)
	if err != nil {
		return at("connect", err)
	}
	defer c.Close()
	if _, err := c.Write(text); err != nil {
		return at("send", err)
	}
	return greeted(c)
}

// dnsQuestion asks for the address of a.example.
var dnsQuestion = []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01")

// tcpFastOpen sends bytes with the first packet, without connect(2).
func tcpFastOpen(*scene) error {
	address, err := net.ResolveTCPAddr("tcp", outsideTCP)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return at("socket", err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	to := &unix.SockaddrInet4{Port: address.Port, Addr: [4]byte(address.IP.To4())}
	if err := unix.Sendto(fd, []byte(overwrite), unix.MSG_FASTOPEN, to); err != nil {
		return at("sendto", err)
	}
	return greeted(f)
}

func multipath(*scene) error {
	d := net.Dialer{Timeout: dialTimeout}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if err != nil {
		return at("socket", err)
	}
	unix.Close(fd)
	d.SetMultipathTCP(true)
	c, err := d.DialContext(context.Background(), "tcp", outsideMPTCP)
	if err != nil {
		return at("connect", err)
	}
	defer c.Close()
	return greeted(c)
}

// listenLoopback waits for the stage, which connects to this port of its own loopback.
func listenLoopback(*scene) error {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: knockPort})
	if err != nil {
		return at("listen", err)
	}
	defer l.Close()
	const patience = 700 * time.Millisecond // the stage connects every 20 ms
	if err := l.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	c, err := l.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return without("accept", "the stage cannot connect")
	}
	if err != nil {
		return at("accept", err)
	}
	defer c.Close()
	return greeted(c)
}

// pingSocket sends an echo request without a raw socket, and waits for the answer.
func pingSocket(*scene) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		return at("socket", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return err
	}
	echo := []byte{8, 0, 0, 0, 0, 1, 0, 1, 'x', 'y'}
	if err := unix.Sendto(fd, echo, 0, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}}); err != nil {
		return at("sendto", err)
	}
	_, _, err = unix.Recvfrom(fd, make([]byte, 64), 0)
	return at("recvfrom", err)
}

// openSocket gets through if a socket of a family can be made.
func openSocket(family, kind, protocol int) func(*scene) error {
	return func(*scene) error {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return at("socket", err)
		}
		return unix.Close(fd)
	}
}

func rawSocket(*scene) error { return openSocket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)(nil) }

// netlinkAddress adds an address to the loopback interface.
func netlinkAddress(*scene) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return at("socket", err)
	}
	defer unix.Close(fd)
	netlink, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return at("socket", err)
	}
	defer unix.Close(netlink)
	// nlmsghdr, ifaddrmsg, IFA_LOCAL 192.0.2.77; little endian, as all our machines.
	message := []byte{
		32, 0, 0, 0, unix.RTM_NEWADDR, 0, unix.NLM_F_REQUEST | unix.NLM_F_ACK, 4, 1, 0, 0, 0, 0, 0, 0, 0,
		unix.AF_INET, 32, 0, 0, 1, 0, 0, 0,
		8, 0, unix.IFA_LOCAL, 0, 192, 0, 2, 77,
	}
	if err := unix.Sendto(netlink, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return at("sendto", err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(netlink, answer, 0)
	if err != nil || n < 20 {
		return errors.Join(err, errors.New("no answer of the kernel"))
	}
	if code := int32(uint32(answer[16]) | uint32(answer[17])<<8 | uint32(answer[18])<<16 | uint32(answer[19])<<24); code != 0 {
		return at("RTM_NEWADDR", syscall.Errno(-code))
	}
	return nil
}

func interfaceDown(*scene) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return at("socket", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	return at("ioctl", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request))
}

// netfilterSocket asks for the tables of the packet filter.
func netfilterSocket(*scene) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return at("socket", err)
	}
	defer unix.Close(fd)
	// A batch begin of nf_tables needs CAP_NET_ADMIN; the kernel answers by an error or,
	// with the capability, an acknowledgement.
	message := []byte{20, 0, 0, 0, unix.NFNL_SUBSYS_NFTABLES, 0, unix.NLM_F_REQUEST | unix.NLM_F_ACK, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	message[4], message[5] = unix.NFT_MSG_GETTABLE, unix.NFNL_SUBSYS_NFTABLES
	message[7] = unix.NLM_F_DUMP >> 8
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return at("sendto", err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < 20 {
		return errors.Join(err, errors.New("no answer of the kernel"))
	}
	const failure = 2
	if answer[4] == failure {
		if code := int32(uint32(answer[16]) | uint32(answer[17])<<8 | uint32(answer[18])<<16 | uint32(answer[19])<<24); code != 0 {
			return past("NFT_MSG_GETTABLE", syscall.Errno(-code), unix.EINVAL)
		}
	}
	return nil
}
