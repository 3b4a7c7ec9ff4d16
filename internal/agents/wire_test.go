package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var errNoSuchPath = errors.New("no such path")

// anthropic is the Messages API, as Claude Code uses it.
type anthropic struct{}

// anthropicPrefix is the prefix of tool names, as in mcp__trl__run.
const anthropicPrefix = "mcp__trl__"

func (anthropic) read(path string, body []byte) (g modelInput, isTurn bool, err error) {
	if !strings.HasSuffix(path, "/v1/messages") {
		return g, false, errNoSuchPath
	}
	var request struct {
		Tools    []struct{ Name string }
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return g, false, err
	}
	for _, tool := range request.Tools {
		if name, ours := strings.CutPrefix(tool.Name, anthropicPrefix); ours {
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

func (anthropic) write(e *events, n int, r reply) {
	e.send("message_start", object{"message": object{
		"id": fmt.Sprint("msg_", n), "type": "message", "role": "assistant", "model": "scripted", "content": []any{},
		"usage": object{"input_tokens": 1, "output_tokens": 1},
	}})
	block := func(i int, start object, delta object) {
		e.send("content_block_start", object{"index": i, "content_block": start})
		e.send("content_block_delta", object{"index": i, "delta": delta})
		e.send("content_block_stop", object{"index": i})
	}
	reason := "end_turn"
	if len(r.calls) == 0 {
		block(0, object{"type": "text", "text": ""}, object{"type": "text_delta", "text": r.words})
	}
	for i, c := range r.calls {
		reason = "tool_use"
		block(i,
			object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d_%d", n, i), "name": anthropicPrefix + c.tool, "input": object{}},
			object{"type": "input_json_delta", "partial_json": mustJSON(c.args)})
	}
	e.send("message_delta", object{"delta": object{"stop_reason": reason}, "usage": object{"output_tokens": 1}})
	e.send("message_stop", object{})
}

// openai is the Responses API, as Codex uses it.
type openai struct{}

// openaiNamespace is the namespace of the tools.
const openaiNamespace = "mcp__trl"

// openaiHeader matches the lines that Codex puts before each result.
var openaiHeader = regexp.MustCompile(`^Wall time: [0-9.]+ seconds\nOutput:\n`)

func (openai) read(path string, body []byte) (g modelInput, isTurn bool, err error) {
	if !strings.HasSuffix(path, "/responses") {
		return g, false, errNoSuchPath
	}
	var request struct {
		Tools []struct {
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
	for _, space := range request.Tools {
		if space.Name == openaiNamespace {
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

func (openai) write(e *events, n int, r reply) {
	response := object{"id": fmt.Sprint("resp_", n), "object": "response", "status": "in_progress", "output": []any{}}
	e.send("response.created", object{"response": response})
	items := []any{object{
		"type": "message", "id": fmt.Sprint("msg_", n), "role": "assistant", "status": "completed",
		"content": []any{object{"type": "output_text", "text": r.words, "annotations": []any{}}},
	}}
	if len(r.calls) > 0 {
		items = nil
	}
	for i, c := range r.calls {
		items = append(items, object{
			"type": "function_call", "id": fmt.Sprintf("fc_%d_%d", n, i), "call_id": fmt.Sprintf("call_%d_%d", n, i),
			"namespace": openaiNamespace, "name": c.tool, "arguments": mustJSON(c.args),
		})
	}
	for i, item := range items {
		e.send("response.output_item.done", object{"output_index": i, "item": item})
	}
	response["status"], response["output"] = "completed", items
	response["usage"] = object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
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
