package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// allowed is the list of the table.
var allowed = []string{
	"a.example:443", "a.example:80", "*.w.example:443", "*.w.example:80", "ssh.example:22", "alt.example:8443",
	"10.0.0.5:8080", "[fd00::5]:8080", "private.example:80", "meta.example:80", "six.example:443", "mixed.example:443",
	"mapped.example:443", "compat.example:443", "nat.example:443", "tunnel6.example:443", "shared.example:443", "zero.example:443",
	"many.example:443", "azure.example:80", "loop.example:80", "link.example:80", "ula.example:443", "metasix.example:80", "pin.example=127.0.0.1:1",
	"xn--bcher-kva.example:443", "own.example:80",
}

var zone = map[string][]string{
	"a.example": {publicAddr.String()}, "b.w.example": {publicAddr.String()}, "ssh.example": {publicAddr.String()}, "alt.example": {publicAddr.String()},
	"evil.example": {publicAddr.String()}, "private.example": {"192.168.1.1"}, "meta.example": {"169.254.169.254"}, "six.example": {"::1"},
	"mixed.example": {publicAddr.String(), "10.1.2.3"}, "mapped.example": {"::ffff:127.0.0.1"}, "compat.example": {"::127.0.0.1"},
	"nat.example": {"64:ff9b::a00:1"}, "tunnel6.example": {"2002:7f00:1::1"}, "shared.example": {"100.64.1.1"}, "zero.example": {"0.0.0.0"},
	"many.example": {"224.0.0.1"}, "azure.example": {"168.63.129.16"}, "loop.example": {"127.8.8.8"}, "link.example": {"fe80::1"},
	"ula.example": {"fd12::1"}, "metasix.example": {"fd00:ec2::254"}, "own.example": {"93.184.216.99"}, "xn--bcher-kva.example": {publicAddr.String()},
}

// row is one line of the table: what a client sends, and why it is refused.
type row struct {
	name string
	send string
	then string // sent after the tunnel is open; then the refusal is a closed connection
	want Reason
	host string // as reported
	port int
}

func connectTo(authority string) string {
	return "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n"
}

func get(url, host string) string {
	return "GET " + url + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
}

func post(fields ...string) string {
	return "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n" + strings.Join(fields, "") + "\r\n0\r\n\r\nGET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"
}

func socks(command, kind byte, address string, port int) string {
	if kind == socksName {
		address = string([]byte{byte(len(address))}) + address
	}
	return "\x05\x01\x00" + string([]byte{5, command, 0, kind}) + address + string([]byte{byte(port >> 8), byte(port)})
}

