package proxy

import "net/netip"

// Kinds of addresses that a name may not resolve to.
const (
	kindLoopback    = "loopback"
	kindPrivate     = "private"
	kindLinkLocal   = "link-local"
	kindShared      = "shared by a provider" // RFC 6598: many customers behind one address
	kindMulticast   = "multicast"
	kindUnspecified = "unspecified"
	kindMetadata    = "metadata of a cloud"
	kindReserved    = "reserved"
	kindOwn         = "of this machine"
)

// special are the ranges that are not public, from the registries of special-purpose
// addresses of IANA. The first match counts, so single addresses come first.
var special = []struct {
	prefix netip.Prefix
	kind   string
}{
	{netip.MustParsePrefix("169.254.169.254/32"), kindMetadata},  // AWS, Azure, Google and others
	{netip.MustParsePrefix("169.254.170.2/32"), kindMetadata},    // AWS, tasks in containers
	{netip.MustParsePrefix("168.63.129.16/32"), kindMetadata},    // Azure; in a public range
	{netip.MustParsePrefix("100.100.100.200/32"), kindMetadata},  // Alibaba
	{netip.MustParsePrefix("192.0.0.192/32"), kindMetadata},      // Oracle
	{netip.MustParsePrefix("fd00:ec2::/32"), kindMetadata},       // AWS
	{netip.MustParsePrefix("fd20:ce::254/128"), kindMetadata},    // Google
	{netip.MustParsePrefix("255.255.255.255/32"), kindMulticast}, // broadcast
	{netip.MustParsePrefix("0.0.0.0/8"), kindUnspecified},        // Linux connects 0.0.0.0 to itself
	{netip.MustParsePrefix("10.0.0.0/8"), kindPrivate},
	{netip.MustParsePrefix("100.64.0.0/10"), kindShared},
	{netip.MustParsePrefix("127.0.0.0/8"), kindLoopback},
	{netip.MustParsePrefix("169.254.0.0/16"), kindLinkLocal},
	{netip.MustParsePrefix("172.16.0.0/12"), kindPrivate},
	{netip.MustParsePrefix("192.0.0.0/24"), kindReserved},   // protocol assignments
	{netip.MustParsePrefix("192.0.2.0/24"), kindReserved},   // documentation
	{netip.MustParsePrefix("192.88.99.0/24"), kindReserved}, // relays of 6to4
	{netip.MustParsePrefix("192.168.0.0/16"), kindPrivate},
	{netip.MustParsePrefix("198.18.0.0/15"), kindReserved},   // benchmarks
	{netip.MustParsePrefix("198.51.100.0/24"), kindReserved}, // documentation
	{netip.MustParsePrefix("203.0.113.0/24"), kindReserved},  // documentation
	{netip.MustParsePrefix("224.0.0.0/4"), kindMulticast},
	{netip.MustParsePrefix("240.0.0.0/4"), kindReserved},
	{netip.MustParsePrefix("::/128"), kindUnspecified},
	{netip.MustParsePrefix("::1/128"), kindLoopback},
	{netip.MustParsePrefix("fc00::/7"), kindPrivate},
	{netip.MustParsePrefix("fe80::/10"), kindLinkLocal},
	{netip.MustParsePrefix("ff00::/8"), kindMulticast},
	{netip.MustParsePrefix("2001::/23"), kindReserved},     // Teredo and other protocols
	{netip.MustParsePrefix("2001:db8::/32"), kindReserved}, // documentation
	{netip.MustParsePrefix("2002::/16"), kindReserved},     // 6to4: contains an IPv4 address
	{netip.MustParsePrefix("3fff::/20"), kindReserved},     // documentation
}

var (
	// nat64 contains an IPv4 address in its last four bytes. Behind DNS64 every
	// public host without IPv6 has such an address, so the IPv4 address is judged.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
	// public6 is all of IPv6 that is assigned as public. What is outside of it and
	// not in the table, such as ::127.0.0.1, is reserved.
	public6 = netip.MustParsePrefix("2000::/3")
)

// kindOf returns what keeps an address from being public; "" means that it is.
func kindOf(addr netip.Addr) string {
	addr = addr.WithZone("").Unmap()
	if nat64.Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	for _, s := range special {
		if s.prefix.Contains(addr) {
			return s.kind
		}
	}
	if addr.Is6() && !public6.Contains(addr) {
		return kindReserved
	}
	return ""
}
