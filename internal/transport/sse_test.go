package transport

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// event is one Server-Sent Event.
type event struct{ id, kind, data string }

// readEvents reads n events, or all until the end. It also counts comments.
func readEvents(t testing.TB, r io.Reader, n int) (events []event, comments int) {
	t.Helper()
	var e event
	for in := bufio.NewScanner(r); len(events) < n && in.Scan(); {
		name, value, _ := strings.Cut(in.Text(), ": ")
		switch {
		case in.Text() == "":
			if e != (event{}) {
				events = append(events, e)
			}
			e = event{}
		case name == "":
			comments++
			if comments == n {
				return events, comments
			}
		case name == "id":
			e.id = value
		case name == "event":
			e.kind = value
		case name == "data":
			e.data = value
		default:
			t.Fatalf("line %q", in.Text())
		}
	}
	return events, comments
}

func (rig *webRig) events(t testing.TB, path, lastID string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", rig.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer trl_reader")
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	response, err := rig.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", response.StatusCode, response.Header)
	}
	return response
}

// A client that is cut off after every event and sends back the last id
// receives every byte exactly once.
func TestEventsResume(t *testing.T) {
	const text = "line one\nline \"two\"\\\r\n\ttab\x01 and <é>\n"
	rig := startHTTP(t, webOptions{text: text})
	whole, _ := readEvents(t, rig.events(t, "/v1/execs/e-1/stream", "").Body, 1000)
	for cut := range whole {
		var got bytes.Buffer
		lastID := ""
		take := func(events []event) {
			for _, e := range events {
				var chunk api.Chunk
				if err := json.Unmarshal([]byte(e.data), &chunk); err != nil {
					t.Fatalf("%s: %v", e.data, err)
				}
				if e.kind != "chunk" || e.id != strconv.FormatInt(chunk.Next, 10) {
					t.Errorf("event %+v", e)
				}
				content, err := chunk.Content()
				if err != nil {
					t.Fatal(err)
				}
				got.Write(content) // a cut character is base64
				lastID = e.id
			}
		}
		response := rig.events(t, "/v1/execs/e-1/stream?from=0", "")
		first, _ := readEvents(t, response.Body, cut)
		response.Body.Close()
		take(first)
		// The header takes precedence over the query, which a browser repeats.
		rest, _ := readEvents(t, rig.events(t, "/v1/execs/e-1/stream?from=0", lastID).Body, 1000)
		take(rest)
		if got.String() != text {
			t.Errorf("cut after %d: %q", cut, got.String())
		}
		if last := rest[len(rest)-1]; !strings.Contains(last.data, `"type":"exit"`) {
			t.Errorf("the last event is %+v", last)
		}
	}
}

func TestQuietEventsShowLife(t *testing.T) {
	rig := startHTTP(t, webOptions{prepare: func(h *HTTPServer) { h.keepAlive = 10 * time.Millisecond }})
	response := rig.events(t, "/v1/execs/e-quiet/stream", "")
	if _, comments := readEvents(t, response.Body, 3); comments != 3 {
		t.Errorf("%d keep-alive comments", comments)
	}
	response.Body.Close()
}

func TestRevokedTokenEndsItsEvents(t *testing.T) {
	rig := startHTTP(t, webOptions{})
	response := rig.events(t, "/v1/execs/e-quiet/stream", "")
	writeTokens(t, rig.tokens, "trl_reader")
	if rest, err := io.ReadAll(response.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	if response, _ := rig.do(webRequest{method: "GET", path: "/metrics", token: "trl_reader"}); response.StatusCode != 401 {
		t.Errorf("then %d", response.StatusCode)
	}
}
