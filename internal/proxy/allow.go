package proxy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// maxEntries bounds a list: longer ones are generated, and then one wildcard is
// meant.
const maxEntries = 1000

// List is a parsed allow-list. It does not change; nil and the zero value allow
// nothing.
type List struct {
	names    map[endpoint]netip.Addr // the pinned address; the zero Addr means look it up
	suffixes map[endpoint]bool       // "*.a.example:443" as a.example and 443
	addrs    map[netip.AddrPort]bool
}

type endpoint struct {
	name string
	port uint16
}

// target is an allowed destination.
type target struct {
	host host
	port uint16
	addr netip.Addr // the address to dial if the list has it literally; else zero: look the name up
}

// EntryError says what is wrong with one entry of an allow-list, and what to write
// instead.
type EntryError struct {
	Index   int    // in the list
	Entry   string // as it was given, without user and password, and at most maxName bytes of it
	Problem string
	Hint    string
}

func (e *EntryError) Error() string {
	return fmt.Sprintf("network allow-list: entry %d, %q: %s", e.Index, e.Entry, e.Problem)
}

// Parse reads an allow-list. An entry is one of
//
//	a.example:443           a name and a port; the port is always required
//	*.a.example:443         every name below a.example, at any depth, but not a.example
//	10.0.0.5:8080           an address; it may be private
//	[fd00::5]:8080          an IPv6 address, in brackets
//	a.example=10.0.0.5:8080 a name that is not looked up: its connections go to this address, which may be private
//
// Names are compared without regard to case and to a last dot. International names
// are written in their ASCII form (xn--…). The error is an *EntryError.
func Parse(allow []string) (*List, error) {
	l := &List{names: map[endpoint]netip.Addr{}, suffixes: map[endpoint]bool{}, addrs: map[netip.AddrPort]bool{}}
	for i, entry := range allow {
		problem, hint := "", ""
		if i < maxEntries {
			problem, hint = l.add(entry)
		} else {
			problem, hint = "the list is too long", fmt.Sprintf("list at most %d entries; *.NAME:PORT stands for all names below NAME", maxEntries)
		}
		if problem != "" {
			return nil, &EntryError{Index: i, Entry: shown(entry), Problem: problem, Hint: hint}
		}
	}
	return l, nil
}

// shown returns an entry for an error message. What stands before an @ is usually a
// password.
func shown(entry string) string {
	entry = entry[strings.LastIndexByte(entry, '@')+1:]
	return entry[:min(len(entry), maxName)]
}

const (
	formHint    = `write "HOST:PORT", such as "proxy.golang.org:443", or "*.HOST:PORT"`
	addressHint = `write the address as "127.0.0.1:8080" or "[::1]:8080"`
	pinHint     = `write "NAME=ADDRESS:PORT", such as "registry.test=127.0.0.1:4873"`
)

// add returns a problem and its hint, or "" if the entry is in the list now.
func (l *List) add(entry string) (problem, hint string) {
	for i := range len(entry) {
		if entry[i] >= 0x80 {
			return "it is not in ASCII", "write an international name in its ASCII form, xn--…"
		}
		if entry[i] <= ' ' || entry[i] == 0x7f {
			return "it contains a blank or a control character", formHint
		}
	}
	if strings.ContainsAny(entry, "/@?#\\") {
		return "it is a URL or has parts of one", formHint
	}
	name, rest, pinned := strings.Cut(entry, "=")
	if pinned {
		return l.addPinned(name, rest)
	}
	rest, wild := strings.CutPrefix(entry, "*.")
	if strings.Contains(rest, "*") {
		return `"*" may only stand for the whole beginning of a name, as in "*.a.example:443"`, formHint
	}
	h, port, err := parseAuthority(rest, 0)
	switch {
	case err == errNoPort: //nolint:errorlint // parseAuthority wraps nothing
		return err.Error(), fmt.Sprintf(`write %q`, entry+":443")
	case err != nil:
		return err.Error(), formHint
	case h.addr.IsValid() && wild:
		return "an address has no names below it", addressHint
	case h.addr.IsValid():
		if problem, hint := checkLiteral(h.addr); problem != "" {
			return problem, hint
		}
		l.addrs[netip.AddrPortFrom(h.addr, port)] = true
		return "", ""
	case h.name == "localhost" || strings.HasSuffix(h.name, ".localhost"):
		return "inside the session localhost is the session's own, and a name is never looked up as a loopback address", pinHint
	case wild && !strings.Contains(h.name, "."):
		return "a wildcard needs at least two labels after it", formHint
	case wild:
		l.suffixes[endpoint{h.name, port}] = true
		return "", ""
	}
	if pin := l.names[endpoint{h.name, port}]; pin.IsValid() {
		return "the list has this name and port with an address already", "remove one of the two entries"
	}
	l.names[endpoint{h.name, port}] = netip.Addr{}
	return "", ""
}

