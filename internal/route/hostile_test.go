package route

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/service"
)

// scripted is a place that answers as a test says.
type scripted struct {
	conn     *peer.Conn
	foreign  bool
	requests chan string // as they arrive
}

func (*scripted) Name() string      { return "k7" }
func (*scripted) Runtime() string   { return "cmd:k7" }
func (s *scripted) Connected() bool { return !s.conn.Ended() }
func (s *scripted) Delegates() bool { return !s.foreign }

func (s *scripted) Touch()            {}
func (s *scripted) SessionDestroyed() {}

func (s *scripted) Conn(context.Context) (*peer.Conn, error) {
	if s.conn.Ended() {
		return nil, api.Errorf(api.CodeRuntimeUnavailable, "gone").With("sent", "no").With("reason", "unreachable").With("retry_after_ms", 60_000)
	}
	return s.conn, nil
}

func (s *scripted) OpenStream(ctx context.Context) (*peer.Conn, bool, func(), error) {
	c, err := s.Conn(ctx)
	return c, false, func() {}, err
}

func (s *scripted) Find(name string) Place {
	if name == s.Name() {
		return s
	}
	return nil
}
func (s *scripted) Get(context.Context, string) (Place, string, error) { return s, "", nil }
func (s *scripted) MakesSingle(string) bool                            { return false }
func (s *scripted) Single(context.Context, string, api.Limits, string) (Place, func(), error) {
	return nil, nil, nil
}
func (s *scripted) All() []Place             { return []Place{s} }
func (s *scripted) Changed() <-chan struct{} { return nil }

// answering returns a place that sends the lines after each request; $N stands for
// the id of the request.
func answering(t *testing.T, lines ...string) *scripted {
	t.Helper()
	return answeringEach(t, func(int) []string { return lines })
}

// answeringEach is the same, with the lines for each request: the first is number 0.
func answeringEach(t *testing.T, lines func(request int) []string) *scripted {
	t.Helper()
	ours, theirs := net.Pipe()
	s := &scripted{conn: peer.NewConn(peer.NewLineWire(ours)), requests: make(chan string, 100)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		in := bufio.NewReader(theirs)
		for request := 0; ; request++ {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			s.requests <- line
			var head struct{ ID json.RawMessage }
			_ = json.Unmarshal([]byte(line), &head)
			for _, answer := range lines(request) {
				if _, err := theirs.Write([]byte(strings.ReplaceAll(answer, "$N", string(head.ID)) + "\n")); err != nil {
					return
				}
			}
		}
	}()
	t.Cleanup(func() {
		s.conn.Close()
		theirs.Close()
		<-done
	})
	return s
}

func callPlace(t *testing.T, s *scripted, method, params string) (string, *api.Error) {
	t.Helper()
	got, err := New(Config{System: system{}, Places: s}).Call(as(t, access.ScopeAdmin), method, json.RawMessage(params))
	if err != nil {
		return "", api.AsError(err)
	}
	if o, ok := got.(*service.OpenedStream); ok {
		return o.StreamID, nil
	}
	return string(got.(json.RawMessage)), nil
}

// A place whose daemon is shutting down has another one soon.
func TestPlaceThatIsShuttingDown(t *testing.T) {
	s := answeringEach(t, func(request int) []string {
		if request < 3 {
			return []string{`{"jsonrpc":"2.0","id":$N,"error":{"code":-32015,"message":"shutting down","data":{"code":"SHUTTING_DOWN"}}}`}
		}
		return []string{`{"jsonrpc":"2.0","id":$N,"result":{"session_id":"s-k7-1"}}`}
	})
	// A method that may not be repeated if it was done.
	if got, err := callPlace(t, s, api.MethodSessionDestroy, `{"session_id":"s-k7-1"}`); err != nil || !strings.Contains(got, "s-k7-1") {
		t.Errorf("got %s, %v", got, err)
	}
	if n := len(s.requests); n != 4 {
		t.Errorf("%d requests, want 4", n)
	}
}

