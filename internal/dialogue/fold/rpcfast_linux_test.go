package fold

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const slowestRPC = 1.5

// The lines of Codex and ACP as a program would decode them that only wants what the
// adapters read.
type (
	rpcHead struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Error  *struct {
			Message string          `json:"message"`
			Data    json.RawMessage `json:"data"`
		} `json:"error"`
	}
	rpcTurn struct {
		ID     string `json:"id"`
		Status string `json:"status"`
		Error  *struct {
			Message string          `json:"message"`
			Details string          `json:"additionalDetails"`
			Info    json.RawMessage `json:"codexErrorInfo"`
		} `json:"error"`
		Items []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"items"`
	}
	rpcPlace struct {
		ThreadID string `json:"threadId"`
		TurnID   string `json:"turnId"`
		ItemID   string `json:"itemId"`
	}
	rpcDelta struct {
		rpcHead
		Params struct {
			rpcPlace
			Delta   string `json:"delta"`
			Message string `json:"message"`
			Index   int    `json:"summaryIndex"`
		} `json:"params"`
	}
	rpcItem struct {
		rpcHead
		Params struct {
			rpcPlace
			Item struct {
				Type      string          `json:"type"`
				ID        string          `json:"id"`
				ClientID  string          `json:"clientId"`
				Content   json.RawMessage `json:"content"`
				Text      string          `json:"text"`
				Summary   []string        `json:"summary"`
				Command   string          `json:"command"`
				Cwd       string          `json:"cwd"`
				Status    string          `json:"status"`
				Actions   json.RawMessage `json:"commandActions"`
				Output    string          `json:"aggregatedOutput"`
				ExitCode  *int            `json:"exitCode"`
				Changes   json.RawMessage `json:"changes"`
				Tool      string          `json:"tool"`
				Arguments json.RawMessage `json:"arguments"`
				Result    json.RawMessage `json:"result"`
				Receivers []string        `json:"receiverThreadIds"`
				Prompt    string          `json:"prompt"`
				Model     string          `json:"model"`
				States    json.RawMessage `json:"agentsStates"`
			} `json:"item"`
		} `json:"params"`
	}
	rpcTurns struct {
		rpcHead
		Params struct {
			rpcPlace
			Turn  rpcTurn         `json:"turn"`
			Error json.RawMessage `json:"error"`
			Plan  []struct {
				Step   string `json:"step"`
				Status string `json:"status"`
			} `json:"plan"`
		} `json:"params"`
	}
	rpcTokens struct {
		InputTokens, OutputTokens, CachedInputTokens, CacheWriteInputTokens, ReasoningOutputTokens, TotalTokens int64
	}
	rpcUsage struct {
		rpcHead
		Params struct {
			rpcPlace
			Usage struct {
				Total  rpcTokens `json:"total"`
				Last   rpcTokens `json:"last"`
				Window int64     `json:"modelContextWindow"`
			} `json:"tokenUsage"`
		} `json:"params"`
	}
	rpcAsk struct {
		rpcHead
		Params struct {
			rpcPlace
			Reason    string          `json:"reason"`
			Command   string          `json:"command"`
			Cwd       string          `json:"cwd"`
			Decisions json.RawMessage `json:"availableDecisions"`
			Amendment json.RawMessage `json:"proposedExecpolicyAmendment"`
			Questions json.RawMessage `json:"questions"`
		} `json:"params"`
	}
	rpcResult struct {
		rpcHead
		Result struct {
			Thread struct {
				ID string `json:"id"`
			} `json:"thread"`
			Turn    rpcTurn         `json:"turn"`
			Model   string          `json:"model"`
			Policy  json.RawMessage `json:"approvalPolicy"`
			Sandbox struct {
				Type string `json:"type"`
			} `json:"sandbox"`

			Version   int             `json:"protocolVersion"`
			Caps      json.RawMessage `json:"agentCapabilities"`
			SessionID string          `json:"sessionId"`
			Modes     struct {
				Current string `json:"currentModeId"`
			} `json:"modes"`
			Models struct {
				Current string `json:"currentModelId"`
			} `json:"models"`
			StopReason string `json:"stopReason"`
			Meta       struct {
				Quota struct {
					Count struct {
						Input  int64 `json:"input_tokens"`
						Output int64 `json:"output_tokens"`
					} `json:"token_count"`
				} `json:"quota"`
			} `json:"_meta"`
		} `json:"result"`
	}
	rpcUpdate struct {
		rpcHead
		Params struct {
			SessionID string `json:"sessionId"`
			Update    struct {
				Kind       string          `json:"sessionUpdate"`
				Content    json.RawMessage `json:"content"`
				MessageID  string          `json:"messageId"`
				ToolCallID string          `json:"toolCallId"`
				Title      string          `json:"title"`
				ToolKind   string          `json:"kind"`
				Status     string          `json:"status"`
				Locations  []struct {
					Path string `json:"path"`
					Line int    `json:"line"`
				} `json:"locations"`
				Input json.RawMessage `json:"rawInput"`
			} `json:"update"`
		} `json:"params"`
	}
	rpcPermission struct {
		rpcHead
		Params struct {
			SessionID string `json:"sessionId"`
			Options   []struct {
				ID   string `json:"optionId"`
				Name string `json:"name"`
				Kind string `json:"kind"`
			} `json:"options"`
			ToolCall json.RawMessage `json:"toolCall"`
		} `json:"params"`
	}
)

// rpcDecoded returns what a line with a method is decoded into.
func rpcDecoded(method string) func() any {
	switch {
	case method == "":
		return func() any { return &rpcResult{} }
	case strings.HasSuffix(strings.ToLower(method), "delta") || strings.HasSuffix(method, "PartAdded"):
		return func() any { return &rpcDelta{} }
	case method == "item/started" || method == "item/completed":
		return func() any { return &rpcItem{} }
	case method == "thread/tokenUsage/updated":
		return func() any { return &rpcUsage{} }
	case strings.HasSuffix(method, "requestApproval") || strings.HasSuffix(method, "requestUserInput"):
		return func() any { return &rpcAsk{} }
	case strings.HasPrefix(method, "turn/") || method == "error":
		return func() any { return &rpcTurns{} }
	case method == "session/update":
		return func() any { return &rpcUpdate{} }
	case method == "session/request_permission":
		return func() any { return &rpcPermission{} }
	}
	return func() any { return &rpcHead{} }
}

// TestMustFoldRPCFast folds the recordings of Codex and of Gemini CLI and compares the
// time with that of decoding their lines.
func TestMustFoldRPCFast(t *testing.T) {
	if testing.Short() {
		t.Skip("a ratio needs some rounds, and none with the race detector")
	}
	for _, agent := range rpcAgents {
		t.Run(agent.name, func(t *testing.T) {
			type decodable struct {
				line []byte
				into func() any
			}
			var lines []decodable
			var outputs [][]byte
			size := 0
			for _, r := range recordings(t, agent.name) {
				outputs = append(outputs, r.stdout)
				size += len(r.stdout)
				for _, l := range bytes.Split(r.stdout, []byte("\n")) {
					if len(l) > 0 {
						lines = append(lines, decodable{l, rpcDecoded(readMessage(t, l).Method)})
					}
				}
			}
			run := Record{Kind: RecordRun, Run: 1, At: testTime, Start: &Start{Cwd: "/home/dev/project"}}
			say := Record{Kind: RecordMessage, ID: "u:u-1", Key: "u-1", Text: "hello", At: testTime}
			const piece = 16 << 10
			folding := &gauge.Series{N: 1, Do: func() error {
				changes := 0
				for _, out := range outputs {
					f := New(Config{Agent: agent.agent})
					for _, r := range []Record{run, say} {
						if err := f.Apply(r); err != nil {
							return err
						}
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
					if err := json.Unmarshal(l.line, l.into()); err != nil {
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
				if ratio > slowestRPC {
					return fmt.Errorf("a fold takes %.2f times as long as encoding/json, more than %.1f", ratio, slowestRPC)
				}
				return nil
			})
		})
	}
}

// FuzzRPC feeds anything to the adapters of JSON-RPC, after a real handshake.
func FuzzRPC(f *testing.F) {
	seen := map[string]bool{}
	for i, agent := range rpcAgents {
		for _, r := range recordings(f, agent.name) {
			for _, line := range bytes.SplitAfter(r.stdout, []byte("\n")) {
				a, _ := adapterOf(agent.agent)
				if of := a.typeOf(bytes.TrimSpace(line)); len(line) < 2<<10 && !seen[of] {
					seen[of] = true
					f.Add(line, uint8(7), uint8(i))
				}
			}
		}
	}
	f.Add([]byte(`{"method":"session/update","params":{"update":{"sessionUpdate":"state_update","state":"running"}}}`+"\n"), uint8(3), uint8(1))
	f.Add([]byte(`{"id":7,"method":"session/request_permission","params":{"title":"x","subject":{"type":"command","command":"ls"},"options":[]}}`+"\n"), uint8(3), uint8(1))
	f.Add([]byte(`{"id":4,"method":"mcpServer/elicitation/request","params":{"mode":"form","message":"x","requestedSchema":{"properties":{"a":{"enum":["b"]}}}}}`+"\n"), uint8(3), uint8(0))
	hello := [][]string{
		{`{"id":1,"result":{}}`, `{"id":2,"result":{"thread":{"id":"th"},"model":"m"}}`, `{"id":3,"result":{"turn":{"id":"tu"}}}`, `{"method":"turn/started","params":{"threadId":"th","turn":{"id":"tu"}}}`},
		{`{"id":1,"result":{"protocolVersion":1}}`, `{"id":2,"result":{"sessionId":"s"}}`},
	}
	f.Fuzz(func(t *testing.T, data []byte, cut, which uint8) {
		agent := rpcAgents[int(which)%len(rpcAgents)].agent
		feed := func(piece int) []string {
			w := watch(t, New(Config{Agent: agent, MemoryBytes: 64 << 10}))
			w.step(step{rec: &Record{Kind: RecordRun, Run: 1, At: testTime, Start: &Start{Cwd: "/"}}})
			w.step(step{rec: &Record{Kind: RecordMessage, ID: "u:1", Text: "hello"}})
			for _, line := range hello[int(which)%len(rpcAgents)] {
				w.step(step{out: []byte(line + "\n")})
			}
			for data := data; len(data) > 0; {
				n := min(piece, len(data))
				w.f.Feed(Chunk{Offset: w.f.Offset(), Data: data[:n]})
				w.drain()
				data = data[n:]
			}
			w.restore()
			for _, id := range w.f.Summary().Asking {
				q, _ := w.f.Entity(id)
				for _, o := range q.Options {
					if w.f.Apply(Record{Kind: RecordAnswer, ID: id, Answer: &api.DialogueAnswer{Option: o.ID}}) == nil {
						break
					}
				}
				w.drain()
			}
			w.step(step{rec: &Record{Kind: RecordInterrupt}})
			lines, err := w.f.Lines()
			if err != nil {
				t.Fatal(err)
			}
			keys := map[string]bool{}
			for _, l := range lines {
				if !json.Valid(l.Data) || bytes.IndexByte(l.Data, '\n') != len(l.Data)-1 {
					t.Fatalf("told %q", l.Data)
				}
				if keys[l.Key] {
					t.Fatalf("the key %q comes twice", l.Key)
				}
				keys[l.Key] = true
			}
			w.step(step{rec: &Record{Kind: RecordExit, Exit: &Exit{}}})
			w.step(step{rec: &Record{Kind: RecordEnd}})
			for _, p := range w.f.Entities() {
				if openness(&p.Entity) {
					t.Fatalf("%s is open at the end", p.Entity.ID)
				}
			}
			return w.entities()
		}
		one, two := feed(len(data)+1), feed(int(cut)+1)
		for i := range max(len(one), len(two)) {
			if i >= len(one) || i >= len(two) || one[i] != two[i] {
				t.Fatalf("%s: another cut gives another transcript", agent)
			}
		}
	})
}
