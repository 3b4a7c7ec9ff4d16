package place

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// otherArch is an architecture that is not this machine's.
func otherArch() string {
	if runtime.GOARCH == "arm64" {
		return "amd64"
	}
	return "arm64"
}

// TestProgramsInstalled finds the programs for other machines in every layout in
// which this program is installed.
func TestProgramsInstalled(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte("a program")); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	name := "trl-linux-" + otherArch() + ".gz"
	for layout, c := range map[string]struct {
		executable, link, libexec string
		found                     bool
	}{
		"a prefix":                    {"bin/trl", "", "libexec/trl", true},
		"an unpacked archive":         {"trl_1.2.3_darwin_arm64/trl", "", "trl_1.2.3_darwin_arm64/libexec/trl", true},
		"Homebrew":                    {"Cellar/trl/1.2.3/bin/trl", "bin/trl", "Cellar/trl/1.2.3/libexec/trl", true},
		"a link to an archive":        {"opt/trl_1.2.3/trl", "bin/trl", "opt/trl_1.2.3/libexec/trl", true},
		"beside a link":               {"opt/trl_1.2.3/trl", "bin/trl", "libexec/trl", false},
		"beside a directory, not bin": {"trl_1.2.3/trl", "", "libexec/trl", false},
	} {
		t.Run(layout, func(t *testing.T) {
			root := t.TempDir()
			file := func(name string, content []byte) string {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if content != nil {
					if err := os.WriteFile(path, content, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				return path
			}
			executable := file(c.executable, []byte("this program"))
			file(filepath.Join(c.libexec, name), packed.Bytes())
			if c.link != "" {
				link := file(c.link, nil)
				if err := os.Symlink(executable, link); err != nil {
					t.Fatal(err)
				}
				executable = link
			}
			p, why := programsOf(executable).of(otherArch())
			if c.found && (why != nil || p.size != int64(len("a program"))) {
				t.Errorf("%+v, %v", p, why)
			}
			if !c.found && (why == nil || why.reason != noArch) {
				t.Errorf("%+v, %v", p, why)
			}
		})
	}
}
