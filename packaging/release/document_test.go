package release_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestInstallDocument runs the commands of docs/install.md in their order, from
// an empty home directory to one where nothing is left.
func TestInstallDocument(t *testing.T) {
	r := openRelease(t)
	requirePrograms(t, "curl", "sha256sum")
	text, err := os.ReadFile(filepath.Join(root, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	marked := regexp.MustCompile("(?s)<!-- run by: packaging/release/document_test.go -->\n```sh\n(.*?)```")
	const latest = "https://github.com/terminal-runtime/trl/releases/latest/download"
	// In the document the platform is another, and the latest release is this
	// one.
	elsewhere := strings.NewReplacer(
		latest, serve(t, r, nil).URL, "linux_amd64", hostPlatform(),
		// Problems of this machine are not the document's.
		"trl doctor\n", "trl doctor || test $? = 1\n",
	)
	// A script that fails must not leave its daemon.
	script := "set -eu\ntrap 'trl stop >/dev/null 2>&1 || :' EXIT\n"
	for _, block := range marked.FindAllStringSubmatch(string(text), -1) {
		script += "\n" + elsewhere.Replace(block[1])
	}
	script += "\ntest ! -e ~/.local/bin/trl\n"

	// The path must be short: it will contain a socket.
	home, err := os.MkdirTemp("", "home-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{
		"HOME=" + home, "XDG_RUNTIME_DIR=" + filepath.Join(home, "run"), "PATH=" + os.Getenv("PATH"), "TRL_BASE_URL=" + elsewhere.Replace(latest),
	}
	said := output(t, cmd)
	for _, want := range []string{
		"trl v" + r.version + " is in " + home, "\nhello\n", r.name(hostPlatform(), ".tar.gz") + ": OK\n", "replacing trl v" + r.version, "has taken over", "stopped",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the output does not contain %q", want)
		}
	}
	for name, what := range tree(t, home) {
		if !strings.HasPrefix(what, "d") {
			t.Errorf("%s is left in the home directory", name)
		}
	}
	if t.Failed() {
		t.Log(said)
	}
}
