package service

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
)

// decodeFor decodes params as the table does for a method, into a new params
// value.
func decodeFor(t testing.TB, name, params string) (any, error) {
	t.Helper()
	for _, m := range New(Config{}).Methods() {
		if m.Name == name {
			v := reflect.New(m.Params)
			err := newDecoder(m.Name, m.Params).into(v.Elem(), json.RawMessage(params))
			return v.Elem().Interface(), err
		}
	}
	t.Fatalf("no method %s", name)
	return nil, nil
}

func TestParamsAccepted(t *testing.T) {
	ms, text := int64(0), "in"
	for name, tc := range map[string]struct {
		method, params string
		want           any
	}{
		"everything": {
			api.MethodExecRun,
			`{"session_id":"s-1","command":"echo \"\u00e9\ud83d\ude00\"","timeout_ms":0,"yield_ms":5,"env":{"A b":"1","":""},"stdin":"in","wait":true}`,
			api.ExecRunParams{
				ExecCommand: api.ExecCommand{SessionID: "s-1", Command: `echo "é😀"`, TimeoutMS: &ms, Env: map[string]string{"A b": "1", "": ""}, Stdin: &text, Wait: true},
				YieldMS:     5,
			},
		},
		"an empty command":       {api.MethodExecRun, `{"session_id":"s","command":""}`, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "s"}}},
		"null is left out":       {api.MethodExecRun, `{"session_id":"s","command":"","timeout_ms":null,"env":null,"cwd":null}`, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "s"}}},
		"the last one holds":     {api.MethodSessionCreate, `{"env":{"A":"1"},"shell":"a","env":{"B":"2"},"shell":"b"}`, api.SessionCreateParams{Env: map[string]string{"B": "2"}, Shell: "b"}},
		"a later null takes off": {api.MethodSessionCreate, `{"shell":"a","shell":null}`, api.SessionCreateParams{}},
		"escaped names":          {api.MethodSessionInfo, `{"session\u005fid":"s"}`, api.SessionParams{SessionID: "s"}},
		"nested":                 {api.MethodSessionCreate, `{"tty":{"rows":24,"cols":80},"argv":["a",""],"tags":[]}`, api.SessionCreateParams{TTY: &api.TTYSize{Rows: 24, Cols: 80}, Argv: []string{"a", ""}, Tags: []string{}}},
		"limits": {
			api.MethodSessionCreate, `{"limits":{"memory_bytes":1048576,"cpu":0.5,"pids":1,"open_files":32,"file_size_bytes":1,"wall_ms":1,"disk_bytes":4096}}`,
			api.SessionCreateParams{Limits: &api.Limits{MemoryBytes: 1 << 20, CPU: 0.5, PIDs: 1, OpenFiles: 32, FileSizeBytes: 1, WallMS: 1, DiskBytes: 4096}},
		},
		"whole cores":         {api.MethodSessionCreate, `{"limits":{"cpu":2}}`, api.SessionCreateParams{Limits: &api.Limits{CPU: 2}}},
		"a limit of null":     {api.MethodSessionCreate, `{"limits":{"cpu":null}}`, api.SessionCreateParams{Limits: &api.Limits{}}},
		"a profile":           {api.MethodSessionCreate, `{"isolation":"offline"}`, api.SessionCreateParams{Isolation: &api.Isolation{Profile: api.ProfileOffline}}},
		"a word of a network": {api.MethodSessionCreate, `{"isolation":{"network":"none"}}`, api.SessionCreateParams{Isolation: &api.Isolation{Network: &api.Network{Mode: api.NetworkNone}}}},
		"isolation": {
			api.MethodSessionCreate,
			`{"isolation":{"profile":"workspace","filesystem":{"read":["/usr"],"write":["/w"],"deny":["/w/x"],"private_tmp":true},"network":{"allow":["a:1"]},"processes":"own","user":"7","no_new_privs":true,"seccomp":"default"}}`,
			api.SessionCreateParams{Isolation: &api.Isolation{
				Profile: api.ProfileWorkspace, Filesystem: &api.Filesystem{Read: []string{"/usr"}, Write: []string{"/w"}, Deny: []string{"/w/x"}, PrivateTmp: true},
				Network: &api.Network{Allow: []string{"a:1"}}, Processes: api.IsolationProcessesOwn, User: "7", NoNewPrivs: true, Seccomp: api.IsolationSeccompDefault,
			}},
		},
		"null unsets":   {api.MethodSessionCreate, `{"env":{"A":null,"B":""}}`, api.SessionCreateParams{Env: api.Env{"A": api.Unset, "B": ""}}},
		"named strings": {api.MethodSessionList, `{"state":"idle"}`, api.SessionListParams{State: api.StateIdle}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decodeFor(t, tc.method, tc.params)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParamsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		method, params string
		field          string
		says           string // in the message or the hint
	}{
		"unknown":             {api.MethodSystemPing, `{"x":1}`, "x", "it takes none"},
		"unknown, known ones": {api.MethodSessionInfo, `{"session_id":"s","zzz":1}`, "zzz", "it takes session_id"},
		"unknown, close":      {api.MethodExecRun, `{"session_id":"s","comand":"x"}`, "comand", "did you mean command?"},
		"other case":          {api.MethodSessionInfo, `{"Session_ID":"s"}`, "Session_ID", "did you mean session_id?"},
		"nested unknown":      {api.MethodSessionCreate, `{"tty":{"rows":1,"cols":1,"Rows":2}}`, "tty.Rows", "did you mean tty.rows?"},
		"empty name":          {api.MethodSystemPing, `{"":1}`, "", "unknown field"},
		"string for integer":  {api.MethodExecRun, `{"session_id":"s","command":"x","timeout_ms":"5"}`, "timeout_ms", "must be an integer"},
		"fraction":            {api.MethodExecRun, `{"session_id":"s","command":"x","yield_ms":1.5}`, "yield_ms", "must be an integer"},
		"exponent":            {api.MethodExecRun, `{"session_id":"s","command":"x","yield_ms":1e3}`, "yield_ms", "must be an integer"},
		"huge integer":        {api.MethodExecRun, `{"session_id":"s","command":"x","yield_ms":99999999999999999999}`, "yield_ms", "out of range"},
		"negative":            {api.MethodExecRun, `{"session_id":"s","command":"x","timeout_ms":-1}`, "timeout_ms", "must not be negative"},
		"negative ttl":        {api.MethodSessionCreate, `{"idle_ttl_ms":-1}`, "idle_ttl_ms", "must not be negative"},
		"negative rows":       {api.MethodSessionCreate, `{"tty":{"rows":-1,"cols":1}}`, "tty.rows", "must not be negative"},
		"overflowing ms":      {api.MethodExecOutput, `{"exec_id":"e","wait_ms":` + strconv.FormatInt(math.MaxInt64, 10) + `}`, "wait_ms", "at most"},
		"number for string":   {api.MethodExecRun, `{"session_id":7,"command":"x"}`, "session_id", "must be a string"},
		"string for bool":     {api.MethodExecRun, `{"session_id":"s","command":"x","wait":"yes"}`, "wait", "must be true or false"},
		"array for object":    {api.MethodExecRun, `{"session_id":"s","command":"x","env":[]}`, "env", "must be an object, each value a string"},
		"object for array":    {api.MethodSessionCreate, `{"argv":{}}`, "argv", "must be an array, each element a string"},
		"string for array":    {api.MethodSessionCreate, `{"argv":"ls"}`, "argv", "must be an array"},
		"string for tty":      {api.MethodSessionCreate, `{"tty":"yes"}`, "tty", "must be an object"},
		"NUL in env":          {api.MethodSessionCreate, `{"env":{"A":"\u0000"}}`, "env.A", "has a NUL byte"},
		"number in env":       {api.MethodSessionCreate, `{"env":{"A":1}}`, "env.A", "must be a string"},
		"null in argv":        {api.MethodSessionCreate, `{"argv":["a",null]}`, "argv[1]", "must be a string"},
		"limit of zero":       {api.MethodSessionCreate, `{"limits":{"pids":0}}`, "limits.pids", "send a number from 1 to 4000000"},
		"negative limit":      {api.MethodSessionCreate, `{"limits":{"memory_bytes":-1}}`, "limits.memory_bytes", "send a number from 1048576 up"},
		"tiny memory":         {api.MethodSessionCreate, `{"limits":{"memory_bytes":1048575}}`, "limits.memory_bytes", "out of range"},
		"huge limit":          {api.MethodSessionCreate, `{"limits":{"disk_bytes":9007199254740993}}`, "limits.disk_bytes", "out of range"},
		"limit with exponent": {api.MethodSessionCreate, `{"limits":{"memory_bytes":1e30}}`, "limits.memory_bytes", "must be an integer"},
		"limit, no integer":   {api.MethodSessionCreate, `{"limits":{"open_files":32.5}}`, "limits.open_files", "must be an integer"},
		"no time":             {api.MethodSessionCreate, `{"limits":{"wall_ms":0}}`, "limits.wall_ms", "from 1 up"},
		"too much time":       {api.MethodSessionCreate, `{"limits":{"wall_ms":9223372036854775807}}`, "limits.wall_ms", "at most"},
		"no cores":            {api.MethodSessionCreate, `{"limits":{"cpu":0}}`, "limits.cpu", "from 0.01 to 8192"},
		"negative cores":      {api.MethodSessionCreate, `{"limits":{"cpu":-0.5}}`, "limits.cpu", "out of range"},
		"too many cores":      {api.MethodSessionCreate, `{"limits":{"cpu":1e30}}`, "limits.cpu", "out of range"},
		"infinite cores":      {api.MethodSessionCreate, `{"limits":{"cpu":1e999}}`, "limits.cpu", "out of range"},
		"no number of cores":  {api.MethodSessionCreate, `{"limits":{"cpu":"NaN"}}`, "limits.cpu", "must be a number"},
		"NaN":                 {api.MethodSessionCreate, `{"limits":{"cpu":NaN}}`, "", "not JSON"},
		"limits as a number":  {api.MethodSessionCreate, `{"limits":5}`, "limits", "must be an object"},
		"limits as a string":  {api.MethodSessionCreate, `{"limits":"small"}`, "limits", "must be an object"},
		"unknown limit":       {api.MethodSessionCreate, `{"limits":{"memory":1048576}}`, "limits.memory", "it takes memory_bytes, cpu"},
		"unknown profile":     {api.MethodSessionCreate, `{"isolation":"moon"}`, "isolation", `must be "workspace" or "readonly" or "offline" or an object`},
		"isolation as a list": {api.MethodSessionCreate, `{"isolation":[]}`, "isolation", "or an object"},
		"answered member":     {api.MethodSessionCreate, `{"isolation":{"landlock_abi":3}}`, "isolation.landlock_abi", "unknown field"},
		"unknown network":     {api.MethodSessionCreate, `{"isolation":{"network":"some"}}`, "isolation.network", `"none" or "loopback" or an object`},
		"network of nothing":  {api.MethodSessionCreate, `{"isolation":{"network":{}}}`, "isolation.network.allow", "is missing"},
		"network by Go name":  {api.MethodSessionCreate, `{"isolation":{"network":{"-":"none","allow":[]}}}`, "isolation.network.-", "unknown field"},
		"other seccomp":       {api.MethodSessionCreate, `{"isolation":{"seccomp":"off"}}`, "isolation.seccomp", `must be "default"`},
		"half a pair":         {api.MethodExecRun, `{"session_id":"s","command":"\ud800"}`, "command", "surrogate"},
		"no session":          {api.MethodExecRun, `{"command":"x"}`, "session_id", "call session.create"},
		"null session":        {api.MethodExecRun, `{"session_id":null,"command":"x"}`, "session_id", "is missing"},
		"unset session":       {api.MethodExecRun, `{"session_id":"s","command":"x","session_id":null}`, "session_id", "is missing"},
		"empty session":       {api.MethodExecRun, `{"session_id":"","command":"x"}`, "session_id", "is empty"},
		"no command":          {api.MethodExecRun, `{"session_id":"s"}`, "command", "exec.run again with command"},
		"no params":           {api.MethodExecInfo, ``, "exec_id", "call exec.run"},
		"null params":         {api.MethodExecInfo, `null`, "exec_id", "call exec.run"},
		"no signal":           {api.MethodExecSignal, `{"exec_id":"e"}`, "signal", "is missing"},
		"no cols":             {api.MethodSessionCreate, `{"tty":{"rows":1}}`, "tty.cols", "is missing"},
		"array":               {api.MethodExecRun, `["s","x"]`, "", "not an array"},
		"string":              {api.MethodExecRun, `"s"`, "", "must be an object"},
		"trailing":            {api.MethodSystemPing, `{} {}`, "", "not JSON"},
		"trailing null":       {api.MethodSystemPing, `null null`, "", "not JSON"},
		"cut":                 {api.MethodSystemPing, `{`, "", "not JSON"},
		"bad null":            {api.MethodSystemPing, `nul`, "", "not JSON"},
		"not UTF-8":           {api.MethodExecRun, "{\"session_id\":\"s\",\"command\":\"\xff\"}", "", "not UTF-8"},
		"deep":                {api.MethodSessionCreate, `{"env":{"x":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}}`, "", "nested deeper"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeFor(t, tc.method, tc.params)
			e, ok := err.(*api.Error)
			if !ok || e.Code != api.CodeInvalidParams {
				t.Fatalf("got %v", err)
			}
			if got, _ := e.Details["field"].(string); got != tc.field {
				t.Errorf("field %q, want %q", got, tc.field)
			}
			if !strings.Contains(e.Error(), tc.says) {
				t.Errorf("%q does not say %q", e.Error(), tc.says)
			}
			if e.Hint == "" {
				t.Errorf("%q has no hint", e.Error())
			}
		})
	}
}

