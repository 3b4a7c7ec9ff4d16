package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/doctor"
)

var listTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestSessionTable(t *testing.T) {
	ago := func(d time.Duration) api.Time { return api.Time{Time: listTime.Add(-d)} }
	sessions := []api.Session{
		{
			SessionID: "s-1", State: api.StateIdle, Shell: "/bin/sh", PID: 42, ExecCount: 3, Owner: "alice/claude-code", Cwd: "/usr",
			CreatedAt: ago(time.Hour), LastActivityAt: ago(90 * time.Second),
		},
		{
			SessionID: "s-22", Name: "a\x1b[2Jb", State: api.StateRunning, Argv: []string{"tail", "-f", "a b"}, PID: 4321, Cwd: "/a\nb",
			CreatedAt: ago(194 * time.Millisecond), LastActivityAt: ago(21 * time.Millisecond), ExecID: "e-1", ExecLabel: "tail -f …",
		},
		{SessionID: "s-3", State: api.StateTerminated, Shell: "/bin/bash", Terminated: &api.Terminated{At: ago(3 * time.Minute)}},
		{SessionID: "s-4", Name: "日本", State: api.StateIdle, Shell: "/bin/sh", Ending: true, CreatedAt: ago(0), LastActivityAt: ago(0)},
		{SessionID: "s-5", State: api.StateIdle, Unreadable: "damaged"},
	}
	var out bytes.Buffer
	a := &app{stdout: &out}
	if err := a.showSessions(sessions, listTime); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"ID    NAME       STATE       SHELL          PID   EXECS  AGE    IDLE   OWNER              CWD\n" +
		"s-1   -          idle        /bin/sh        42    3      1h00m  1m30s  alice/claude-code  /usr\n" +
		"s-22  a\\x1b[2Jb  running     tail -f 'a b'  4321  0      0s     -      -                  /a\\nb\n" +
		"s-3   -          terminated  /bin/bash      -     0      -      -      -                  -\n" +
		"s-4   日本       ending      /bin/sh        -     0      0s     0s     -                  -\n" +
		"s-5   -          unreadable  -              -     0      -      -      -                  -\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	if err := a.showActivity(sessions, listTime); err != nil {
		t.Fatal(err)
	}
	want = "" +
		"ID    NAME       OWNER              STATE       FOR    COMMAND    CWD\n" +
		"s-1   -          alice/claude-code  idle        1m30s  -          /usr\n" +
		"s-22  a\\x1b[2Jb  -                  running     0s     tail -f …  /a\\nb\n" +
		"s-3   -          -                  terminated  3m00s  -          -\n" +
		"s-4   日本       -                  ending      0s     -          -\n" +
		"s-5   -          -                  unreadable  -      -          -\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	if got := runningText(api.Session{State: api.StateRunning, ExecID: "e-1"}); got != "e-1" {
		t.Errorf("a command without a label is %q", got)
	}
	out.Reset()
	if err := a.printSessionIDs(sessions); err != nil || out.String() != "s-1\ns-22\ns-3\ns-4\ns-5\n" {
		t.Errorf("ids only: %q, %v", &out, err)
	}
}

// hostile is foreign text that would control a terminal or fake a row.
const hostile = "a\x1b[2J\n\u009b31m\u202eb\tc\r\x00\U000e0041z"

// wide has characters of two columns and of none.
const wide = "日本語のe\u0301"

// lists shows each list with n entries whose texts are text.
var lists = map[string]func(a *app, n int, text string) error{
	"session list": func(a *app, n int, text string) error {
		if n == 0 {
			return (&sessionFilter{}).printNone(a)
		}
		return a.showSessions(someSessions(n, text), listTime)
	},
	"ps": func(a *app, n int, text string) error {
		if n == 0 {
			return (&sessionFilter{tag: text}).printNone(a)
		}
		return a.showActivity(someSessions(n, text), listTime)
	},
	"place list": func(a *app, n int, text string) error {
		var places []api.Place
		for i := range n {
			places = append(places, api.Place{Runtime: fmt.Sprintf("docker:%010d", i), Name: "k7", State: api.PlaceUnreachable, User: text, Version: text, Reason: text})
		}
		return a.showPlaces(places, listTime)
	},
	"exec list": func(a *app, n int, text string) error {
		var execs []api.ExecResult
		for i := range n {
			execs = append(execs, api.ExecResult{ExecID: fmt.Sprintf("e-%010d", i), State: api.ExecRunning, Label: text, Cwd: text, StartedAt: api.Time{Time: listTime}})
		}
		return a.showExecs(execs, text, false, listTime)
	},
	"token list": func(a *app, n int, text string) error {
		var tokens []access.Token
		for i := range n {
			tokens = append(tokens, access.Token{ID: fmt.Sprintf("t-%010d", i), Name: text, Tag: text, Created: listTime})
		}
		return a.showTokens(tokens, listTime)
	},
}