// A place can't answer for what is not in it, and its answers are JSON.
func TestHostileAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"another session":  `{"jsonrpc":"2.0","id":$N,"result":{"session_id":"s-0123456789"}}`,
		"another place":    `{"jsonrpc":"2.0","id":$N,"result":{"session_id":"s-m2-0123456789"}}`,
		"a similar place":  `{"jsonrpc":"2.0","id":$N,"result":{"session_id":"s-k77-0123456789"}}`,
		"deep":             `{"jsonrpc":"2.0","id":$N,"result":{"a":[{"b":{"exec_id":"e-1"}}]}}`,
		"parent":           `{"jsonrpc":"2.0","id":$N,"result":{"session_id":"s-k7-1","parent":"s-1"}}`,
		"rolled back":      `{"jsonrpc":"2.0","id":$N,"result":{"rolled_back_to":"e-1"}}`,
		"escaped":          `{"jsonrpc":"2.0","id":$N,"result":{"s\u0065ssion_id":"s-1"}}`,
		"escaped id":       `{"jsonrpc":"2.0","id":$N,"result":{"session_id":"\u0073-1"}}`,
		"upper case":       `{"jsonrpc":"2.0","id":$N,"result":{"SESSION_ID":"s-1"}}`,
		"folded":           `{"jsonrpc":"2.0","id":$N,"result":{"ſeſſion_id":"s-1"}}`,
		"the second":       `{"jsonrpc":"2.0","id":$N,"result":{"session_id":"s-k7-1","session_id":"s-1"}}`,
		"in an error":      `{"jsonrpc":"2.0","id":$N,"error":{"code":-32005,"message":"no","data":{"session_id":"s-1"}}}`,
		"a list":           `{"jsonrpc":"2.0","id":$N,"result":[]}`,
		"null":             `{"jsonrpc":"2.0","id":$N,"result":null}`,
		"nothing":          `{"jsonrpc":"2.0","id":$N,"later":1}`,
		"two":              `{"jsonrpc":"2.0","id":$N,"result":{},"error":{"code":1,"message":"no"}}`,
		"no JSON":          `{"jsonrpc":"2.0","id":$N,"result":{"a":}}`,
		"more after it":    `{"jsonrpc":"2.0","id":$N,"result":{}}}`,
		"no text":          "{\"jsonrpc\":\"2.0\",\"id\":$N,\"result\":{\"a\":\"\xff\"}}",
		"too deep":         `{"jsonrpc":"2.0","id":$N,"result":` + strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000) + "}",
		"an error as text": `{"jsonrpc":"2.0","id":$N,"error":"no"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := answering(t, answer)
			got, err := callPlace(t, s, api.MethodSessionInfo, `{"session_id":"s-k7-1"}`)
			if err == nil || err.Code != api.CodeRuntimeUnavailable || err.Details["reason"] != "refused" || err.Details["sent"] != "maybe" {
				t.Fatalf("%s %v", got, err)
			}
			if !s.conn.Ended() {
				t.Error("the connection is still used")
			}
		})
	}
}

func TestAnswersAreTranslated(t *testing.T) {
	for name, tc := range map[string]struct{ answer, want string }{
		"runtime":    {`{"jsonrpc":"2.0","id":$N,"result":{"session_id":"s-k7-1","runtime":"host","later": [1, 2]}}`, `{"session_id":"s-k7-1","runtime":"cmd:k7","later": [1, 2]}`},
		"a chain":    {`{"jsonrpc":"2.0","id":$N,"result":{"session_id":"s-k7-m2-1","runtime":"docker:web"}}`, `{"session_id":"s-k7-m2-1","runtime":"cmd:k7/docker:web"}`},
		"no id":      {`{"jsonrpc":"2.0","id":$N,"result":{"exec_id":"","parent":null}}`, `{"exec_id":"","parent":null}`},
		"line break": {"{\"jsonrpc\":\"2.0\",\"id\":$N,\"result\":{\"a\":\r1}}", `{"a":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := callPlace(t, answering(t, tc.answer), api.MethodSessionInfo, `{"session_id":"s-k7-1"}`)
			if err != nil || got != tc.want {
				t.Errorf("%s %v", got, err)
			}
		})
	}
}

func TestErrorsAreTidied(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	answer := `{"jsonrpc":"2.0","id":$N,"error":{"code":-1,"message":"a\u001b[31m\n` + long + `","data":{"code":"MADE_UP","hint":"\u202e` + long + `","more":"` + long + `"}}}`
	_, err := callPlace(t, answering(t, answer), api.MethodSessionInfo, `{"session_id":"s-k7-1"}`)
	if err.Code != api.CodeInternal || len(err.Message) > maxMessage+10 || len(err.Hint) > maxHint+10 || len(err.Details) > 0 {
		t.Errorf("%s, %d bytes and %d of hint, %d details", err.Code, len(err.Message), len(err.Hint), len(err.Details))
	}
	if strings.ContainsAny(err.Message+err.Hint, "\x1b\n\u202e") {
		t.Errorf("%.40q %.40q", err.Message, err.Hint)
	}
	known := `{"jsonrpc":"2.0","id":$N,"error":{"code":-32007,"message":"busy","data":{"code":"SESSION_BUSY","hint":"wait","exec_id":"e-k7-1"}}}`
	_, err = callPlace(t, answering(t, known), api.MethodSessionInfo, `{"session_id":"s-k7-1"}`)
	if err.Code != api.CodeSessionBusy || err.Message != "busy" || err.Hint != "wait" || err.Details["exec_id"] != "e-k7-1" {
		t.Errorf("%+v", err)
	}
}