func TestCancelNeedsAName(t *testing.T) {
	table := New(Config{Execs: fakeExecs{}})
	_, err := table.Call(asAdmin(t), api.MethodExecCancel, json.RawMessage(`{}`))
	if !api.IsCode(err, api.CodeInvalidParams) || api.AsError(err).Details["field"] != "exec_id" {
		t.Errorf("got %v", err)
	}
	for _, params := range []string{`{"exec_id":"e"}`, `{"session_id":"s"}`} {
		if _, err := table.Call(asAdmin(t), api.MethodExecCancel, json.RawMessage(params)); err != nil {
			t.Errorf("%s: %v", params, err)
		}
	}
}

// An error must not repeat a value that was sent, whatever is wrong with it.
func TestErrorsHoldNoValues(t *testing.T) {
	const secret = "hunter2"
	for _, params := range []string{
		`{"session_id":["` + secret + `"]}`,
		`{"env":{"TOKEN":{"x":"` + secret + `"}}}`,
		`{"env":"` + secret + `"}`,
		`{"timeout_ms":"` + secret + `"}`,
		`{"zzz":"` + secret + `"}`,
		`{"cwd":"` + secret + `"`,
		`"` + secret + `"`,
		`{"cwd":"` + secret + `\ud800"}`,
		`{"stdin":"` + secret + "\xff" + `"}`,
		`{} ` + secret,
	} {
		_, err := decodeFor(t, api.MethodExecRun, params)
		text, _ := json.Marshal(err)
		if err == nil || strings.Contains(err.Error(), secret) || bytes.Contains(text, []byte(secret)) {
			t.Errorf("%s: %v", params, err)
		}
	}
}

