// Command dist builds a release: archives with the static binary for each
// platform, one with the programs for Linux that TRL delivers to places, packages
// for Debian and RPM systems, an SBOM, a Homebrew formula, the install script, and
// the checksums of all of them.
//
//	go run ./packaging/dist            into dist/, as `make dist` does
//
// The same commit and the same Go version produce the same bytes, wherever and
// whenever it runs. The version is the tag of the commit, or 0.0.0-dev+COMMIT;
// without git, set VERSION and SOURCE_DATE_EPOCH.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// nfpm builds the packages. Its version is pinned: another one produces other
// bytes.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0"

const (
	home     = "https://github.com/terminal-runtime/trl"
	variable = "github.com/terminal-runtime/trl/internal/cli.version"
)

// checksumsName is the file that identifies an earlier release.
const checksumsName = "checksums.txt"

type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// release is a release being built.
type release struct {
	version string    // without the leading v of its tag
	made    time.Time // time of the commit, used for all files
	out     string    // output directory
	stage   string    // temporary directory; removed at the end
	linked  map[platform]*debug.BuildInfo

	progress io.Writer // a line for each step
}

func main() {
	out := flag.String("out", "dist", "directory for the release; an earlier one in it is replaced")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(out string) (err error) {
	r := &release{out: out, linked: map[platform]*debug.BuildInfo{}, progress: os.Stderr}
	if r.version, r.made, err = identify(); err != nil {
		return err
	}
	if err := prepareOutputDir(out); err != nil {
		return err
	}
	if r.stage, err = os.MkdirTemp("", "trl-dist-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.stage)) }()
	if err := r.carryOut(r.steps()); err != nil {
		return err
	}
	fmt.Printf("trl %s, %s, in %s\n", r.version, r.made.Format(time.DateOnly), out)
	return nil
}

// step is a part of the work that is reported when it begins.
type step struct {
	name string
	run  func() error
}

// steps returns the work in its order. Each platform takes a minute or more on a
// busy machine, so each is a step.
func (r *release) steps() []step {
	var steps []step
	for _, p := range platforms {
		steps = append(steps, step{"build " + p.String(), func() error { return r.build(p) }})
	}
	steps = append(steps,
		step{"manual and completions", r.document}, step{"licences", r.notices},
		step{"programs for places", r.programs}, step{"archives", r.archives})
	for _, p := range platforms {
		if p.os == "linux" {
			steps = append(steps, step{"packages " + p.String(), func() error { return r.packages(p) }})
		}
	}
	return append(steps,
		step{"list of modules", r.sbom}, step{"formula", r.formula}, step{"install script", r.script}, step{"checksums", r.checksums})
}

// carryOut runs the steps and reports each when it begins.
func (r *release) carryOut(steps []step) error {
	for i, s := range steps {
		fmt.Fprintf(r.progress, "dist: %d/%d %s\n", i+1, len(steps), s.name)
		if err := s.run(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// identify returns the version and the time of the sources in this directory.
func identify() (version string, made time.Time, err error) {
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = git("log", "-1", "--format=%ct"); err != nil {
			return "", time.Time{}, fmt.Errorf("set SOURCE_DATE_EPOCH if there is no git: %w", err)
		}
	}
	epoch, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return "", time.Time{}, errors.New("SOURCE_DATE_EPOCH is not a number of seconds")
	}
	made = time.Unix(epoch, 0).UTC()
	if version = strings.TrimPrefix(os.Getenv("VERSION"), "v"); version != "" {
		return version, made, nil
	}
	changes, err := git("status", "--porcelain")
	if err != nil {
		return "", time.Time{}, fmt.Errorf("set VERSION if there is no git: %w", err)
	}
	tag, err := git("describe", "--tags", "--exact-match", "--match", "v[0-9]*")
	if err == nil && changes == "" {
		return strings.TrimPrefix(tag, "v"), made, nil
	}
	// A fixed length: by default git prints more digits in a larger clone.
	commit, err := git("rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "", time.Time{}, err
	}
	if changes != "" {
		commit += ".dirty" // these sources are in no commit
	}
	return "0.0.0-dev+" + commit, made, nil
}

func git(args ...string) (string, error) {
	// The checkout may belong to another user, and git would then refuse to
	// work.
	output, err := exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(output)), nil
}

// prepareOutputDir creates an empty directory for a release. It removes only an
// earlier release.
func prepareOutputDir(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case len(entries) > 0:
		if _, err := os.Stat(filepath.Join(dir, checksumsName)); err != nil {
			return fmt.Errorf("%s is not empty and not an earlier release: remove it, or choose another with -out", dir)
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return os.MkdirAll(dir, 0o755)
}

// command runs a program with its output on stderr, in an environment that does
// not affect the result.
func (r *release) command(environment []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(r.environ(), environment...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

// environ returns the environment of this process without variables that would
// change the build or its output, and with the date of the release.
func (r *release) environ() []string {
	environ := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{"GOOS", "GOARCH", "GOFLAGS", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOFIPS140", "GOWORK", "VERSION"}, name) ||
			strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "TRL_")
	})
	return append(environ, "LC_ALL=C", "TZ=UTC", "CGO_ENABLED=0", "GOWORK=off", fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.made.Unix()))
}

// binary returns the path of the binary for a platform.
func (r *release) binary(p platform) string { return filepath.Join(r.stage, p.String(), "trl") }

// build builds the binary for a platform, and reads which modules are linked into
// it.
func (r *release) build(p platform) error {
	err := r.command([]string{"GOOS=" + p.os, "GOARCH=" + p.arch}, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X "+variable+"=v"+r.version, "-o", r.binary(p), "./cmd/trl")
	if err != nil {
		return err
	}
	r.linked[p], err = buildinfo.ReadFile(r.binary(p))
	return err
}

// document lets the program write its manual and completions to share.
func (r *release) document() error {
	here := platform{runtime.GOOS, runtime.GOARCH}
	if !slices.Contains(platforms, here) {
		return fmt.Errorf("build a release on one of %v: the program must run to write its manual", platforms)
	}
	program := r.binary(here)
	if err := r.command(nil, program, "docs", "man", r.share("man/man1")); err != nil {
		return err
	}
	for shell, file := range map[string]string{
		"bash": "bash-completion/completions/trl", "zsh": "zsh/site-functions/_trl", "fish": "fish/vendor_completions.d/trl.fish",
	} {
		cmd := exec.Command(program, "completion", shell)
		cmd.Env = r.environ()
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("trl completion %s: %w", shell, err)
		}
		if err := write(r.share(file), text); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) share(name string) string { return filepath.Join(r.stage, "share", name) }

// write creates a file and its parent directories.
func write(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

// packages builds the packages for dpkg and rpm of a platform from
// packaging/nfpm.yaml.
func (r *release) packages(p platform) error {
	// Debian compresses manual pages.
	pages, err := filepath.Glob(r.share("man/man1/*.1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(r.stage, "man", filepath.Base(page)+".gz"), compress(text)); err != nil {
			return err
		}
	}
	for _, format := range []string{"deb", "rpm"} {
		file := filepath.Join(r.out, r.name(p)+"."+format)
		err := r.command([]string{"TRL_STAGE=" + r.stage, "TRL_ARCH=" + p.arch, "TRL_VERSION=" + r.version},
			"go", "run", nfpm, "package", "--config", "packaging/nfpm.yaml", "--packager", format, "--target", file)
		if err != nil {
			return err
		}
		if err := os.Chmod(file, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// name returns the prefix of the file names for a platform.
func (r *release) name(p platform) string { return "trl_" + r.version + "_" + p.String() }

// script copies the install script into the release.
func (r *release) script() error {
	text, err := os.ReadFile("packaging/install.sh")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "install.sh"), text, 0o755)
}

// checksums writes the checksums of all other files, in the format of
// sha256sum.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out) // sorted
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, entry := range entries {
		sum, err := sumOf(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, entry.Name())
	}
	return write(filepath.Join(r.out, checksumsName), []byte(text.String()))
}

// sumOf returns the SHA-256 of a file in hexadecimal.
func sumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
