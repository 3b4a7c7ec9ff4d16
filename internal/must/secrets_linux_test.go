package must

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// TestMustKeepSecrets gives commands a secret in every possible way, and looks
// for it everywhere else. A decoy is put where a secret must not be, into one
// kind of place after the other: a search that misses the decoy would also miss
// the secret.
func TestMustKeepSecrets(t *testing.T) {
	since := time.Now().Add(-time.Second)
	k := &keeper{rig: start(t, "--log-level", "debug"), secret: canary(), decoy: canary()}
	k.search = newSearch(k.secret, k.decoy)
	k.conn = k.dialLines()
	k.putDecoys()
	for _, shell := range shells {
		k.useSecret(shell)
	}
	k.provokeErrors()
	for _, method := range []string{api.MethodSessionList, api.MethodSystemInfo, api.MethodSystemStats} {
		k.ask(method, nil)
	}
	for _, dir := range []string{k.Dir, os.TempDir(), "/var/tmp", "/dev/shm"} {
		k.files(dir, since)
	}
	k.removeDecoys()
	k.stop()
	k.text("log", []byte(k.Log()))

	for _, place := range k.found[k.secret] {
		t.Errorf("the secret is in %s", place)
	}
	if want, got := []string{"answer", "argv", "environ", "error", "file", "log"}, k.kinds(k.decoy); !slices.Equal(want, got) {
		t.Errorf("the decoy was found in %v, want %v", got, want)
	}
	for _, place := range []string{"file " + k.leaks()[0], "file " + k.leaks()[1], "file " + k.leaks()[2]} {
		if !slices.Contains(k.found[k.decoy], place) {
			t.Errorf("the decoy was not found in %s", place)
		}
	}
	gauge.Figures(t, "a secret in env, stdin and commands of %d shells, %d places searched: found in %d; the decoy in %d",
		len(shells), k.looked, len(k.found[k.secret]), len(k.found[k.decoy]))
}

// keeper is one run of the test.
type keeper struct {
	*rig
	*search
	conn          *gauge.Lines
	secret, decoy string
	id            int
	session       string // the session that was given the secret
}

// line sends a raw line and searches the answer.
func (k *keeper) line(what, line string) (result json.RawMessage, failed bool) {
	k.t.Helper()
	raw, err := k.conn.Ask([]byte(line + "\n"))
	if err != nil {
		k.t.Fatalf("%s: %v", what, err)
	}
	var answer struct {
		Result, Error json.RawMessage
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		k.t.Fatalf("%s: %v", what, err)
	}
	// The answer is shown with the place, without the secret itself.
	shown := strings.ReplaceAll(string(raw[:min(len(raw), 400)]), k.secret, "SECRET")
	if answer.Error != nil {
		k.text("error to "+what+": "+shown, raw)
		return answer.Error, true
	}
	k.text("answer to "+what+": "+shown, raw)
	return answer.Result, false
}

// object is a JSON object.
type object map[string]any

// ask calls a method and searches the answer.
func (k *keeper) ask(method string, params object) (result json.RawMessage, failed bool) {
	k.t.Helper()
	k.id++
	line, err := json.Marshal(object{"jsonrpc": "2.0", "id": k.id, "method": method, "params": params})
	if err != nil {
		k.t.Fatal(err)
	}
	return k.line(method, string(line))
}

// must calls a method that must succeed, and decodes its result.
func (k *keeper) must(into any, method string, params object) {
	k.t.Helper()
	result, failed := k.ask(method, params)
	if failed {
		k.t.Fatalf("%s: %s", method, result)
	}
	if err := json.Unmarshal(result, into); err != nil {
		k.t.Fatal(err)
	}
}