// FuzzParams compares the strict decoder with encoding/json: it never panics,
// never accepts what encoding/json with DisallowUnknownFields rejects, and
// decodes what it accepts to the same value.
func FuzzParams(f *testing.F) {
	for _, params := range []string{
		`{}`, `null`, `[]`, `{"session_id":"s","command":"x","timeout_ms":5,"env":{"A":"1"}}`, `{"Session_ID":"s"}`,
		`{"tty":{"rows":1,"cols":2},"argv":["a"],"limits":{"cpu":0.5,"pids":1}}`, `{"isolation":"offline"}`, `{"isolation":{"network":"none","profile":"offline"}}`,
		`{"isolation":{"network":{"allow":["a"]}},"limits":{"cpu":1e2,"cpu":null}}`, `{"shell":"a","shell":null,"tags":[]}`,
		`{"exec_id":"e","from":1,"max_bytes":0,"stream":"stdout"}`, `{"env":{"A":"1"},"env":{"B":"2"}}`, `{"session_id":"\ud800"}`,
	} {
		for i := range 14 {
			f.Add(uint8(i), []byte(params))
		}
	}
	methods := New(Config{}).Methods()
	f.Fuzz(func(t *testing.T, which uint8, params []byte) {
		m := methods[int(which)%len(methods)]
		got := reflect.New(m.Params)
		if err := newDecoder(m.Name, m.Params).into(got.Elem(), params); err != nil {
			if !api.IsCode(err, api.CodeInvalidParams) {
				t.Fatalf("%s %q: %v", m.Name, params, err)
			}
			return
		}
		if len(params) == 0 {
			return
		}
		// Through a plain map first, where the last of two equal members wins,
		// as it does in the decoder but not in a struct of encoding/json.
		var tree map[string]any
		plain := json.NewDecoder(bytes.NewReader(params))
		plain.UseNumber()
		if err := plain.Decode(&tree); err != nil {
			t.Fatalf("%s accepted %q: %v", m.Name, params, err)
		}
		for name := range tree {
			if _, ok := newDecoder(m.Name, m.Params).root.fields[name]; !ok {
				t.Fatalf("%s accepted %q with an unknown field", m.Name, params)
			}
		}
		text, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		want := reflect.New(m.Params)
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		if err := strict.Decode(want.Interface()); err != nil {
			t.Fatalf("%s accepted %q: %v", m.Name, params, err)
		}
		if diff := cmp.Diff(want.Elem().Interface(), got.Elem().Interface()); diff != "" {
			t.Errorf("%s %q:\n%s", m.Name, params, diff)
		}
	})
}

func BenchmarkCall(b *testing.B) {
	table := New(Config{System: fakeSystem{}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := table.Call(asAdmin(b), api.MethodSystemPing, json.RawMessage(`{}`)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	params := json.RawMessage(`{"session_id":"s-0123456789","command":"go test ./... 2>&1 | tail -20","timeout_ms":60000,"env":{"CI":"1"}}`)
	b.Run("strict", func(b *testing.B) {
		d := newDecoder(api.MethodExecRun, reflect.TypeFor[api.ExecRunParams]())
		b.ReportAllocs()
		for b.Loop() {
			var p api.ExecRunParams
			if err := d.into(reflect.ValueOf(&p).Elem(), params); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var p api.ExecRunParams
			if err := json.Unmarshal(params, &p); err != nil {
				b.Fatal(err)
			}
		}
	})
}