// A place that does not answer delays a list for a while, and is named in it.
func TestSilentPlace(t *testing.T) {
	s := answering(t)
	began := time.Now()
	got, err := callPlace(t, s, api.MethodSessionList, `{}`)
	var list api.SessionListResult
	if err != nil || json.Unmarshal([]byte(got), &list) != nil {
		t.Fatal(got, err)
	}
	if len(list.Sessions) != 0 || len(list.Unreachable) != 1 || list.Unreachable[0].Reason != "silent" || list.Unreachable[0].Name != "k7" {
		t.Errorf("%s", got)
	}
	if took := time.Since(began); took < listTimeout {
		t.Errorf("after %s", took)
	}
}

// A stream whose feed is never started is closed in its place when the request ends.
func TestUnstartedStreamIsClosed(t *testing.T) {
	s := answering(t, `{"jsonrpc":"2.0","id":$N,"result":{"stream_id":"st-x","exec_id":"e-k7-1"}}`)
	r := New(Config{System: system{}, Places: s})
	ctx, end := context.WithCancel(as(t, access.ScopeRun))
	if _, err := r.Call(ctx, api.MethodExecStream, json.RawMessage(`{"session_id":"s-k7-1","command":"true"}`)); err != nil {
		t.Fatal(err)
	}
	<-s.requests
	end()
	if q := <-s.requests; !strings.Contains(q, `"method":"stream.close"`) || !strings.Contains(q, `"st-x"`) {
		t.Errorf("sent %s", q)
	}
}

