package contract

import (
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"
)

// tree is a part of a document without a Go type. Its members are written in
// alphabetical order.
type tree map[string]any

// openAPI is the document, with its members in an order that suits a reader.
type openAPI struct {
	OpenAPI    string           `json:"openapi"`
	Info       tree             `json:"info"`
	Generated  string           `json:"x-generated"`
	Servers    []tree           `json:"servers"`
	Security   []tree           `json:"security"`
	Paths      map[string]*path `json:"paths"`
	Components tree             `json:"components"`
}

type path struct {
	Get  *operation `json:"get,omitempty"`
	Post *operation `json:"post,omitempty"`
}

type operation struct {
	ID          string  `json:"operationId"`
	Summary     string  `json:"summary"`
	Description string  `json:"description,omitempty"`
	Scope       string  `json:"x-trl-scope,omitempty"`
	Scopes      tree    `json:"x-trl-scopes,omitempty"` // by method
	Security    *[]tree `json:"security,omitempty"`     // empty: no token required
	Parameters  []tree  `json:"parameters,omitempty"`
	Body        tree    `json:"requestBody,omitempty"`
	Responses   answers `json:"responses"`
}

// OpenAPI generates the OpenAPI 3.1 description of the HTTP transport.
func (c *Contract) OpenAPI() ([]byte, error) {
	const components = "#/components/schemas/"
	s := c.schemas(components)
	s.defs["Request"].Extra = tree{"discriminator": c.discriminator(components)}
	return indented(openAPI{
		OpenAPI: "3.1.0",
		Info: tree{
			"title": "TRL", "version": "1",
			"description": "Terminal sessions over HTTP. The version is that of the protocol; docs/protocol.md explains everything.",
		},
		Generated: "from the method table and the types of the daemon; do not edit. To regenerate it: go test ./internal/contract -run Fresh -update",
		Servers:   []tree{{"url": "/"}},
		Security:  []tree{{"token": []string{}}},
		Paths: map[string]*path{
			"/rpc":                       {Post: c.rpc(s)},
			"/v1/execs/{exec_id}/stream": {Get: execStream(s)},
			"/ws":                        {Get: webSocket(s)},
			"/healthz":                   {Get: health(s)},
			"/metrics":                   {Get: metrics(s)},
			"/mcp":                       {Post: tools(s)},
		},
		Components: tree{
			"schemas":         s.defs,
			"securitySchemes": tree{"token": tree{"type": "http", "scheme": "bearer"}},
		},
	})
}

func (c *Contract) discriminator(prefix string) tree {
	mapping := tree{}
	for _, m := range c.Methods {
		mapping[m.Name] = prefix + m.Name + ".request"
	}
	return tree{"propertyName": "method", "mapping": mapping}
}

func (c *Contract) rpc(s *schemas) *operation {
	scopes := tree{}
	for _, m := range c.Methods {
		scopes[m.Name] = m.Scope
	}
	return &operation{
		ID: "rpc", Summary: "One JSON-RPC request, one answer.",
		Description: "An error of the method is the body of a 200, unless the caller is not allowed to call it. " +
			"For a method that opens a stream only the answer is sent: follow an exec at its own path, and sessions over /ws.",
		Scopes: scopes,
		Body:   tree{"required": true, "content": tree{"application/json": tree{"schema": s.ref("Request")}}},
		Responses: refusals(s, 400, 401, 403, 405, 408, 413, 415, 421, 429).
			with(200, "The answer.", "application/json", s.ref("Response")).
			with(204, "The request had no id: it was executed, but is not answered.", "", nil),
	}
}

func execStream(s *schemas) *operation {
	offset := &jsonschema.Schema{Type: "integer", Minimum: jsonschema.Ptr(0.0)}
	return &operation{
		ID: "execStream", Summary: "Follow a command's output from an offset, as Server-Sent Events.", Scope: "read",
		Description: "First the existing output, then new output, then an exit chunk, which ends the response. Each event is " +
			"`id: NEXT`, `event: chunk` and `data: CHUNK`, where CHUNK is a Chunk in one line of JSON and NEXT is the offset after it. " +
			"A comment is sent after 15 s without an event.",
		Parameters: []tree{
			{"name": "exec_id", "in": "path", "required": true, "schema": tree{"type": "string"}, "description": "the exec"},
			{"name": "from", "in": "query", "schema": offset, "description": "offset to start at; default 0"},
			{"name": "Last-Event-ID", "in": "header", "schema": offset, "description": "the id of the last event that was processed; takes precedence over from"},
		},
		Responses: refusals(s, 400, 401, 403, 404, 405, 421, 429).
			with(200, "Events, each with a Chunk as its data.", "text/event-stream", &jsonschema.Schema{
				Type: "string", ContentMediaType: "application/json", ContentSchema: s.ref("Chunk"),
			}),
	}
}

