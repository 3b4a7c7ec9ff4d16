package release_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// fakeRelease creates a release with the install script of this tree, and a
// shell script as the binary. Nothing needs to be built.
func fakeRelease(t *testing.T, version, binary string) builtRelease {
	t.Helper()
	r := builtRelease{dir: t.TempDir(), version: version}
	var content bytes.Buffer
	packed := gzip.NewWriter(&content)
	archive := tar.NewWriter(packed)
	for name, text := range map[string]string{"trl": binary, "share/man/man1/trl.1": "a manual\n", deliverable[0]: "a program\n"} {
		if err := archive.WriteHeader(&tar.Header{Name: r.name(hostPlatform(), "/"+name), Mode: 0o755, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../install.sh")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content.Bytes())
	for name, text := range map[string][]byte{
		"install.sh":                        script,
		r.name(hostPlatform(), ".tar.gz"):   content.Bytes(),
		"checksums.txt":                     []byte(hex.EncodeToString(sum[:]) + "  " + r.name(hostPlatform(), ".tar.gz") + "\n"),
		r.name("plan9", ".tar.gz"):          nil,
		r.name(hostPlatform(), ".deb"):      nil,
		r.name(hostPlatform(), ".spdx.zip"): nil,
	} {
		if err := os.WriteFile(r.path(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

const goodBinary = "#!/bin/sh\necho trl v1.0.0\n"

// The requested version is a name, not a pattern.
func TestInstallScriptTakesVersionsByName(t *testing.T) {
	r := fakeRelease(t, "1.0.0", goodBinary)
	path := programs(t, "curl", "sha256sum")
	for version, want := range map[string]bool{
		"v1.0.0": true, "1.0.0": true, "": true,
		"v1.0": false, "1": false, "1.0.0_linux": false, "1a0.0": false, "1.0.0.*": false, `1.0.0.*\|.*`: false, `.*`: false, "1x0x0": false,
		"[0-9].0.0": false, "9.9.9\n": false, "../1.0.0": false, "-e": false,
	} {
		t.Run(version, func(t *testing.T) {
			home := home(t)
			said, err := install(t, r, []string{"dash"}, path, home, serve(t, r, nil).URL, "--version", version)
			if (err == nil) != want {
				t.Errorf("%v\n%s", err, said)
			}
			if files := listFiles(t, home); (len(files) > 0) != want {
				t.Errorf("%v was installed", files)
			}
		})
	}
}

// The programs for places are installed where the binary looks for them, if the
// archive has them, as those for macOS do.
func TestInstallScriptPlacesPrograms(t *testing.T) {
	r, home := fakeRelease(t, "1.0.0", goodBinary), home(t)
	if said, err := install(t, r, []string{"dash"}, programs(t, "curl", "sha256sum"), home, serve(t, r, nil).URL); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if info, err := os.Stat(filepath.Join(home, ".local", deliverable[0])); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
}

// A binary that does not identify itself as trl is not installed.
func TestInstallScriptAsksTheBinary(t *testing.T) {
	for name, binary := range map[string]string{
		"says nothing": "#!/bin/sh\n", "says a name": "#!/bin/sh\necho trl\n", "says another": "#!/bin/sh\necho GNU bash\n", "fails": "#!/bin/sh\necho trl v1; exit 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			r, home := fakeRelease(t, "1.0.0", binary), home(t)
			said, err := install(t, r, []string{"dash"}, programs(t, "curl", "sha256sum"), home, serve(t, r, nil).URL)
			if err == nil || !strings.HasSuffix(said, "trl: nothing was installed\n") {
				t.Errorf("%v\n%s", err, said)
			}
			if diff := cmp.Diff([]string{".local", ".local/bin"}, listFiles(t, home)); diff != "" {
				t.Errorf("it was installed (-want +got):\n%s", diff)
			}
		})
	}
}

// trustingDownloader creates a directory of programs in which a downloader
// trusts the certificate of a server.
func trustingDownloader(t *testing.T, downloader, flag string, s *httptest.Server) string {
	t.Helper()
	cert := filepath.Join(t.TempDir(), "cert.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(cert, text, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := programs(t, "sha256sum")
	program, err := exec.LookPath(downloader)
	trltest.Need(t, err)
	wrapper := "#!/bin/sh\n[ \"$1\" != --version ] || exec " + program + " --version\nexec " + program + " " + flag + " " + cert + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, downloader), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A download over https stays on https, wherever a redirect leads.
func TestInstallScriptStaysWithHTTPS(t *testing.T) {
	r := fakeRelease(t, "1.0.0", goodBinary)
	files := http.FileServer(http.Dir(r.dir))
	plain := serve(t, r, nil)
	var to atomic.Value // where the archive is redirected to; "" means nowhere
	to.Store("")
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		to := to.Load().(string)
		if to != "" && strings.HasSuffix(req.URL.Path, ".tar.gz") && !strings.HasPrefix(req.URL.Path, "/moved/") {
			http.Redirect(w, req, to+req.URL.Path, http.StatusFound)
			return
		}
		http.StripPrefix("/moved", files).ServeHTTP(w, strip(req))
	}))
	t.Cleanup(secure.Close)
	for downloader, flag := range map[string]string{"curl": "--cacert", "wget": "--ca-certificate"} {
		path := trustingDownloader(t, downloader, flag, secure)
		for name, c := range map[string]struct {
			to   string
			want bool
		}{
			"no redirect":          {"", true},
			"a redirect to https":  {secure.URL + "/moved", true},
			"a redirect out of it": {plain.URL, false},
		} {
			t.Run(downloader+", "+name, func(t *testing.T) {
				to.Store(c.to)
				before := plain.asked.Load()
				home := home(t)
				said, err := install(t, r, []string{"dash"}, path, home, secure.URL)
				if (err == nil) != c.want {
					t.Errorf("%v\n%s", err, said)
				}
				if placed := listFiles(t, home); (len(placed) > 0) != c.want || slices.Contains(placed, ".local/bin/trl") != c.want {
					t.Errorf("%v was installed", placed)
				}
				if plain.asked.Load() != before {
					t.Error("a request was made without encryption")
				}
			})
		}
	}
}

// strip lets a request that was not redirected pass StripPrefix.
func strip(req *http.Request) *http.Request {
	if !strings.HasPrefix(req.URL.Path, "/moved/") {
		req.URL.Path = "/moved" + req.URL.Path
	}
	return req
}
