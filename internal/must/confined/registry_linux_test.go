//go:build linux && (amd64 || arm64)

package confined

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The names of the registries, which only the allow-list knows.
const (
	gitHost = "git.test"
	npmHost = "npm.test"
	pipHost = "pip.test"
	goHost  = "go.test" // speaks HTTP without TLS
)

// registries are servers of packages on the loopback interface of this machine.
type registries struct {
	secure, plain string // the ports
	authority     string // a file with the certificate
}

// allow returns the entries of an allow-list that lead to the registries.
func (r *registries) allow() []string {
	return []string{
		gitHost + "=127.0.0.1:" + r.secure, npmHost + "=127.0.0.1:" + r.secure, pipHost + "=127.0.0.1:" + r.secure,
		goHost + "=127.0.0.1:" + r.plain,
	}
}

// serveRegistries starts the servers. dir is for their files.
func serveRegistries(t *testing.T, dir string) *registries {
	t.Helper()
	certificate := makeCertificate(t, gitHost, npmHost, pipHost)
	r := &registries{authority: filepath.Join(dir, "authority.pem")}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	if err := os.WriteFile(r.authority, encoded, 0o644); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	secure := httptest.NewUnstartedServer(mux)
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	r.secure = port(t, secure)
	mux.Handle(gitHost+"/", serveGit(t, dir))
	mux.Handle(npmHost+"/", serveNPM(t, r.secure))
	mux.Handle(pipHost+"/", servePip(t))
	plain := httptest.NewServer(serveGo(t))
	t.Cleanup(plain.Close)
	r.plain = port(t, plain)
	return r
}

func port(t *testing.T, s *httptest.Server) string {
	t.Helper()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// makeCertificate returns a certificate for the names, which is its own authority.
func makeCertificate(t *testing.T, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	made, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{made}, PrivateKey: key}
}

// serveFiles serves contents by their paths.
func serveFiles(contents map[string][]byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, ok := contents[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if bytes.HasPrefix(content, []byte("<")) {
			w.Header().Set("Content-Type", "text/html")
		}
		_, _ = w.Write(content) // the client may be gone
	})
}

// serveGit makes a repository, and serves it with git's own server.
func serveGit(t *testing.T, dir string) http.Handler {
	t.Helper()
	script := `set -e
git init -q -b main work && cd work
printf 'all: hello\nhello: hello.c\n\tcc -o hello hello.c\n' >Makefile
printf '#include <stdio.h>\nint main(void) { puts("compiled"); return 0; }\n' >hello.c
git add . && git -c user.name=x -c user.email=x@example.org commit -qm first
git clone -q --bare . ../project.git`
	root := filepath.Join(dir, "git")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	where, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	return &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(where)), "git-http-backend"),
		// The repository may belong to another user than the server.
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
}

// serveNPM serves a package of npm.
func serveNPM(t *testing.T, port string) http.Handler {
	t.Helper()
	var archive bytes.Buffer
	compress := gzip.NewWriter(&archive)
	w := tar.NewWriter(compress)
	for name, text := range map[string]string{
		"package/package.json": `{"name":"greeting","version":"1.0.0","main":"index.js"}`,
		"package/index.js":     `module.exports = "from npm"`,
	} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compress.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(archive.Bytes())
	const tarball = "/greeting/-/greeting-1.0.0.tgz"
	about := fmt.Sprintf(`{"name":"greeting","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"greeting","version":"1.0.0","main":"index.js","dist":{"tarball":"https://%s:%s%s","integrity":"sha512-%s"}}}}`,
		npmHost, port, tarball, base64.StdEncoding.EncodeToString(sum[:]))
	return serveFiles(map[string][]byte{"/greeting": []byte(about), tarball: archive.Bytes()})
}

// zipped returns an archive of files.
func zipped(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for name, text := range files {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// servePip serves a package of Python.
func servePip(t *testing.T) http.Handler {
	t.Helper()
	const wheel = "greeting-1.0.0-py3-none-any.whl"
	content := zipped(t, map[string]string{
		"greeting.py":                       `text = "from pip"`,
		"greeting-1.0.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0.0\n",
		"greeting-1.0.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"greeting-1.0.0.dist-info/RECORD":   "greeting.py,,\ngreeting-1.0.0.dist-info/METADATA,,\ngreeting-1.0.0.dist-info/WHEEL,,\ngreeting-1.0.0.dist-info/RECORD,,\n",
	})
	index := fmt.Sprintf(`<!DOCTYPE html><html><body><a href="/files/%s#sha256=%x">%s</a></body></html>`, wheel, sha256.Sum256(content), wheel)
	return serveFiles(map[string][]byte{"/simple/greeting/": []byte(index), "/files/" + wheel: content})
}

// serveGo serves a module of Go.
func serveGo(t *testing.T) http.Handler {
	t.Helper()
	const module, mod = "example.test/greeting", "module example.test/greeting\n\ngo 1.21\n"
	prefix := module + "@v1.0.0/"
	content := zipped(t, map[string]string{prefix + "go.mod": mod, prefix + "greeting.go": "package greeting\n\nconst Text = \"from go\"\n"})
	return serveFiles(map[string][]byte{
		"/" + module + "/@v/list":        []byte("v1.0.0\n"),
		"/" + module + "/@v/v1.0.0.info": []byte(`{"Version":"v1.0.0"}`),
		"/" + module + "/@v/v1.0.0.mod":  []byte(mod),
		"/" + module + "/@v/v1.0.0.zip":  content,
	})
}
