package trltest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// CacheVariable names the directory where the check keeps what it makes once,
// as .ci/run has it.
const CacheVariable = "TRL_CI_CACHE"

// earlierAge is how long the binary of a commit is kept after its last use: the
// commit before this one is another one with every change.
const maxBinaryAge = 14 * 24 * time.Hour

// Commit returns the hash of a commit of this repository by any of its names.
// It fails in a checkout that does not have that commit.
func Commit(name string) (string, error) {
	out, err := git("rev-parse", "--verify", "--quiet", name+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("this checkout has no commit %s (%w): fetch the whole history with `git fetch --unshallow`, or clone it", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Earlier returns the path of the binary that a commit of this repository makes.
// Its version is the commit. It is built once and kept in the cache of the check.
func EarlierBinary(commit string) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "earlier")
	binary := filepath.Join(dir, commit, "trl")
	if _, err := os.Stat(binary); err == nil {
		now := time.Now()
		return binary, os.Chtimes(filepath.Dir(binary), now, now)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	removeOld(dir)
	work, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := buildCommit(commit, work); err != nil {
		return "", fmt.Errorf("building the binary of commit %s: %w", commit, err)
	}
	// Another process may have been faster; its binary is the same.
	err = os.Rename(filepath.Join(work, "out"), filepath.Dir(binary))
	if _, statErr := os.Stat(binary); statErr != nil {
		return "", errors.Join(err, statErr)
	}
	return binary, nil
}

// buildCommit leaves the binary of a commit in work/out.
func buildCommit(commit, work string) error {
	source := filepath.Join(work, "source")
	if err := os.Mkdir(source, 0o700); err != nil {
		return err
	}
	archive, err := git("archive", "--format=tar", commit)
	if err != nil {
		return err
	}
	unpack := exec.Command("tar", "-x", "-C", source)
	unpack.Stdin = bytes.NewReader(archive)
	if out, err := unpack.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath",
		"-ldflags", "-s -w -X github.com/terminal-runtime/trl/internal/cli.version="+commit,
		"-o", filepath.Join(work, "out", "trl"), "./cmd/trl")
	build.Dir = source
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// removeOld removes what has not been used for long, builds that were cut off
// included. What can't be removed is tried again the next time.
func removeOld(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) > maxBinaryAge {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

func cacheDir() (string, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "trl-ci"), err
}

// git runs git in the top directory of the repository that the tests are of,
// whoever owns it.
func git(args ...string) ([]byte, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*", "-C", root}, args...)...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w %s", args[0], err, strings.TrimSpace(complaint.String()))
	}
	return out, nil
}

// moduleRoot is the directory of go.mod: tests run somewhere below it.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("go.mod: %w", fs.ErrNotExist)
		}
		dir = parent
	}
}
