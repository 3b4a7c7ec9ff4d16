package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/front"
	"github.com/terminal-runtime/trl/internal/transport"
)

// httpConfig returns the settings of HTTP.
func (c *Config) httpConfig() front.HTTPConfig {
	return front.HTTPConfig{
		Address: c.HTTP, Cert: c.HTTPCert, Key: c.HTTPKey, ClientCA: c.HTTPClientCA,
		AllowedHosts: c.HTTPAllowedHosts, AllowedOrigins: c.HTTPAllowedOrigins,
		Rate: c.HTTPRate, MaxConcurrent: c.HTTPMaxConcurrent,
		Insecure: c.InsecureHTTP, TokenFile: c.TokenFile,
	}
}

// listenUnix listens on the configured socket. It creates the directories of the
// default one; a path that the user typed may have a typing error.
func listenUnix(cfg Config, opts Options) (*transport.UnixListener, error) {
	if cfg.Socket == opts.Environment.user().Socket() {
		if err := os.MkdirAll(filepath.Dir(filepath.Dir(cfg.Socket)), 0o700); err != nil {
			return nil, err
		}
	}
	return transport.ListenUnix(cfg.Socket)
}

// servesHTTP reports whether HTTP is configured. On stdio it warns that the setting
// has no effect.
func servesHTTP(cfg *Config, stdio bool, log *slog.Logger) bool {
	if cfg.HTTP != "" && stdio {
		log.Warn("ignored the setting http: stdio serves only the client that started it")
		return false
	}
	return cfg.HTTP != ""
}

// requestObserver returns what counts the requests; nil without HTTP, where nothing
// could read the counts.
func requestObserver(h *front.HTTP) func(method string, code api.Code, took time.Duration) {
	if h == nil {
		return nil
	}
	return h.Metrics().CountRequest
}
