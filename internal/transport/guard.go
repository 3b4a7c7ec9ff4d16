package transport

import (
	"context"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
)

// Keys knows the tokens: *access.Keyring.
type Keys interface {
	Find(secret string) (access.Token, bool)
	Valid(id string) bool
}

// guard is the door of the HTTP server. A web page that its user has open is
// as near to a local port as the user is, so the door looks at more than
// tokens, and in this order:
//
//  1. Host. A name that is not this server's is one that was made to point
//     here (DNS rebinding): then the browser takes the attacker's page for
//     ours, and none of its own rules protects anything.
//  2. Origin. Only browsers send it; what it names must be on the list. This
//     holds for GET too, since WebSockets and event streams are GETs that no
//     browser rule keeps from being opened across sites.
//  3. The token, in the Authorization header alone: what is in an address ends
//     up in histories and logs, and cookies would be sent by any page.
//  4. Room: requests a second and at once, of that token.
//
// The scope comes last. It is the method table's to compare.
type guard struct {
	hosts   []string
	origins []string
	keys    Keys
	limits  *access.Limiter
}

// hostOf is the name in a Host header or an address, without port, brackets
// and a last dot, in lower case.
func hostOf(address string) string {
	host := address
	if h, _, err := net.SplitHostPort(address); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// knows reports whether a Host header names this server: by a loopback name or
// address, which nobody can make point elsewhere, or by one that was listed.
func (g *guard) knowsHost(header string) bool {
	host := hostOf(header)
	if host == "localhost" || slices.Contains(g.hosts, host) {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// trusts reports whether a page of that origin may call. The origin of a page
// without one, null, is anybody's.
func (g *guard) allowsOrigin(origin string) bool {
	return origin != "null" && slices.Contains(g.origins, strings.ToLower(origin))
}

// refusal is an answer to a request that does not get to a method.
type refusal struct {
	status int
	err    *api.Error
	header http.Header
}

// front checks what a request comes by: steps 1 and 2.
func (g *guard) checkHostAndOrigin(r *http.Request) *refusal {
	if !g.knowsHost(r.Host) {
		return &refusal{status: http.StatusMisdirectedRequest, err: api.Errorf(api.CodeForbidden, "this server does not go by that name").
			WithHint("use the address the daemon listens on, or add the name to http_allowed_hosts")}
	}
	for _, origin := range r.Header.Values("Origin") {
		if !g.allowsOrigin(origin) {
			return &refusal{status: http.StatusForbidden, err: api.Errorf(api.CodeForbidden, "pages of this origin may not call").
				WithHint("call without an Origin header, or add the origin to http_allowed_origins")}
		}
	}
	return nil
}

// identify finds who is asking: step 3.
func (g *guard) authenticate(r *http.Request) (access.Token, *refusal) {
	// One header: of two, proxies and servers may each believe another.
	if given := r.Header.Values("Authorization"); len(given) == 1 {
		kind, secret, _ := strings.Cut(given[0], " ")
		if strings.EqualFold(kind, "Bearer") {
			if token, ok := g.keys.Find(strings.TrimSpace(secret)); ok {
				return token, nil
			}
		}
	}
	return access.Token{}, &refusal{
		status: http.StatusUnauthorized,
		err: api.Errorf(api.CodeUnauthorized, "a token is needed, and this request has none that is good").
			WithHint("send the header Authorization: Bearer TOKEN; `trl token create` makes one"),
		header: http.Header{"Www-Authenticate": {`Bearer realm="trl"`}},
	}
}

// enter takes room for one request of a token: step 4.
func (g *guard) enter(token string) (leave func(), busy *refusal) {
	leave, wait := g.limits.Enter(token)
	if leave != nil {
		return leave, nil
	}
	return nil, &refusal{
		status: http.StatusTooManyRequests, err: tooMany(wait),
		header: http.Header{"Retry-After": {strconv.Itoa(int(math.Ceil(wait.Seconds())))}},
	}
}

func tooMany(wait time.Duration) *api.Error {
	ms := max(1, wait.Milliseconds())
	return api.Errorf(api.CodeRuntimeUnavailable, "this token has too many requests, a second or at once").
		With("retry_after_ms", ms).WithHint("repeat the request after %d ms", ms)
}

// paced serves the requests of a connection that came in long ago, each of
// which needs room as if it came by itself.
type rateLimited struct {
	Handler
	limits *access.Limiter
	token  string
}

// Call makes room for the request and serves it.
func (p rateLimited) Call(ctx context.Context, method string, params rawParams) (any, error) {
	leave, wait := p.limits.Enter(p.token)
	if leave == nil {
		return nil, tooMany(wait)
	}
	defer leave()
	return p.Handler.Call(ctx, method, params)
}