// refused is the table. Every row is refused, reported once, and reaches no server.
func refused(t *testing.T) []row {
	hello := func(name string) string { return string(helloFor(t, name)) }
	rows := []row{
		// Names and ports that are not listed.
		{"another host", connectTo("evil.example:443"), "", ReasonNotListed, "evil.example", 443},
		{"another port", connectTo("a.example:8443"), "", ReasonPort, "a.example", 8443},
		{"port of ssh", connectTo("a.example:22"), "", ReasonPort, "a.example", 22},
		{"port 0", connectTo("a.example:0"), "", ReasonHost, "a.example:0", 0},
		{"port too large", connectTo("a.example:65979"), "", ReasonHost, "a.example:65979", 0}, // 443 modulo 65536
		{"port with a sign", connectTo("a.example:+443"), "", ReasonHost, "a.example:+443", 0},
		{"no port", connectTo("a.example"), "", ReasonHost, "a.example", 0},
		{"wildcard itself", connectTo("w.example:443"), "", ReasonNotListed, "w.example", 443},
		{"wildcard in front", connectTo("b.w.example.evil.example:443"), "", ReasonNotListed, "b.w.example.evil.example", 443},
		{"wildcard without dot", connectTo("bw.example:443"), "", ReasonNotListed, "bw.example", 443},
		{"wildcard as a name", connectTo("*.w.example:443"), "", ReasonHost, "*.w.example:443", 0},
		{"empty label below a wildcard", connectTo(".w.example:443"), "", ReasonHost, ".w.example:443", 0},
		{"two last dots", connectTo("a.example..:443"), "", ReasonHost, "a.example..:443", 0},
		{"international name", connectTo("b\xc3\xbccher.example:443"), "", ReasonHost, "b?cher.example:443", 0},
		{"look-alike letter", connectTo("\xd0\xb0.example:443"), "", ReasonHost, "?.example:443", 0},
		{"Kelvin sign", connectTo("\xe2\x84\xaa.w.example:443"), "", ReasonHost, "?.w.example:443", 0},
		{"another ASCII form", connectTo("xn--bcher-kvb.example:443"), "", ReasonNotListed, "xn--bcher-kvb.example", 443},
		{"name too long", connectTo(strings.Repeat("a.", 130) + "w.example:443"), "", ReasonHost, strings.Repeat("a.", 126) + "a", 0},
		{"label too long", connectTo(strings.Repeat("a", 64) + ".w.example:443"), "", ReasonHost, strings.Repeat("a", 64) + ".w.example:443", 0},
		{"null byte", connectTo("a.example\x00.evil.example:443"), "", ReasonRequest, "a.example?.evil.example:443", 0},
		{"percent in CONNECT", connectTo("a%2eexample:443"), "", ReasonHost, "a%2eexample:443", 0},
		{"userinfo in CONNECT", connectTo("a.example@evil.example:443"), "", ReasonHost, "evil.example:443", 0},
		{"two ports", connectTo("a.example:443:80"), "", ReasonHost, "a.example:443:80", 0},
		{"pinned name, other port", connectTo("pin.example:2"), "", ReasonPort, "pin.example", 2},
		{"address of a pinned name", connectTo("127.0.0.1:1"), "", ReasonNotListed, "127.0.0.1", 1},
		{"CONNECT with a body", "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc", "", ReasonRequest, "a.example", 443},

		// Spellings of addresses. 10.0.0.5:8080 is listed.
		{"other private address", connectTo("10.0.0.6:8080"), "", ReasonNotListed, "10.0.0.6", 8080},
		{"decimal", connectTo("167772165:8080"), "", ReasonHost, "167772165:8080", 0},
		{"hex", connectTo("0x0a000005:8080"), "", ReasonHost, "0x0a000005:8080", 0},
		{"hex parts", connectTo("0xa.0.0.0x5:8080"), "", ReasonHost, "0xa.0.0.0x5:8080", 0},
		{"octal", connectTo("012.0.0.5:8080"), "", ReasonHost, "012.0.0.5:8080", 0},
		{"short", connectTo("10.5:8080"), "", ReasonHost, "10.5:8080", 0},
		{"last dot", connectTo("10.0.0.5.:8080"), "", ReasonHost, "10.0.0.5.:8080", 0},
		{"part above 255", connectTo("10.0.0.261:8080"), "", ReasonHost, "10.0.0.261:8080", 0},
		{"mapped", connectTo("[::ffff:10.0.0.5]:8080"), "", ReasonNotListed, "::ffff:10.0.0.5", 8080},
		{"mapped in hex", connectTo("[::ffff:a00:5]:8080"), "", ReasonNotListed, "::ffff:10.0.0.5", 8080},
		{"IPv6 loopback", connectTo("[::1]:8080"), "", ReasonNotListed, "::1", 8080},
		{"IPv6 with a zone", connectTo("[fd00::5%25lo]:8080"), "", ReasonHost, "[fd00::5%25lo]:8080", 0},
		{"IPv6 without brackets", connectTo("fd00::5:8080"), "", ReasonHost, "fd00::5:8080", 0},
		{"IPv4 in brackets", connectTo("[10.0.0.5]:8080"), "", ReasonHost, "[10.0.0.5]:8080", 0},
		{"public address of a listed name", connectTo(publicAddr.String() + ":443"), "", ReasonNotListed, publicAddr.String(), 443},
		{"metadata address", get("http://169.254.169.254/latest/", "169.254.169.254"), "", ReasonNotListed, "169.254.169.254", 80},

		// Names that resolve to what is not public.
		{"resolves to metadata", get("http://meta.example/", "meta.example"), "", ReasonAddress, "meta.example", 80},
		{"resolves to private", get("http://private.example/", "private.example"), "", ReasonAddress, "private.example", 80},
		{"resolves to loopback", get("http://loop.example/", "loop.example"), "", ReasonAddress, "loop.example", 80},
		{"resolves to link-local", get("http://link.example/", "link.example"), "", ReasonAddress, "link.example", 80},
		{"resolves to metadata in IPv6", get("http://metasix.example/", "metasix.example"), "", ReasonAddress, "metasix.example", 80},
		{"resolves to metadata in a public range", get("http://azure.example/", "azure.example"), "", ReasonAddress, "azure.example", 80},
		{"resolves to this machine", get("http://own.example/", "own.example"), "", ReasonAddress, "own.example", 80},
		{"private, by SOCKS", socks(1, socksName, "private.example", 80), "", ReasonAddress, "private.example", 80},
		{"SOCKS name resolves to loopback", socks(1, socksName, "loop.example", 80), "", ReasonAddress, "loop.example", 80},

		// What TLS says.
		{"another SNI", connectTo("a.example:443"), hello("evil.example"), ReasonSNI, "a.example", 443},
		{"another listed SNI", connectTo("a.example:443"), hello("b.w.example"), ReasonSNI, "a.example", 443},
		{"SNI below the name", connectTo("a.example:443"), hello("x.a.example"), ReasonSNI, "a.example", 443},
		{"another SNI in small records", connectTo("a.example:443"), string(inRecords(helloFor(t, "evil.example"), 3)), ReasonSNI, "a.example", 443},
		{"another SNI on another port", connectTo("alt.example:8443"), hello("evil.example"), ReasonSNI, "alt.example", 8443},
		{"encrypted hello", connectTo("a.example:443"), string(echHello(t, "a.example", "outer.example")), ReasonSNI, "a.example", 443},
		{"no SNI", connectTo("a.example:443"), hello(""), ReasonNoSNI, "a.example", 443},
		{"no SNI on another port", connectTo("alt.example:8443"), hello(""), ReasonNoSNI, "alt.example", 8443},
		{"plain HTTP to 443", connectTo("a.example:443"), get("/", "a.example"), ReasonNotTLS, "a.example", 443},
		{"SSH to 443", connectTo("a.example:443"), "SSH-2.0-OpenSSH_9\r\n", ReasonNotTLS, "a.example", 443},
		{"SSL 2 to 443", connectTo("a.example:443"), "\x80\x2e\x01\x03\x01", ReasonNotTLS, "a.example", 443},
		{"alert first", connectTo("a.example:443"), "\x15\x03\x01\x00\x02\x01\x00" + hello("a.example"), ReasonHello, "a.example", 443},
		{"alert first on another port", connectTo("alt.example:8443"), "\x15\x03\x01\x00\x02\x01\x00" + hello("evil.example"), ReasonHello, "alt.example", 8443},
		{"record without content", connectTo("a.example:443"), "\x16\x03\x01\x00\x00", ReasonHello, "a.example", 443},
		{"record too long", connectTo("a.example:443"), "\x16\x03\x01\xff\xff", ReasonHello, "a.example", 443},
		{"message too long", connectTo("a.example:443"), "\x16\x03\x01\x00\x04\x01\x0f\xff\xff", ReasonHello, "a.example", 443},
		{"another message", connectTo("a.example:443"), "\x16\x03\x01\x00\x04\x02\x00\x00\x00", ReasonHello, "a.example", 443},
		{"two SNI extensions", connectTo("a.example:443"), string(withExtension(helloFor(t, "a.example"), sniOf("evil.example"))), ReasonHello, "a.example", 443},
		{"two names in SNI", connectTo("a.example:443"), string(withExtension(helloFor(t, ""), sniOf("a.example", "evil.example"))), ReasonHello, "a.example", 443},
		{"null byte in SNI", connectTo("a.example:443"), string(withExtension(helloFor(t, ""), sniOf("a.example\x00"))), ReasonSNI, "a.example", 443},
		{"SNI by SOCKS", socks(1, socksName, "a.example", 443), hello("evil.example"), ReasonSNI, "a.example", 443},
		{"plain by SOCKS to 443", socks(1, socksName, "a.example", 443), "GET / HTTP/1.1\r\n\r\n", ReasonNotTLS, "a.example", 443},

		// Plain HTTP.
		{"another Host", get("http://a.example/", "evil.example"), "", ReasonHostField, "a.example", 80},
		{"another listed Host", get("http://a.example/", "b.w.example"), "", ReasonHostField, "a.example", 80},
		{"Host with another port", get("http://a.example/", "a.example:8080"), "", ReasonHostField, "a.example", 80},
		{"empty Host", get("http://a.example/", ""), "", ReasonHostField, "a.example", 80},
		{"no Host", "GET http://a.example/ HTTP/1.1\r\n\r\n", "", ReasonHostField, "a.example", 80},
		{"two Hosts", get("http://a.example/", "a.example\r\nHost: evil.example"), "", ReasonRequest, "a.example", 80},
		{"two equal Hosts", get("http://a.example/", "a.example\r\nhOST: a.example"), "", ReasonRequest, "a.example", 80},
		{"userinfo", get("http://a.example@evil.example/", "evil.example"), "", ReasonHost, "evil.example", 0},
		{"user of a listed host", get("http://u:p@a.example/", "a.example"), "", ReasonHost, "a.example", 0},
		{"percent in a host", get("http://a%2eexample/", "a.example"), "", ReasonHost, "a%2eexample", 0},
		{"backslash", get("http://a.example\\@evil.example/", "a.example"), "", ReasonHost, "evil.example", 0},
		{"fragment", get("http://evil.example#@a.example/", "a.example"), "", ReasonRequest, "evil.example", 80},
		{"own form", get("/", "a.example"), "", ReasonRequest, "", 0},
		{"https without a tunnel", get("https://a.example/", "a.example"), "", ReasonRequest, "a.example", 0},
		{"ftp", get("ftp://a.example/", "a.example"), "", ReasonRequest, "a.example", 0},
		{"plain to port 443", get("http://a.example:443/", "a.example:443"), "", ReasonNotTLS, "a.example", 443},
		{"WebSocket", get("http://a.example/", "a.example\r\nConnection: Upgrade\r\nUpgrade: websocket"), "", ReasonUpgrade, "a.example", 80},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", ReasonRequest, "", 0},
		{"HTTP/0.9", "GET http://a.example/\r\n\r\n", "", ReasonRequest, "a.example", 80},
		{"TLS to the proxy", hello("a.example"), "", ReasonRequest, "", 0},
		{"head too long", get("http://a.example/", "a.example\r\nX: "+strings.Repeat("x", maxHead)), "", ReasonRequest, "a.example", 80},

		// Requests that two programs read in two ways.
		{"length and coding", post("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"), "", ReasonRequest, "a.example", 80},
		{"coding and length", post("Transfer-Encoding: chunked\r\n", "Content-Length: 50\r\n"), "", ReasonRequest, "a.example", 80},
		{"two lengths", post("Content-Length: 5\r\n", "Content-Length: 6\r\n"), "", ReasonRequest, "a.example", 80},
		{"length with a sign", post("Content-Length: +5\r\n"), "", ReasonRequest, "a.example", 80},
		{"list of lengths", post("Content-Length: 5, 5\r\n"), "", ReasonRequest, "a.example", 80},
		{"unknown coding", post("Transfer-Encoding: xchunked\r\n"), "", ReasonRequest, "a.example", 80},
		{"two codings", post("Transfer-Encoding: gzip, chunked\r\n"), "", ReasonRequest, "a.example", 80},
		{"vertical tab before coding", post("Transfer-Encoding: \x0bchunked\r\n"), "", ReasonRequest, "a.example", 80},
		{"blank before the colon", post("Transfer-Encoding : chunked\r\n"), "", ReasonRequest, "a.example", 80},
		{"folded line", post("X: y\r\n Transfer-Encoding: chunked\r\n"), "", ReasonRequest, "a.example", 80},
		{"bare LF", "GET http://a.example/ HTTP/1.1\nHost: a.example\n\n", "", ReasonRequest, "a.example", 80},
		{"bare LF in a header", get("http://a.example/", "a.example\r\nX: y\nHost: evil.example"), "", ReasonRequest, "a.example", 80},
		{"bare CR", get("http://a.example/", "a.example\r\nX: y\rHost: evil.example"), "", ReasonRequest, "a.example", 80},
		{"null byte in a header", get("http://a.example/", "a.example\r\nX: \x00"), "", ReasonRequest, "a.example", 80},
		{"blank in the URL", get("http://a.example/ HTTP/1.1\r\nX: y\r\n\r\n http://evil.example/", "a.example"), "", ReasonHostField, "a.example", 80},
		{"chunked in HTTP/1.0", "POST http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", ReasonRequest, "a.example", 80},
		{"empty line first", "\r\n" + get("http://a.example/", "a.example"), "", ReasonRequest, "", 0},

		// SOCKS.
		{"SOCKS, another host", socks(1, socksName, "evil.example", 443), "", ReasonNotListed, "evil.example", 443},
		{"SOCKS by address", socks(1, socksIPv4, "\x5d\xb8\xd8\x22", 443), "", ReasonNotListed, publicAddr.String(), 443},
		{"SOCKS to loopback", socks(1, socksIPv4, "\x7f\x00\x00\x01", 80), "", ReasonNotListed, "127.0.0.1", 80},
		{"SOCKS by IPv6 address", socks(1, socksIPv6, "\xfd"+strings.Repeat("\x00", 14)+"\x06", 8080), "", ReasonNotListed, "fd00::6", 8080},
		{"SOCKS by mapped address", socks(1, socksIPv6, strings.Repeat("\x00", 10)+"\xff\xff\x0a\x00\x00\x05", 8080), "", ReasonNotListed, "::ffff:10.0.0.5", 8080},
		{"SOCKS with an address as name", socks(1, socksName, "127.0.0.1", 80), "", ReasonNotListed, "127.0.0.1", 80},
		{"SOCKS with a number as name", socks(1, socksName, "2130706433", 80), "", ReasonHost, "2130706433", 80},
		{"SOCKS with a null byte", socks(1, socksName, "a.example\x00", 443), "", ReasonHost, "a.example?", 443},
		{"SOCKS with an empty name", socks(1, socksName, "", 443), "", ReasonHost, "", 443},
		{"SOCKS to port 0", socks(1, socksName, "a.example", 0), "", ReasonHost, "a.example", 0},
		{"SOCKS bind", socks(2, socksName, "a.example", 443), "", ReasonCommand, "a.example", 443},
		{"SOCKS UDP", socks(3, socksIPv4, "\x00\x00\x00\x00", 0), "", ReasonCommand, "0.0.0.0", 0},
		{"SOCKS address type", "\x05\x01\x00\x05\x01\x00\x02\x00\x00", "", ReasonRequest, "", 0},
		{"SOCKS with a password only", "\x05\x01\x02", "", ReasonRequest, "", 0},
		{"SOCKS 4", "\x04\x01\x01\xbb\x5d\xb8\xd8\x22\x00", "", ReasonCommand, "", 0},
	}
	for _, name := range []string{"six", "mixed", "mapped", "compat", "nat", "tunnel6", "shared", "zero", "many", "ula"} {
		rows = append(rows, row{"resolves: " + name, connectTo(name + ".example:443"), "", ReasonAddress, name + ".example", 443})
	}
	return rows
}

