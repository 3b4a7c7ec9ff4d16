package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// cmdHTTP makes a request that must have the given status, and writes the body
// to the file body:
//
//	http [-token T] [-host H] [-origin O] [-until] STATUS METHOD URL [BODY]
//
// With -until it repeats the request until the status matches. And
//
//	! http HOST:PORT
//
// checks that nothing listens there.
func cmdHTTP(ts *testscript.TestScript, neg bool, args []string) {
	if neg && len(args) == 1 {
		if conn, err := net.Dial("tcp", args[0]); err == nil {
			conn.Close()
			ts.Fatalf("something listens on %s", args[0])
		}
		return
	}
	flags := flag.NewFlagSet("http", flag.ContinueOnError)
	token, host, origin := flags.String("token", "", ""), flags.String("host", "", ""), flags.String("origin", "", "")
	until := flags.Bool("until", false, "")
	ts.Check(flags.Parse(args))
	if neg || flags.NArg() < 3 || flags.NArg() > 4 {
		ts.Fatalf("usage: http [-token T] [-host H] [-origin O] [-until] STATUS METHOD URL [BODY]")
	}
	want, err := strconv.Atoi(flags.Arg(0))
	ts.Check(err)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // poll: with -until, for the status
		r, err := http.NewRequestWithContext(context.Background(), flags.Arg(1), flags.Arg(2), strings.NewReader(flags.Arg(3)))
		ts.Check(err)
		r.Host = *host
		r.Close = true
		r.Header.Set("Content-Type", "application/json")
		if *token != "" {
			r.Header.Set("Authorization", "Bearer "+*token)
		}
		if *origin != "" {
			r.Header.Set("Origin", *origin)
		}
		response, err := http.DefaultClient.Do(r)
		ts.Check(err)
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs("body"), body, 0o600))
		if response.StatusCode == want {
			return
		}
		if !*until || time.Now().After(deadline) {
			ts.Fatalf("status %d, want %d: %s", response.StatusCode, want, body)
		}
	}
}

// httpDaemon is a daemon that serves HTTP.
type httpDaemon struct {
	t      *testing.T
	daemon *trltest.Daemon
	url    string
	client *http.Client
}

