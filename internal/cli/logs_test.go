package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
)

func TestParseSince(t *testing.T) {
	zone := time.FixedZone("CET", 3600)
	now := time.Date(2026, 11, 17, 20, 15, 30, 500, zone)
	for text, want := range map[string]time.Time{
		"10m":                       now.Add(-10 * time.Minute),
		"1h30m":                     now.Add(-90 * time.Minute),
		"90":                        now.Add(-90 * time.Second),
		"0":                         now,
		"14:30":                     time.Date(2026, 11, 17, 14, 30, 0, 0, zone),
		"14:30:05":                  time.Date(2026, 11, 17, 14, 30, 5, 0, zone),
		"2026-11-16":                time.Date(2026, 11, 16, 0, 0, 0, 0, zone),
		"2026-11-16 08:00":          time.Date(2026, 11, 16, 8, 0, 0, 0, zone),
		"2026-11-16 08:00:01":       time.Date(2026, 11, 16, 8, 0, 1, 0, zone),
		"2026-11-16T08:00:01":       time.Date(2026, 11, 16, 8, 0, 1, 0, zone),
		"2026-11-16T08:00:01.25Z":   time.Date(2026, 11, 16, 8, 0, 1, 25e7, time.UTC),
		"2026-11-16T08:00:01+02:00": time.Date(2026, 11, 16, 6, 0, 1, 0, time.UTC),
	} {
		if got, ok := parseSince(text, now); !ok || !got.Equal(want) {
			t.Errorf("%s: %s %t, want %s", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "soon", "-10m", "25:00", "2026-13-01", "10 m"} {
		if got, ok := parseSince(text, now); ok {
			t.Errorf("%q is taken as %s", text, got)
		}
	}
}

// logLines prints lines as `trl logs` does.
func logLines(t *testing.T, p logPrinter, lines ...string) string {
	t.Helper()
	var out bytes.Buffer
	p.to = &out
	for _, line := range lines {
		if err := p.print(line); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func TestLogLines(t *testing.T) {
	at := time.Date(2026, 11, 17, 20, 0, 0, 123e6, time.UTC)
	stamp := at.Local().Format(timestampLayout)
	record := `{"time":"2026-11-17T20:00:00.123456Z","level":"WARN","msg":"a message","z":"two words","a":{"n":[1]},"pid":7,"e":""}`
	for name, tc := range map[string]struct{ line, people, json string }{
		"record":  {record, stamp + ` WARN  a message z="two words" a="{\"n\":[1]}" pid=7 e=""`, record},
		"text":    {`time=2026-11-17T20:00:00Z level=INFO msg=x`, `time=2026-11-17T20:00:00Z level=INFO msg=x`, `{"msg":"time=2026-11-17T20:00:00Z level=INFO msg=x"}`},
		"panic":   {"goroutine 1 [running]:", "goroutine 1 [running]:", `{"msg":"goroutine 1 [running]:"}`},
		"cut off": {`{"time":"2026`, `{"time":"2026`, `{"msg":"{\"time\":\"2026"}`},
		"hostile": {"\x1b[2J\u202e", `\x1b[2J\u202e`, `{"msg":"\u001b[2J\u202e"}`},
		"odd":     {`{"level":3,"msg":"\u001b[2J","\u202e":"\u009b"}`, ` 3     \x1b[2J \u202e="\u009b"`, `{"level":3,"msg":"\u001b[2J","\u202e":"\u009b"}`},
	} {
		if got := logLines(t, logPrinter{}, tc.line); got != tc.people+"\n" {
			t.Errorf("%s: got  %s want %s", name, got, tc.people)
		}
		if got := logLines(t, logPrinter{json: true}, tc.line); got != tc.json+"\n" {
			t.Errorf("%s: got  %s want %s", name, got, tc.json)
		}
	}
	// Lines without a time belong to the record before them.
	old := strings.Replace(record, "T20:", "T19:", 1)
	got := logLines(t, logPrinter{json: true, since: at}, "stray", old, "of old", record, "of record")
	if want := record + "\n" + `{"msg":"of record"}` + "\n"; got != want {
		t.Errorf("since: got\n%swant\n%s", got, want)
	}
}

// A followed log that begins anew loses no line and repeats none.
func TestFollowedLogBeginsAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	log := &logFile{path: path, old: path + ".old"}
	var got []string
	step := func(current, old string) {
		t.Helper()
		err := os.WriteFile(path, []byte(current), 0o600)
		if old != "" {
			err = errors.Join(err, os.WriteFile(path+".old", []byte(old), 0o600))
		}
		if err = errors.Join(err, log.readNew(func(line string) error { got = append(got, line); return nil })); err != nil {
			t.Fatal(err)
		}
	}
	step("1\n2\nhal", "")
	step("1\n2\nhalf\n", "")
	step("4\n", "1\n2\nhalf\n3\n")
	step("4\n5\n", "")
	if diff := cmp.Diff([]string{"1", "2", "half", "3", "4", "5"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestLogElsewhere(t *testing.T) {
	for target, want := range map[string]string{
		"/dev/pts/3":       "logs to the terminal /dev/pts/3",
		"/dev/null":        "logs nowhere",
		"pipe:[1]":         "logs to the process that started it",
		"/gone (deleted)":  "logs to /gone (deleted)",
		"socket:[1] u":     "logs to the journal|journalctl -u trl.service",
		"socket:[1] u own": "logs to the journal|journalctl --user -u trl.service",
		"socket:[1]":       "logs to the process that started it",
	} {
		target, unit, ofUser := target, "", false
		if link, kind, ok := strings.Cut(target, " u"); ok {
			target, unit, ofUser = link, "trl.service", kind != ""
		}
		err := logElsewhereError("/s", target, unit, ofUser)
		var local localError
		if !errors.As(err, &local) {
			t.Fatalf("%v", err)
		}
		message, hint, _ := strings.Cut(want, "|")
		if !strings.Contains(local.api.Message, message) || !strings.Contains(local.api.Hint, hint) {
			t.Errorf("%s: %q, hint %q", target, local.api.Message, local.api.Hint)
		}
	}
}

// storedOutput answers exec.output from memory, some bytes at a time.
type storedOutput struct {
	data string
	read int64
}

func (s *storedOutput) Output(_ context.Context, p api.ExecOutputParams) (*api.ExecOutputResult, error) {
	end := min(int64(len(s.data)), p.From+min(*p.MaxBytes, 1000))
	s.read += end - p.From
	middle := (p.From + end) / 2
	return &api.ExecOutputResult{Next: end, Chunks: []api.Chunk{
		{Type: api.ChunkStdout, Offset: p.From, Data: s.data[p.From:middle], Next: middle},
		{Type: api.ChunkStderr, Offset: middle, Data: s.data[middle:end], Next: end},
	}}, nil
}

func (s *storedOutput) ExecInfo(context.Context, api.ExecParams) (*api.ExecResult, error) {
	return nil, errors.New("not needed")
}

func TestLastLines(t *testing.T) {
	var long strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&long, "line %d\n", i)
	}
	for name, data := range map[string]string{
		"empty": "", "one": "x", "ended": "x\n", "two": "x\ny", "blank": "\n\n\n", "long": long.String(), "unfinished": long.String() + "end",
	} {
		lines := strings.SplitAfter(data, "\n")
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		for _, count := range []int{0, 1, 2, 3, 20_000, 1_000_000} {
			stored := &storedOutput{data: data}
			from, err := lastLines(t.Context(), stored, &api.ExecResult{StdoutBytes: int64(len(data))}, count)
			if err != nil {
				t.Fatal(err)
			}
			if want := strings.Join(lines[max(0, len(lines)-count):], ""); data[from:] != want {
				t.Errorf("%s, %d: begins at %d", name, count, from)
			}
			if count < 4 && stored.read > firstTail {
				t.Errorf("%s, %d: read %d bytes", name, count, stored.read)
			}
		}
	}
}

func TestEventLines(t *testing.T) {
	at := time.Date(2026, 11, 17, 20, 0, 0, 123e6, time.UTC)
	stamp := at.Local().Format(timestampLayout)
	code := 3
	for want, event := range map[string]api.SessionEvent{
		" s-1 - running e-1 make":                                       {Type: api.EventSnapshot, State: api.StateRunning, ExecID: "e-1", ExecLabel: "make"},
		" s-1 - started e-1 make":                                       {Type: api.EventExecStarted, ExecID: "e-1", ExecLabel: "make"},
		" s-1 - ended e-1 make (exited, exit code 3)":                   {Type: api.EventExecEnded, ExecID: "e-1", ExecLabel: "make", Outcome: api.OutcomeExited, ExitCode: &code},
		" s-1 - ended e-1 (cancelled)":                                  {Type: api.EventExecEnded, ExecID: "e-1", Outcome: api.OutcomeCancelled},
		" s-1 - waits for password e-1 sudo …":                          {Type: api.EventWaiting, ExecID: "e-1", ExecLabel: "sudo …", Waiting: &api.Waiting{For: api.WaitingPassword}},
		" s-1 - goes on e-1 sudo …":                                     {Type: api.EventWaitingEnded, ExecID: "e-1", ExecLabel: "sudo …"},
		" these were the sessions that there are; what happens follows": {Type: api.EventSnapshotEnd},
		" s-1 - created":                                                {Type: api.EventCreated, State: api.StateIdle},
		" s-1 build running e-1 make test":                              {Type: api.EventState, State: api.StateRunning, ExecID: "e-1", ExecLabel: "make test", Name: "build"},
		" s-1 build running e-2":                                        {Type: api.EventState, State: api.StateRunning, ExecID: "e-2", Name: "build"},
		" s-1 build idle":                                               {Type: api.EventState, State: api.StateIdle, Name: "build"},
		` s-1 "a b\n" destroyed (idle)`:                                 {Type: api.EventDestroyed, Reason: "idle", Name: "a b\n"},
		` s-1 - held by \x1bx`:                                          {Type: api.EventHeld, Holder: "\x1bx"},
		" s-1 - released":                                               {Type: api.EventReleased},
		" s-1 - resized to 24x80":                                       {Type: api.EventResized, TTY: &api.TTYSize{Rows: 24, Cols: 80}},
		" 7 events are missing: they came too fast; `trl session list` shows the sessions":                  {Type: api.EventGap, Missed: 7},
		" events may be missing: the connection to a place was lost; `trl session list` shows the sessions": {Type: api.EventGap, Reason: api.ReasonDisconnected},
	} {
		event.At, event.SessionID = api.Time{Time: at}, "s-1"
		if got := eventLine(&event); got != stamp+want {
			t.Errorf("got %q, want %q", got, stamp+want)
		}
	}
}