func someSessions(n int, text string) (sessions []api.Session) {
	for i := range n {
		sessions = append(sessions, api.Session{
			SessionID: fmt.Sprintf("s-%010d", i), State: api.StateRunning, Name: text, Owner: text, Argv: []string{text}, Cwd: "/" + text, ExecLabel: text,
		})
	}
	return sessions
}

// Every list is aligned and safe with any number of entries and any text, and an
// empty one says so in one line on stderr.
func TestLists(t *testing.T) {
	for name, show := range lists {
		for _, text := range []string{"", "plain", wide, hostile, strings.Repeat("long", 1000)} {
			for _, n := range []int{0, 1, 200} {
				var out, remarks bytes.Buffer
				if err := show(&app{stdout: &out, stderr: &remarks}, n, text); err != nil {
					t.Fatal(err)
				}
				if n == 0 {
					if out.Len() > 0 || strings.Count(remarks.String(), "\n") != 1 || !strings.HasPrefix(remarks.String(), "no ") {
						t.Errorf("an empty %s prints %q and %q", name, &out, &remarks)
					}
					continue
				}
				checkRows(t, name, out.String(), n)
				if remarks.Len() > 0 {
					t.Errorf("%s prints %q to stderr", name, &remarks)
				}
			}
		}
	}
}

// checkRows checks a table with a heading and n rows that differ only in a
// number of fixed length.
func checkRows(t *testing.T, name, text string, n int) {
	t.Helper()
	rows := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(rows) != n+1 || !strings.HasPrefix(rows[0], "ID  ") && !strings.HasPrefix(rows[0], "RUNTIME  ") {
		t.Errorf("%s: %d lines for %d entries, the first is %.80q", name, len(rows), n, rows[0])
	}
	for i, row := range rows {
		if visible(row) != row {
			t.Errorf("%s: line %d is %.200q", name, i, row)
		}
		if i > 0 && textWidth(row) != textWidth(rows[1]) {
			t.Errorf("%s: line %d is %d columns wide, line 1 is %d", name, i, textWidth(row), textWidth(rows[1]))
		}
	}
}

func TestStatusScreen(t *testing.T) {
	sessions := someSessions(30, hostile)
	for i := range sessions {
		sessions[i].LastActivityAt = api.Time{Time: listTime.Add(-time.Duration(i) * time.Second)}
	}
	s := &statusResult{
		Version: "v1", PID: 7, UptimeMS: 90_000, Socket: "/run/" + hostile, HTTP: "127.0.0.1:1", MaxSessions: 33,
		Sessions: map[api.State]int{api.StateIdle: 1, api.StateRunning: 30}, ExecsRunning: 30, Running: longestRunning(sessions),
	}
	s.examine(append(sessions, api.Session{SessionID: "s-odd", Unreadable: hostile}))
	var out bytes.Buffer
	if err := (&app{stdout: &out}).showStatus(s, listTime); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{
		"daemon    version v1, pid 7, up for 1m30s\n", "http      127.0.0.1:1\n", "sessions  1 idle, 30 running, 0 ended and kept\n",
		"problem  sessions  the daemon could not take over 1 of 31: s-odd\n", "note     limit     31 of at most 33 sessions",
		"\ns-0000000029", "\nand 22 more: `trl ps` lists them all\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if lines := strings.Count(text, "\n"); lines > 24 {
		t.Errorf("it has %d lines, more than a screen", lines)
	}
	if strings.Contains(text, "problems  none") || visible(strings.ReplaceAll(text, "\n", "")) != strings.ReplaceAll(text, "\n", "") {
		t.Errorf("it shows\n%s", text)
	}
}

// A template gets the checks of the doctor one by one, and --json all of them
// with their counts.
func TestDoctorAsData(t *testing.T) {
	found := []doctor.Finding{{Check: "a", Grade: doctor.OK}, {Check: "b", Grade: doctor.Note}}
	var out bytes.Buffer
	a := &app{stdout: &out, json: true}
	if err := a.showFindings(found); err != nil || !strings.Contains(out.String(), `"notes": 1`) {
		t.Errorf("%s, %v", &out, err)
	}
	out.Reset()
	if err := a.format.Set("{{.grade}} {{.check}}"); err != nil {
		t.Fatal(err)
	}
	if err := a.showFindings(found); err != nil || out.String() != "ok a\nnote b\n" {
		t.Errorf("%q, %v", &out, err)
	}
}