func TestRefused(t *testing.T) {
	rows := refused(t)
	seen := map[string]bool{}
	for _, c := range rows {
		if seen[c.name] {
			t.Errorf("two rows are named %q", c.name)
		}
		seen[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkRefused(t, c)
		})
	}
	t.Logf("%d rows", len(rows))
}

func checkRefused(t *testing.T, c row) {
	r := newRig(t, allowed, func(cfg *Config) {
		cfg.own = func() ([]net.Addr, error) {
			return []net.Addr{&net.IPNet{IP: net.IPv4(93, 184, 216, 99), Mask: net.CIDRMask(24, 32)}}, nil
		}
	})
	for name, addrs := range zone {
		r.names.set(name, addrs)
	}
	server := newSink(t)
	r.to.Store(server.address)
	conn := r.dial()
	if _, err := io.WriteString(conn, c.send); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	isSOCKS := c.send[0] == socks5 || c.send[0] == socks4
	if c.then != "" {
		awaitOpen(t, in, isSOCKS)
		if _, err := io.WriteString(conn, c.then); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := io.ReadAll(in)
	if err != nil {
		t.Errorf("the connection ended with %v, not cleanly", err)
	}
	denials := r.denied()
	if len(denials) != 1 || denials[0].Reason != c.want || denials[0].Host != c.host || denials[0].Port != c.port || denials[0].Detail == "" {
		t.Errorf("reported %+v, want one of %s %s:%d", denials, c.want, c.host, c.port)
	}
	switch {
	case c.then != "":
		wantAlert := len(c.then) > 1 && c.then[1] == tlsMajorVersion
		if got := bytes.Equal(answer, accessDenied); got != wantAlert || !wantAlert && len(answer) > 0 {
			t.Errorf("answered %q, want a TLS alert: %v", answer, wantAlert)
		}
	case isSOCKS:
		checkSOCKSAnswer(t, answer, c)
	default:
		checkHTTPAnswer(t, answer, c)
	}
	r.proxy.Close() // so that all connections to the server have ended
	if c.then == "" && len(r.dialled) > 0 {
		t.Errorf("dialled %v", r.dialled)
	}
	if n := server.bytes.Load(); n > 0 {
		t.Errorf("the server got %d bytes", n)
	}
}

func awaitOpen(t *testing.T, in *bufio.Reader, isSOCKS bool) {
	t.Helper()
	if isSOCKS {
		reply := make([]byte, 12)
		if _, err := io.ReadFull(in, reply); err != nil || reply[3] != socksSucceeded {
			t.Fatalf("SOCKS: %v, %v", reply, err)
		}
		return
	}
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("CONNECT: %v, %v", resp, err)
	}
}

