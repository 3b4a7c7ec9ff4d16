package agents

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// inspector is the command line of the MCP Inspector, which has no model: it tests
// the protocol itself.
var inspector = agent{name: "MCP Inspector", wire: claude.wire, configure: func(*rig) {}, env: func(*rig) []string { return nil }}

// TestInspector lists the tools with the MCP Inspector, and calls every one of
// them. Each call is made by a new `trl mcp`: all state between calls is in the
// daemon.
func TestInspector(t *testing.T) {
	t.Parallel()
	r := start(t, inspector)
	line := func(method string, more ...string) []string {
		return append([]string{"mcp-inspector", "--cli", r.trl, "mcp", "--method", method}, more...)
	}
	var list struct {
		Tools []struct {
			Name, Description string
			InputSchema       struct{ Type string }
		}
	}
	if err := json.Unmarshal([]byte(r.run(line("tools/list"))), &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		if tool.Description == "" || tool.InputSchema.Type != "object" {
			t.Errorf("%s: no description or no input schema", tool.Name)
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff(tools, names); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	exec := ""
	for _, s := range allSteps {
		made := s.call(exec).calls[0]
		args := []string{"--tool-name", made.tool}
		for name, value := range made.args {
			text, isText := value.(string)
			if !isText {
				text = mustJSON(value)
			}
			args = append(args, "--tool-arg", name+"="+text)
		}
		var answer struct {
			Content []struct{ Text string }
			IsError bool
		}
		if err := json.Unmarshal([]byte(r.run(line("tools/call", args...))), &answer); err != nil {
			t.Fatalf("%s: %v", s.about, err)
		}
		if len(answer.Content) != 1 || answer.IsError != s.failed {
			t.Errorf("%s: %+v", s.about, answer)
			continue
		}
		exec = s.check(t, answer.Content[0].Text, exec)
	}
}

// TestNetworkIsIsolated checks that agents run in a network without a way out.
func TestNetworkIsIsolated(t *testing.T) {
	if os.Getenv(isolatedVariable) == "" {
		_, err := installed()
		t.Skip("agents are not run:", err)
	}
	devices, err := filepath.Glob("/proc/sys/net/ipv4/conf/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range devices {
		if name := filepath.Base(device); !slices.Contains([]string{"all", "default", "lo"}, name) {
			t.Errorf("unexpected network device %s", name)
		}
	}
}
