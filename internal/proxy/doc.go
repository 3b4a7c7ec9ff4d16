// Package proxy is the way out of a confined session whose network is an
// allow-list. The session has a network namespace without any interface but
// loopback; one listener in it leads here. The proxy runs outside, in the daemon,
// and connects for the session.
//
// One listener serves three protocols, which the first byte tells apart: CONNECT
// and plain HTTP with whole URLs, for HTTP_PROXY and HTTPS_PROXY, and SOCKS 5 with
// names (socks5h), for programs that prefer it. What it promises:
//
//   - Only what the list has is connected to: a host and a port. See Parse for the
//     forms of an entry.
//   - Names are resolved here, once for each connection. Every address that comes
//     back is checked, and the connection goes to an address that was checked. A
//     name must not resolve to a private, loopback, link-local, shared, multicast,
//     reserved or metadata address, nor to one of this machine. Such addresses are
//     reachable only if the list has them literally, alone or as NAME=ADDRESS:PORT.
//     A server on the loopback of the machine needs the second form: programs do
//     not use a proxy for 127.0.0.1, which inside the session is the session's own.
//   - A session can use an address only if the list has that address.
//   - The first TLS message in a tunnel must name the server that the tunnel was
//     opened for (SNI). On port 443 nothing but TLS passes. TLS is never decrypted.
//   - A plain HTTP request must have one Host header that equals its URL, and a body
//     whose length can be read in one way only. It is parsed, checked and written
//     anew, on a connection of its own. Redirects are passed on: the next request is
//     checked by itself. Upgrades are removed, and WebSockets refused: they need
//     CONNECT.
//   - A refused request gets an answer that says what was refused and why (403, 400
//     if it is malformed, the SOCKS reply "not allowed by ruleset", a TLS alert),
//     and is reported as a Denial.
//   - Connections, times and memory are bounded. A client that stalls holds only its
//     own connection.
//
// What it can't promise:
//
//   - Every allowed host is a way out for data: a package registry takes uploads, a
//     code host takes pushes, and a wildcard lets a name carry data to the name
//     servers of its domain.
//   - The proxy sees which server TLS names, not which one an encrypted request asks
//     for. A server that serves several sites (a content network) may serve another
//     one of them, by its encrypted Host header, in a second TLS message, or with an
//     encrypted hello (ECH), whose outer name is all that is checked. The same
//     holds for plain protocols in a tunnel to another port than 443.
//   - Programs that ignore the proxy variables have no network: they fail. Names can't
//     be looked up inside the session, so programs that resolve names themselves
//     before they connect fail too.
//   - There is no UDP: no QUIC, no DNS, no NTP. Nothing can connect to the session.
//
// Files, from top to bottom; a file refers only to those below it:
//
//	serve.go   accepts connections and finds out what they speak
//	http.go    CONNECT and requests with a whole URL
//	forward.go one plain request and its answer
//	socks.go   SOCKS 5
//	tunnel.go  bytes in both directions, after a look at the first ones
//	conn.go    one connection of a client: limits, copying, the last answer
//	dial.go    checks a destination, resolves its name, connects
//	config.go  Proxy, its configuration and its limits
//	denial.go  why something was refused, and how that is reported
//	hello.go   the first message of TLS
//	head.go    the head of an HTTP request
//	allow.go   the allow-list
//	address.go which addresses are not public
//	host.go    names, addresses and ports
//	environ.go the variables that lead programs here
package proxy
