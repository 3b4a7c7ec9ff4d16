package place

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/trust"
)

// web reaches the TRL of another person over HTTP: trl:https://HOST:PORT. It acts
// there with a token of that TRL.
type web struct {
	address   string
	tokenFile string // "": no token
	client    *http.Client
}

// openURL returns the transport of trl:URL, with the token of the table [place.NAME]
// that has the URL.
func openURL(r *Registry, t target) transport {
	w := &web{address: strings.TrimSuffix(t.address, "/")}
	for _, c := range r.cfg.Configured {
		if c.URL != "" && strings.TrimSuffix(c.URL, "/") == w.address {
			w.tokenFile = c.TokenFile
		}
	}
	own := http.DefaultTransport.(*http.Transport).Clone()
	own.Protocols = new(http.Protocols)
	own.Protocols.SetHTTP1(true) // a WebSocket needs it
	w.client = &http.Client{Transport: own, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // never send the token to a redirect target
	}}
	return w
}

// webTimeout is how long the far daemon may take to accept a connection and to say
// what it is.
const webTimeout = 20 * time.Second

func (w *web) connect(ctx context.Context) (peer.Wire, *api.Hello, error) {
	token, err := readToken(w.tokenFile)
	if err != nil {
		return nil, nil, err
	}
	limited, cancel := context.WithTimeout(ctx, webTimeout)
	defer cancel()
	wire, err := peer.DialWebSocket(limited, "ws"+strings.TrimPrefix(w.address, "http"), peer.WebOptions{Client: w.client, Token: token, Refusal: w.refusal, Heartbeats: true})
	if err == nil {
		var hello *api.Hello
		if hello, err = greet(limited, wire); err == nil {
			return wire, hello, nil
		}
		_ = wire.Close() // err says more
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if _, ok := errors.AsType[*refusal](err); ok {
		return nil, nil, err
	}
	r := &refusal{reason: unreachable, message: fmt.Sprintf("no TRL answers at %s: %v", w.address, err), hint: "check the URL and the network, and whether `trl serve --http` runs there"}
	if limited.Err() != nil {
		r.reason, r.message = silent, fmt.Sprintf("the TRL at %s did not answer within %s", w.address, webTimeout)
	}
	return nil, nil, r
}

// refusal explains an HTTP status.
func (w *web) refusal(res *http.Response) error {
	_ = res.Body.Close() // the status says enough
	switch {
	case res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusForbidden:
		return &refusal{reason: refused, message: fmt.Sprintf("%s answers with HTTP status %d: it may not be a TRL", w.address, res.StatusCode), hint: "check the URL"}
	case w.tokenFile == "":
		return &refusal{reason: noAccess, message: w.address + " wants a token", hint: "add a table [place.NAME] with url and token_file to the configuration of this daemon; `trl token create` there makes a token"}
	default:
		return &refusal{reason: noAccess, message: w.address + " refuses the token", hint: "make a new one there with `trl token create`, and write it to the token_file of the place"}
	}
}

// checkURL returns what is wrong with the URL of a daemon; "" if nothing is. Without
// TLS others could read the token, except on this machine.
func checkURL(address string) string {
	u, err := url.Parse(strings.TrimSuffix(address, "/"))
	if err != nil || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return "has no valid URL: use trl:https://HOST:PORT"
	}
	ip := net.ParseIP(u.Hostname())
	switch {
	case u.Scheme == "https", u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()):
		return ""
	case u.Scheme == "http":
		return "reaches another machine without TLS: use trl:https://HOST:PORT"
	default:
		return "has no valid URL: use trl:https://HOST:PORT"
	}
}

// maxToken is longer than any token.
const maxToken = 4 << 10

// readToken reads a file that only this user can read.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", &refusal{reason: noAccess, message: fmt.Sprintf("the token file of the place: %v", err), hint: "write the token to the file, and run chmod 600 on it"}
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = trust.File(f, os.Geteuid())
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("others may read %s", path)
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(f, maxToken))
	}
	if err != nil {
		return "", &refusal{reason: noAccess, message: fmt.Sprintf("the token file of the place: %v", err), hint: "run `chmod 600` on the file"}
	}
	return string(bytes.TrimSpace(text)), nil
}

// greet asks a daemon what it is: over HTTP there is no relay that says hello.
func greet(ctx context.Context, wire peer.Wire) (*api.Hello, error) {
	stop := context.AfterFunc(ctx, func() { _ = wire.Close() })
	defer stop()
	question, err := peer.Encode(1, peer.Request{Method: api.MethodSystemInfo})
	if err == nil {
		err = wire.Send(question)
	}
	var answer []byte
	for err == nil && len(bytes.TrimSpace(answer)) == 0 {
		answer, err = wire.Receive()
	}
	if err != nil {
		return nil, err
	}
	var info api.SystemInfo
	if err := peer.Decode(api.MethodSystemInfo, answer, &info); err != nil {
		if refusedBy, ok := errors.AsType[*api.Error](err); ok {
			return nil, &refusal{reason: noAccess, message: "the TRL there does not say what it is: " + refusedBy.Message, hint: "use a token of scope read or more"}
		}
		return nil, err
	}
	return api.HelloFrom(&info), nil
}

// remove does nothing: the TRL belongs to another person. Its sessions go on.
func (w *web) remove(context.Context) error { return nil }

func (w *web) close() { w.client.CloseIdleConnections() }
