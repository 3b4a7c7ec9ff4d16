package release_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// packaged lists what the packages install, in addition to the manual.
var packaged = []string{
	"/usr/bin/trl",
	"/usr/lib/systemd/system/trl.service",
	"/usr/lib/systemd/system/trl.socket",
	"/usr/lib/systemd/user/trl.service",
	"/usr/lib/systemd/user/trl.socket",
	"/usr/lib/sysusers.d/trl.conf",
	"/usr/share/bash-completion/completions/trl",
	"/usr/share/doc/trl/CHANGELOG.md",
	"/usr/share/doc/trl/README.md",
	"/usr/share/doc/trl/THIRD-PARTY-NOTICES",
	"/usr/share/fish/vendor_completions.d/trl.fish",
}

// systems lists the platforms with packages.
var systems = map[string]struct{ deb, rpm string }{
	"linux_amd64": {"amd64", "x86_64"},
	"linux_arm64": {"arm64", "aarch64"},
}

// manual returns the names of the manual pages in a package.
func manual(archive map[string][]byte) (pages []string) {
	for name := range archive {
		if strings.HasPrefix(name, "share/man/") {
			pages = append(pages, "/usr/"+name+".gz")
		}
	}
	return pages
}

func TestDebianPackages(t *testing.T) {
	r := openRelease(t)
	requirePrograms(t, "dpkg-deb")
	for platform, arch := range systems {
		deb := r.path(r.name(platform, ".deb"))
		about := output(t, exec.Command("dpkg-deb", "--field", deb, "Package", "Architecture", "Depends"))
		if want := "Package: trl\nArchitecture: " + arch.deb + "\n"; about != want {
			t.Errorf("%s is %q, not %q", deb, about, want)
		}
		content, err := exec.Command("dpkg-deb", "--fsys-tarfile", deb).Output()
		if err != nil {
			t.Fatal(err)
		}
		files, heads := readTar(t, bytes.NewReader(content), ".")
		archive, _ := r.unpack(t, platform)
		if !bytes.Equal(files["/usr/bin/trl"], archive["trl"]) {
			t.Errorf("%s contains a different binary than the archive", deb)
		}
		var names []string
		for name, head := range heads {
			names = append(names, name)
			mode := int64(0o644)
			if name == "/usr/bin/trl" {
				mode = 0o755
			}
			if head.Mode&0o7777 != mode || head.Uname != "root" {
				t.Errorf("%s: %s has the mode %o and belongs to %s", deb, name, head.Mode, head.Uname)
			}
		}
		slices.Sort(names)
		want := append(append(slices.Clone(packaged), manual(archive)...), "/usr/share/doc/trl/copyright", "/usr/share/zsh/vendor-completions/_trl")
		slices.Sort(want)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s contains other files (-want +got):\n%s", deb, diff)
		}
	}
}

func TestRPMPackages(t *testing.T) {
	r := openRelease(t)
	requirePrograms(t, "rpm")
	for platform, arch := range systems {
		rpm := r.path(r.name(platform, ".rpm"))
		if about := output(t, exec.Command("rpm", "-qp", "--qf", "%{NAME} %{ARCH} %{BUILDHOST}", rpm)); about != "trl "+arch.rpm+" trl" {
			t.Errorf("%s is %q", rpm, about)
		}
		archive, _ := r.unpack(t, platform)
		sum := sha256.Sum256(archive["trl"])
		var names []string
		// The fields are name, size, time, digest, mode, owner, group and more.
		for line := range strings.Lines(output(t, exec.Command("rpm", "-qp", "--dump", rpm))) {
			fields := strings.Fields(line)
			names = append(names, fields[0])
			mode := "0100644"
			switch fields[0] {
			case "/usr/share/doc/trl", "/usr/share/licenses/trl":
				mode = "040755"
			case "/usr/bin/trl":
				mode = "0100755"
				if fields[3] != hex.EncodeToString(sum[:]) {
					t.Errorf("%s contains a different binary than the archive", rpm)
				}
			}
			if fields[4] != mode || fields[5] != "root" {
				t.Errorf("%s: %s", rpm, line)
			}
		}
		slices.Sort(names)
		want := append(append(slices.Clone(packaged), manual(archive)...),
			"/usr/share/doc/trl", "/usr/share/licenses/trl", "/usr/share/licenses/trl/LICENSE", "/usr/share/zsh/site-functions/_trl")
		slices.Sort(want)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s contains other files (-want +got):\n%s", rpm, diff)
		}
	}
}

// runIn runs a script in a system, and fails if it leaves processes running.
func runIn(t *testing.T, s trltest.System, script string) string {
	t.Helper()
	const last = `
for process in /proc/[0-9]*; do
	[ "$process" = /proc/$$ ] || { echo "left running: $(tr '\0' ' ' <$process/cmdline)"; exit 1; }
done
`
	return output(t, s.Command(script+last, "DEBIAN_FRONTEND=noninteractive"))
}

