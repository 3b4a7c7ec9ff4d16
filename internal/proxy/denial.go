package proxy

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Reason is why a connection or a request was refused. The words are stable.
type Reason string

// The reasons.
const (
	ReasonNotListed Reason = "not_listed"      // the list does not have the host
	ReasonPort      Reason = "port_not_listed" // it has the host with other ports only
	ReasonHost      Reason = "bad_host"        // neither a name nor an address in its usual spelling
	ReasonAddress   Reason = "address"         // the name resolves to an address that is not public
	ReasonNotTLS    Reason = "not_tls"         // other bytes than TLS to port 443
	ReasonHello     Reason = "bad_hello"       // the first TLS message is malformed, too long or too late
	ReasonNoSNI     Reason = "no_sni"          // TLS does not name its server
	ReasonSNI       Reason = "sni"             // TLS names another server
	ReasonHostField Reason = "host_header"     // the Host header names another host than the URL
	ReasonRequest   Reason = "bad_request"     // the request is malformed or ambiguous, or no proxy request
	ReasonUpgrade   Reason = "upgrade"         // a WebSocket without CONNECT
	ReasonCommand   Reason = "command"         // SOCKS, but not CONNECT: bind, UDP, or SOCKS 4
	ReasonLimit     Reason = "limit"           // too many connections at the same time
)

// The protocols of a denial.
const (
	protocolConnect = "connect"
	protocolHTTP    = "http"
	protocolSOCKS   = "socks"
)

// Denial is one refused connection or request.
type Denial struct {
	Host     string // as it was asked for, in printable ASCII; "" if it is unknown
	Port     int    // 0 if it is unknown
	Reason   Reason
	Detail   string // a sentence for people
	Protocol string // "connect", "http" or "socks"; "" if it is unknown
	// Suppressed is how many denials before this one were not reported, because
	// there were too many.
	Suppressed int
}

const (
	denialBurst = 50                     // a page of failed downloads
	denialEvery = 100 * time.Millisecond // after that
)

// denials reports denials at a bounded rate: a session in a loop must not fill the
// daemon's events.
type denials struct {
	report func(Denial) // nil: none
	every  func(Denial) // not at that rate, but all of them; nil: none

	mu         sync.Mutex // guards the fields below
	used       int        // of the burst
	refilled   time.Time
	suppressed int
}

func (d *denials) add(denial Denial) {
	denial.Host = printable(denial.Host)
	if d.every != nil {
		d.every(denial)
	}
	if d.report == nil {
		return
	}
	d.mu.Lock()
	now := time.Now()
	if more := int(min(now.Sub(d.refilled)/denialEvery, denialBurst)); more > 0 {
		d.used = max(0, d.used-more)
		d.refilled = now
	}
	if d.used >= denialBurst {
		d.suppressed++
		d.mu.Unlock()
		return
	}
	d.used++
	denial.Suppressed, d.suppressed = d.suppressed, 0
	d.mu.Unlock()
	d.report(denial)
}

// printable returns at most maxName bytes of text, with every byte but printable
// ASCII as a question mark.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text[:min(len(text), maxName)])
}

// refusal is why a request is not served.
type refusal struct {
	reason Reason
	detail string
}

func (r *refusal) Error() string { return string(r.reason) + ": " + r.detail }

func refuse(reason Reason, detail string) *refusal { return &refusal{reason, detail} }

// request is what a client asked for, as it is reported.
type request struct {
	protocol string
	host     string
	port     uint16
}

func (r request) String() string {
	if r.host == "" {
		return "the request"
	}
	if r.port == 0 {
		return printable(r.host)
	}
	return net.JoinHostPort(printable(r.host), strconv.Itoa(int(r.port)))
}

// explain returns the text of an answer to a denied request.
func (r request) explain(why *refusal) string {
	return fmt.Sprintf("TRL refused %s (%s): %s.\nThis session may connect only to the hosts in its network allow-list.\n", r, why.reason, why.detail)
}
