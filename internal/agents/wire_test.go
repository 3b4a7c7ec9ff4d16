package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
)

var errNoSuchPath = errors.New("no such path")

// anthropic is the Messages API, as Claude Code and programs use it.
type anthropic struct {
	prefix string // of tool names, as in mcp__trl__run
}

// claudePrefix is the prefix that Claude Code gives to the tools of the server trl.
const claudePrefix = "mcp__trl__"

func (a anthropic) read(path string, body []byte) (g modelInput, isTurn bool, err error) {
	if !strings.HasSuffix(path, "/v1/messages") {
		return g, false, errNoSuchPath
	}
	var request struct {
		Stream   bool
		Tools    []struct{ Name string }
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return g, false, err
	}
	g.stream = request.Stream
	for _, tool := range request.Tools {
		if name, ours := strings.CutPrefix(tool.Name, a.prefix); ours {
			g.tools = append(g.tools, name)
		}
	}
	// The results since the model's last message.
	for _, message := range request.Messages {
		if message.Role == "assistant" {
			g.results = nil
			continue
		}
		var blocks []struct {
			Type    string
			Content json.RawMessage
			IsError bool `json:"is_error"`
		}
		if json.Unmarshal(message.Content, &blocks) != nil {
			continue // plain text
		}
		for _, block := range blocks {
			if block.Type == "tool_result" {
				g.results = append(g.results, result{text: resultText(block.Content), failed: block.IsError})
			}
		}
	}
	return g, len(request.Tools) > 0, nil
}

func (a anthropic) write(e *events, n int, r reply) {
	content, reason := a.content(n, r)
	message := object{
		"id": fmt.Sprint("msg_", n), "type": "message", "role": "assistant", "model": "scripted",
		"usage": object{"input_tokens": 1, "output_tokens": 1},
	}
	if !e.stream {
		message["content"], message["stop_reason"] = content, reason
		e.whole(message)
		return
	}
	message["content"] = []any{}
	e.send("message_start", object{"message": message})
	for i, block := range content {
		start, delta := anthropicEvents(block)
		e.send("content_block_start", object{"index": i, "content_block": start})
		e.send("content_block_delta", object{"index": i, "delta": delta})
		e.send("content_block_stop", object{"index": i})
	}
	e.send("message_delta", object{"delta": object{"stop_reason": reason}, "usage": object{"output_tokens": 1}})
	e.send("message_stop", object{})
}

