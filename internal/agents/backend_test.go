package agents

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// modelInput is what an agent sends to its model.
type modelInput struct {
	results []result // results of the calls of the previous turn
	tools   []string // names of TRL's tools, as in `trl mcp`
	body    string   // the whole request
	stream  bool     // the agent wants the reply as events
}

// result is the result of a tool, as the model reads it.
type result struct {
	text   string
	failed bool // always false if the agent's protocol does not say
}

// toolText returns the result of the only call of the previous turn.
func (g modelInput) toolText() string {
	if len(g.results) != 1 {
		return fmt.Sprintf("%d results where one was expected", len(g.results))
	}
	return g.results[0].text
}

// reply is the answer of the model: calls of TRL's tools, or else words that end the
// turn.
type reply struct {
	words string
	calls []call
	live  *live // how it is sent, by the wires of recordings
}

type call struct {
	tool string
	args object
}

func say(words string) reply { return reply{words: words} }

func use(tool string, args object) reply {
	if args == nil {
		args = object{}
	}
	return reply{calls: []call{{tool, args}}}
}

// turn is one step of the model.
type turn func(modelInput) reply

// wire implements the server side of one vendor's API.
type wire interface {
	// read parses a request. A request without tools is for the agent's own use,
	// such as a title for the conversation, and is not a turn.
	read(path string, body []byte) (g modelInput, isTurn bool, err error)
	// write sends the n-th reply, as events if w streams.
	write(w *events, n int, r reply)
}

// backend serves a vendor's API with a script in place of the model.
type backend struct {
	*httptest.Server
	t    *testing.T
	wire wire

	mu        sync.Mutex // guards the fields below
	script    []turn
	everyTurn turn         // used instead of script if not nil
	seen      []modelInput // one for each turn of this script
	turns     int          // turns of all scripts, for ids that are unique in a conversation
}

// serve starts a backend, which is closed at the end of the test.
func serve(t *testing.T, w wire) *backend {
	b := &backend{t: t, wire: w}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

// expect sets the script of the model from now on.
func (b *backend) expect(script ...turn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.script, b.seen = script, nil
}

// expectAny makes the model answer every request with t, any number of times.
func (b *backend) expectAny(t turn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.everyTurn = t
}

// checkDone checks that the script was played to its end, and returns the input of
// the model for each turn.
func (b *backend) checkDone() []modelInput {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.seen) != len(b.script) {
		b.t.Errorf("the agent called its model %d times, but the script has %d turns", len(b.seen), len(b.script))
	}
	return slices.Clone(b.seen)
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the agent is gone
	}
	g, isTurn, err := b.wire.read(r.URL.Path, body)
	if err != nil {
		http.Error(w, `{"error":{"message":"`+err.Error()+`"}}`, http.StatusNotFound)
		return
	}
	n, answer := 0, say("fine")
	if isTurn {
		g.body = string(body)
		n, answer = b.next(g)
	}
	b.wire.write(&events{w: w, stream: g.stream, gone: r.Context().Done()}, n, answer)
}

// next plays one turn.
func (b *backend) next(g modelInput) (n int, answer reply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turns++
	if b.everyTurn != nil {
		return b.turns, b.everyTurn(g)
	}
	b.seen = append(b.seen, g)
	at := len(b.seen)
	if at > len(b.script) {
		b.t.Errorf("the agent called its model after the end of the script, with:\n%s", texts(g.results))
		return b.turns, say("The script is over.")
	}
	return b.turns, b.script[at-1](g)
}

func texts(results []result) string {
	var out []string
	for _, r := range results {
		out = append(out, r.text)
	}
	return strings.Join(out, "\n---\n")
}

// object is a JSON object to send.
type object = map[string]any

// events writes server-sent events, and flushes after each; or one object, if it
// does not stream.
type events struct {
	w      http.ResponseWriter
	stream bool
	gone   <-chan struct{} // closed when the agent has hung up
}

// whole sends a reply in one piece.
func (e *events) whole(data object) {
	e.w.Header().Set("Content-Type", "application/json")
	fmt.Fprintln(e.w, mustJSON(data))
}

// send sends an event. Its kind, if not empty, is also added to data.
func (e *events) send(kind string, data object) {
	e.w.Header().Set("Content-Type", "text/event-stream")
	if kind != "" {
		data["type"] = kind
		fmt.Fprintf(e.w, "event: %s\n", kind)
	}
	fmt.Fprintf(e.w, "data: %s\n\n", mustJSON(data))
	if f, ok := e.w.(http.Flusher); ok {
		f.Flush()
	}
}
