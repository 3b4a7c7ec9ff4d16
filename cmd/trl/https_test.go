package main_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/terminal-runtime/trl/api"
)

// selfSigned creates a self-signed CA certificate for 127.0.0.1, and writes it
// and its key to files.
func selfSigned(t *testing.T) (certFile, keyFile string, pair tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	certText := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyText := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	if err := errors.Join(os.WriteFile(certFile, certText, 0o600), os.WriteFile(keyFile, keyText, 0o600)); err != nil {
		t.Fatal(err)
	}
	if pair, err = tls.X509KeyPair(certText, keyText); err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile, pair
}

// TestTLSAndClientCertificates serves TLS on an address that other machines can
// reach, and checks that a token alone is not enough if client certificates are
// required.
func TestTLSAndClientCertificates(t *testing.T) {
	certFile, keyFile, pair := selfSigned(t)
	s := startHTTPDaemon(t, "--http", "0.0.0.0:0", "--http-tls-cert", certFile, "--http-tls-key", keyFile, "--http-client-ca", certFile)
	port := s.port()
	s.url = "https://127.0.0.1:" + port
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	with := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}
	without := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer with.CloseIdleConnections()
	s.client = &http.Client{Transport: with}
	secret := s.token(s.daemon.Dir, "--scope", "run")
	if response, err := (&http.Client{Transport: without}).Get(s.url + "/healthz"); err == nil {
		response.Body.Close()
		t.Error("a client without a certificate is accepted")
	}
	if status, _ := s.call("trl_wrong", api.MethodSystemPing, nil, nil); status != 401 {
		t.Errorf("a certificate without a token: %d", status)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ws, response, err := websocket.Dial(ctx, s.url+"/ws", &websocket.DialOptions{
		HTTPClient: s.client, HTTPHeader: http.Header{"Authorization": {"Bearer " + secret}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if response.Body != nil {
		defer response.Body.Close()
	}
	if err := ws.Write(ctx, websocket.MessageText, []byte(`{"jsonrpc":"2.0","id":1,"method":"system.ping"}`)); err != nil {
		t.Fatal(err)
	}
	if _, answer, err := ws.Read(ctx); err != nil || !strings.Contains(string(answer), `"protocol":1`) {
		t.Errorf("%s, %v", answer, err)
	}
	// An open WebSocket does not keep the daemon from stopping.
	ended := make(chan error, 1)
	go func() {
		_, _, err := ws.Read(ctx)
		ended <- err
	}()
	if err := s.daemon.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-ended; websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the end: %v", err)
	}
}

// TestPlainHTTPToOthersMustBeMeant serves plain HTTP on a public address
// because --insecure-http is set, and accepts only the allowed host names.
func TestPlainHTTPToOthersMustBeMeant(t *testing.T) {
	s := startHTTPDaemon(t, "--http", "0.0.0.0:0", "--insecure-http", "--http-allowed-hosts", "build.example,other.example")
	port := s.port()
	for host, want := range map[string]int{
		"build.example": 200, "other.example:80": 200, "localhost": 200, "third.example": 421, "192.0.2.7": 421,
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1:"+port+"/healthz", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, response.StatusCode, want)
		}
	}
	if err := s.daemon.Stop(); err != nil {
		t.Error(err)
	}
}
