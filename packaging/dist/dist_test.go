package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The repository determines the version and the time.
func TestIdentify(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_COMMITTER_DATE", "2024-02-03T04:05:06Z")
	t.Setenv("SOURCE_DATE_EPOCH", "")
	t.Setenv("VERSION", "")
	repository := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, output)
		}
	}
	expect := func(want string) {
		t.Helper()
		version, made, err := identify()
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`^`+want+`$`).MatchString(version) || !made.Equal(time.Date(2024, 2, 3, 4, 5, 6, 0, time.UTC)) {
			t.Errorf("got %s of %s, want %s", version, made, want)
		}
	}
	if _, _, err := identify(); err == nil {
		t.Error("identify succeeded without a repository")
	}
	repository("init", "--quiet")
	repository("commit", "--quiet", "--allow-empty", "--message", "Begin")
	expect(`0\.0\.0-dev\+[0-9a-f]{12}`)
	repository("tag", "something-else")
	expect(`0\.0\.0-dev\+[0-9a-f]{12}`)
	repository("tag", "v1.2.3-rc.1")
	expect(`1\.2\.3-rc\.1`)
	if err := os.WriteFile("new.go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Uncommitted files are not part of the tag.
	expect(`0\.0\.0-dev\+[0-9a-f]{12}\.dirty`)

	t.Setenv("VERSION", "v4.5.6")
	expect(`4\.5\.6`)
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, _, err := identify(); err == nil {
		t.Error("identify accepted \"yesterday\" as a number of seconds")
	}
}

// A directory is replaced only if it contains an earlier release.
func TestMakeRoom(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := prepareOutputDir(dir); err == nil {
		t.Error("a directory with other files was accepted")
	}
	if _, err := os.Stat(mine); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(mine, filepath.Join(dir, checksumsName)); err != nil {
		t.Fatal(err)
	}
	if err := prepareOutputDir(dir); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
}

// Each step is reported when it begins, and an error is the step's own: a binary
// that is gone is no reason to name the platforms.
func TestSteps(t *testing.T) {
	var progress strings.Builder
	r := &release{stage: t.TempDir(), progress: &progress}
	var names []string
	for _, s := range r.steps() {
		names = append(names, s.name)
	}
	for _, p := range platforms {
		if !slices.Contains(names, "build "+p.String()) {
			t.Errorf("no step for %s in %q", p, names)
		}
	}
	err := r.carryOut([]step{{"first", func() error { return nil }}, {"manual", r.document}, {"never", func() error { t.Error("went on"); return nil }}})
	if !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "manual: ") || !strings.Contains(err.Error(), r.stage) {
		t.Errorf("got %v", err)
	}
	if want := "dist: 1/3 first\ndist: 2/3 manual\n"; progress.String() != want {
		t.Errorf("got %q, want %q", progress.String(), want)
	}
}

// An archive depends neither on the order in which files are found nor on the
// clock.
func TestPack(t *testing.T) {
	made := time.Unix(1_700_000_000, 0)
	one, err := pack("d", made, []archiveEntry{{"a", []byte("1"), 0o644}, {"b/c", []byte("2"), 0o755}})
	if err != nil {
		t.Fatal(err)
	}
	other, err := pack("d", made.In(time.FixedZone("", 3600)), []archiveEntry{{"b/c", []byte("2"), 0o755}, {"a", []byte("1"), 0o644}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(one, other); diff != "" {
		t.Error(diff)
	}
}
