package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/session"
	"github.com/terminal-runtime/trl/internal/transport"
)

// web is the HTTP part of a daemon. Its zero value serves no HTTP.
type web struct {
	address  *net.TCPAddr // where to listen; nil: nowhere
	listener net.Listener
	tls      *tls.Config // nil: no TLS
	keys     *access.Keyring
	metrics  *metrics
	server   *transport.HTTPServer
}

// prepareWeb makes everything that HTTP needs except the listener, if HTTP is
// configured. It returns an error if HTTP would admit everyone or no one.
func prepareWeb(cfg Config, stdio bool, log *slog.Logger) (web, error) {
	if cfg.HTTP == "" {
		return web{}, nil
	}
	if stdio {
		log.Warn("ignored the setting http: stdio serves only the client that started it")
		return web{}, nil
	}
	address, err := net.ResolveTCPAddr("tcp", cfg.HTTP)
	if err != nil {
		return web{}, fmt.Errorf("http: %w", err)
	}
	if err := checkWeb(cfg, address.IP); err != nil {
		return web{}, err
	}
	w := web{address: address, metrics: newMetrics()}
	if w.keys, err = access.OpenKeyring(cfg.TokenFile, log); err != nil {
		return web{}, err
	}
	if w.keys.Usable() == 0 {
		return web{}, fmt.Errorf("http is set, but %s has no valid token: run `trl token create --scope run` first", cfg.TokenFile)
	}
	if cfg.HTTPCert != "" {
		if w.tls, err = transport.TLSConfig(cfg.HTTPCert, cfg.HTTPKey, cfg.HTTPClientCA, log); err != nil {
			return web{}, err
		}
	}
	return w, nil
}

// checkWeb checks the HTTP settings for an address.
func checkWeb(cfg Config, ip net.IP) error {
	switch {
	case (cfg.HTTPCert == "") != (cfg.HTTPKey == ""):
		return errors.New("http_tls_cert and http_tls_key go together: set both or neither")
	case cfg.HTTPClientCA != "" && cfg.HTTPCert == "":
		return errors.New("http_client_ca needs TLS: set http_tls_cert and http_tls_key too")
	case !ip.IsLoopback() && cfg.HTTPCert == "" && !cfg.InsecureHTTP:
		return fmt.Errorf("http: other machines can reach %s, and without TLS anyone on the network path can read the tokens: "+
			"listen on 127.0.0.1, set http_tls_cert and http_tls_key, or set insecure_http", cfg.HTTP)
	}
	for _, origin := range cfg.HTTPAllowedOrigins {
		if !strings.Contains(origin, "://") || strings.Contains(origin, "*") {
			return fmt.Errorf("http_allowed_origins: %q is not an origin; write it as https://ui.example.com", origin)
		}
	}
	return nil
}

// connectWeb makes the HTTP server for the method table, if there is a listener.
func (d *daemon) connectWeb() {
	if d.web.listener == nil {
		return
	}
	d.web.metrics.collectFrom(d)
	d.web.server = transport.NewHTTPServer(d.server, transport.HTTPConfig{
		Keys:         d.web.keys,
		Limits:       access.NewLimiter(access.Limits{Rate: int(d.cfg.HTTPRate), Concurrent: int(d.cfg.HTTPMaxConcurrent)}),
		Metrics:      d.web.metrics.handler(),
		MCP:          d.mcpHandler(),
		TLS:          d.web.tls,
		Hosts:        append(slices.Clone(d.cfg.HTTPAllowedHosts), d.cfg.HTTP),
		Origins:      d.cfg.HTTPAllowedOrigins,
		ShuttingDown: d.draining.Load,
	})
}

// url returns the address that HTTP is served on.
func (w *web) url() string {
	if w.tls != nil {
		return "https://" + w.listener.Addr().String()
	}
	return "http://" + w.listener.Addr().String()
}

// sessionObserver returns the metrics' observer; nil without HTTP, where nothing
// could read them.
func (w *web) sessionObserver() session.Observer {
	if w.metrics == nil {
		return nil
	}
	return w.metrics
}

func (w *web) requestObserver() func(method string, code api.Code, took time.Duration) {
	if w.metrics == nil {
		return nil
	}
	return w.metrics.countRequest
}

func (w *web) shutdown(ctx context.Context) error {
	if w.server == nil {
		return nil
	}
	return w.server.Shutdown(ctx)
}
