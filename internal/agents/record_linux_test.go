package agents

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// recordVariable names a directory. TestRecord writes there what Codex and Gemini
// CLI say on their structured interfaces, for the tests of internal/dialogue/fold.
const recordVariable = "TRL_RECORD_DIR"

// TestRecord makes the recordings of internal/dialogue/fold/testdata again, in a
// directory of its own for each agent. Each recording is one process of an agent:
//
//	NAME.jsonl        what it wrote
//	NAME.stdin.jsonl  what it was sent
//	NAME.meta.json    its arguments, how it ended, and for each line it was sent,
//	                  after how many lines of output
func TestRecord(t *testing.T) {
	out := os.Getenv(recordVariable)
	if out == "" {
		t.Skipf("%s is not set: it names the directory for the recordings", recordVariable)
	}
	for agent, scenes := range map[string][]scene{"codex": codexScenes, "acp": acpScenes} {
		for _, s := range scenes {
			t.Run(agent+"/"+s.name, func(t *testing.T) {
				bin := filepath.Join(os.Getenv(dirVariable), "node_modules", ".bin")
				if _, err := os.Stat(bin); err != nil {
					trltest.Need(t, err)
				}
				a := codexServer
				if agent == "acp" {
					a = geminiServer
				}
				r := newRig(t, a, bin)
				r.ownSystem = true // there is no daemon
				held := make(chan struct{})
				st := &stage{rig: r, t: t, name: s.name, dir: filepath.Join(out, agent), hold: held}
				st.release = sync.OnceFunc(func() { close(held) })
				t.Cleanup(st.release)
				s.play(st)
			})
		}
	}
}

// scene is what a recording shows.
type scene struct {
	name string
	play func(*stage)
}

// stage is where a scene plays: an agent with its home, its project and its model.
type stage struct {
	*rig
	t       *testing.T
	name    string
	dir     string
	hold    <-chan struct{} // for a reply that is stopped in the middle
	release func()          // lets it go on
}

// models sets what the model says, request by request.
func (s *stage) models(replies ...reply) {
	i := 0
	s.model.expectAny(func(modelInput) reply { // under the lock of the backend
		if i++; i > len(replies) {
			return say("The script is over.")
		}
		return replies[i-1]
	})
}

// with says how a reply is sent.
func (r reply) with(l live) reply {
	r.live = &l
	return r
}

// both returns a reply with several calls.
func both(first, second reply) reply {
	return reply{calls: append(slices.Clone(first.calls), second.calls...)}
}

var codexServer = agent{
	name: "Codex",
	wire: openaiLive{},
	configure: func(r *rig) {
		r.write(filepath.Join(r.home(), ".codex", "config.toml"), `
model = "gpt-5.5"
model_provider = "scripted"
check_for_update_on_startup = false
[model_providers.scripted]
name = "scripted"
base_url = "`+r.model.URL+`/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 2
[tools]
update_plan = { enabled = true }
[features]
default_mode_request_user_input = true
[analytics]
enabled = false
`)
	},
	env:   func(r *rig) []string { return []string{"SCRIPTED_KEY=" + r.key()} },
	begin: func(string) []string { return []string{"codex", "app-server"} },
}

var geminiServer = agent{
	name: "Gemini CLI",
	wire: geminiLive{},
	configure: func(r *rig) {
		r.write(filepath.Join(r.home(), ".gemini", "settings.json"), mustJSON(object{
			"security": object{"auth": object{"selectedType": "gemini-api-key"}},
			"general":  object{"enableAutoUpdate": false, "enableAutoUpdateNotification": false, "sessionRetention": object{"enabled": false}},
			"privacy":  object{"usageStatisticsEnabled": false},
		}))
	},
	env: func(r *rig) []string {
		return []string{"GEMINI_API_KEY=" + r.key(), "GOOGLE_GEMINI_BASE_URL=" + r.model.URL, "GEMINI_CLI_NO_RELAUNCH=true"}
	},
	begin: func(string) []string { return []string{"gemini", "--acp"} },
}

// said is a line of an agent, decoded.
type said struct {
	ID     json.RawMessage
	Method string
	Params map[string]any
	Result map[string]any
	Error  map[string]any
}

// talk is a process of an agent whose lines are recorded.
type talk struct {
	*stage
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan []byte // closed at the end of the output
	stderr bytes.Buffer
	out    [][]byte // what has been read of lines
	sent   [][]byte
	after  []int // for each line of sent: how much of out came before it
	argv   []string
	note   string
	lastID int
	acp    bool
}