func startHTTPDaemon(t *testing.T, args ...string) *httpDaemon {
	t.Helper()
	dir, err := trltest.NewDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &httpDaemon{t: t, client: http.DefaultClient}
	s.token(dir, "--scope", "read") // it does not start without a token
	s.daemon, err = trltest.Start(trltest.Config{Dir: dir, Args: append([]string{"--http", "127.0.0.1:0"}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.daemon.Kill)
	var info api.SystemInfo
	if err := json.Unmarshal(s.trl(dir, "info", "--json"), &info); err != nil {
		t.Fatal(err)
	}
	s.url = fmt.Sprint("http://", info.Config["http"])
	return s
}

func (s *httpDaemon) port() string {
	s.t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	return port
}

// trl runs a command line with the daemon's environment.
func (s *httpDaemon) trl(dir string, args ...string) []byte {
	s.t.Helper()
	binary, err := trltest.Binary()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(trltest.Environ(dir), "TRL_SOCKET="+trltest.SocketIn(dir))
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("trl %v: %v", args, err)
	}
	return out
}

// token creates a token and returns once the daemon knows it.
func (s *httpDaemon) token(dir string, args ...string) string {
	s.t.Helper()
	secret := strings.TrimSpace(string(s.trl(dir, append([]string{"token", "create"}, args...)...)))
	if s.daemon != nil {
		trltest.Eventually(s.t, "the daemon knows the token", func() bool {
			status, _ := s.call(secret, api.MethodSystemPing, nil, nil)
			return status == 200
		})
	}
	return secret
}

func (s *httpDaemon) request(ctx context.Context, secret, method, path string, body io.Reader) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// call makes one call and decodes its result.
func (s *httpDaemon) call(secret, method string, params, result any) (status int, failure *api.Error) {
	s.t.Helper()
	text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := s.client.Do(s.request(s.t.Context(), secret, "POST", "/rpc", bytes.NewReader(text)))
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		Result json.RawMessage `json:"result"`
		Error  *api.Error      `json:"error"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		s.t.Fatal(err)
	}
	if answer.Error == nil && result != nil {
		if err := json.Unmarshal(answer.Result, result); err != nil {
			s.t.Fatal(err)
		}
	}
	return response.StatusCode, answer.Error
}

func (s *httpDaemon) mustCall(secret, method string, params, result any) {
	s.t.Helper()
	if status, failure := s.call(secret, method, params, result); status != 200 || failure != nil {
		s.t.Fatalf("%s: %d %v", method, status, failure)
	}
}

// follow reads events until the exit, or until there are n, and returns the
// last id.
func (s *httpDaemon) follow(secret, execID, lastID string, n int, take func(api.Chunk)) (last string, exited bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	r := s.request(ctx, secret, "GET", "/v1/execs/"+execID+"/stream", http.NoBody)
	r.Header.Set("Last-Event-ID", lastID)
	response, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 200 {
		s.t.Fatalf("status %d", response.StatusCode)
	}
	in := bufio.NewReader(response.Body)
	last = lastID
	for id := ""; n > 0; {
		line, err := in.ReadString('\n')
		if err != nil {
			s.t.Fatalf("the stream ended without an exit: %v", err)
		}
		if text, ok := strings.CutPrefix(line, "id: "); ok {
			id = strings.TrimSpace(text)
		}
		text, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var chunk api.Chunk
		if err := json.Unmarshal([]byte(text), &chunk); err != nil {
			s.t.Fatal(err)
		}
		if id != strconv.FormatInt(chunk.Next, 10) {
			s.t.Fatalf("event %q has next %d", id, chunk.Next)
		}
		n--
		last = id
		if chunk.Type == api.ChunkExit {
			if rest, err := io.ReadAll(in); err != nil || strings.TrimSpace(string(rest)) != "" {
				s.t.Errorf("after the exit: %q, %v", rest, err)
			}
			return last, true
		}
		take(chunk)
	}
	return last, false
}

// TestEventsResumeByteForByte drops the connection after every two events of a
// command that writes to both streams, including invalid UTF-8.
func TestEventsResumeByteForByte(t *testing.T) {
	s := startHTTPDaemon(t)
	secret := s.token(s.daemon.Dir, "--scope", "run")
	var session api.Session
	s.mustCall(secret, api.MethodSessionCreate, nil, &session)
	const command = `i=0; while [ $i -lt 60 ]; do echo "line $i é"; echo "to stderr $i" >&2; printf '\377\000'; i=$((i+1)); [ $((i%20)) -eq 0 ] && sleep 0.05; done; head -c 300000 /dev/zero | tr '\0' x`
	var started api.ExecStreamResult
	s.mustCall(secret, api.MethodExecStream, api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: session.SessionID, Command: command}}, &started)

	got := map[api.ChunkType]*bytes.Buffer{api.ChunkStdout: {}, api.ChunkStderr: {}}
	connections := 0
	for last, exited := "", false; !exited; connections++ {
		at := int64(0)
		if last != "" {
			at, _ = strconv.ParseInt(last, 10, 64)
		}
		last, exited = s.follow(secret, started.ExecID, last, 2, func(c api.Chunk) {
			content, err := c.Content()
			if err != nil || c.Offset != at {
				t.Fatalf("a chunk at %d, want %d (%v)", c.Offset, at, err)
			}
			at = c.Next
			got[c.Type].Write(content)
		})
	}
	if connections < 3 {
		t.Errorf("only %d connections: nothing was resumed", connections)
	}
	for stream, buffer := range got {
		want, err := exec.Command("sh", "-c", command).Output()
		if stream == api.ChunkStderr {
			want, err = exec.Command("sh", "-c", "("+command+") 2>&1 >/dev/null").Output()
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(buffer.Bytes(), want) {
			t.Errorf("%s: %d bytes differ from the %d of the command", stream, buffer.Len(), len(want))
		}
	}
	if err := s.daemon.Stop(); err != nil {
		t.Error(err)
	}
}

// TestTagBoundToken runs two teams on one daemon; neither can tell that the
// other exists.
func TestTagBoundToken(t *testing.T) {
	s := startHTTPDaemon(t)
	dir := s.daemon.Dir
	red, blue := s.token(dir, "--scope", "run", "--tag", "red"), s.token(dir, "--scope", "run", "--tag", "blue")
	if status, failure := s.call(red, api.MethodSessionCreate, nil, nil); status != 403 || !api.IsCode(failure, api.CodeForbidden) {
		t.Errorf("without a tag: %d %v", status, failure)
	}
	var mine, theirs api.Session
	s.mustCall(red, api.MethodSessionCreate, api.SessionCreateParams{Tags: []string{"red"}}, &mine)
	s.mustCall(blue, api.MethodSessionCreate, api.SessionCreateParams{Tags: []string{"blue"}}, &theirs)
	var ran api.ExecResult
	s.mustCall(blue, api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: theirs.SessionID, Command: "echo secret"}}, &ran)

	// Objects of others and missing objects give the same answer.
	for name, pair := range map[string][2]func() (int, *api.Error){
		"session": {
			func() (int, *api.Error) {
				return s.call(red, api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: theirs.SessionID, Command: "id"}}, nil)
			},
			func() (int, *api.Error) {
				return s.call(red, api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "s-nothing000", Command: "id"}}, nil)
			},
		},
		"exec": {
			func() (int, *api.Error) {
				return s.call(red, api.MethodExecOutput, api.ExecParams{ExecID: ran.ExecID}, nil)
			},
			func() (int, *api.Error) {
				return s.call(red, api.MethodExecOutput, api.ExecParams{ExecID: "e-nothing000"}, nil)
			},
		},
	} {
		status, foreign := pair[0]()
		otherStatus, missing := pair[1]()
		if foreign == nil || missing == nil || foreign.Error() != missing.Error() || status != otherStatus {
			t.Errorf("%s: %d %v, and a missing one %d %v", name, status, foreign, otherStatus, missing)
		}
	}
	response, err := s.client.Do(s.request(t.Context(), red, "GET", "/v1/execs/"+ran.ExecID+"/stream", http.NoBody))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 404 {
		t.Errorf("events of another's exec: %d", response.StatusCode)
	}
	var list api.SessionListResult
	s.mustCall(red, api.MethodSessionList, nil, &list)
	if len(list.Sessions) != 1 || list.Sessions[0].SessionID != mine.SessionID {
		t.Errorf("the list is %+v", list.Sessions)
	}
	s.mustCall(red, api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: mine.SessionID, Command: "true"}}, nil)

	// Neither the daemon's configuration nor its total load is visible.
	var stats api.SystemStats
	s.mustCall(red, api.MethodSystemStats, nil, &stats)
	if stats.SessionsTotal != 1 || stats.Sessions[api.StateIdle] != 1 || stats.ExecsTotal != 1 || stats.Memory != 0 || stats.BytesCaptured != 0 {
		t.Errorf("the stats are %+v", stats)
	}
	var info json.RawMessage
	s.mustCall(red, api.MethodSystemInfo, nil, &info)
	if strings.Contains(string(info), dir) || strings.Contains(string(info), "max_sessions") || !strings.Contains(string(info), `"shells":["sh"`) {
		t.Errorf("the info is %s", info)
	}
	if response, err = s.client.Do(s.request(t.Context(), red, "GET", "/metrics", http.NoBody)); err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 403 {
		t.Errorf("the metrics: %d", response.StatusCode)
	}
	if err := s.daemon.Stop(); err != nil {
		t.Error(err)
	}
}

// TestUnauthenticatedLeaveRoom opens more idle connections without a token than the
// daemon accepts at once.
func TestUnauthenticatedLeaveRoom(t *testing.T) {
	const strangers = 1300
	s := startHTTPDaemon(t)
	reader := s.token(s.daemon.Dir, "--scope", "read")
	s.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	for _, sent := range []string{"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "", "GET /healthz HTTP/1.1\r\nHost: loc"} {
		var open []net.Conn
		for range strangers {
			nc, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, nc)
			if _, err := io.WriteString(nc, sent); err != nil {
				t.Fatal(err)
			}
		}
		s.mustCall(reader, api.MethodSystemPing, nil, nil)
		for _, nc := range open {
			nc.Close()
		}
	}
	if err := s.daemon.Stop(); err != nil {
		t.Error(err)
	}
}

// TestWatchOfTagBoundToken checks that a watch over a WebSocket reports
// sessions with the token's tag only.
func TestWatchOfTagBoundToken(t *testing.T) {
	s := startHTTPDaemon(t)
	red, all := s.token(s.daemon.Dir, "--scope", "run", "--tag", "red"), s.token(s.daemon.Dir, "--scope", "run")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ws, response, err := websocket.Dial(ctx, s.url+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + red}}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if response.Body != nil {
		defer response.Body.Close()
	}
	if err := ws.Write(ctx, websocket.MessageText, []byte(`{"jsonrpc":"2.0","id":1,"method":"session.watch"}`)); err != nil {
		t.Fatal(err)
	}
	if _, answer, err := ws.Read(ctx); err != nil || !strings.Contains(string(answer), "stream_id") {
		t.Fatalf("%s, %v", answer, err)
	}
	s.mustCall(all, api.MethodSessionCreate, api.SessionCreateParams{Tags: []string{"blue"}}, nil)
	var mine api.Session
	s.mustCall(all, api.MethodSessionCreate, api.SessionCreateParams{Tags: []string{"red"}}, &mine)
	_, note, err := ws.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var event struct{ Params api.SessionEvent }
	if err := json.Unmarshal(note, &event); err != nil || event.Params.SessionID != mine.SessionID || event.Params.Type != api.EventCreated {
		t.Errorf("%s, %v", note, err)
	}
	if err := s.daemon.Stop(); err != nil {
		t.Error(err)
	}
}

// TestShutdownAnswersOverHTTP checks that a caller waiting for a command when
// the daemon is stopped gets the result, and that a follower sees the exit.
func TestShutdownAnswersOverHTTP(t *testing.T) {
	s := startHTTPDaemon(t)
	secret := s.token(s.daemon.Dir, "--scope", "run")
	var session, other api.Session
	s.mustCall(secret, api.MethodSessionCreate, nil, &session)
	s.mustCall(secret, api.MethodSessionCreate, nil, &other)
	var started api.ExecStreamResult
	s.mustCall(secret, api.MethodExecStream, api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: session.SessionID, Command: "echo on; sleep 1000"}}, &started)
	on := make(chan struct{}, 1)
	followed := make(chan bool, 1)
	go func() {
		_, exited := s.follow(secret, started.ExecID, "", 1000, func(api.Chunk) { on <- struct{}{} })
		followed <- exited
	}()
	<-on
	ran := make(chan error, 1)
	go func() {
		var result api.ExecResult
		_, failure := s.call(secret, api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: other.SessionID, Command: "sleep 1000"}}, &result)
		switch {
		case failure != nil:
			ran <- failure
		case result.Outcome != api.OutcomeCancelled:
			ran <- fmt.Errorf("outcome %s", result.Outcome)
		default:
			ran <- nil
		}
	}()
	trltest.Eventually(t, "both commands run", func() bool {
		var stats api.SystemStats
		s.mustCall(secret, api.MethodSystemStats, nil, &stats)
		return stats.ExecsRunning == 2
	})
	if err := s.daemon.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-ran; err != nil {
		t.Errorf("the waiting call got %v", err)
	}
	if !<-followed {
		t.Error("the follower saw no exit")
	}
}

// TestMetrics reads the metrics, and checks that method names made up by
// clients are not labels.
func TestMetrics(t *testing.T) {
	s := startHTTPDaemon(t)
	secret := s.token(s.daemon.Dir, "--scope", "run")
	var session api.Session
	s.mustCall(secret, api.MethodSessionCreate, nil, &session)
	s.mustCall(secret, api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: session.SessionID, Command: "echo hello; exit 3"}}, nil)
	timeout := int64(50)
	s.mustCall(secret, api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: session.SessionID, Command: "sleep 100", TimeoutMS: &timeout}}, nil)
	for i := range 3 {
		s.call(secret, fmt.Sprintf("made.up%d", i), nil, nil)
	}
	var stats api.SystemStats
	s.mustCall(secret, api.MethodSystemStats, nil, &stats)
	if stats.BytesCaptured < int64(len("hello\n")) {
		t.Errorf("%d bytes were captured", stats.BytesCaptured)
	}
	response, err := s.client.Do(s.request(t.Context(), secret, "GET", "/metrics", http.NoBody))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`trl_sessions{state="idle"} 1`, `trl_execs_total{outcome="shell_exited"} 1`, `trl_execs_total{outcome="timed_out"} 1`,
		`trl_exec_duration_seconds_count 2`, `trl_request_duration_seconds_count{method="exec.run"} 2`,
		`trl_requests_total{code="OK",method="exec.run"} 2`, `trl_requests_total{code="METHOD_NOT_FOUND",method="unknown"} 3`,
		fmt.Sprintf("trl_output_bytes_total %d\n", stats.BytesCaptured), `trl_kills_total 1`, `trl_survivors_total 0`,
		`trl_journal_memory_bytes `, `trl_journal_spilled_bytes 0`, `go_goroutines `, `process_open_fds `,
	} {
		if !strings.Contains(string(text), "\n"+line) {
			t.Errorf("no %q", line)
		}
	}
	if strings.Contains(string(text), "made.up") {
		t.Error("a made-up method is a label")
	}
	if err := s.daemon.Stop(); err != nil {
		t.Error(err)
	}
}

// TestNoTokenInTheLog reads the log of a daemon at debug level.
func TestNoTokenInTheLog(t *testing.T) {
	s := startHTTPDaemon(t, "--log-level", "debug")
	secret := s.token(s.daemon.Dir, "--scope", "run")
	s.mustCall(secret, api.MethodSystemPing, nil, nil)
	if status, _ := s.call(secret+"x", api.MethodSystemPing, nil, nil); status != 401 {
		t.Errorf("a wrong token: %d", status)
	}
	if err := s.daemon.Stop(); err != nil {
		t.Error(err)
	}
	if log := s.daemon.Log(); strings.Contains(log, secret) || strings.Contains(log, "Bearer") || !strings.Contains(log, "system.ping") {
		t.Errorf("the log: %s", log)
	}
}