// What a place is sent: the parameters as they are, with a key, and the actor.
func TestRequests(t *testing.T) {
	for name, tc := range map[string]struct{ method, params, want string }{
		"untouched":  {api.MethodSessionInfo, `{"session_id":"s-k7-1", "later": {"a":1}}`, `"params":{"session_id":"s-k7-1", "later": {"a":1}}}`},
		"key":        {api.MethodExecRun, `{"session_id":"s-k7-1","command":"true"}`, `"params":{"key":"k-KEY","session_id":"s-k7-1","command":"true"}}`},
		"own key":    {api.MethodExecRun, `{"key":"mine","session_id":"s-k7-1"}`, `"params":{"key":"mine","session_id":"s-k7-1"}}`},
		"create":     {api.MethodSessionCreate, `{"runtime":"cmd:k7","cwd":"/","key":"mine"}`, `"params":{"cwd":"/","key":"mine"}}`},
		"no params":  {api.MethodSessionCreate, ``, `"params":{"key":"k-KEY"}}`},
		"no members": {api.MethodSessionCreate, `{ }`, `"params":{"key":"k-KEY"}}`},
		"empty key":  {api.MethodExecRun, `{"key":"","session_id":"s-k7-1"}`, `"params":{"key":"k-KEY","session_id":"s-k7-1"}}`},
		// Over HTTP and WebSocket a request may have several lines. None of them may
		// become a request of its own.
		"lines":      {api.MethodSessionInfo, "{\"session_id\":\"s-k7-1\",\"a\":\n{\"jsonrpc\":\"2.0\"}\n}", `"params":{"session_id":"s-k7-1","a":{"jsonrpc":"2.0"}}}`},
		"lines, key": {api.MethodExecRun, "{\n\"session_id\":\"s-k7-1\",\n\"a\":1}", `"params":{"key":"k-KEY","session_id":"s-k7-1","a":1}}`},
		"by exec":    {api.MethodExecCancel, `{"session_id":"","exec_id":"e-k7-1"}`, `"params":{"session_id":"","exec_id":"e-k7-1"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := answering(t, `{"jsonrpc":"2.0","id":$N,"result":{}}`)
			r := New(Config{System: system{}, Places: s, DefaultRuntime: "cmd:k7"})
			ctx := access.With(t.Context(), access.Actor{Scope: access.ScopeRun, Tag: "ci", TokenID: "t-1", TokenName: "robot"})
			if _, err := r.Call(ctx, tc.method, json.RawMessage(tc.params)); err != nil {
				t.Fatal(err)
			}
			got := <-s.requests
			var sent struct {
				Actor  api.Actor
				Params struct{ Key string }
			}
			if err := json.Unmarshal([]byte(got), &sent); err != nil {
				t.Fatal(err)
			}
			if sent.Actor != (api.Actor{Scope: "run", Tag: "ci", Token: "t-1", Name: "robot"}) {
				t.Errorf("actor %+v", sent.Actor)
			}
			want := strings.Replace(tc.want, "k-KEY", sent.Params.Key, 1)
			if !strings.HasSuffix(got, want+"\n") {
				t.Errorf("sent %s", got)
			}
		})
	}
}

// A place that does not act for others is not called for a caller with a tag, and
// a caller without the scope calls no place.
func TestWhoMayCallAPlace(t *testing.T) {
	s := answering(t, `{"jsonrpc":"2.0","id":$N,"result":{"sessions":[]}}`)
	s.foreign = true
	r := New(Config{System: system{}, Places: s})
	tagged := access.With(t.Context(), access.Actor{Scope: access.ScopeRun, Tag: "ci"})
	for method, params := range map[string]string{
		api.MethodSessionInfo: `{"session_id":"s-k7-1"}`, api.MethodSessionCreate: `{"runtime":"cmd:k7"}`, api.MethodExecAttach: `{"exec_id":"e-k7-1"}`,
	} {
		if _, err := r.Call(tagged, method, json.RawMessage(params)); !api.IsCode(err, api.CodeForbidden) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if _, err := r.Call(tagged, api.MethodSessionList, nil); !api.IsCode(err, api.CodeRuntimeUnavailable) {
		t.Errorf("a list of nothing: %v", err)
	}
	if _, err := r.Call(as(t, access.ScopeRead), api.MethodExecRun, json.RawMessage(`{"session_id":"s-k7-1","command":"true"}`)); !api.IsCode(err, api.CodeForbidden) {
		t.Errorf("without the scope: %v", err)
	}
	if _, err := r.Call(t.Context(), api.MethodExecRun, json.RawMessage(`{"session_id":"s-k7-1"}`)); !api.IsCode(err, api.CodeUnauthorized) {
		t.Errorf("without an actor: %v", err)
	}
	if _, err := r.Call(as(t, access.ScopeRun), api.MethodSessionCreate, json.RawMessage(`{"runtime":"cmd:k7","while_connected":true}`)); !api.IsCode(err, api.CodeInvalidParams) {
		t.Errorf("a session that ends with a client that the place does not know: %v", err)
	}
	select {
	case q := <-s.requests:
		t.Errorf("the place was called: %s", q)
	default:
	}
	if _, err := r.Call(as(t, access.ScopeRun), api.MethodSessionInfo, json.RawMessage(`{"session_id":"s-k7-1"}`)); err != nil {
		t.Error(err)
	}
	if q := <-s.requests; strings.Contains(q, "actor") {
		t.Errorf("sent %s", q)
	}
}

// Parents must be in the place of the new session, which is the default.
func TestParentsAreInTheSamePlace(t *testing.T) {
	s := answering(t, `{"jsonrpc":"2.0","id":$N,"result":{}}`)
	for params, hint := range map[string]string{
		`{"runtime":"cmd:k7","parent":"s-1"}`:    `runtime: "host"`,
		`{"parent":"s-k7-1"}`:                    ``,
		`{"runtime":"host","parent":"s-k7-1"}`:   `runtime: "cmd:k7"`,
		`{"runtime":"cmd:k7","parent":"s-k7-1"}`: ``,
	} {
		_, err := callPlace(t, s, api.MethodSessionCreate, params)
		if hint == "" && err != nil || hint != "" && (err == nil || err.Code != api.CodeInvalidParams || !strings.Contains(err.Hint, hint)) {
			t.Errorf("%s: %v", params, err)
		}
	}
}

// A stream of a place that sends what is not its own ends its connection; nothing
// of it is passed on.
func TestHostileStreams(t *testing.T) {
	opened := `{"jsonrpc":"2.0","id":$N,"result":{"stream_id":"st-x","exec_id":"e-k7-1","from":0,"state":"running"}}`
	for name, chunk := range map[string]string{
		"another exec":   `{"stream_id":"st-x","exec_id":"e-1","type":"stdout","offset":0,"data":"a","next":1}`,
		"in the result":  `{"stream_id":"st-x","exec_id":"e-k7-1","type":"exit","offset":0,"next":0,"result":{"session_id":"s-1"}}`,
		"two streams":    `{"stream_id":"st-x","STREAM_ID":"st-y","type":"stdout","offset":0,"data":"a","next":1}`,
		"no number":      `{"stream_id":"st-x","type":"stdout","offset":0.5,"data":"a","next":1}`,
		"negative":       `{"stream_id":"st-x","type":"stdout","offset":-1,"data":"a","next":1}`,
		"stream is last": `{"type":"stdout","offset":0,"data":"a","next":1,"stream_id":"st-x"}`,
		"no JSON":        `{"stream_id":"st-x","type":"stdout","offset":0,"data":"\x","next":1}`,
		"a hole":         `{"stream_id":"st-x","type":"stdout","offset":7,"data":"a","next":8}`,
		"backwards":      `{"stream_id":"st-x","type":"gap","offset":0,"next":-5}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := answering(t, opened, `{"jsonrpc":"2.0","method":"exec.chunk","params":`+chunk+`}`)
			r := New(Config{System: system{}, Places: s})
			ctx, cancel := context.WithCancel(as(t, access.ScopeAdmin))
			defer cancel()
			got, err := r.Call(ctx, api.MethodExecAttach, json.RawMessage(`{"exec_id":"e-k7-1"}`))
			if err != nil {
				t.Fatal(err)
			}
			over := make(chan error, 1)
			feed, stop := context.WithCancel(ctx)
			go func() {
				over <- got.(*service.OpenedStream).Feed(feed, func(n notify.Notification) error {
					b, _ := n.AppendJSON(nil)
					t.Errorf("passed on %s", b)
					return nil
				})
			}()
			<-s.requests // the first call
			if name == "a hole" {
				<-s.requests // the stream is closed
				s.conn.Close()
			}
			select {
			case <-s.conn.Done():
			case <-time.After(time.Minute):
				t.Error("the connection is still used")
			}
			stop()
			<-over
		})
	}
}