// open starts the agent.
func (s *stage) open() *talk {
	s.t.Helper()
	argv := s.begin("")
	d := &talk{stage: s, argv: argv, lines: make(chan []byte, 100000), acp: argv[0] == "gemini"}
	d.cmd = s.command(argv[0], argv[1:]...)
	d.cmd.Path, d.cmd.Err = filepath.Join(s.bin, argv[0]), nil
	d.cmd.Stderr = &d.stderr
	var err error
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(d.lines)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadBytes('\n')
			if len(line) > 0 {
				d.lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	return d
}

// send sends a line.
func (d *talk) send(line object) {
	d.t.Helper()
	if d.acp {
		line["jsonrpc"] = "2.0"
	}
	text := []byte(mustJSON(line) + "\n")
	d.sent, d.after = append(d.sent, text), append(d.after, len(d.out))
	if _, err := d.in.Write(text); err != nil {
		d.t.Fatal(err)
	}
}

// call sends a request, and returns its id.
func (d *talk) call(method string, params object) int {
	d.t.Helper()
	d.lastID++
	d.send(object{"id": d.lastID, "method": method, "params": params})
	return d.lastID
}

// answer answers a request of the agent.
func (d *talk) answer(q said, result object) {
	d.t.Helper()
	d.send(object{"id": q.ID, "result": result})
}

// await reads up to a line that is as wanted.
func (d *talk) await(about string, wanted func(said) bool) said {
	d.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-d.lines:
			if !ok {
				d.t.Fatalf("the agent ended before: %s\n%s", about, &d.stderr)
			}
			d.out = append(d.out, line)
			var m said
			if json.Unmarshal(line, &m) == nil && wanted(m) {
				return m
			}
		case <-deadline:
			d.t.Fatalf("not seen: %s\nlast: %s\n%s", about, bytes.Join(d.out[max(0, len(d.out)-5):], nil), &d.stderr)
		}
	}
}

// result waits for the answer to a call.
func (d *talk) result(id int) said {
	d.t.Helper()
	return d.await(fmt.Sprint("the answer to ", id), func(m said) bool { return m.Method == "" && string(m.ID) == strconv.Itoa(id) })
}

// asked waits for a request of the agent.
func (d *talk) asked() said {
	d.t.Helper()
	return d.await("a request", func(m said) bool { return m.Method != "" && m.ID != nil })
}

// notified waits for a notification.
func (d *talk) notified(method string) said {
	d.t.Helper()
	return d.await(method, func(m said) bool { return m.Method == method })
}

// kill kills the agent and all it has started, and saves the recording.
func (d *talk) kill() {
	d.t.Helper()
	_ = syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL)
	d.save()
}

// finish ends the input of the agent, waits for its end, and saves the recording.
func (d *talk) finish() {
	d.t.Helper()
	_ = d.in.Close()
	d.save()
}

// hangUp ends the input, and ends the agent if it goes on after that.
func (d *talk) hangUp() {
	d.t.Helper()
	_ = d.in.Close()
	timer := time.AfterFunc(20*time.Second, func() { _ = syscall.Kill(-d.cmd.Process.Pid, syscall.SIGTERM) })
	defer timer.Stop()
	d.save()
}

// save waits for the end of the agent and writes the recording.
func (d *talk) save() {
	d.t.Helper()
	for line := range d.lines {
		d.out = append(d.out, line)
	}
	_ = d.cmd.Wait() // its status is recorded
	status, _ := d.cmd.ProcessState.Sys().(syscall.WaitStatus)
	meta := object{"argv": d.argv, "after": d.after, "stderr": string(d.clean(last(d.stderr.Bytes(), 2000)))}
	if status.Signaled() {
		meta["signal"] = status.Signal().String()
	} else {
		meta["exit_code"] = status.ExitStatus()
	}
	if d.note != "" {
		meta["note"] = d.note
	}
	text, err := json.MarshalIndent(meta, "", " ")
	if err != nil {
		d.t.Fatal(err)
	}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		d.t.Fatal(err)
	}
	for suffix, data := range map[string][]byte{
		".jsonl":       d.clean(bytes.Join(d.out, nil)),
		".stdin.jsonl": d.clean(bytes.Join(d.sent, nil)),
		".meta.json":   append(text, '\n'),
	} {
		if err := os.WriteFile(filepath.Join(d.dir, d.name+suffix), data, 0o644); err != nil {
			d.t.Fatal(err)
		}
	}
	d.t.Logf("%d lines, %v", len(d.out), d.cmd.ProcessState)
}

// last returns at most the last n bytes.
func last(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

var installation = regexp.MustCompile(`("installationId":")[0-9a-f-]+`)

// clean replaces what is particular to this machine.
func (d *talk) clean(text []byte) []byte {
	host, _ := os.Hostname()
	text = installation.ReplaceAll(text, []byte(`${1}00000000-0000-4000-8000-000000000000`))
	pairs := []string{
		filepath.Base(d.rig.dir) + "/project", "home/dev/project", // in a diff, whose names are relative
		d.project, "/home/dev/project", d.home(), "/home/dev", d.rig.dir, "/home/dev/.local",
		filepath.Dir(filepath.Dir(d.bin)), "/opt/agents", d.model.URL, "http://127.0.0.1:8080", d.key(), "key",
		`"serverName":"` + host + `"`, `"serverName":"host"`,
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(text)))
}
