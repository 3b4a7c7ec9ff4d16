package session

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// Programs that wait for input, each by its own means, and programs that do
// something else that takes long. ready is what they print when they are there.
var waiters = []struct {
	name, needs, command, ready string
	want                        api.WaitingFor // "": it does not wait
}{
	{"read of the shell", "", `printf 'ready? '; read x`, "ready?", api.WaitingInput},
	{"read -s", "", `printf 'ready? '; read -s x`, "ready?", api.WaitingPassword},
	{"cat", "", `echo ready; cat`, "ready", api.WaitingInput},
	{"a pipeline", "", `echo ready; cat | sort`, "ready", api.WaitingInput},
	{"head", "", `echo ready; head -n 1`, "ready", api.WaitingInput},
	{"dd of /dev/tty", "", `echo ready; dd if=/dev/tty bs=1 count=1 2>/dev/null`, "ready", api.WaitingInput},
	{"a shell with a prompt", "", `PS1='ready$ ' /bin/sh -i`, "ready$", api.WaitingInput},
	{"bash with readline", "bash", `PS1='ready$ ' bash --norc -i`, "ready$", api.WaitingInput},
	{"python input()", "python3", `python3 -c 'input("ready? ")'`, "ready?", api.WaitingInput},
	{"python getpass", "python3", `python3 -c 'import getpass; getpass.getpass("ready? ")'`, "ready?", api.WaitingPassword},
	{"python REPL", "python3", `python3 -q -c 'import code; code.interact("ready")'`, "ready", api.WaitingInput},
	{"node REPL", "node", `node -e 'require("repl").start("ready> ")'`, "ready>", api.WaitingInput},
	{"node question", "node", `node -e 'require("readline").createInterface({input: process.stdin, output: process.stdout}).question("ready? ", () => {})'`, "ready?", api.WaitingInput},
	{"raw mode", "", `stty raw -echo; printf ready; dd bs=1 count=1 2>/dev/null`, "ready", api.WaitingInput},
	{"sleep", "", `echo ready; sleep 100`, "ready", ""},
	{"a loop", "", `echo ready; while :; do :; done`, "ready", ""},
	{"a loop in a child", "", `echo ready; sh -c 'while :; do :; done'`, "ready", ""},
	{"tail -f", "", `echo ready; tail -f /dev/null`, "ready", ""},
	{"a read of a pipe", "", `echo ready; sleep 100 | cat`, "ready", ""},
	{"a read of the network", "python3", `python3 -c 'import socket; a, b = socket.socketpair(); print("ready", flush=True); a.recv(1)'`, "ready", ""},
	{"wait for a child", "", `echo ready; sh -c 'sleep 100; :'`, "ready", ""},
	{"a background reader", "", `echo ready; sleep 100 & wait`, "ready", ""},
}

func TestWaiting(t *testing.T) {
	p := newPool(t, Config{Grace: 200 * time.Millisecond})
	for _, tc := range waiters {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := exec.LookPath(tc.needs); tc.needs != "" && err != nil {
				if os.Getenv("CI") != "" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			s := onTTY(t, p, "bash")
			r := run(t, p, api.ExecRunParams{SessionID: s.SessionID, Command: tc.command, YieldMS: 1})
			awaitText(t, p, r.ExecID, tc.ready)
			look := func() api.WaitingFor {
				info, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
				if err != nil {
					t.Fatal(err)
				}
				if info.Waiting == nil {
					return ""
				}
				return info.Waiting.For
			}
			// It is there within a tenth of a second, or never.
			got := look()
			for end := time.Now().Add(time.Second); got != tc.want && time.Now().Before(end); got = look() {
				time.Sleep(5 * time.Millisecond)
			}
			for range 20 {
				if got = look(); got != tc.want {
					t.Fatalf("it waits for %q, want %q", got, tc.want)
				}
			}
			if _, err := p.Cancel(t.Context(), api.ExecCancelParams{ExecID: r.ExecID}); err != nil {
				t.Error(err)
			}
			if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID, Force: true}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestYieldOnInput(t *testing.T) {
	p := newPool(t, Config{})
	s := onTTY(t, p, "dash")
	began := time.Now()
	r := run(t, p, api.ExecRunParams{SessionID: s.SessionID, Command: `sleep 0.2; printf 'name? '; read x; echo hello $x`, YieldOnInput: true})
	if r.State != api.ExecRunning || r.Stdout != "name? " || time.Since(began) > 5*time.Second {
		t.Errorf("%+v after %v", r, time.Since(began))
	}
	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: r.ExecID, Data: "you", Keys: []string{"enter"}}); err != nil {
		t.Fatal(err)
	}
	awaitText(t, p, r.ExecID, "hello you")
	if r := run(t, p, api.ExecRunParams{SessionID: s.SessionID, Command: `sleep 0.1`, YieldOnInput: true, Wait: true}); r.State != api.ExecExited {
		t.Errorf("one that does not wait: %+v", r)
	}
	plain := create(t, p, api.SessionCreateParams{})
	if _, err := p.Run(t.Context(), api.ExecRunParams{SessionID: plain.SessionID, Command: "cat", YieldOnInput: true}); !api.IsCode(err, api.CodeInvalidRequest) {
		t.Error(err)
	}
}
