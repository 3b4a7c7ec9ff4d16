// Package release_test checks the output of `make dist` by installing and using
// it. TRL_DIST names its directory; `.ci/run dist` builds a release and runs
// these tests.
package release_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"debug/macho"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) { trltest.Main(m) }

// root is the repository.
const root = "../.."

// builtRelease is a release under test.
type builtRelease struct {
	dir     string
	version string
	sums    map[string]string // from checksums.txt, by file
}

// openRelease returns the release to check.
func openRelease(t *testing.T) builtRelease {
	t.Helper()
	dir := os.Getenv("TRL_DIST")
	if dir == "" {
		t.Skip("TRL_DIST is not set: build a release with `make dist`")
	}
	r := builtRelease{dir: dir, sums: map[string]string{}}
	file, err := os.Open(r.path("checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		sum, name, _ := strings.Cut(lines.Text(), "  ")
		r.sums[name] = sum
		if version, found := strings.CutSuffix(name, ".spdx.json"); found {
			r.version = strings.TrimPrefix(version, "trl_")
		}
	}
	return r
}

func (r builtRelease) path(name string) string { return filepath.Join(r.dir, name) }

// name returns the name of a file for a platform.
func (r builtRelease) name(platform, extension string) string {
	return "trl_" + r.version + "_" + platform + extension
}

// hostPlatform returns the platform of this machine.
func hostPlatform() string { return runtime.GOOS + "_" + runtime.GOARCH }

// unpack reads the archive for a platform and returns its files and their
// headers, by name without the archive's directory.
func (r builtRelease) unpack(t *testing.T, platform string) (files map[string][]byte, heads map[string]*tar.Header) {
	t.Helper()
	file, err := os.Open(r.path(r.name(platform, ".tar.gz")))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	return readTar(t, plain, r.name(platform, "")+"/")
}

// readTar reads the regular files of an archive, whose names must begin with
// prefix.
func readTar(t *testing.T, archive io.Reader, prefix string) (files map[string][]byte, heads map[string]*tar.Header) {
	t.Helper()
	files, heads = map[string][]byte{}, map[string]*tar.Header{}
	for reader := tar.NewReader(archive); ; {
		head, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files, heads
		}
		if err != nil {
			t.Fatal(err)
		}
		if head.Typeflag == tar.TypeDir {
			continue
		}
		name, ok := strings.CutPrefix(head.Name, prefix)
		if !ok {
			t.Errorf("%s is not below %s", head.Name, prefix)
		}
		if files[name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
		heads[name] = head
	}
}

// output runs a program that must succeed, and returns its output.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, text)
	}
	return string(text)
}

// requirePrograms skips the test if a program is missing, and fails it in CI.
func requirePrograms(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		_, err := exec.LookPath(program)
		trltest.Need(t, err)
	}
}

// deliverable lists the programs that TRL delivers to places.
var deliverable = []string{"libexec/trl/trl-linux-amd64.gz", "libexec/trl/trl-linux-arm64.gz"}

var platforms = []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"}

func TestChecksums(t *testing.T) {
	r := openRelease(t)
	requirePrograms(t, "sha256sum")
	check := exec.Command("sha256sum", "--check", "--strict", "--quiet", "checksums.txt")
	check.Dir = r.dir
	output(t, check)
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	want := []string{
		"checksums.txt", "install.sh", "trl.rb", "trl_" + r.version + ".spdx.json",
		r.name("darwin_amd64", ".tar.gz"), r.name("darwin_arm64", ".tar.gz"),
		r.name("linux_amd64", ".deb"), r.name("linux_amd64", ".rpm"), r.name("linux_amd64", ".tar.gz"),
		r.name("linux_arm64", ".deb"), r.name("linux_arm64", ".rpm"), r.name("linux_arm64", ".tar.gz"),
		r.name("linux_programs", ".tar.gz"),
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("the release contains other files (-want +got):\n%s", diff)
	}
	if len(r.sums) != len(names)-1 {
		t.Errorf("%d of %d files have a checksum", len(r.sums), len(names)-1)
	}
}