func FuzzSet(f *testing.F) {
	for _, raw := range []string{``, `{}`, ` { } `, `{"a":1}`, `{"a":1,"runtime":"host"}`, `{"runtime":1,"runtime":2 , "b" : [ {"runtime":3} ] }`, `{"\u0072untime":1}`, `[]`, `{"a":1,}`} {
		f.Add([]byte(raw), false)
		f.Add([]byte(raw), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, remove bool) {
		var value []byte
		if !remove {
			value = []byte(`"new"`)
		}
		got, err := set(raw, "runtime", value)
		if err != nil {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("%q became %q", raw, got)
		}
		var kept, want [][]byte
		all := func(raw []byte, to *[][]byte) {
			if len(raw) == 0 {
				return
			}
			if err := members(raw, func(key, value []byte, _, _ int) {
				if string(key) != "runtime" {
					*to = append(*to, key, value)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		all(raw, &want)
		all(got, &kept)
		if !bytes.Equal(bytes.Join(kept, []byte{0}), bytes.Join(want, []byte{0})) {
			t.Errorf("%q became %q", raw, got)
		}
		if found, _ := member(got, "runtime"); !bytes.Equal(found, value) {
			t.Errorf("%q: the value is %q", got, found)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"session_id":"s-k7-1","runtime":"host"}}`, `{"jsonrpc":"2.0","id":1,"result":{"a":[{"Exec_ID":"e-1"}]}}`,
		`{"id":1,"error":{"code":1,"message":"x","data":{"a":1}}}`, `{"result":{"a":` + "\n" + `1}}`, `{"result":{"runtime":"\ud83d"}}`,
	} {
		f.Add([]byte(line))
	}
	tr := translation{place: "k7", runtime: "cmd:k7"}
	f.Fuzz(func(t *testing.T, line []byte) {
		result, _, err := tr.answer(line)
		if err != nil || result == nil {
			return
		}
		if !json.Valid(result) || bytes.ContainsAny(result, "\r\n") {
			t.Fatalf("%q became %q", line, result)
		}
		var s api.SessionInfo // as a client would decode it
		if json.Unmarshal(result, &s) != nil {
			return
		}
		ids := []string{s.SessionID, s.Parent, s.ExecID}
		if s.Exec != nil {
			ids = append(ids, s.Exec.ExecID, s.Exec.SessionID, s.Exec.RolledBackTo)
		}
		for _, id := range ids {
			if id != "" && !tr.names.owns("k7", []byte(id)) {
				t.Errorf("%q has %q", line, id)
			}
		}
	})
}