func (l *List) addPinned(name, rest string) (problem, hint string) {
	h, err := parseHost(name)
	if err != nil || h.addr.IsValid() {
		return "what stands before = is not a name", pinHint
	}
	at, port, err := parseAuthority(rest, 0)
	switch {
	case err != nil:
		return err.Error(), pinHint
	case !at.addr.IsValid():
		return "what stands after = is not an address", pinHint
	}
	if problem, hint := checkLiteral(at.addr); problem != "" {
		return problem, hint
	}
	if other, exists := l.names[endpoint{h.name, port}]; exists && other != at.addr {
		return "the list has this name and port already, with another address or none", "remove one of the two entries"
	}
	l.names[endpoint{h.name, port}] = at.addr
	return "", ""
}

// checkLiteral returns a problem if an address can't be meant, even literally.
func checkLiteral(addr netip.Addr) (problem, hint string) {
	switch kind := kindOf(addr); {
	case addr.Is4In6():
		return "it is an IPv4 address written as IPv6", fmt.Sprintf("write %s", addr.Unmap())
	case kind == kindUnspecified || kind == kindMulticast:
		return "no connection can be made to this " + kind + " address", addressHint
	case kind == kindLinkLocal && addr.Is6():
		return "a link-local IPv6 address has no meaning without an interface", "write another address of the host"
	}
	return "", ""
}

// find returns the destination of a request, and false if the list does not have it.
func (l *List) find(h host, port uint16) (target, bool) {
	t := target{host: h, port: port}
	if l == nil {
		return t, false
	}
	if h.addr.IsValid() {
		t.addr = h.addr
		return t, l.addrs[netip.AddrPortFrom(h.addr, port)]
	}
	if pin, ok := l.names[endpoint{h.name, port}]; ok {
		t.addr = pin
		return t, true
	}
	return t, l.below(endpoint{h.name, port})
}

// ports returns the ports with which the list has a host, in order.
func (l *List) ports(h host) []uint16 {
	if l == nil {
		return nil
	}
	var found []uint16
	for e := range l.names {
		found = append(found, e.port)
	}
	for e := range l.suffixes {
		found = append(found, e.port)
	}
	for a := range l.addrs {
		found = append(found, a.Port())
	}
	slices.Sort(found)
	return slices.DeleteFunc(slices.Compact(found), func(port uint16) bool {
		_, ok := l.find(h, port)
		return !ok
	})
}

// Lacks returns an entry of m that allows something l does not; "" if there is none.
func (l *List) Lacks(m *List) string {
	var lacking []string
	for at, pin := range m.names {
		allowed, ok := l.names[at]
		if ok && allowed == pin || !pin.IsValid() && !allowed.IsValid() && l.below(at) {
			continue
		}
		entry := at.String()
		if pin.IsValid() {
			entry = at.name + "=" + net.JoinHostPort(pin.String(), strconv.Itoa(int(at.port)))
		}
		lacking = append(lacking, entry)
	}
	for at := range m.suffixes {
		if !l.suffixes[at] && !l.below(at) {
			lacking = append(lacking, "*."+at.String())
		}
	}
	for at := range m.addrs {
		if !l.addrs[at] {
			lacking = append(lacking, at.String())
		}
	}
	if len(lacking) == 0 {
		return ""
	}
	return slices.Min(lacking) // the order of maps is random
}

func (e endpoint) String() string { return e.name + ":" + strconv.Itoa(int(e.port)) }

// below reports whether a wildcard of the list includes the name.
func (l *List) below(at endpoint) bool {
	for _, rest, ok := strings.Cut(at.name, "."); ok; _, rest, ok = strings.Cut(rest, ".") {
		if l.suffixes[endpoint{rest, at.port}] {
			return true
		}
	}
	return false
}