func webSocket(s *schemas) *operation {
	return &operation{
		ID: "webSocket", Summary: "A WebSocket: one JSON-RPC object per text message, in both directions.",
		Description: "As on the Unix socket, requests are served concurrently, and notifications follow the answers that opened their streams. " +
			"Each request counts towards the rate limit of its token, and needs the scope of its method.",
		Responses: refusals(s, 401, 403, 405, 421, 429).
			with(101, "The connection is a WebSocket from here on.", "", nil).
			with(400, "The handshake is not a valid WebSocket handshake.", "", nil).
			with(426, "The request does not request a WebSocket upgrade.", "", nil),
	}
}

func health(s *schemas) *operation {
	status := object([]member{{"status", constant("ok")}})
	return &operation{
		ID: "healthz", Summary: "Whether the daemon answers. Needs no token.", Security: &[]tree{},
		Responses: refusals(s, 403, 405, 421).with(200, "The daemon answers.", "application/json", status),
	}
}

func metrics(s *schemas) *operation {
	return &operation{
		ID: "metrics", Summary: "The daemon's metrics, for Prometheus.", Scope: "read",
		Responses: refusals(s, 401, 403, 404, 405, 421, 429).
			with(200, "The metrics in the text format.", "text/plain", &jsonschema.Schema{Type: "string"}),
	}
}

func tools(s *schemas) *operation {
	message := &jsonschema.Schema{Type: "object", Description: "a message of the Model Context Protocol"}
	text := tree{"type": "string"}
	return &operation{
		ID: "mcp", Summary: "The Model Context Protocol over stateless Streamable HTTP.",
		Description: "See docs/mcp.md. A call needs the scopes of the methods that the tool uses.",
		Parameters: []tree{
			{"name": "scope", "in": "query", "schema": text, "description": "which client's sessions are visible; default http"},
			{"name": "structured", "in": "query", "schema": text, "description": "when results carry structured content: auto (the default), always or never"},
		},
		Body: tree{"required": true, "content": tree{"application/json": tree{"schema": message}}},
		Responses: refusals(s, 400, 401, 405, 413, 415, 421, 429).
			with(200, "Progress notifications, then the answer.", "text/event-stream", &jsonschema.Schema{Type: "string"}),
	}
}

type answers map[string]tree

// statuses says why a request is refused before it reaches a method.
var statuses = map[int]string{
	400: "Not a request: the body is not JSON or not JSON-RPC, or an offset is not a number.",
	401: "The token is missing, unknown or expired.",
	403: "The token's scope is insufficient, a new session lacks its tag, or the Origin header names a page that is not allowed.",
	404: "No such exec, or it is past its retention; or an unknown path.",
	405: "The path does not accept this HTTP method.",
	408: "The body did not arrive in time.",
	413: "The body is longer than max_request_bytes.",
	415: "The body is not application/json.",
	421: "The Host header names another server.",
	429: "Too many requests with this token, per second or concurrently.",
}

// headers holds the headers that are sent with a refusal.
var headers = map[int][2]string{
	401: {"WWW-Authenticate", "Bearer"},
	405: {"Allow", "the HTTP method that the path accepts"},
	429: {"Retry-After", "seconds to wait; error.data.retry_after_ms has it in milliseconds"},
}

// refusals returns the responses with these statuses. Their body is an error.
func refusals(s *schemas, refused ...int) answers {
	a := answers{}
	for _, status := range refused {
		a.with(status, statuses[status], "application/json", s.ref("ErrorResponse"))
		if header, ok := headers[status]; ok {
			a[strconv.Itoa(status)]["headers"] = tree{
				header[0]: tree{"description": header[1], "schema": tree{"type": "string"}},
			}
		}
	}
	return a
}

func (a answers) with(status int, description, media string, schema *jsonschema.Schema) answers {
	r := tree{"description": description}
	if media != "" {
		r["content"] = tree{media: tree{"schema": schema}}
	}
	a[strconv.Itoa(status)] = r
	return a
}
