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

// given is what an agent puts before its model.
type given struct {
	results []result // of the calls of the turn before
	tools   []string // names of TRL's tools, as in `trl mcp`
	body    string   // the whole request
}

// result is what a tool has answered, as the model reads it.
type result struct {
	text   string
	failed bool // if the agent's protocol tells
}

// said is the answer to the only call of the turn before.
func (g given) said() string {
	if len(g.results) != 1 {
		return fmt.Sprintf("%d results where one was expected", len(g.results))
	}
	return g.results[0].text
}

// reply is what the model answers: calls of TRL's tools, or else words that end
// the turn.
type reply struct {
	words string
	calls []call
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
type turn func(given) reply

// wire is how one vendor's API is spoken.
type wire interface {
	// read takes a request apart. A request without tools is an agent's own
	// affair, a title for the conversation or the like, and no turn.
	read(path string, body []byte) (g given, isTurn bool, err error)
	// write streams the n-th reply.
	write(w *events, n int, r reply)
}

// backend is a vendor's API with a script in the place of the model.
type backend struct {
	*httptest.Server
	t    *testing.T
	wire wire

	mu     sync.Mutex // guards what follows
	script []turn
	always turn    // instead of a script; nil: there is one
	seen   []given // one for each turn of this script
	said   int     // turns of all scripts: ids in a conversation are unique
}

// serve starts a backend; it ends with the test.
func serve(t *testing.T, w wire) *backend {
	b := &backend{t: t, wire: w}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

// expect sets what the model does from now on.
func (b *backend) expect(script ...turn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.script, b.seen = script, nil
}

// expectAny has the model do the same whatever it is asked, and how often.
func (b *backend) expectAny(t turn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.always = t
}

// over reports a script that was not played to its end, and returns what the
// model was given, turn by turn.
func (b *backend) over() []given {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.seen) != len(b.script) {
		b.t.Errorf("the agent asked its model %d times; the script has %d turns", len(b.seen), len(b.script))
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
	b.wire.write(newEvents(w), n, answer)
}

// next plays one turn.
func (b *backend) next(g given) (n int, answer reply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said++
	if b.always != nil {
		return b.said, b.always(g)
	}
	b.seen = append(b.seen, g)
	at := len(b.seen)
	if at > len(b.script) {
		b.t.Errorf("the agent asked its model once more than the script has turns; it was told:\n%s", texts(g.results))
		return b.said, say("The script is over.")
	}
	return b.said, b.script[at-1](g)
}

func texts(results []result) string {
	var out []string
	for _, r := range results {
		out = append(out, r.text)
	}
	return strings.Join(out, "\n---\n")
}

// object is a JSON object on its way out.
type object = map[string]any

// events are server-sent events, each of which is on its way when sent.
type events struct{ w http.ResponseWriter }

func newEvents(w http.ResponseWriter) *events {
	w.Header().Set("Content-Type", "text/event-stream")
	return &events{w}
}

// send sends an event; its kind is also a field of it.
func (e *events) send(kind string, data object) {
	if kind != "" {
		data["type"] = kind
		fmt.Fprintf(e.w, "event: %s\n", kind)
	}
	fmt.Fprintf(e.w, "data: %s\n\n", encoded(data))
	if f, ok := e.w.(http.Flusher); ok {
		f.Flush()
	}
}
