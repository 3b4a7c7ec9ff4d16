package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certPoll is the minimum time between two checks of the certificate files. A
// certificate is renewed every few weeks, and a handshake costs more than the
// check.
const certPoll = time.Second

// certificates holds a certificate that may be replaced on disk while it is in
// use. Existing connections keep the old one.
type certificates struct {
	certFile, keyFile string
	log               *slog.Logger

	mu        sync.Mutex // guards the fields below
	checkedAt time.Time
	seen      [2]fs.FileInfo
	lastError string // last logged error, to log it once
	pair      *tls.Certificate
}

// TLSConfig returns the configuration of a server that reloads its certificate
// when the files change. If clientCA is set, clients need a certificate signed
// by one of the authorities in it.
func TLSConfig(certFile, keyFile, clientCA string, log *slog.Logger) (*tls.Config, error) {
	c := &certificates{certFile: certFile, keyFile: keyFile, log: log, checkedAt: time.Now()}
	if err := c.load(); err != nil {
		return nil, err
	}
	cfg := &tls.Config{
		MinVersion:     tls.VersionTLS12, // older versions are broken
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(), nil },
	}
	if clientCA == "" {
		return cfg, nil
	}
	text, err := os.ReadFile(clientCA)
	if err != nil {
		return nil, fmt.Errorf("http_client_ca: %w", err)
	}
	cfg.ClientCAs = x509.NewCertPool()
	if !cfg.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("http_client_ca: no certificate in %s", clientCA)
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	return cfg, nil
}

// load reads the certificate and the key. The caller must hold c.mu, unless c
// is not shared yet.
func (c *certificates) load() error {
	seen, err := c.stat()
	if err != nil {
		return fmt.Errorf("TLS certificate: %w", err)
	}
	c.seen = seen // before reading, so that a change in between is noticed later
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("TLS certificate: %w", err)
	}
	c.pair = &pair
	return nil
}

func (c *certificates) stat() (seen [2]fs.FileInfo, err error) {
	var first, second error
	seen[0], first = os.Stat(c.certFile)
	seen[1], second = os.Stat(c.keyFile)
	return seen, errors.Join(first, second)
}

// current returns the certificate for a new connection. If the files cannot be
// loaded, for example because only one has been replaced yet, it keeps the old
// one.
func (c *certificates) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.checkedAt) < certPoll {
		return c.pair
	}
	c.checkedAt = now
	seen, err := c.stat()
	if err == nil {
		if unchanged(seen[0], c.seen[0]) && unchanged(seen[1], c.seen[1]) {
			return c.pair
		}
		err = c.load()
	}
	switch {
	case err == nil:
		c.lastError = ""
		c.log.Info("reloaded TLS certificate")
	case err.Error() != c.lastError:
		c.lastError = err.Error()
		c.log.Error("cannot reload TLS certificate, keeping the old one", "error", err)
	}
	return c.pair
}

func unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
