package fold

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// slowest is how much longer than encoding/json a fold may take: it decodes the same
// lines, and makes a transcript of them.
const slowest = 1.5

// The lines as a program would decode them that only wants what the adapter reads.
type (
	jsonBlock struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		Thinking  string          `json:"thinking"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
		ToolUseID string          `json:"tool_use_id"`
		Content   json.RawMessage `json:"content"`
		IsError   bool            `json:"is_error"`
	}
	jsonHead struct {
		Type    string  `json:"type"`
		Subtype string  `json:"subtype"`
		UUID    string  `json:"uuid"`
		Session string  `json:"session_id"`
		Parent  *string `json:"parent_tool_use_id"`
	}
	jsonAssistant struct {
		jsonHead
		Message struct {
			ID      string      `json:"id"`
			Content []jsonBlock `json:"content"`
		} `json:"message"`
	}
	jsonUser struct {
		jsonHead
		Message struct {
			Content json.RawMessage `json:"content"`
		} `json:"message"`
		IsReplay      bool            `json:"isReplay"`
		ToolUseResult json.RawMessage `json:"tool_use_result"`
		Meta          []struct {
			ID   string `json:"id"`
			Kind string `json:"non_execution_kind"`
		} `json:"tool_result_meta"`
	}
	jsonStream struct {
		jsonHead
		Event struct {
			Type    string `json:"type"`
			Index   int    `json:"index"`
			Message struct {
				ID string `json:"id"`
			} `json:"message"`
			Block jsonBlock `json:"content_block"`
			Delta struct {
				Type     string `json:"type"`
				Text     string `json:"text"`
				Thinking string `json:"thinking"`
			} `json:"delta"`
		} `json:"event"`
	}
	jsonSystem struct {
		jsonHead
		Model      string          `json:"model"`
		Mode       string          `json:"permissionMode"`
		State      string          `json:"state"`
		TaskID     string          `json:"task_id"`
		ToolUseID  string          `json:"tool_use_id"`
		TaskType   string          `json:"task_type"`
		Background bool            `json:"is_backgrounded"`
		Status     string          `json:"status"`
		Summary    string          `json:"summary"`
		Content    string          `json:"content"`
		Attempt    int             `json:"attempt"`
		Retries    int             `json:"max_retries"`
		ErrStatus  *int            `json:"error_status"`
		Error      string          `json:"error"`
		UUIDs      json.RawMessage `json:"user_message_uuids"`
		Patch      struct {
			Status string `json:"status"`
		} `json:"patch"`
	}
	jsonResult struct {
		jsonHead
		IsError  bool    `json:"is_error"`
		Terminal string  `json:"terminal_reason"`
		Cost     float64 `json:"total_cost_usd"`
		Usage    struct {
			Input, Output, Cached, Written int64
		} `json:"usage"`
		Models map[string]struct {
			InputTokens, OutputTokens, CacheReadInputTokens, CacheCreationInputTokens, ThinkingTokens, ContextWindow int64
		} `json:"modelUsage"`
		Result string   `json:"result"`
		Errors []string `json:"errors"`
		Status *int     `json:"api_error_status"`
		Origin struct {
			Kind string `json:"kind"`
		} `json:"origin"`
	}
	jsonLifecycle struct {
		jsonHead
		Command string `json:"command_uuid"`
		State   string `json:"state"`
	}
	jsonRequest struct {
		jsonHead
		RequestID string `json:"request_id"`
		Request   struct {
			Subtype     string            `json:"subtype"`
			Tool        string            `json:"tool_name"`
			Input       json.RawMessage   `json:"input"`
			Description string            `json:"description"`
			Title       string            `json:"title"`
			Suggestions []json.RawMessage `json:"permission_suggestions"`
			Reason      string            `json:"decision_reason"`
			ToolUseID   string            `json:"tool_use_id"`
			Agent       string            `json:"agent_id"`
		} `json:"request"`
	}
	jsonResponse struct {
		jsonHead
		Response struct {
			Subtype   string          `json:"subtype"`
			RequestID string          `json:"request_id"`
			Response  json.RawMessage `json:"response"`
			Error     string          `json:"error"`
		} `json:"response"`
	}
)

func decodeAs(typ string) func([]byte) error {
	into := func(v func() any) func([]byte) error { return func(b []byte) error { return json.Unmarshal(b, v()) } }
	switch typ {
	case "assistant":
		return into(func() any { return &jsonAssistant{} })
	case "user":
		return into(func() any { return &jsonUser{} })
	case "stream_event":
		return into(func() any { return &jsonStream{} })
	case "result":
		return into(func() any { return &jsonResult{} })
	case "command_lifecycle":
		return into(func() any { return &jsonLifecycle{} })
	case "control_request", "control_cancel_request":
		return into(func() any { return &jsonRequest{} })
	case "control_response":
		return into(func() any { return &jsonResponse{} })
	}
	return into(func() any { return &jsonSystem{} })
}

// TestMustFoldFast folds all recordings and compares the time with that of decoding
// their lines.
func TestMustFoldFast(t *testing.T) {
	if testing.Short() {
		t.Skip("a ratio needs some rounds, and none with the race detector")
	}
	type decodable struct {
		line   []byte
		decode func([]byte) error
	}
	var lines []decodable
	var outputs [][]byte
	size := 0
	for _, r := range recordings(t, "claude") {
		outputs = append(outputs, r.stdout)
		size += len(r.stdout)
		for _, l := range bytes.Split(r.stdout, []byte("\n")) {
			var head jsonHead
			if len(l) == 0 {
				continue
			}
			if err := json.Unmarshal(l, &head); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, decodable{l, decodeAs(head.Type)})
		}
	}
	run := Record{Kind: RecordRun, Run: 1, At: testTime, Start: &Start{NativeID: "n"}}
	const piece = 16 << 10
	folding := &gauge.Series{N: 1, Do: func() error {
		changes := 0
		for _, out := range outputs {
			f := New(Config{Agent: api.AgentClaude})
			if err := f.Apply(run); err != nil {
				return err
			}
			for at := 0; at < len(out); at += piece {
				f.Feed(Chunk{Offset: int64(at), Data: out[at:min(len(out), at+piece)]})
				changes += len(f.Changes())
			}
		}
		if changes < len(outputs) {
			return fmt.Errorf("%d changes", changes)
		}
		return nil
	}}
	decoding := &gauge.Series{N: 1, Do: func() error {
		for _, l := range lines {
			if err := l.decode(l.line); err != nil {
				return fmt.Errorf("%.100s: %w", l.line, err)
			}
		}
		return nil
	}}
	gauge.Tries(t, func(t *testing.T) error {
		ratio := 0.0
		for range gauge.RoundsLeast {
			for _, s := range []*gauge.Series{decoding, folding} {
				if err := s.Round(); err != nil {
					t.Fatal(err)
				}
			}
			ratio = gauge.Ratio(folding.Best, decoding.Best)
		}
		gauge.Figures(t, "%.2f x encoding/json (%v for %d lines, %d bytes)", ratio, folding.Best, len(lines), size)
		if ratio > slowest {
			return fmt.Errorf("a fold takes %.2f times as long as encoding/json, more than %.1f", ratio, slowest)
		}
		return nil
	})
}
