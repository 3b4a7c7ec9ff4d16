package process

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestParseUser(t *testing.T) {
	for _, tt := range []struct {
		status string
		want   int
		err    error
	}{
		{"Name:\tsh\nUid:\t1000\t0\t0\t0\nGid:\t1\t2\t3\t4\n", 0, nil},
		{"Uid:\t0\t1000\t0\t0\n", 1000, nil},
		{"Name:\tsh\n", -1, errStatus},
		{"Uid:\t1000\n", -1, errStatus},
		{"Uid:\tx\ty\n", -1, errStatus},
		{"", -1, errStatus},
	} {
		if got, err := parseUser(tt.status); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%q: got %d, %v, want %d, %v", tt.status, got, err, tt.want, tt.err)
		}
	}
	if uid, err := UserOf(os.Getpid()); uid != os.Geteuid() || err != nil {
		t.Errorf("own uid %d, %v", uid, err)
	}
}

// What was at the path before stays there, whether it can be opened or not.
func TestOpenCgroupRemovesOnlyItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "group")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, existing := range []bool{false, true} {
		if _, made, err := openCgroup(path, existing); err == nil || made {
			t.Errorf("existing %v: made %v, %v", existing, made, err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("existing %v: %v", existing, err)
		}
	}
}
