package proxy

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

const (
	maxName  = 253 // octets of a name, from RFC 1035
	maxLabel = 63  // octets of one label of it
)

var (
	errNoPort  = errors.New("it has no port")
	errBadPort = errors.New("its port is not a number from 1 to 65535")
	errBadHost = errors.New("its host is neither a name nor an address in its usual spelling")
)

// host is a name or an address: exactly one of the two is set.
type host struct {
	name string // lower case, without the last dot
	addr netip.Addr
}

func (h host) String() string {
	if h.addr.IsValid() {
		return h.addr.String()
	}
	return h.name
}

// parseHost accepts names of letters, digits, hyphens and underscores, and
// addresses in their usual spelling only. A text that some resolver takes for an
// address and another one for a name (0x7f.1, 2130706433, 127.1, 127.0.0.1.) is an
// error: it must never reach a resolver.
func parseHost(text string) (host, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		if addr.Zone() != "" {
			return host{}, errBadHost // the zone would choose an interface of this machine
		}
		return host{addr: addr}, nil
	}
	name := strings.TrimSuffix(text, ".")
	if name == "" || len(name) > maxName {
		return host{}, errBadHost
	}
	name = lower(name)
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if !validLabel(label) {
			return host{}, errBadHost
		}
		last = label
	}
	if numeric(last) {
		return host{}, errBadHost
	}
	return host{name: name}, nil
}

func validLabel(label string) bool {
	if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := range len(label) {
		switch c := label[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// lower changes ASCII only. strings.ToLower would turn the Kelvin sign into a k.
func lower(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, text)
}

// numeric reports whether a name that ends in this label is taken for an IPv4
// address by some programs: the rule of the WHATWG URL standard.
func numeric(label string) bool {
	digits, hex := strings.CutPrefix(label, "0x")
	for i := range len(digits) {
		c := digits[i]
		if (c < '0' || c > '9') && (!hex || c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// parseAuthority splits host:port, [address]:port, and, with a default port other
// than 0, a host alone.
func parseAuthority(text string, defaultPort uint16) (host, uint16, error) {
	var name, port string
	var hasPort bool
	if rest, bracketed := strings.CutPrefix(text, "["); bracketed {
		inside, after, closed := strings.Cut(rest, "]")
		addr, err := netip.ParseAddr(inside)
		if !closed || err != nil || !addr.Is6() || after != "" && after[0] != ':' {
			return host{}, 0, errBadHost
		}
		name = inside
		port, hasPort = strings.CutPrefix(after, ":")
	} else {
		name, port, hasPort = strings.Cut(text, ":")
	}
	h, err := parseHost(name)
	switch {
	case err != nil:
		return host{}, 0, err
	case strings.Contains(port, ":"):
		return host{}, 0, errBadHost // an IPv6 address without brackets
	case !hasPort && defaultPort == 0:
		return h, 0, errNoPort
	case !hasPort:
		return h, defaultPort, nil
	}
	number, err := parsePort(port)
	return h, number, err
}

func parsePort(text string) (uint16, error) {
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 || text[0] < '1' || text[0] > '9' {
		return 0, errBadPort
	}
	return uint16(number), nil
}
