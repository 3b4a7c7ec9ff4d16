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

// web is the part of a daemon that is there when HTTP is asked for. Its zero
// value is none.
type web struct {
	address  *net.TCPAddr // where to listen; nil: not at all
	listener net.Listener
	tls      *tls.Config // nil: plain
	keys     *access.Keyring
	metrics  *metrics
	server   *transport.HTTPServer
}

// prepareWeb makes what HTTP needs but for the listener, if it is asked for. It
// refuses to where HTTP would let in anyone, or nobody.
func prepareWeb(cfg Config, stdio bool, log *slog.Logger) (web, error) {
	if cfg.HTTP == "" {
		return web{}, nil
	}
	if stdio {
		log.Warn("http has no effect on stdio: its one client is the one that started it")
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
		return web{}, fmt.Errorf("http is set, and %s has no token that is good: run `trl token create --scope run` first", cfg.TokenFile)
	}
	if cfg.HTTPCert != "" {
		if w.tls, err = transport.TLSConfig(cfg.HTTPCert, cfg.HTTPKey, cfg.HTTPClientCA, log); err != nil {
			return web{}, err
		}
	}
	return w, nil
}

// checkWeb says what is wrong with the settings of HTTP for an address.
func checkWeb(cfg Config, ip net.IP) error {
	switch {
	case (cfg.HTTPCert == "") != (cfg.HTTPKey == ""):
		return errors.New("http_tls_cert and http_tls_key go together: set both, or none")
	case cfg.HTTPClientCA != "" && cfg.HTTPCert == "":
		return errors.New("http_client_ca needs TLS: set http_tls_cert and http_tls_key too")
	case !ip.IsLoopback() && cfg.HTTPCert == "" && !cfg.InsecureHTTP:
		return fmt.Errorf("http: %s can be reached from other machines, and without TLS anyone on the way can read the tokens: "+
			"listen on 127.0.0.1, set http_tls_cert and http_tls_key, or set insecure_http", cfg.HTTP)
	}
	for _, origin := range cfg.HTTPAllowedOrigins {
		if !strings.Contains(origin, "://") || strings.Contains(origin, "*") {
			return fmt.Errorf("http_allowed_origins: %q is no origin; write it as https://ui.example.com", origin)
		}
	}
	return nil
}

// connectWeb puts HTTP before the method table.
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

// url is where HTTP is served.
func (w *web) url() string {
	if w.tls != nil {
		return "https://" + w.listener.Addr().String()
	}
	return "http://" + w.listener.Addr().String()
}

// observer counts for the metrics, if anyone can read them.
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
