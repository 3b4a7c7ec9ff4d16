// Package mcp offers TRL to models as tools, over the Model Context Protocol.
//
// Six tools wrap the methods of the API: run, output, input, stop, sessions and
// screen. They are designed for a reader that pays for each word and forgets:
// sessions have names, no call lasts longer than a client waits, and a reply
// begins with how the command ended and says what it leaves out and which call
// shows that.
//
// A server keeps no state between two calls; all state is in the daemon. So a
// server that is killed with its agent can be replaced by another, and over HTTP
// each request has its own.
package mcp

import (
	"context"
	"log/slog"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/terminal-runtime/trl/internal/caller"
)

// Config configures a server. Zero values are the defaults.
type Config struct {
	Caller  caller.Caller // required
	Version string
	Log     *slog.Logger // nil disables logging

	// Scope is the namespace of session names, within one account: a client of
	// the same account and scope that comes back finds its sessions again, and a
	// client of another account never does.
	Scope string
	// Tags are added to new sessions, in addition to the tag of the scope.
	Tags []string
	// Cwd and Env apply to new sessions. Default: the daemon's.
	Cwd string
	Env map[string]string
	// Shell runs new sessions. Default: bash if it is installed, else sh.
	Shell string
	// PlaceEnv applies to new sessions in places instead of Cwd, Env and Shell,
	// which are of this machine.
	PlaceEnv map[string]string
	// Secrets are values that commands can receive, by name. Replies never
	// contain them.
	Secrets map[string]string
	// Structured selects the clients that get structured content. "" means
	// StructuredAuto.
	Structured Structured
}

// instructions describe the server as a whole to a model.
const instructions = `Runs shell commands in sessions that persist: directory, variables and background processes stay from call to call, even if you are restarted.
Every command has an exec id (e-...) under which its whole output is kept. A command that takes longer than wait_s keeps running: follow it with output. Do not start it again.
Background processes are safe: "server &" returns at once, and its output stays readable with output. stop ends it.
After a restart call sessions first: it lists what is running and what ran.
Programs that prompt (sudo, ssh, REPLs, editors) need tty: true; answer with input, look with screen.`

// New returns a server for one connection or one request.
func New(cfg Config) *sdk.Server {
	s := &server{Config: cfg}
	out := sdk.NewServer(&sdk.Implementation{Name: "trl", Title: "Terminal Runtime Layer", Version: cfg.Version}, &sdk.ServerOptions{
		Instructions: instructions, SchemaCache: schemas,
		// Tools and resources never change, and nothing is logged to clients.
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}},
	})
	out.AddReceivingMiddleware(s.stripStructured)
	for _, t := range tools() {
		out.AddTool(t.tool, s.handler(t))
	}
	s.addResources(out)
	return out
}

var schemas = sdk.NewSchemaCache()

// server implements the tools on one runtime. Its only state is its account at
// the daemon, which does not change.
type server struct {
	Config

	mu      sync.Mutex
	account string // guarded by mu; "" means not known yet
}

// callMethod calls a method of the daemon and returns its result.
func callMethod[R any](ctx context.Context, s *server, method string, params any) (*R, error) {
	var result R
	if err := s.Caller.Call(ctx, method, params, &result); err != nil {
		return nil, err
	}
	return &result, nil
}
