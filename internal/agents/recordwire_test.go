package agents

import (
	"fmt"
	"net/http"
	"strings"
)

// live says how the model of a recording sends its reply.
type live struct {
	thought string
	before  string          // words before the calls
	hold    <-chan struct{} // waits after the first piece of the words, or before anything without words, until it is closed
	status  int             // an HTTP error in place of the reply
	cut     bool            // hangs up in the middle
	piece   int             // size of the pieces of the words; 0 is 8 bytes
}

// pieces splits words as a model streams them.
func (l live) pieces(words string) (out []string) {
	size := l.piece
	if size == 0 {
		size = 8
	}
	for len(words) > size {
		out, words = append(out, words[:size]), words[size:]
	}
	return append(out, words)
}

// wait waits until the recording lets the model go on.
func (l live) wait(e *events) {
	if l.hold == nil {
		return
	}
	select {
	case <-l.hold:
	case <-e.gone:
	}
}

// refuse sends an HTTP error.
func (e *events) refuse(status int) {
	e.w.Header().Set("Content-Type", "application/json")
	e.w.WriteHeader(status)
	fmt.Fprintln(e.w, mustJSON(object{"error": object{
		"code": status, "message": "The scripted model refuses.", "type": "invalid_request_error", "status": "INVALID_ARGUMENT",
	}}))
}

func liveOf(r reply) live {
	if r.live == nil {
		return live{}
	}
	return *r.live
}

// openaiLive is the Responses API with all events of a stream, and with the agent's
// own tools.
type openaiLive struct{ openai }

func (o openaiLive) write(e *events, n int, r reply) {
	l := liveOf(r)
	if l.status != 0 {
		e.refuse(l.status)
		return
	}
	usage := object{
		"input_tokens": 100 * n, "output_tokens": 10 * n, "total_tokens": 110 * n,
		"input_tokens_details": object{"cached_tokens": 7}, "output_tokens_details": object{"reasoning_tokens": 3},
	}
	e.send("response.created", object{"response": object{"id": fmt.Sprint("resp_", n), "object": "response", "status": "in_progress", "output": []any{}}})
	var items []any
	add := func(item, empty object, middle func(at int)) {
		at := len(items)
		e.send("response.output_item.added", object{"output_index": at, "item": empty})
		middle(at)
		e.send("response.output_item.done", object{"output_index": at, "item": item})
		items = append(items, item)
	}
	if l.thought != "" {
		id := fmt.Sprint("rs_", n)
		full := object{"type": "reasoning", "id": id, "summary": []any{object{"type": "summary_text", "text": l.thought}}, "encrypted_content": nil}
		add(full, object{"type": "reasoning", "id": id, "summary": []any{}}, func(at int) {
			e.send("response.reasoning_summary_part.added", object{"item_id": id, "output_index": at, "summary_index": 0, "part": object{"type": "summary_text", "text": ""}})
			for _, piece := range l.pieces(l.thought) {
				e.send("response.reasoning_summary_text.delta", object{"item_id": id, "output_index": at, "summary_index": 0, "delta": piece})
			}
			e.send("response.reasoning_summary_part.done", object{"item_id": id, "output_index": at, "summary_index": 0, "part": object{"type": "summary_text", "text": l.thought}})
		})
	}
	say := func(words string) {
		id := fmt.Sprint("msg_", n)
		message := func(text string) object {
			return object{"type": "message", "id": id, "role": "assistant", "status": "completed", "content": []any{object{"type": "output_text", "text": text, "annotations": []any{}}}}
		}
		add(message(words), message(""), func(at int) {
			for i, piece := range l.pieces(words) {
				e.send("response.output_text.delta", object{"item_id": id, "output_index": at, "content_index": 0, "delta": piece})
				if i == 0 {
					l.wait(e)
				}
			}
		})
	}
	switch {
	case l.before != "":
		say(l.before)
	case r.words == "":
		l.wait(e)
	}
	for i, c := range r.calls {
		item := object{
			"type": "function_call", "id": fmt.Sprintf("fc_%d_%d", n, i), "call_id": fmt.Sprintf("call_%d_%d", n, i),
			"name": c.tool, "arguments": mustJSON(c.args),
		}
		if text, custom := c.args["custom"].(string); custom {
			item = object{"type": "custom_tool_call", "id": item["id"], "call_id": item["call_id"], "name": c.tool, "input": text}
		}
		if space, name, ok := strings.Cut(c.tool, "/"); ok {
			item["namespace"], item["name"] = space, name
		}
		add(item, item, func(int) {})
	}
	if r.words != "" {
		say(r.words)
	}
	if l.cut {
		panic(http.ErrAbortHandler)
	}
	e.send("response.completed", object{"response": object{
		"id": fmt.Sprint("resp_", n), "object": "response", "status": "completed", "output": items, "usage": usage,
	}})
}

// geminiLive is generateContent with all pieces of a stream, and with the agent's own
// tools.
type geminiLive struct{}

func (geminiLive) write(e *events, n int, r reply) {
	l := liveOf(r)
	if l.status != 0 {
		e.refuse(l.status)
		return
	}
	if !e.stream { // the agent asks which model to take
		e.whole(geminiChunk(n, "STOP", object{"text": `{"reasoning":"scripted","model_choice":"flash","complexity_reasoning":"scripted","complexity_score":1}`}))
		return
	}
	chunk := func(end string, parts ...any) { e.send("", geminiChunk(n, end, parts...)) }
	if l.thought != "" {
		chunk("", object{"text": l.thought, "thought": true})
	}
	words := l.before + r.words
	if words == "" {
		l.wait(e)
	} else {
		for i, piece := range l.pieces(words) {
			chunk("", object{"text": piece})
			if i == 0 {
				l.wait(e)
			}
		}
	}
	if l.cut {
		panic(http.ErrAbortHandler)
	}
	var calls []any
	for _, c := range r.calls {
		calls = append(calls, object{"functionCall": object{"name": c.tool, "args": c.args}})
	}
	if calls == nil {
		calls = []any{object{"text": ""}}
	}
	chunk("STOP", calls...)
}

func geminiChunk(n int, end string, parts ...any) object {
	candidate := object{"content": object{"role": "model", "parts": parts}, "index": 0}
	if end != "" {
		candidate["finishReason"] = end
	}
	return object{
		"candidates": []any{candidate}, "modelVersion": "scripted", "responseId": fmt.Sprint("r", n),
		"usageMetadata": object{"promptTokenCount": 100 * n, "candidatesTokenCount": 10 * n, "totalTokenCount": 110 * n},
	}
}

// A request that is not a stream is not a turn: with it the agent chooses a model.
func (geminiLive) read(path string, body []byte) (g modelInput, isTurn bool, err error) {
	if strings.HasSuffix(path, ":streamGenerateContent") {
		return gemini{}.read(path, body)
	}
	if strings.HasSuffix(path, ":generateContent") {
		return modelInput{}, false, nil
	}
	if strings.HasSuffix(path, ":countTokens") {
		return modelInput{}, false, nil
	}
	return g, false, errNoSuchPath
}