// content returns the blocks of a reply, and why it ends.
func (a anthropic) content(n int, r reply) (blocks []object, reason string) {
	if len(r.calls) == 0 {
		return []object{{"type": "text", "text": r.words}}, "end_turn"
	}
	for i, c := range r.calls {
		blocks = append(blocks, object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d_%d", n, i), "name": a.prefix + c.tool, "input": c.args})
	}
	return blocks, "tool_use"
}

// anthropicEvents splits a block into the start and the rest, as a stream has it.
func anthropicEvents(block object) (start, delta object) {
	start = maps.Clone(block)
	if block["type"] == "text" {
		start["text"] = ""
		return start, object{"type": "text_delta", "text": block["text"]}
	}
	start["input"] = object{}
	return start, object{"type": "input_json_delta", "partial_json": mustJSON(block["input"])}
}

// openai is the Responses API, as Codex and programs use it.
type openai struct {
	namespace string // of the tools; without one they are functions
}

// codexNamespace is the namespace that Codex gives to the tools of the server trl.
const codexNamespace = "mcp__trl"

// openaiHeader matches the lines that Codex puts before each result.
var openaiHeader = regexp.MustCompile(`^Wall time: [0-9.]+ seconds\nOutput:\n`)

func (o openai) read(path string, body []byte) (g modelInput, isTurn bool, err error) {
	if !strings.HasSuffix(path, "/responses") {
		return g, false, errNoSuchPath
	}
	var request struct {
		Stream bool
		Tools  []struct {
			Name  string
			Tools []struct{ Name string }
		}
		Input []struct {
			Type   string
			Output json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return g, false, err
	}
	g.stream = request.Stream
	for _, space := range request.Tools {
		switch o.namespace {
		case "":
			g.tools = append(g.tools, space.Name)
		case space.Name:
			for _, tool := range space.Tools {
				g.tools = append(g.tools, tool.Name)
			}
		}
	}
	// The results of one turn follow each other.
	for _, item := range request.Input {
		switch item.Type {
		case "function_call_output":
			g.results = append(g.results, result{text: openaiHeader.ReplaceAllString(resultText(item.Output), "")})
		case "function_call", "message":
			g.results = nil
		}
	}
	return g, len(request.Tools) > 0, nil
}

func (o openai) write(e *events, n int, r reply) {
	items := []any{object{
		"type": "message", "id": fmt.Sprint("msg_", n), "role": "assistant", "status": "completed",
		"content": []any{object{"type": "output_text", "text": r.words, "annotations": []any{}}},
	}}
	if len(r.calls) > 0 {
		items = nil
	}
	for i, c := range r.calls {
		item := object{
			"type": "function_call", "id": fmt.Sprintf("fc_%d_%d", n, i), "call_id": fmt.Sprintf("call_%d_%d", n, i),
			"name": c.tool, "arguments": mustJSON(c.args),
		}
		if o.namespace != "" {
			item["namespace"] = o.namespace
		}
		items = append(items, item)
	}
	response := object{
		"id": fmt.Sprint("resp_", n), "object": "response", "status": "completed", "output": items,
		"usage": object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
	}
	if !e.stream {
		e.whole(response)
		return
	}
	e.send("response.created", object{"response": object{"id": response["id"], "object": "response", "status": "in_progress", "output": []any{}}})
	for i, item := range items {
		e.send("response.output_item.done", object{"output_index": i, "item": item})
	}
	e.send("response.completed", object{"response": response})
}

// gemini is generateContent, as Gemini CLI uses it.
type gemini struct{}

// geminiPrefix is the prefix of tool names, as in mcp_trl_run.
const geminiPrefix = "mcp_trl_"

// geminiWrap removes the two lines that Gemini CLI puts around each block of a result.
var geminiWrap = strings.NewReplacer("<untrusted_context>\n", "", "\n</untrusted_context>", "")

func (gemini) read(path string, body []byte) (g modelInput, isTurn bool, err error) {
	if !strings.HasSuffix(path, ":streamGenerateContent") {
		return g, false, errNoSuchPath
	}
	var request struct {
		Tools []struct {
			FunctionDeclarations []struct{ Name string }
		}
		Contents []struct {
			Role  string
			Parts []struct {
				FunctionResponse *struct {
					Response struct{ Output, Error string }
				}
			}
		}
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return g, false, err
	}
	for _, group := range request.Tools {
		for _, tool := range group.FunctionDeclarations {
			if name, ours := strings.CutPrefix(tool.Name, geminiPrefix); ours {
				g.tools = append(g.tools, name)
			}
		}
	}
	for _, content := range request.Contents {
		if content.Role == "model" {
			g.results = nil
			continue
		}
		for _, part := range content.Parts {
			if answer := part.FunctionResponse; answer != nil {
				text := geminiWrap.Replace(answer.Response.Output) + answer.Response.Error
				g.results = append(g.results, result{text: text, failed: answer.Response.Error != ""})
			}
		}
	}
	g.stream = true
	return g, len(request.Tools) > 0, nil
}

func (gemini) write(e *events, _ int, r reply) {
	parts := []any{object{"text": r.words}}
	if len(r.calls) > 0 {
		parts = nil
	}
	for _, c := range r.calls {
		parts = append(parts, object{"functionCall": object{"name": geminiPrefix + c.tool, "args": c.args}})
	}
	e.send("", object{
		"candidates":    []any{object{"content": object{"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
	})
}

// resultText returns the text of a result, which is a string or blocks of text.
func resultText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var blocks []struct{ Text string }
	if err := json.Unmarshal(content, &blocks); err != nil {
		return "unknown form of result: " + string(content)
	}
	var out []string
	for _, block := range blocks {
		out = append(out, block.Text)
	}
	return strings.Join(out, "\n")
}

// mustJSON returns a value of a script as JSON.
func mustJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // the script is wrong
	}
	return string(text)
}
