package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/vt"
)

// event is one event of a recording.
type event struct {
	after float64
	kind  string
	data  string
}

// recordingOf runs `trl exec output --cast` and returns the initial size and
// the events.
func recordingOf(t *testing.T, d *trltest.Daemon, args ...string) (size api.TTYSize, events []event) {
	t.Helper()
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, append([]string{"--socket", d.Socket, "exec", "output", "--cast"}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	var header struct {
		Version int
		Term    api.TTYSize
	}
	if err := json.Unmarshal([]byte(lines[0]), &header); err != nil || header.Version != 3 {
		t.Fatalf("%v: %s", err, lines[0])
	}
	for _, line := range lines[1:] {
		var e event
		if err := json.Unmarshal([]byte(line), &[]any{&e.after, &e.kind, &e.data}); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		events = append(events, e)
	}
	return header.Term, events
}

// wholeState matches a complete line of the progress bar, including its clock.
var wholeState = regexp.MustCompile(`(\d+)% žluť 日 \d{10}\.\d{6}`)

// confirm creates a file for each state of the progress bar once it is on the
// screen.
func confirm(ctx context.Context, c *client.Client, session, dir string) error {
	for last := ""; last != "100"; {
		screen, err := c.Screen(ctx, api.SessionScreenParams{SessionID: session})
		if err != nil {
			return err
		}
		if state := wholeState.FindStringSubmatch(screen.Text); len(state) > 1 && state[1] != last {
			last = state[1]
			if err := os.WriteFile(filepath.Join(dir, last), nil, 0o600); err != nil {
				return err
			}
		}
		time.Sleep(5 * time.Millisecond) // poll: for the next state; the context ends it
	}
	return nil
}

// A recording of a progress bar contains each of its states with its timing,
// where the text view has only the last one. Played to its end it shows the
// session's screen.
func TestRecordingShowsWhatTheScreenDid(t *testing.T) {
	d, err := trltest.Start(trltest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(d.Dir)
	defer d.Kill()
	c, err := client.Dial(t.Context(), d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	states := t.TempDir()
	s, err := c.CreateSession(t.Context(), api.SessionCreateParams{Shell: "bash", Cwd: states, TTY: &api.TTYSize{Rows: 6, Cols: 50}})
	if err != nil {
		t.Fatal(err)
	}
	// Each state contains the time at which it is shown. The next one waits
	// until it was seen, or a busy machine would merge two.
	seen := make(chan error, 1)
	go func() { seen <- confirm(t.Context(), c, s.SessionID, states) }()
	run, err := c.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: `
		for i in 0 20 40 60 80 100; do
			printf '\r\033[32m%-10s\033[0m %3d%% žluť 日 %s' "${bar:0:$((i / 10))}" $i "$EPOCHREALTIME"; bar=##########
			sleep 0.1; n=0; until [ -e $i ] || [ $((n+=1)) -gt 6000 ]; do sleep 0.01; done
		done; echo
		read -p 'make it small: '; printf 'a line that is longer than the terminal is wide by now\n'; stty size`}, YieldOnInput: true})
	if err != nil || run.State != api.ExecRunning {
		t.Fatal(run, err)
	}
	if err := <-seen; err != nil {
		t.Fatal(err)
	}
	if _, early := recordingOf(t, d, run.ExecID); early[len(early)-1].kind != "o" {
		t.Errorf("the recording of a running command ends: %v", early)
	}
	if _, err := c.ResizeSession(t.Context(), api.SessionResizeParams{SessionID: s.SessionID, Rows: 5, Cols: 30}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Input(t.Context(), api.ExecInputParams{ExecID: run.ExecID, Keys: []string{"enter"}}); err != nil {
		t.Fatal(err)
	}
	size, events := recordingOf(t, d, "--follow", run.ExecID)
	info, err := c.ExecInfo(t.Context(), api.ExecParams{ExecID: run.ExecID})
	if err != nil {
		t.Fatal(err)
	}

	screen := vt.New(vt.Config{Rows: size.Rows, Cols: size.Cols})
	clock := 0.0
	var frames []string
	for _, e := range events {
		clock += e.after
		switch e.kind {
		case "o":
			_, _ = screen.Write([]byte(e.data))
			first, _, _ := strings.Cut(screen.Text(0), "\n")
			if !wholeState.MatchString(first) { // the rest is in the next event
				continue
			}
			if len(frames) == 6 || len(frames) > 0 && frames[len(frames)-1] == first {
				continue
			}
			frames = append(frames, first)
			shown, err := strconv.ParseFloat(first[strings.LastIndexByte(first, ' ')+1:], 64)
			if err != nil {
				t.Fatal(err)
			}
			// Output within 10 ms gets the time of its first byte; a busy
			// machine reads late.
			if late := float64(info.StartedAt.UnixMilli())/1000 + clock - shown; late < -0.015 || late > 20 {
				t.Errorf("%q is played %.3f s late", first, late)
			}
		case "r":
			var rows, cols int
			if _, err := fmt.Sscanf(e.data, "%dx%d", &cols, &rows); err != nil {
				t.Fatal(err)
			}
			screen.Resize(rows, cols)
		}
	}
	if got := events[len(events)-1]; got.kind != "x" || got.data != "0" || int64(clock*1000+0.5) != info.DurationMS {
		t.Errorf("the recording ends with %+v after %.3f s; the command took %d ms", got, clock, info.DurationMS)
	}
	for i, percent := range []string{"  0%", " 20%", " 40%", " 60%", " 80%", "100%"} {
		if i >= len(frames) || !strings.Contains(frames[i], percent+" žluť 日") {
			t.Errorf("frame %d of %q is not %s", i, frames, percent)
		}
	}
	shown, err := c.Screen(t.Context(), api.SessionScreenParams{SessionID: s.SessionID, Format: api.ScreenANSI})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(shown.Text, string(screen.ANSI(0))); diff != "" {
		t.Errorf("the recording ends with a different screen: %s", diff)
	}
	text, err := c.Output(t.Context(), api.ExecOutputParams{ExecID: run.ExecID, View: api.ViewText})
	if err != nil {
		t.Fatal(err)
	}
	if got := text.Chunks[0].Data; strings.Contains(got, "80%") || !strings.Contains(got, "100%") {
		t.Errorf("the text view is not the last state: %q", got)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}