func checkHTTPAnswer(t *testing.T, answer []byte, c row) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), nil)
	if err != nil {
		t.Fatalf("answered %q: %v", answer, err)
	}
	body, err := io.ReadAll(resp.Body)
	want := http.StatusForbidden
	if c.want == ReasonRequest {
		want = http.StatusBadRequest
	}
	text := string(body)
	if err != nil || resp.StatusCode != want || !strings.Contains(text, "("+string(c.want)+")") || !strings.Contains(text, c.host) {
		t.Errorf("answered %q, want %d with %s and %s", answer, want, c.host, c.want)
	}
	if c.host != "" && c.port != 0 && !strings.Contains(text, net.JoinHostPort(c.host, strconv.Itoa(c.port))) {
		t.Errorf("answered %q without host and port", text)
	}
}

func checkSOCKSAnswer(t *testing.T, answer []byte, c row) {
	t.Helper()
	want := fmt.Sprintf("\x05\x00\x05%c\x00\x01\x00\x00\x00\x00\x00\x00", rune(socksNotAllowed))
	switch {
	case c.send[0] == socks4:
		want = "\x00\x5b\x00\x00\x00\x00\x00\x00"
	case c.want == ReasonCommand:
		want = strings.Replace(want, "\x02", "\x07", 1)
	case len(c.send) == 3:
		want = "\x05\xff"
	case c.want == ReasonRequest:
		want = strings.Replace(want, "\x02", "\x08", 1)
	}
	if string(answer) != want {
		t.Errorf("answered %q, want %q", answer, want)
	}
}

// withExtension adds an extension to a hello.
func withExtension(hello, extension []byte) []byte {
	message := bytes.Clone(hello[recordHeader:])
	body := bytesReader(message[messageHeader:])
	body.take(legacyHelloFixed)
	body.block(1)
	body.block(2)
	body.block(1)
	at := len(message) - len(body) // of the length of the extensions
	message = append(message, extension...)
	put := func(b []byte, n int) { b[0], b[1] = byte(n>>8), byte(n) }
	put(message[at:], len(message)-at-2)
	put(message[2:], len(message)-messageHeader)
	out := append(bytes.Clone(hello[:recordHeader]), message...)
	put(out[3:], len(message))
	return out
}

// sniOf returns an SNI extension.
func sniOf(names ...string) []byte {
	var list []byte
	for _, name := range names {
		list = append(list, sniTypeHostname, 0, byte(len(name)))
		list = append(list, name...)
	}
	return append([]byte{0, extensionSNI, 0, byte(len(list) + 2), 0, byte(len(list))}, list...)
}
