// Package mcp is TRL as tools for a model, by the Model Context Protocol.
//
// Six tools stand before the methods of the contract: run, output, input, stop,
// sessions and screen. They are made for a reader that has to pay for each word
// and forgets: a session has a name, no call lasts longer than a client waits, a
// reply begins with how the command ended and says what it leaves out and which
// call shows that.
//
// A server keeps nothing between two calls: what it knows, the daemon knows. So
// one that is killed with its agent can be replaced by another, and over HTTP each
// request has one of its own.
package mcp

import (
	"context"
	"log/slog"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/terminal-runtime/trl/api"
)

// Runtime is a way to the methods of a daemon.
type Runtime interface {
	Call(ctx context.Context, method string, params, result any) error
	// Attach calls fn with the output of an exec from an offset on, until fn
	// returns false or nothing more comes. data is fn's only while it runs.
	Attach(ctx context.Context, params api.ExecAttachParams, fn func(c *api.Chunk, data []byte) bool) error
}

// Config is how a server works. Zero values are the defaults.
type Config struct {
	Runtime Runtime // required
	Version string
	Log     *slog.Logger // nil: nothing is logged

	// Scope is what the sessions are for. Names of sessions hold within it for one
	// account: a client of the same account and scope that comes back finds them
	// again, and a client of another account never does.
	Scope string
	// Tags are given to new sessions besides that of the scope.
	Tags []string
	// Cwd and Env are those of new sessions. Default: as the daemon has them.
	Cwd string
	Env map[string]string
	// Shell drives new sessions. Default: bash where there is one, else sh.
	Shell string
	// Secrets are values that commands may be given by their names. They are in
	// no reply.
	Secrets map[string]string
	// Structured says who gets structured content. "" is StructuredAuto.
	Structured Structured
}

// instructions are what a model is told of the server as a whole.
const instructions = `Runs shell commands in sessions that live on: directory, variables and background processes stay from call to call, also when you are restarted.
Every command has an exec id (e-...) under which its whole output is kept. A command that outlives wait_s goes on: follow it with output. Do not start it again.
Background processes are safe: "server &" returns at once, and its output stays readable with output. stop ends it.
After a restart call sessions first: it tells what runs and what ran.
Programs that ask (sudo, ssh, REPLs, editors) need tty: true; answer with input, look with screen.`

// New makes a server. It serves one connection or one request.
func New(cfg Config) *sdk.Server {
	s := &server{Config: cfg}
	out := sdk.NewServer(&sdk.Implementation{Name: "trl", Title: "Terminal Runtime Layer", Version: cfg.Version}, &sdk.ServerOptions{
		Instructions: instructions, SchemaCache: schemas,
		// Tools and resources never change, and nothing is logged to clients.
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}},
	})
	out.AddReceivingMiddleware(s.shape)
	for _, t := range tools() {
		out.AddTool(t.tool, s.handler(t))
	}
	s.addResources(out)
	return out
}

var schemas = sdk.NewSchemaCache()

// server is the tools over one runtime. It has no state of its own but who it is
// to the daemon, which does not change.
type server struct {
	Config

	mu      sync.Mutex
	account string // "": not known yet
}

// ask calls a method.
func ask[R any](ctx context.Context, s *server, method string, params any) (*R, error) {
	var result R
	if err := s.Runtime.Call(ctx, method, params, &result); err != nil {
		return nil, err
	}
	return &result, nil
}
