package proxy

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	good := []string{
		"a.example:443", "A.Example.:80", "*.a.example:443", "10.0.0.5:8080", "[fd00::5]:8080", "127.0.0.1:1", "[::1]:65535", "169.254.169.254:80",
		"a.example=10.0.0.5:8080", "registry=[::1]:4873", "localhost=127.0.0.1:4873", "a_b.example:22", "a.example:443", "xn--bcher-kva.example:443",
	}
	if _, err := Parse(good); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ entry, problem, hint string }{
		{"a.example", "no port", `"a.example:443"`},
		{"*.a.example", "no port", `"*.a.example:443"`},
		{"", "host", "HOST:PORT"},
		{":443", "host", "HOST:PORT"},
		{"a.example:", "port", "HOST:PORT"},
		{"a.example:https", "port", "HOST:PORT"},
		{"a.example:0", "port", "HOST:PORT"},
		{"a.example:65536", "port", "HOST:PORT"},
		{"a.example:0443", "port", "HOST:PORT"},
		{"a.example:*", `"*"`, "HOST:PORT"},
		{"*:443", `"*"`, "HOST:PORT"},
		{"*.com:443", "two labels", "HOST:PORT"},
		{"a.*.example:443", `"*"`, "HOST:PORT"},
		{"*a.example:443", `"*"`, "HOST:PORT"},
		{"*.*.example:443", `"*"`, "HOST:PORT"},
		{"*.10.0.0.5:443", "no names below", "127.0.0.1:8080"},
		{"https://a.example", "URL", "HOST:PORT"},
		{"https://user:secret@a.example/", "URL", "HOST:PORT"},
		{"a.example:443/path", "URL", "HOST:PORT"},
		{"a.example :443", "blank", "HOST:PORT"},
		{"a.example:443\n", "blank", "HOST:PORT"},
		{"bücher.example:443", "ASCII", "xn--"},
		{"2130706433:80", "host", "HOST:PORT"},
		{"0x7f.1:80", "host", "HOST:PORT"},
		{"10.0.0:80", "host", "HOST:PORT"},
		{"::1:80", "host", "HOST:PORT"},
		{"[::1%lo]:80", "host", "HOST:PORT"},
		{"[::ffff:10.0.0.5]:80", "written as IPv6", "10.0.0.5"},
		{"0.0.0.0:80", "unspecified", "127.0.0.1"},
		{"[::]:80", "unspecified", "127.0.0.1"},
		{"224.0.0.1:80", "multicast", "127.0.0.1"},
		{"[fe80::1]:80", "link-local", "another address"},
		{"localhost:4873", "own", "NAME=ADDRESS:PORT"},
		{"*.x.localhost:80", "own", "NAME=ADDRESS:PORT"},
		{"a.example=b.example:443", "not an address", "NAME=ADDRESS:PORT"},
		{"10.0.0.1=10.0.0.2:443", "not a name", "NAME=ADDRESS:PORT"},
		{"*.a.example=10.0.0.2:443", "not a name", "NAME=ADDRESS:PORT"},
		{"a.example=10.0.0.2", "no port", "NAME=ADDRESS:PORT"},
		{"a.example=0.0.0.0:80", "unspecified", "127.0.0.1"},
		{"a.example=10.0.0.9:8080", "already", "remove"},
		{"registry:4873", "already", "remove"},
		{strings.Repeat("a", 64) + ".example:443", "host", "HOST:PORT"},
	} {
		_, err := Parse(append(append([]string{}, good...), c.entry))
		var wrong *EntryError
		if !errors.As(err, &wrong) || wrong.Index != len(good) || !strings.Contains(wrong.Problem, c.problem) || !strings.Contains(wrong.Hint, c.hint) {
			t.Errorf("%q: %+v, want %q and %q", c.entry, err, c.problem, c.hint)
			continue
		}
		if strings.Contains(err.Error()+wrong.Hint, "secret") {
			t.Errorf("the error contains a password: %v", err)
		}
	}
	if _, err := Parse(make([]string, maxEntries+1)); err == nil {
		t.Error("a list without end is accepted")
	}
	if _, ok := (*List)(nil).find(host{name: "a.example"}, 443); ok {
		t.Error("no list allows something")
	}
}

func TestKindOf(t *testing.T) {
	for addr, want := range map[string]string{
		"8.8.8.8": "", "1.1.1.1": "", "93.184.216.34": "", "172.15.0.1": "", "172.32.0.1": "", "100.63.255.255": "", "100.128.0.0": "",
		"2606:4700::1111": "", "2a00:1450::1": "", "64:ff9b::808:808": "", "::ffff:8.8.8.8": "",
		"0.0.0.0": kindUnspecified, "0.1.2.3": kindUnspecified, "::": kindUnspecified,
		"127.0.0.1": kindLoopback, "127.255.255.255": kindLoopback, "::1": kindLoopback, "::ffff:127.0.0.1": kindLoopback, "64:ff9b::7f00:1": kindLoopback,
		"10.0.0.0": kindPrivate, "172.16.0.1": kindPrivate, "172.31.255.255": kindPrivate, "192.168.0.1": kindPrivate, "fd00::1": kindPrivate, "fc00::1": kindPrivate,
		"::ffff:10.1.1.1": kindPrivate, "64:ff9b::a01:101": kindPrivate,
		"169.254.1.1": kindLinkLocal, "fe80::1": kindLinkLocal, "fe80::1%lo": kindLinkLocal, "febf::1": kindLinkLocal,
		"100.64.0.1": kindShared, "100.127.255.255": kindShared,
		"224.0.0.1": kindMulticast, "239.255.255.255": kindMulticast, "ff02::1": kindMulticast, "255.255.255.255": kindMulticast,
		"169.254.169.254": kindMetadata, "::ffff:169.254.169.254": kindMetadata, "64:ff9b::a9fe:a9fe": kindMetadata, "fd00:ec2::254": kindMetadata,
		"168.63.129.16": kindMetadata, "100.100.100.200": kindMetadata, "fd20:ce::254": kindMetadata,
		"::127.0.0.1": kindReserved, "::8.8.8.8": kindReserved, "2002:7f00:1::": kindReserved, "2002:808:808::": kindReserved, "2001::1": kindReserved,
		"2001:db8::1": kindReserved, "64:ff9b:1::1": kindReserved, "100::1": kindReserved, "fec0::1": kindReserved, "192.0.2.1": kindReserved, "240.0.0.1": kindReserved,
		"198.18.0.1": kindReserved, "3fff::1": kindReserved, "4000::1": kindReserved,
	} {
		if got := kindOf(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s is %q, want %q", addr, got, want)
		}
	}
}
