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

// certPoll is how often the files of a certificate are looked at, at the most:
// one is renewed every few weeks, and a handshake costs more than the look.
const certPoll = time.Second

// certificates keeps a certificate that is replaced on disk while it is in
// use. Connections that there are go on with the old one.
type certificates struct {
	certFile, keyFile string
	log               *slog.Logger

	mu        sync.Mutex // guards what follows
	checkedAt time.Time
	seen      [2]fs.FileInfo
	lastError string // the last complaint, said once
	pair      *tls.Certificate
}

// TLSConfig makes the configuration of a server whose certificate is read again
// when its files change. With a clientCA, clients need a certificate that is
// signed by one of those in it.
func TLSConfig(certFile, keyFile, clientCA string, log *slog.Logger) (*tls.Config, error) {
	c := &certificates{certFile: certFile, keyFile: keyFile, log: log, checkedAt: time.Now()}
	if err := c.load(); err != nil {
		return nil, err
	}
	cfg := &tls.Config{
		MinVersion:     tls.VersionTLS12, // what is older is broken
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
		return nil, fmt.Errorf("http_client_ca: there is no certificate in %s", clientCA)
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	return cfg, nil
}

// load reads the pair. Under c.mu, or before c is shared.
func (c *certificates) load() error {
	seen, err := c.stat()
	if err != nil {
		return fmt.Errorf("TLS certificate: %w", err)
	}
	c.seen = seen // before it is read: a change in between is seen again
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

// current is the certificate for a new connection. A pair that can't be read,
// as one of which only half is replaced yet, changes nothing.
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
		c.log.Info("the TLS certificate was read again")
	case err.Error() != c.lastError:
		c.lastError = err.Error()
		c.log.Error("the TLS certificate can't be read again: the one that was read before stays in use", "error", err)
	}
	return c.pair
}

func unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
