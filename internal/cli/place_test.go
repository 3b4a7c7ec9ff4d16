package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
)

func TestPlaceTables(t *testing.T) {
	since := &api.Time{Time: listTime.Add(-3 * time.Minute)}
	places := []api.Place{
		{Runtime: "docker:web", Name: "k7", State: api.PlaceConnected, OS: "linux", Arch: "amd64", User: "root", Version: "v1", Since: since, Shells: []string{"sh", "bash"}},
		{
			Runtime: "ssh:me@host", Name: "m2", State: api.PlaceUnreachable, Since: since, Reason: "auth", Message: "Permission\n denied",
			Hint: "run `ssh me@host true`", RetryMS: 4000,
		},
		{Runtime: "cmd:pod", Name: "p9", State: api.PlaceIdle, Configured: true},
	}
	var out bytes.Buffer
	a := &app{stdout: &out}
	if err := a.showPlaces(places, listTime); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"RUNTIME      NAME  STATE        FOR    SYSTEM       USER  VERSION  REASON\n" +
		"docker:web   k7    connected    3m00s  linux/amd64  root  v1       -\n" +
		"ssh:me@host  m2    unreachable  3m00s  -            -     -        auth\n" +
		"cmd:pod      p9    idle         -      -            -     -        -\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	for i := range places[:2] {
		if err := a.showPlace(&places[i], listTime); err != nil {
			t.Fatal(err)
		}
	}
	want = "" +
		"runtime  docker:web\n" +
		"name     k7\n" +
		"state    connected\n" +
		"for      3m00s\n" +
		"system   linux/amd64\n" +
		"user     root\n" +
		"version  v1\n" +
		"shells   sh, bash\n" +
		"runtime   ssh:me@host\n" +
		"name      m2\n" +
		"state     unreachable\n" +
		"for       3m00s\n" +
		"reason    auth\n" +
		"message   Permission\\n denied\n" +
		"next try  in 4s\n" +
		"hint      run `ssh me@host true`\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// A list of sessions says where each runs, once one of them runs elsewhere.
func TestSessionsInPlaces(t *testing.T) {
	sessions := []api.Session{
		{SessionID: "s-1", State: api.StateIdle, Runtime: "host", Cwd: "/usr"},
		{SessionID: "s-k7-2", State: api.StateIdle, Runtime: "docker:web", Cwd: "/app"},
	}
	var out bytes.Buffer
	a := &app{stdout: &out}
	if err := a.showActivity(sessions, listTime); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"ID      NAME  OWNER  STATE  FOR  COMMAND  RUNTIME     CWD\n" +
		"s-1     -     -      idle   -    -        host        /usr\n" +
		"s-k7-2  -     -      idle   -    -        docker:web  /app\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	if err := a.showSessions(sessions[1:], listTime); err != nil {
		t.Fatal(err)
	}
	want = "" +
		"ID      NAME  STATE  SHELL  PID  EXECS  AGE  IDLE  OWNER  RUNTIME     CWD\n" +
		"s-k7-2  -     idle   -      -    0      -    -     -      docker:web  /app\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestUnreachablePlaces(t *testing.T) {
	away := []api.Unreachable{
		{Runtime: "docker:web", Reason: "not_running", Since: &api.Time{Time: listTime.Add(-time.Hour)}},
		{Runtime: "ssh:a\nb", Reason: "unreachable"},
	}
	var remarks bytes.Buffer
	(&app{stderr: &remarks}).reportUnreachable(away, listTime)
	want := "" +
		"trl: docker:web is out of reach for 1h00m (not_running), so its sessions are not listed; `trl place check docker:web` tries again and says more\n" +
		"trl: ssh:a\\nb is out of reach (unreachable), so its sessions are not listed; `trl place check 'ssh:a\\nb'` tries again and says more\n"
	if diff := cmp.Diff(want, remarks.String()); diff != "" {
		t.Error(diff)
	}
	err := api.AsError(sessionOutOfReach("build", away))
	if err.Code != api.CodeRuntimeUnavailable || err.Message != `no session "build" here; it may be in docker:web or ssh:a`+"\n"+`b, which can't be reached now (not_running)` {
		t.Errorf("%v", err)
	}
}

func TestPlaceCompletions(t *testing.T) {
	places := []api.Place{{Runtime: "docker:web", State: api.PlaceIdle}, {Runtime: "ssh:$(reboot)"}, {Runtime: "ssh:me@host", State: api.PlaceConnected}}
	for prefix, want := range map[string][]string{
		"":     {"docker:web\tidle", "ssh:me@host\tconnected"},
		"ssh:": {"ssh:me@host\tconnected"},
		"none": nil,
	} {
		if diff := cmp.Diff(want, placeCompletions(places, prefix)); diff != "" {
			t.Errorf("%q: %s", prefix, diff)
		}
	}
}

func TestFindingsOfAPlace(t *testing.T) {
	found, err := placeFindings("docker:web", &api.ExecResult{Stdout: `{"checks":[{"check":"kernel","grade":"ok","message":"x"}],"notes":0,"problems":0}`})
	if err != nil || len(found) != 1 || found[0].Check != "kernel" {
		t.Errorf("%v, %v", found, err)
	}
	for _, text := range []string{"", "{}", "sh: tr: not found\n"} {
		if _, err := placeFindings("docker:web", &api.ExecResult{Stdout: text, Stderr: "no \x1b[2Jdoctor"}); !api.IsCode(err, api.CodeRuntimeUnavailable) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
