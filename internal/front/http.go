package front

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/transport"
)

// HTTPConfig are the settings of HTTP. Errors name them as the daemon's settings are
// named.
type HTTPConfig struct {
	Address             string // host:port; required
	Cert, Key, ClientCA string // files; "": none
	AllowedHosts        []string
	AllowedOrigins      []string
	Rate, MaxConcurrent int64 // of each token
	Insecure            bool  // allow other machines to connect without TLS
	TokenFile           string
}

// HTTP is what serving HTTP needs besides a handler.
type HTTP struct {
	cfg      HTTPConfig
	address  *net.TCPAddr // where to listen
	listener net.Listener // nil: HTTP is not served
	tls      *tls.Config  // nil: no TLS
	keys     *access.Keyring
	metrics  *Metrics
}

// PrepareHTTP makes everything that HTTP needs except the listener. It returns an
// error if HTTP would admit everyone or no one.
func PrepareHTTP(cfg HTTPConfig, log *slog.Logger) (*HTTP, error) {
	address, err := net.ResolveTCPAddr("tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("http: %w", err)
	}
	if err := cfg.check(address.IP); err != nil {
		return nil, err
	}
	h := &HTTP{cfg: cfg, address: address, metrics: newMetrics()}
	if h.keys, err = access.OpenKeyring(cfg.TokenFile, log); err != nil {
		return nil, err
	}
	if h.keys.Usable() == 0 {
		return nil, fmt.Errorf("http is set, but %s has no valid token: run `trl token create --scope run` first", cfg.TokenFile)
	}
	if cfg.Cert != "" {
		if h.tls, err = transport.TLSConfig(cfg.Cert, cfg.Key, cfg.ClientCA, log); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// check checks the settings for an address.
func (c *HTTPConfig) check(ip net.IP) error {
	switch {
	case (c.Cert == "") != (c.Key == ""):
		return errors.New("http_tls_cert and http_tls_key go together: set both or neither")
	case c.ClientCA != "" && c.Cert == "":
		return errors.New("http_client_ca needs TLS: set http_tls_cert and http_tls_key too")
	case !ip.IsLoopback() && c.Cert == "" && !c.Insecure:
		return fmt.Errorf("http: other machines can reach %s, and without TLS anyone on the network path can read the tokens: "+
			"listen on 127.0.0.1, set http_tls_cert and http_tls_key, or set insecure_http", c.Address)
	}
	for _, origin := range c.AllowedOrigins {
		if !strings.Contains(origin, "://") || strings.Contains(origin, "*") {
			return fmt.Errorf("http_allowed_origins: %q is not an origin; write it as https://ui.example.com", origin)
		}
	}
	return nil
}

// Listen opens a listener on the configured address.
func (h *HTTP) Listen() (*net.TCPListener, error) { return net.ListenTCP("tcp", h.address) }

// Use sets the listener to serve. It returns the address by which clients reach it:
// that of the settings, unless the system chose the port.
func (h *HTTP) Use(l net.Listener) (address string) {
	h.listener = l
	if h.address.Port == 0 {
		h.cfg.Address = l.Addr().String()
	}
	return h.cfg.Address
}

// Metrics returns the metrics that HTTP serves. Whoever serves the requests counts
// in them.
func (h *HTTP) Metrics() *Metrics { return h.metrics }

// newHTTPServer makes the HTTP server.
func (f *Front) newHTTPServer() *transport.HTTPServer {
	h := f.cfg.HTTP
	if f.cfg.State != nil {
		h.metrics.collectFrom(f.cfg.State)
	}
	return transport.NewHTTPServer(f.server, transport.HTTPConfig{
		Keys:         h.keys,
		Limits:       access.NewLimiter(access.Limits{Rate: int(h.cfg.Rate), Concurrent: int(h.cfg.MaxConcurrent)}),
		Metrics:      h.metrics.handler(),
		MCP:          f.mcpHandler(),
		TLS:          h.tls,
		Hosts:        append(slices.Clone(h.cfg.AllowedHosts), h.cfg.Address),
		Origins:      h.cfg.AllowedOrigins,
		ShuttingDown: f.draining.Load,
	})
}

// url returns the address that HTTP is served on.
func (h *HTTP) url() string {
	if h.tls != nil {
		return "https://" + h.listener.Addr().String()
	}
	return "http://" + h.listener.Addr().String()
}
