package release_test

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// `go install …/cmd/trl@VERSION` sets no version with the linker; the binary
// still knows it.
func TestGoInstall(t *testing.T) {
	openRelease(t)
	requirePrograms(t, "git")
	const module, version = "github.com/terminal-runtime/trl", "v0.9.1"
	proxy := t.TempDir()
	publish(t, filepath.Join(proxy, module, "@v"), module, version)

	kept := strings.TrimSpace(output(t, exec.Command("go", "env", "GOMODCACHE")))
	bin := t.TempDir()
	install := exec.Command("go", "install", module+"/cmd/trl@"+version)
	install.Dir = bin // outside of any module
	install.Env = append(os.Environ(), "GOBIN="+bin, "GOMODCACHE="+t.TempDir(), "GOSUMDB=off",
		// Everything else is in the module cache already. Its build cache is
		// reused: with -trimpath objects don't depend on paths.
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(kept, "cache", "download"), "GOFLAGS=-trimpath -modcacherw", "CGO_ENABLED=0")
	output(t, install)
	if got := output(t, exec.Command(filepath.Join(bin, "trl"), "version")); got != "trl "+version+"\n" {
		t.Errorf("the version is %q", got)
	}
}

// publish writes a version of this repository in the layout of a module proxy.
func publish(t *testing.T, dir, module, version string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".info": []byte(`{"Version":"` + version + `"}`), version + ".mod": goMod,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	archive := zip.NewWriter(file)
	for _, name := range sources(t) {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		entry, err := archive.Create(module + "@" + version + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := entry.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
}
