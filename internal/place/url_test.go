package place

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// webTo returns the transport to a TRL with a token, which the test's end closes.
func webTo(t *testing.T, address, token string) *web {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &Registry{cfg: Config{Configured: map[string]Configured{
		"other": {URL: address + "0", TokenFile: "/nosuch"}, "far": {URL: address + "/", TokenFile: file},
	}}}
	w := openURL(r, target{address: address}).(*web)
	t.Cleanup(w.close)
	return w
}

func TestURL(t *testing.T) {
	d, err := trltest.Start(trltest.Config{HTTP: true, Args: []string{"--node", "far"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(d.Dir)
	})
	address := "http://" + d.HTTP

	t.Run("http", func(t *testing.T) {
		w := webTo(t, address, d.Token)
		if _, hello := mustConnect(t, w); hello.Node != "far" || hello.Protocol == 0 || hello.Boot == "" || hello.OS == "" {
			t.Errorf("hello %+v", hello)
		}
		if err := w.remove(t.Context()); err != nil {
			t.Error(err)
		}
		mustConnect(t, w) // it is not removed: it is another person's
	})
	t.Run("tls", func(t *testing.T) {
		proxy := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: d.HTTP}))
		defer proxy.Close()
		w := webTo(t, proxy.URL, d.Token)
		wantRefusal(t, w, unreachable, "certificate")
		w.client.Transport = proxy.Client().Transport
		mustConnect(t, w)
	})
	t.Run("token", func(t *testing.T) {
		wantRefusal(t, webTo(t, address, "wrong"), noAccess, "refuses the token")
		w := webTo(t, address, d.Token)
		if err := os.Chmod(w.tokenFile, 0o640); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, w, noAccess, "others may read")
		w.tokenFile += ".missing"
		wantRefusal(t, w, noAccess, "no such file")
		w.tokenFile = ""
		wantRefusal(t, w, noAccess, "wants a token")
	})
	t.Run("no daemon", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		wantRefusal(t, webTo(t, "http://"+l.Addr().String(), "t"), unreachable, "connection refused")
		other := httptest.NewServer(http.NotFoundHandler())
		defer other.Close()
		wantRefusal(t, webTo(t, other.URL, "t"), refused, "404")
	})
}

func TestCheckURL(t *testing.T) {
	for address, want := range map[string]bool{
		"https://build:7337": true, "https://build": true, "https://build/": true, "http://127.0.0.1:7337": true, "http://[::1]:1": true, "http://localhost:1": true,
		"http://build:7337": false, "http://10.0.0.1": false, "build": false, "https://": false, "https://a/b": false,
		"https://u:p@a": false, "https://a?x": false, "https://a#x": false, "ftp://a": false, "http://127.0.0.1.example.org": false,
	} {
		if wrong := checkURL(address); (wrong == "") != want {
			t.Errorf("%q: %q", address, wrong)
		}
	}
}
