package daemon

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPassedFiles(t *testing.T) {
	for name, c := range map[string]struct {
		env  []string
		want []int
	}{
		"none":        {nil, nil},
		"two":         {[]string{"LISTEN_PID=7", "LISTEN_FDS=2"}, []int{3, 4}},
		"another pid": {[]string{"LISTEN_PID=8", "LISTEN_FDS=2"}, nil},
		"no pid":      {[]string{"LISTEN_FDS=2"}, nil},
		"no number":   {[]string{"LISTEN_PID=7", "LISTEN_FDS=x"}, nil},
		"negative":    {[]string{"LISTEN_PID=7", "LISTEN_FDS=-1"}, nil},
	} {
		if diff := cmp.Diff(c.want, passedFiles(Environment{Variables: c.env}, 7)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	env := daemonEnv([]string{"A=1", "LISTEN_PID=7", "LISTEN_FDS=2", "LISTEN_FDNAMES=a:b", "NOTIFY_SOCKET=/n"}, 2)
	if diff := cmp.Diff([]string{"A=1", "NOTIFY_SOCKET=/n", "LISTEN_FDS=2"}, env); diff != "" {
		t.Error(diff)
	}
}

func TestManaged(t *testing.T) {
	pid := strconv.Itoa(os.Getpid())
	for variables, want := range map[string]bool{
		"PATH=/bin":                             false,
		"NOTIFY_SOCKET=/run/n":                  true,
		"WATCHDOG_USEC=5":                       true,
		"LISTEN_FDS=1 LISTEN_PID=" + pid:        true,
		"LISTEN_FDS=1 LISTEN_PID=1" + pid + "0": false,
	} {
		if got := Managed(Environment{Variables: strings.Fields(variables)}); got != want {
			t.Errorf("%s: %t", variables, got)
		}
	}
}
