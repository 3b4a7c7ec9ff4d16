package transport

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// authority signs certificates.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its own certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test's authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.file = filepath.Join(a.dir, "ca.pem")
	a.write(a.file, "CERTIFICATE", der)
	return a
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// issue makes a certificate for 127.0.0.1 and writes it and its key to files.
func (a *authority) issue(name string, serial int64) (certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	a.write(certFile, "CERTIFICATE", der)
	a.write(keyFile, "PRIVATE KEY", secret)
	return certFile, keyFile
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// serial connects and returns the serial number of the server's certificate.
func (rig *webRig) serial(pool *x509.CertPool) int64 {
	rig.t.Helper()
	nc, err := tls.Dial("tcp", rig.address, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	if err != nil {
		rig.t.Fatal(err)
	}
	defer nc.Close()
	return nc.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func TestCertificateIsReplacedInUse(t *testing.T) {
	ca := newAuthority(t)
	var log lockedBuffer
	certFile, keyFile := ca.issue("server", 10)
	cfg, err := TLSConfig(certFile, keyFile, "", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	rig := startHTTP(t, webOptions{http: HTTPConfig{TLS: cfg}})
	rig.client.Transport.(*http.Transport).TLSClientConfig.RootCAs = ca.pool()
	health := webRequest{method: "GET", path: "/healthz"}
	if response, _ := rig.do(health); response.StatusCode != 200 || response.Proto != "HTTP/1.1" {
		t.Errorf("%d %s", response.StatusCode, response.Proto)
	}
	// A connection that stays open throughout.
	old, err := tls.Dial("tcp", rig.address, &tls.Config{RootCAs: ca.pool(), MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()

	// With only one file replaced, the old pair stays in use, and the log says so.
	good, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keyFile, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		if got := rig.serial(ca.pool()); got != 10 {
			t.Fatalf("certificate %d", got)
		}
		return strings.Contains(log.String(), "cannot reload TLS certificate")
	})
	if strings.Contains(log.String(), "half") || strings.Contains(log.String(), string(good)) {
		t.Errorf("the log has the contents of the files: %s", log.String())
	}
	ca.issue("server", 11)
	eventually(t, func() bool { return rig.serial(ca.pool()) == 11 })
	if _, err := io.WriteString(old, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(old); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
		t.Errorf("the connection from before: %q, %v", answer, err)
	}
}

// eventually waits for a change that is polled once a second.
func eventually(t testing.TB, reached func() bool) {
	t.Helper()
	trltest.Eventually(t, "it came to it", reached)
}

func TestClientCertificates(t *testing.T) {
	ca, strangers := newAuthority(t), newAuthority(t)
	certFile, keyFile := ca.issue("server", 20)
	cfg, err := TLSConfig(certFile, keyFile, ca.file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	rig := startHTTP(t, webOptions{http: HTTPConfig{TLS: cfg}})
	for name, tc := range map[string]struct {
		by   *authority
		want bool
	}{"ours": {ca, true}, "a stranger's": {strangers, false}, "none": {nil, false}} {
		t.Run(name, func(t *testing.T) {
			client := &tls.Config{RootCAs: ca.pool(), MinVersion: tls.VersionTLS12}
			if tc.by != nil {
				pair, err := tls.LoadX509KeyPair(tc.by.issue("client", 21))
				if err != nil {
					t.Fatal(err)
				}
				client.Certificates = []tls.Certificate{pair}
			}
			roundTripper := &http.Transport{TLSClientConfig: client}
			defer roundTripper.CloseIdleConnections()
			response, err := (&http.Client{Transport: roundTripper, Timeout: 20 * time.Second}).Get(rig.url + "/healthz")
			if (err == nil) != tc.want {
				t.Errorf("%v", err)
			}
			if err == nil {
				response.Body.Close()
			}
		})
	}
}

func TestUnusableCertificates(t *testing.T) {
	ca := newAuthority(t)
	certFile, keyFile := ca.issue("server", 30)
	_, otherKey := ca.issue("other", 31)
	for name, files := range map[string][3]string{
		"no certificate": {"/no/such", keyFile, ""},
		"no key":         {certFile, "/no/such", ""},
		"another's key":  {certFile, otherKey, ""},
		"no authority":   {certFile, keyFile, "/no/such"},
		"no PEM":         {certFile, keyFile, keyFile},
	} {
		if _, err := TLSConfig(files[0], files[1], files[2], slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
