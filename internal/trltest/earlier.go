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

// CacheVariable names the directory in which .ci/run caches what is built once.
const CacheVariable = "TRL_CI_CACHE"

// maxBinaryAge is how long the binary of a commit is kept after its last use:
// every change has a different predecessor.
const maxBinaryAge = 14 * 24 * time.Hour

// Commit returns the hash of a commit of this repository, given any name of it.
// It fails in a checkout that lacks the commit.
func Commit(name string) (string, error) {
	out, err := git("rev-parse", "--verify", "--quiet", name+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("this checkout has no commit %s (%w): fetch the whole history with `git fetch --unshallow`, or clone it", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// EarlierBinary returns the path of the binary built from a commit of this
// repository. Its version is the commit. It is built once and kept in the CI
// cache.
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

// buildCommit writes the binary of a commit to work/out.
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

// removeOld removes builds that have not been used for a long time, including
// interrupted ones. What can't be removed is retried next time.
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

// git runs git in the top directory of the repository under test, whoever owns
// it.
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

// moduleRoot returns the directory of go.mod: tests run somewhere below it.
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
