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

// Keys looks up tokens. *access.Keyring implements it.
type Keys interface {
	Find(secret string) (access.Token, bool)
	Valid(id string) bool
}

// guard checks HTTP requests before they are routed. A web page that the user
// has open can reach a local port as easily as the user can, so guard checks
// more than tokens, in this order:
//
//  1. Host. A name that is not this server's was made to point here (DNS rebinding):
//     the browser would then treat the attacker's page as ours, and none of its own
//     rules would protect anything.
//  2. Origin. Only browsers send it; it must be on the list. This applies to GET too,
//     since WebSockets and event streams are GETs that no browser rule keeps other
//     sites from opening.
//  3. The token, in the Authorization header only: addresses end up in histories and
//     logs, and cookies would be sent by any page.
//  4. Limits: the rate and the number of concurrent requests of that token.
//
// The method table checks the scope last.
type guard struct {
	hosts   []string
	origins []string
	keys    Keys
	limits  *access.Limiter
}

// hostOf returns the name in a Host header or an address in lower case, without
// port, brackets and trailing dot.
func hostOf(address string) string {
	host := address
	if h, _, err := net.SplitHostPort(address); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// knowsHost reports whether a Host header names this server: by a loopback name
// or address, which cannot be made to point elsewhere, or by a configured name.
func (g *guard) knowsHost(header string) bool {
	host := hostOf(header)
	if host == "localhost" || slices.Contains(g.hosts, host) {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// allowsOrigin reports whether a page of that origin may call. "null" is
// refused: any page can have it.
func (g *guard) allowsOrigin(origin string) bool {
	return origin != "null" && slices.Contains(g.origins, strings.ToLower(origin))
}

// refusal is the response to a request that does not reach a method.
type refusal struct {
	status int
	err    *api.Error
	header http.Header
}

// checkHostAndOrigin performs steps 1 and 2.
func (g *guard) checkHostAndOrigin(r *http.Request) *refusal {
	if !g.knowsHost(r.Host) {
		return &refusal{status: http.StatusMisdirectedRequest, err: api.Errorf(api.CodeForbidden, "unknown host name in the Host header").
			WithHint("use the address that the daemon listens on, or add the name to http_allowed_hosts")}
	}
	for _, origin := range r.Header.Values("Origin") {
		if !g.allowsOrigin(origin) {
			return &refusal{status: http.StatusForbidden, err: api.Errorf(api.CodeForbidden, "pages of this origin are not allowed").
				WithHint("call without an Origin header, or add the origin to http_allowed_origins")}
		}
	}
	return nil
}

// authenticate finds the token of a request: step 3.
func (g *guard) authenticate(r *http.Request) (access.Token, *refusal) {
	// Exactly one header: given two, a proxy and the server might each use another.
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
		err: api.Errorf(api.CodeUnauthorized, "missing or invalid token").
			WithHint("send the header Authorization: Bearer TOKEN; create a token with `trl token create`"),
		header: http.Header{"Www-Authenticate": {`Bearer realm="trl"`}},
	}
}

// enter reserves a slot for one request of a token: step 4.
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
	return api.Errorf(api.CodeRuntimeUnavailable, "too many requests with this token, per second or concurrently").
		With("retry_after_ms", ms).WithHint("repeat the request after %d ms", ms)
}

// rateLimited applies the token's limits to each request of a long-lived
// connection, as if it came on its own.
type rateLimited struct {
	Handler
	limits *access.Limiter
	token  string
}

// Call serves the request if the token's limits allow it.
func (p rateLimited) Call(ctx context.Context, method string, params rawParams) (any, error) {
	leave, wait := p.limits.Enter(p.token)
	if leave == nil {
		return nil, tooMany(wait)
	}
	defer leave()
	return p.Handler.Call(ctx, method, params)
}