func TestArchives(t *testing.T) {
	r := openRelease(t)
	for _, platform := range platforms {
		files, heads := r.unpack(t, platform)
		for _, name := range []string{
			"LICENSE", "README.md", "CHANGELOG.md", "THIRD-PARTY-NOTICES", "share/man/man1/trl.1", "share/man/man1/trl-run.1",
			"share/bash-completion/completions/trl", "share/zsh/site-functions/_trl", "share/fish/vendor_completions.d/trl.fish",
		} {
			if len(files[name]) == 0 {
				t.Errorf("%s: %s is missing", platform, name)
			}
		}
		for name, head := range heads {
			mode := int64(0o644)
			if name == "trl" {
				mode = 0o755
			}
			if head.Mode != mode || head.Uname != "root" || head.Uid != 0 || !head.ModTime.Equal(heads["trl"].ModTime) {
				t.Errorf("%s: %s has the header %+v", platform, name, head)
			}
		}
		system, arch, _ := strings.Cut(platform, "_")
		service := map[string]string{"linux": "systemd/trl.service", "darwin": "launchd/dev.trl.serve.plist"}[system]
		if len(files[service]) == 0 {
			t.Errorf("%s: %s is missing", platform, service)
		}
		if got := targetArch(t, system, files["trl"]); got != arch {
			t.Errorf("the binary for %s is for %s", platform, got)
		}
	}
}

// The archives for macOS, and one of their own, have the programs for Linux: the
// same bytes as in the archives for Linux, in files that depend on nothing else.
func TestDeliverablePrograms(t *testing.T) {
	r := openRelease(t)
	for _, platform := range append([]string{"linux_programs"}, platforms...) {
		files, _ := r.unpack(t, platform)
		var found []string
		for name, content := range files {
			if !strings.HasPrefix(name, "libexec/") {
				continue
			}
			found = append(found, name)
			packed, err := gzip.NewReader(bytes.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			if packed.Name != "" || !packed.ModTime.IsZero() {
				t.Errorf("%s: %s has the name %q and the time %s", platform, name, packed.Name, packed.ModTime)
			}
			program, err := io.ReadAll(packed)
			if err != nil {
				t.Fatal(err)
			}
			arch := strings.TrimSuffix(strings.TrimPrefix(name, "libexec/trl/trl-linux-"), ".gz")
			linux, _ := r.unpack(t, "linux_"+arch)
			if !bytes.Equal(program, linux["trl"]) {
				t.Errorf("%s: %s differs from the binary for Linux", platform, name)
			}
		}
		slices.Sort(found)
		want := deliverable
		if system, _, _ := strings.Cut(platform, "_"); system == "linux" && platform != "linux_programs" {
			want = nil
		}
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("%s contains other programs (-want +got):\n%s", platform, diff)
		}
	}
}

// targetArch returns the processor of a binary, and checks that it is static.
func targetArch(t *testing.T, system string, binary []byte) string {
	t.Helper()
	if system == "darwin" {
		file, err := macho.NewFile(bytes.NewReader(binary))
		if err != nil {
			t.Fatal(err)
		}
		return map[macho.Cpu]string{macho.CpuAmd64: "amd64", macho.CpuArm64: "arm64"}[file.Cpu]
	}
	file, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP || part.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary is not static: it has %s", part.Type)
		}
	}
	return map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}[file.Machine]
}

