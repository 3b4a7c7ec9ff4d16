package release_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// server serves a release. Entries of changed, by name, replace files; nil
// means not found.
type server struct {
	*httptest.Server
	asked atomic.Int64
}

func serve(t *testing.T, r builtRelease, changed map[string][]byte) *server {
	t.Helper()
	s := &server{}
	files := http.FileServer(http.Dir(r.dir))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.asked.Add(1)
		content, other := changed[path.Base(req.URL.Path)]
		switch {
		case !other:
			files.ServeHTTP(w, req)
		case content == nil:
			http.NotFound(w, req)
		default:
			_, _ = w.Write(content)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// basePrograms are the programs that the script uses on every machine.
var basePrograms = []string{"cat", "chmod", "cp", "cut", "dirname", "find", "grep", "gzip", "mkdir", "mktemp", "mv", "rm", "tar", "uname"}

// programs creates a directory for PATH with only basePrograms and the given
// ones.
func programs(t *testing.T, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range append(more, basePrograms...) {
		file, err := exec.LookPath(name)
		trltest.Need(t, err)
		if err := os.Symlink(file, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// home returns an empty home directory.
func home(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// install pipes the release's script into a shell.
func install(t *testing.T, r builtRelease, shell []string, path, home, base string, args ...string) (string, error) {
	t.Helper()
	script, err := os.ReadFile(r.path("install.sh"))
	if err != nil {
		t.Fatal(err)
	}
	return pipe(t, script, shell, path, home, base, args...)
}

func pipe(t *testing.T, script []byte, shell []string, path, home, base string, args ...string) (string, error) {
	t.Helper()
	file, err := exec.LookPath(shell[0])
	trltest.Need(t, err)
	cmd := exec.Command(file, append(append(slices.Clone(shell[1:]), "-s", "--"), args...)...)
	cmd.Env = []string{"PATH=" + path, "HOME=" + home, "TMPDIR=" + t.TempDir(), "TRL_BASE_URL=" + base}
	cmd.Stdin = bytes.NewReader(script)
	output, err := cmd.CombinedOutput()
	if left, _ := os.ReadDir(strings.TrimPrefix(cmd.Env[2], "TMPDIR=")); len(left) > 0 {
		t.Errorf("%v is left in the temporary directory", left)
	}
	return string(output), err
}

// listFiles lists the files below a directory.
func listFiles(t *testing.T, dir string) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(tree(t, dir)))
}

func TestInstallScript(t *testing.T) {
	r := openRelease(t)
	s := serve(t, r, nil)
	dash, ash := []string{"dash"}, []string{"busybox", "sh"}
	for name, c := range map[string]struct {
		shell    []string
		programs []string
	}{
		"curl and sha256sum": {dash, []string{"curl", "sha256sum"}},
		"wget and shasum":    {dash, []string{"wget", "shasum"}},
		"wget and openssl":   {dash, []string{"wget", "openssl"}},
		"in bash":            {[]string{"bash"}, []string{"curl", "openssl"}},
		"in ash":             {ash, []string{"curl", "sha256sum"}},
		"in zsh":             {[]string{"zsh", "--emulate", "sh"}, []string{"curl", "sha256sum"}},
	} {
		t.Run(name, func(t *testing.T) {
			home := home(t)
			said, err := install(t, r, c.shell, programs(t, c.programs...), home, s.URL)
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			if !strings.Contains(said, `export PATH="`+home+`/.local/bin:$PATH"`) {
				t.Errorf("it does not mention PATH:\n%s", said)
			}
			binary := filepath.Join(home, ".local", "bin", "trl")
			if got := output(t, exec.Command(binary, "version")); got != "trl v"+r.version+"\n" {
				t.Errorf("%q was installed", got)
			}
			for _, name := range []string{"man/man1/trl.1", "bash-completion/completions/trl", "fish/vendor_completions.d/trl.fish"} {
				if info, err := os.Stat(filepath.Join(home, ".local", "share", name)); err != nil || info.Mode() != 0o644 {
					t.Errorf("%s: %v, %v", name, info, err)
				}
			}
		})
	}

	t.Run("only with busybox", func(t *testing.T) {
		// With busybox's own tar, wget and sha256sum, as on a small system.
		requirePrograms(t, "busybox")
		busybox, _ := exec.LookPath("busybox")
		dir := t.TempDir()
		for _, name := range append([]string{"sha256sum", "wget"}, basePrograms...) {
			if err := os.Symlink(busybox, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		home := home(t)
		if said, err := install(t, r, ash, dir, home, s.URL); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		output(t, exec.Command(filepath.Join(home, ".local", "bin", "trl"), "version"))
	})

	t.Run("from a directory", func(t *testing.T) {
		dir, err := filepath.Abs(r.dir)
		if err != nil {
			t.Fatal(err)
		}
		home := home(t)
		if said, err := install(t, r, dash, programs(t, "curl", "sha256sum"), home, "file://"+dir); err != nil || strings.Contains(said, "not https") {
			t.Fatalf("%v\n%s", err, said)
		}
		output(t, exec.Command(filepath.Join(home, ".local", "bin", "trl"), "version"))
	})

	t.Run("elsewhere, and again", func(t *testing.T) {
		home, prefix := home(t), filepath.Join(t.TempDir(), "a prefix")
		path := programs(t, "curl", "sha256sum") + ":" + prefix + "/bin"
		args := []string{"--prefix", prefix, "--version", "v" + r.version}
		said, err := install(t, r, dash, path, home, s.URL, args...)
		if err != nil || strings.Contains(said, "PATH") {
			t.Fatalf("%v\n%s", err, said)
		}
		before := tree(t, prefix)
		said, err = install(t, r, dash, path, home, s.URL, args...)
		if err != nil || !strings.Contains(said, "replacing trl v"+r.version) || !strings.Contains(said, "trl upgrade") {
			t.Fatalf("%v\n%s", err, said)
		}
		if diff := cmp.Diff(before, tree(t, prefix)); diff != "" {
			t.Errorf("the second installation differs (-first +second):\n%s", diff)
		}
		if files := listFiles(t, home); len(files) > 0 {
			t.Errorf("the home directory contains %v", files)
		}
	})
}

// If anything goes wrong the script says so and installs nothing.
func TestInstallScriptRefuses(t *testing.T) {
	r := openRelease(t)
	archive := r.name(hostPlatform(), ".tar.gz")
	content, err := os.ReadFile(r.path(archive))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(r.path("checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	tampered := slices.Clone(content)
	tampered[len(tampered)/2] ^= 1
	plan9 := programs(t, "curl", "sha256sum")
	if err := os.Remove(filepath.Join(plan9, "uname")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(plan9, "uname"), []byte("#!/bin/sh\necho Plan9\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	usual := programs(t, "curl", "sha256sum")
	for name, c := range map[string]struct {
		changed map[string][]byte
		path    string
		args    []string
		says    string
	}{
		"a flipped bit":           {map[string][]byte{archive: tampered}, usual, nil, "checksum mismatch"},
		"with wget and openssl":   {map[string][]byte{archive: tampered}, programs(t, "wget", "openssl"), nil, "checksum mismatch"},
		"with shasum":             {map[string][]byte{archive: tampered}, programs(t, "wget", "shasum"), nil, "checksum mismatch"},
		"truncated":               {map[string][]byte{archive: content[:len(content)-1]}, usual, nil, "checksum mismatch"},
		"empty":                   {map[string][]byte{archive: {}}, usual, nil, "checksum mismatch"},
		"no archive":              {map[string][]byte{archive: nil}, usual, nil, "can't fetch"},
		"no archive for wget":     {map[string][]byte{archive: nil}, programs(t, "wget", "sha256sum"), nil, "can't fetch"},
		"no checksums":            {map[string][]byte{"checksums.txt": nil}, usual, nil, "can't fetch"},
		"no checksum for it":      {map[string][]byte{"checksums.txt": bytes.ReplaceAll(sums, []byte(hostPlatform()), []byte("plan9_mips"))}, usual, nil, "does not name one archive"},
		"two checksums for it":    {map[string][]byte{"checksums.txt": append(slices.Clone(sums), sums...)}, usual, nil, "does not name one archive"},
		"another version":         {nil, usual, []string{"--version", "v9.8.7"}, "does not name one archive"},
		"an unknown system":       {nil, plan9, nil, "no trl for Plan9"},
		"nothing to fetch with":   {nil, programs(t, "sha256sum"), nil, "neither curl nor wget"},
		"nothing to check with":   {nil, programs(t, "curl"), nil, "none of sha256sum, shasum and openssl"},
		"an unknown flag":         {nil, usual, []string{"--frobnicate"}, "unknown argument --frobnicate"},
		"a relative prefix":       {nil, usual, []string{"--prefix", "here"}, "must be an absolute path"},
		"a prefix that is a file": {nil, usual, []string{"--prefix", "/dev/null"}, "can't write to /dev/null/bin"},
	} {
		t.Run(name, func(t *testing.T) {
			home := home(t)
			said, err := install(t, r, []string{"dash"}, c.path, home, serve(t, r, c.changed).URL, c.args...)
			if err == nil || !strings.Contains(said, c.says) || !strings.HasSuffix(said, "trl: nothing was installed\n") {
				t.Errorf("%v\n%s", err, said)
			}
			if files := listFiles(t, home); len(files) > 0 {
				t.Errorf("%v was installed", files)
			}
		})
	}
}

// A truncated script does nothing.
func TestInstallScriptInParts(t *testing.T) {
	r := openRelease(t)
	script, err := os.ReadFile(r.path("install.sh"))
	if err != nil {
		t.Fatal(err)
	}
	s, home, path := serve(t, r, nil), home(t), programs(t, "curl", "sha256sum")
	lines := bytes.SplitAfter(script, []byte("\n"))
	last := slices.IndexFunc(lines, func(line []byte) bool { return bytes.HasPrefix(line, []byte(`main "$@"`)) })
	if last < 100 {
		t.Fatalf("main is called in line %d", last+1)
	}
	for end := range last {
		_, _ = pipe(t, bytes.Join(lines[:end], nil), []string{"dash"}, path, home, s.URL)
	}
	if files := listFiles(t, home); len(files) > 0 || s.asked.Load() > 0 {
		t.Errorf("%v was installed, after %d requests", files, s.asked.Load())
	}
	if said, err := pipe(t, bytes.Join(lines[:last+1], nil), []string{"dash"}, path, home, s.URL); err != nil {
		t.Errorf("the whole script: %v\n%s", err, said)
	}
}

// The time from nothing to the first answer is short enough to try it out.
func TestFirstAnswer(t *testing.T) {
	const bound = 10 * time.Second
	r := openRelease(t)
	trltest.Undisturbed(t, func() error {
		s, home := serve(t, r, nil), home(t)
		began := time.Now()
		if said, err := install(t, r, []string{"dash"}, os.Getenv("PATH"), home, s.URL); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		installed := time.Since(began)
		binary := filepath.Join(home, ".local", "bin", "trl")
		daemon, err := trltest.Start(trltest.Config{Binary: binary})
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(daemon.Dir)
		defer daemon.Kill()
		run := exec.Command(binary, "--socket", daemon.Socket, "run", "--", "echo hi")
		run.Env = trltest.Environ(daemon.Dir)
		if got := output(t, run); got != "hi\n" {
			t.Errorf("the command printed %q", got)
		}
		took := time.Since(began)
		t.Logf("installed after %s, the first answer after %s", installed.Round(time.Millisecond), took.Round(time.Millisecond))
		if err := daemon.Stop(); err != nil {
			t.Error(err)
		}
		if took > bound {
			return fmt.Errorf("the first answer took %s, more than %s", took, bound)
		}
		return nil
	})
}