// usageScript is what a person tries after installing the package.
const usageScript = `
trl version
trl serve 2>/var/tmp/log &
tries=0
until trl info >/dev/null 2>&1; do
	tries=$((tries + 1))
	[ $tries -lt 200 ] || { cat /var/tmp/log; exit 1; }
	sleep 0.05
done
test "$(trl run -- echo hi)" = hi
id=$(trl session create)
trl run -s "$id" -- 'sleep 4321 & cd /usr/lib'
test "$(trl run -s "$id" -- pwd)" = /usr/lib
trl stop
wait
rm /var/tmp/log
`

// packageManagerState matches files in which package managers record every
// package.
var packageManagerState = regexp.MustCompile(`^var/(log/(dpkg\.log|apt|alternatives\.log)|lib/dpkg/(status|status-old|lock|lock-frontend|triggers/.*|updates)|cache/apt|lib/apt|lib/rpm)(/|$)`)

// assertNothingLeft compares a system with its earlier state.
func assertNothingLeft(t *testing.T, before, after map[string]string) {
	t.Helper()
	for _, files := range []map[string]string{before, after} {
		for name := range files {
			if packageManagerState.MatchString(name) {
				delete(files, name)
			}
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the system has changed (-before +after):\n%s", diff)
	}
}

// Nothing is left after the package is installed, used and removed.
func TestDebianInstall(t *testing.T) {
	r := openRelease(t)
	s := trltest.NewSystem(t)
	deb, err := os.ReadFile(r.path(r.name(hostPlatform(), ".deb")))
	if err != nil {
		t.Fatal(err)
	}
	s.Put(t, "opt/trl.deb", deb, 0o644)
	before := tree(t, s.Dir)
	said := runIn(t, s, `
apt-get install -y -qq /opt/trl.deb
dpkg --verify trl
test -s /usr/share/man/man1/trl.1.gz
`+usageScript+`
apt-get purge -y -qq trl
! dpkg --status trl 2>/dev/null
`)
	if !strings.Contains(said, "trl v"+r.version) {
		t.Errorf("it is a different version:\n%s", said)
	}
	assertNothingLeft(t, before, tree(t, s.Dir))
}

func TestRPMInstall(t *testing.T) {
	r := openRelease(t)
	requirePrograms(t, "rpm")
	s := trltest.NewSystem(t)
	// Directories that other packages own on RPM systems.
	for _, dir := range []string{
		"usr/lib/systemd/user", "usr/lib/sysusers.d", "usr/share/bash-completion/completions", "usr/share/fish/vendor_completions.d",
		"usr/share/licenses", "usr/share/zsh/site-functions", "var/lib/rpm",
	} {
		if err := os.MkdirAll(s.Path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	before := tree(t, s.Dir)
	rpm := func(args ...string) {
		t.Helper()
		output(t, exec.Command("rpm", append([]string{"--force-debian", "--root", s.Dir, "--dbpath", "/var/lib/rpm"}, args...)...))
	}
	// Debian's packages are not in rpm's database, so it would miss a shell.
	rpm("--install", "--nodeps", "--nosignature", r.path(r.name(hostPlatform(), ".rpm")))
	runIn(t, s, usageScript)
	rpm("--erase", "trl")
	assertNothingLeft(t, before, tree(t, s.Dir))
}

// Where systemd runs, the package scripts tell it only what is necessary: an
// upgrade keeps the sessions, a removal stops the system daemon.
func TestPackageScripts(t *testing.T) {
	r := openRelease(t)
	s := trltest.NewSystem(t)
	deb, err := os.ReadFile(r.path(r.name(hostPlatform(), ".deb")))
	if err != nil {
		t.Fatal(err)
	}
	s.Put(t, "opt/trl.deb", deb, 0o644)
	s.Put(t, "run/systemd/system/README", nil, 0o644)
	s.Put(t, "usr/local/bin/systemctl", []byte("#!/bin/sh\necho \"$*\" >>/opt/told\n"), 0o755)
	s.Put(t, "etc/trl/trl.env", []byte("TRL_MAX_SESSIONS=5\n"), 0o600)
	s.Put(t, "var/lib/trl/tokens.json", []byte("{}\n"), 0o600)
	s.Put(t, "run/trl/trl.sock", nil, 0o600)
	for _, step := range []struct{ does, tells string }{
		{"dpkg --install /opt/trl.deb", "daemon-reload\nis-active --quiet trl.service\nreload trl.service\n"},
		{"dpkg --install /opt/trl.deb", "daemon-reload\nis-active --quiet trl.service\nreload trl.service\n"},
		{"test -e /run/trl/trl.sock; dpkg --remove trl", "--quiet disable --now trl.socket trl.service\ndaemon-reload\n"},
		{"test ! -e /run/trl; test -e /etc/trl/trl.env -a -e /var/lib/trl/tokens.json; dpkg --purge trl", ""},
		{"test ! -e /etc/trl -a ! -e /var/lib/trl", ""},
	} {
		s.Put(t, "opt/told", nil, 0o644)
		runIn(t, s, step.does)
		told, err := os.ReadFile(s.Path("opt/told"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.tells, string(told)); diff != "" {
			t.Errorf("%s makes other systemctl calls (-want +got):\n%s", step.does, diff)
		}
	}
}