// given reports whether a process belongs to the session that was given the
// secret, or is gone, so that this is unknown.
func (k *keeper) given(pid int) bool {
	if k.session == "" {
		return false
	}
	var info api.SessionInfo
	k.must(&info, api.MethodSessionInfo, object{"session_id": k.session})
	return slices.ContainsFunc(info.Processes, func(p api.Process) bool { return p.PID == pid }) ||
		errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// useSecret uses the secret in one shell in all ways, and searches everything
// meanwhile.
func (k *keeper) useSecret(shell string) {
	k.t.Helper()
	var s api.Session
	k.must(&s, api.MethodSessionCreate, object{"shell": shell, "env": object{"SESSION_SECRET": k.secret}})
	k.session = s.SessionID
	env := object{"EXEC_SECRET": k.secret}
	// It prints that its input is the secret, but not the secret.
	const check = `read -r line; [ "$line" = "$EXEC_SECRET" ] && [ "$line" = "$SESSION_SECRET" ] && echo same; sh -c 'sleep 1; :'`

	var res api.ExecResult
	k.must(&res, api.MethodExecRun, object{
		"session_id": s.SessionID, "command": check, "env": env, "stdin": k.secret + "\n", "yield_ms": 300,
	})
	k.lookAround(&s, &res)
	k.must(&res, api.MethodExecRun, object{
		"session_id": s.SessionID, "command": check, "env": env, "stdin_open": true, "yield_ms": 1, "wait": true,
	})
	k.ask(api.MethodExecInput, object{"exec_id": res.ExecID, "data": k.secret + "\n", "eof": true})
	k.ask(api.MethodExecInput, object{"exec_id": res.ExecID, "data": k.secret}) // refused: it is closed
	k.lookAround(&s, &res)
	k.must(&res, api.MethodExecRun, object{
		"session_id": s.SessionID, "yield_ms": 1, "wait": true,
		"command": `[ "$SESSION_SECRET" = ` + k.secret + ` ] && echo same; sh -c 'sleep 1; :'`,
	})
	k.lookAround(&s, &res)
	// The shell exits while it has the secret, and is replaced.
	for _, command := range []string{"exit 3", "kill -9 $$", "kill -SEGV $$", "true"} {
		k.must(&res, api.MethodExecRun, object{
			"session_id": s.SessionID, "command": command, "env": env, "stdin": k.secret, "wait": true,
		})
	}
	k.ask(api.MethodExecList, object{"session_id": s.SessionID})
	k.ask(api.MethodSessionInfo, object{"session_id": s.SessionID})
	k.ask(api.MethodSessionDestroy, object{"session_id": s.SessionID, "force": true})
	k.ask(api.MethodSessionInfo, object{"session_id": s.SessionID})
	k.ask(api.MethodExecRun, object{"session_id": s.SessionID, "command": "true", "env": env})
}

// lookAround searches everything while a command with the secret runs, then
// checks that the command had it.
func (k *keeper) lookAround(s *api.Session, res *api.ExecResult) {
	k.t.Helper()
	var out api.ExecOutputResult
	if err := eventually(trltest.Patience, func() error {
		k.must(&out, api.MethodExecOutput, object{"exec_id": res.ExecID, "wait_ms": 5000})
		if len(out.Chunks) == 0 || out.Chunks[0].Data != "same\n" {
			return fmt.Errorf("%s: the command wrote %v, want a confirmation that it has the secret", s.Shell, out.Chunks)
		}
		return nil
	}); err != nil {
		k.t.Error(err)
	}
	if out.State != api.ExecRunning {
		k.t.Errorf("%s: the command ended before the search", s.Shell)
	}
	k.ask(api.MethodSessionInfo, object{"session_id": s.SessionID})
	k.ask(api.MethodExecInfo, object{"exec_id": res.ExecID})
	k.ask(api.MethodSessionList, nil)
	k.ask(api.MethodExecRun, object{"session_id": s.SessionID, "command": "true", "stdin": k.secret}) // refused: busy
	k.processes(k.given)
	k.files(k.Dir, time.Time{})
}

// provokeErrors makes the daemon refuse requests that carry the secret.
func (k *keeper) provokeErrors() {
	k.t.Helper()
	var s api.Session
	k.must(&s, api.MethodSessionCreate, nil)
	run := func(more object) object {
		params := object{"session_id": s.SessionID, "command": "true"}
		for name, value := range more {
			params[name] = value
		}
		return params
	}
	env := object{"SECRET": k.secret}
	crashing, dying := k.fakeShell("exit 3"), k.fakeShell("kill -9 $$")
	for _, refused := range []struct {
		method string
		params object
	}{
		{api.MethodExecRun, run(object{"password": k.secret})},
		{api.MethodExecRun, run(object{"command": []string{k.secret}})},
		{api.MethodExecRun, run(object{"timeout_ms": k.secret})},
		{api.MethodExecRun, run(object{"stdin": object{"text": k.secret}})},
		{api.MethodExecRun, run(object{"env": k.secret})},
		{api.MethodExecRun, run(object{"env": object{"1X": k.secret}})},
		{api.MethodExecRun, run(object{"env": object{"A B": k.secret}})},
		{api.MethodExecRun, run(object{"env": object{"X": []string{k.secret}}})},
		{api.MethodExecRun, run(object{"env": object{"X": k.secret + "\x00"}})},
		{api.MethodExecRun, run(object{"stdin": k.secret + "!", "stdin_encoding": "base64"})},
		{api.MethodExecRun, run(object{"stdin": "x", "stdin_encoding": k.secret})},
		{api.MethodExecRun, run(object{"cwd": "/nowhere", "env": env})},
		{api.MethodExecRun, object{"session_id": "s-none", "command": "echo " + k.secret}},
		{api.MethodExecInput, object{"exec_id": "e-none", "data": k.secret}},
		{api.MethodSessionCreate, object{"env": object{"=": k.secret}}},
		{api.MethodSessionCreate, object{"env": object{"X": k.secret + "\x00"}}},
		{api.MethodSessionCreate, object{"env": env, "inherit_env": k.secret}},
		{api.MethodSessionCreate, object{"env": env, "cwd": "/nowhere"}},
		{api.MethodSessionCreate, object{"env": env, "shell": "no-such-shell"}},
		{api.MethodSessionCreate, object{"env": env, "shell": crashing}},
		{api.MethodSessionCreate, object{"env": env, "shell": dying}},
		{api.MethodSessionCreate, object{"env": env, "argv": []string{"no-such-program"}}},
		{api.MethodSessionCreate, object{"env": env, "limits": object{"memory": k.secret}}},
		{"exec.rum", run(object{"env": env})},
	} {
		if result, failed := k.ask(refused.method, refused.params); !failed {
			k.t.Errorf("%s was not refused: %s", refused.method, result)
		}
	}
	whole, err := json.Marshal(object{"jsonrpc": "2.0", "id": 1, "method": api.MethodExecRun, "params": run(object{"stdin": k.secret})})
	if err != nil {
		k.t.Fatal(err)
	}
	for what, line := range map[string]string{
		"cut":       strings.TrimSuffix(string(whole), "}}"),
		"not UTF-8": strings.Replace(string(whole), k.secret, k.secret+"\xff", 1),
		"escape":    strings.Replace(string(whole), k.secret, k.secret+`\q`, 1),
		"too long":  strings.Replace(string(whole), k.secret, strings.Repeat(k.secret, 9<<20/len(k.secret)), 1),
		"bare":      k.secret,
	} {
		if result, failed := k.line(what, line); !failed {
			k.t.Errorf("a line that is %s was not refused: %s", what, result)
		}
	}
	k.destroy(s.SessionID)
}

// fakeShell writes a program that is taken for a shell and does something else.
func (k *keeper) fakeShell(text string) string {
	k.t.Helper()
	path := filepath.Join(k.t.TempDir(), "dash")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil { //nolint:gosec // it must be executable
		k.t.Fatal(err)
	}
	return path
}

// leaks are the files with the decoy.
func (k *keeper) leaks() [3]string {
	return [3]string{
		filepath.Join(k.Dir, "tmp", "leak"), filepath.Join(os.TempDir(), "leak-"+filepath.Base(k.Dir)),
		"/dev/shm/leak-" + filepath.Base(k.Dir),
	}
}

// putDecoys puts the decoy into every kind of place.
func (k *keeper) putDecoys() {
	k.t.Helper()
	k.line("decoy", `{"jsonrpc":"2.0","id":1,"method":"`+k.decoy+`"}`) // an error, and at this level in the log
	var s api.Session
	k.must(&s, api.MethodSessionCreate, object{"name": k.decoy, "env": object{"DECOY": k.decoy}}) // an answer
	for _, leak := range k.leaks() {
		if err := os.WriteFile(leak, []byte("x "+k.decoy), 0o600); err != nil {
			k.t.Fatal(err)
		}
	}
	var res api.ExecResult
	k.must(&res, api.MethodExecRun, object{"session_id": s.SessionID, "command": `sh -c 'sleep 100; :' "$DECOY"`, "yield_ms": 300})
	k.processes(k.given)
	k.destroy(s.SessionID)
}

func (k *keeper) removeDecoys() {
	for _, leak := range k.leaks() {
		if err := os.Remove(leak); err != nil {
			k.t.Error(err)
		}
	}
}
