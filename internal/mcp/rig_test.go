package mcp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) { trltest.Main(m) }

// The transports. Everything that both support is tested over both.
const (
	overStdio = "stdio"
	overHTTP  = "http"
)

// overBoth runs a test over both transports, each with its own daemon.
func overBoth(t *testing.T, test func(t *testing.T, r *rig)) {
	for _, transport := range []string{overStdio, overHTTP} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			test(t, newRig(t, rigOptions{transport: transport}))
		})
	}
}

// rig is an MCP client of the real binary.
type rig struct {
	*testing.T
	*sdk.ClientSession
	rigOptions
	daemon   *trltest.Daemon
	work     string // the agent's directory
	process  *exec.Cmd
	progress chan *sdk.ProgressNotificationParams
	schemas  map[string]*jsonschema.Resolved // output schemas of the tools
}

type rigOptions struct {
	transport string
	name      string   // of the client
	args      []string // of trl mcp
	env       []string
	query     string // of the address over HTTP
	token     string
	daemon    *trltest.Daemon // nil means a new one
	work      string
}

func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	r := &rig{T: t, rigOptions: o, daemon: o.daemon, work: o.work, progress: make(chan *sdk.ProgressNotificationParams, 1000)}
	if r.daemon == nil {
		r.daemon = startDaemon(t)
	}
	if r.work == "" {
		r.work = t.TempDir()
	}
	r.connect()
	return r
}

func startDaemon(t *testing.T, args ...string) *trltest.Daemon {
	t.Helper()
	d, err := trltest.Start(trltest.Config{HTTP: true, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(d.Dir)
	})
	return d
}

func (r *rig) connect() {
	r.Helper()
	name := r.name
	if name == "" {
		name = "test"
	}
	c := sdk.NewClient(&sdk.Implementation{Name: name, Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, p *sdk.ProgressNotificationClientRequest) {
			r.progress <- p.Params
		},
	})
	var transport sdk.Transport
	if r.transport == overHTTP {
		token := r.token
		if token == "" {
			token = r.daemon.Token
		}
		transport = &sdk.StreamableClientTransport{
			Endpoint:   "http://" + r.daemon.HTTP + "/mcp?scope=test" + r.query,
			HTTPClient: &http.Client{Transport: bearer(token)}, MaxRetries: -1, DisableStandaloneSSE: true,
		}
	} else {
		binary, err := trltest.Binary()
		if err != nil {
			r.Fatal(err)
		}
		r.process = exec.Command(binary, append([]string{"--socket", r.daemon.Socket, "mcp", "--scope", "test"}, r.args...)...)
		r.process.Env = append(trltest.Environ(r.daemon.Dir), r.env...)
		r.process.Dir, r.process.Stderr = r.work, os.Stderr
		transport = &sdk.CommandTransport{Command: r.process, TerminateDuration: 5 * time.Second}
	}
	session, err := c.Connect(r.Context(), transport, nil)
	if err != nil {
		r.Fatal(err)
	}
	r.ClientSession = session
	r.Cleanup(func() { session.Close() })
}

// bearer sends a token with each request.
type bearer string

func (b bearer) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	q.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(q)
}

type args = map[string]any

// answer is the result of a tool.
type answer struct {
	text   string
	failed bool
	fields map[string]any
	bytes  int               // size of the whole answer on the wire
	image  *sdk.ImageContent // nil if there is none
}

// first returns the first line.
func (a answer) first() string {
	line, _, _ := strings.Cut(a.text, "\n")
	return line
}

func (a answer) exec() string {
	id, _ := a.fields["exec"].(string)
	return id
}

// ask calls a tool, which must not fail.
func (r *rig) ask(tool string, a args) answer {
	r.Helper()
	got := r.call(tool, a)
	if got.failed {
		r.Fatalf("%s %v: %s", tool, a, got.text)
	}
	return got
}

// untilExit returns the reply itself if the command has ended, or else waits for its
// end: on a busy machine a command may be quiet for a while before it ends.
func (r *rig) untilExit(a answer) answer {
	r.Helper()
	if !strings.HasPrefix(a.first(), "running") {
		return a
	}
	return r.ask("output", args{"exec": a.exec(), "until": "exit"})
}

// eventuallyReplies calls input until its reply contains all wanted texts. On a busy
// machine a program may be quiet for longer than input waits, so it types again.
func (r *rig) eventuallyReplies(input func() string, wanted ...string) {
	r.Helper()
	r.eventually("a reply contains "+strings.Join(wanted, " and "), func() bool {
		text := input()
		return !slices.ContainsFunc(wanted, func(w string) bool { return !strings.Contains(text, w) })
	})
}

// call calls a tool, and checks its result against the schema.
func (r *rig) call(tool string, a args) answer {
	r.Helper()
	result, err := r.CallTool(r.Context(), &sdk.CallToolParams{Name: tool, Arguments: a})
	if err != nil {
		r.Fatalf("%s %v: %v", tool, a, err)
	}
	return r.read(tool, result)
}

func (r *rig) read(tool string, result *sdk.CallToolResult) answer {
	r.Helper()
	wire, err := json.Marshal(result)
	if err != nil {
		r.Fatal(err)
	}
	out := answer{failed: result.IsError, bytes: len(wire)}
	if len(result.Content) == 2 {
		out.image = result.Content[1].(*sdk.ImageContent)
	} else if len(result.Content) != 1 {
		r.Fatalf("%s: %d pieces of content", tool, len(result.Content))
	}
	out.text = result.Content[0].(*sdk.TextContent).Text
	if result.StructuredContent != nil {
		out.fields = result.StructuredContent.(map[string]any)
		if err := r.outputSchema(tool).Validate(result.StructuredContent); err != nil {
			r.Errorf("%s: %v in %s", tool, err, wire)
		}
	}
	return out
}

// outputSchema returns the output schema of a tool.
func (r *rig) outputSchema(tool string) *jsonschema.Resolved {
	r.Helper()
	if r.schemas == nil {
		r.schemas = map[string]*jsonschema.Resolved{}
		list, err := r.ListTools(r.Context(), nil)
		if err != nil {
			r.Fatal(err)
		}
		for _, t := range list.Tools {
			r.schemas[t.Name] = r.resolve(t.OutputSchema)
		}
	}
	return r.schemas[tool]
}

// resolve parses a schema as a client gets it.
func (r *rig) resolve(schema any) *jsonschema.Resolved {
	r.Helper()
	raw, err := json.Marshal(schema)
	if err != nil {
		r.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		r.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		r.Fatal(err)
	}
	return resolved
}

// direct returns a client of the daemon itself, to check the tools against.
func (r *rig) direct() *client.Client {
	r.Helper()
	c, err := client.Dial(r.Context(), r.daemon.Socket)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { c.Close() })
	return c
}

// contains checks that a text contains all of these.
func (r *rig) contains(text string, wanted ...string) {
	r.Helper()
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			r.Errorf("%q is not in:\n%s", w, text)
		}
	}
}

// eventually waits until a condition is true.
func (r *rig) eventually(what string, is func() bool) {
	r.Helper()
	trltest.Eventually(r, what, is)
}

func (r *rig) write(name, text string) string {
	r.Helper()
	path := filepath.Join(r.work, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.Fatal(err)
	}
	return path
}

// stopDaemon stops a daemon that a `trl mcp` has started.
func stopDaemon(t *testing.T, d *trltest.Daemon) {
	t.Helper()
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "--socket", d.Socket, "stop")
	cmd.Env = trltest.Environ(d.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
