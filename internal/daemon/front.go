package daemon

import (
	"log/slog"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/front"
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