// The SBOM lists exactly the modules that Go reports for each binary.
func TestMaterials(t *testing.T) {
	r := openRelease(t)
	text, err := os.ReadFile(r.path("trl_" + r.version + ".spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Packages []struct {
			ID        string `json:"SPDXID"`
			Name      string `json:"name"`
			Version   string `json:"versionInfo"`
			File      string `json:"packageFileName"`
			Checksums []struct {
				Value string `json:"checksumValue"`
			} `json:"checksums"`
		} `json:"packages"`
		Relationships []struct {
			From string `json:"spdxElementId"`
			Type string `json:"relationshipType"`
			To   string `json:"relatedSpdxElement"`
		} `json:"relationships"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	names, linked := map[string]string{}, map[string][]string{}
	for _, p := range document.Packages {
		if _, twice := names[p.ID]; twice {
			t.Errorf("%s is listed twice", p.ID)
		}
		names[p.ID] = p.Name + " " + p.Version
	}
	used := map[string]bool{}
	for _, relation := range document.Relationships {
		if names[relation.To] == "" {
			t.Errorf("%s is not in the list of packages", relation.To)
		}
		used[relation.To] = true
		if relation.Type == "STATIC_LINK" {
			linked[relation.From] = append(linked[relation.From], names[relation.To])
		}
	}
	if len(used) != len(names) {
		t.Errorf("%d packages, but only %d are used", len(names), len(used))
	}
	notices := ""
	for _, platform := range platforms {
		files, _ := r.unpack(t, platform)
		notices = string(files["THIRD-PARTY-NOTICES"])
		binary := filepath.Join(t.TempDir(), "trl")
		if err := os.WriteFile(binary, files["trl"], 0o600); err != nil {
			t.Fatal(err)
		}
		// Compare with `go version -m`, which the list is not made with.
		report := output(t, exec.Command("go", "version", "-m", binary))
		version, _, _ := strings.Cut(strings.TrimPrefix(report, binary+": go"), "\n")
		want := []string{"stdlib " + version}
		for _, dependency := range regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(report, -1) {
			want = append(want, dependency[1]+" "+dependency[2])
		}
		if len(want) < 5 {
			t.Fatalf("go version -m lists too few modules: %s", report)
		}
		got := sorted(linked["SPDXRef-trl-"+strings.ReplaceAll(platform, "_", "-")])
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the modules in %s differ from the list (-binary +list):\n%s", platform, diff)
		}
		for _, module := range want {
			if !strings.Contains(notices, "\n"+module+"\n===") {
				t.Errorf("the notices lack %s", module)
			}
		}
		system, arch, _ := strings.Cut(platform, "_")
		if diff := cmp.Diff(map[string][]string{"linux": want}[system], sorted(linked["SPDXRef-trl-program-"+system+"-"+arch])); diff != "" {
			t.Errorf("the modules in the program for %s differ from the list (-binary +list):\n%s", platform, diff)
		}
		for _, p := range document.Packages {
			if p.File == r.name(platform, ".tar.gz") && (len(p.Checksums) != 1 || p.Checksums[0].Value != r.sums[p.File]) {
				t.Errorf("%s has a different checksum: %v", p.File, p.Checksums)
			}
		}
	}
}

// sorted sorts a list and returns it.
func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

// Built again from another directory, by a user with other settings, the
// release is the same.
func TestMadeAgain(t *testing.T) {
	r := openRelease(t)
	requirePrograms(t, "git")
	_, heads := r.unpack(t, hostPlatform())
	elsewhere := filepath.Join(t.TempDir(), "somewhere else")
	copyTree(t, elsewhere)
	out := filepath.Join(t.TempDir(), "dist")
	again := exec.Command("sh", "-c", `umask 077; exec go run ./packaging/dist -out "$1"`, "sh", out)
	again.Dir = elsewhere
	again.Env = append(os.Environ(), "TZ=Asia/Tokyo", "LC_ALL=C.UTF-8", "TMPDIR="+t.TempDir(), "VERSION=v"+r.version,
		"SOURCE_DATE_EPOCH="+strconv.FormatInt(heads["trl"].ModTime.Unix(), 10))
	output(t, again)
	for name, sum := range r.sums {
		content, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := sha256.Sum256(content); hex.EncodeToString(got[:]) != sum {
			t.Errorf("%s differs when it is built again", name)
		}
	}
}

// copyTree copies the files of this repository in their current state.
func copyTree(t *testing.T, to string) {
	t.Helper()
	for _, name := range sources(t) {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// sources returns the files of this repository that git tracks or would track.
func sources(t *testing.T) []string {
	t.Helper()
	list := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	text, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range strings.Split(strings.Trim(string(text), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, name))
		if err == nil && info.Mode().IsRegular() {
			names = append(names, name)
		}
	}
	return names
}
