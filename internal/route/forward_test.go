package route

import (
	"encoding/json"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/service"
)

// Only calls that read or run a command allow a place to send a long message.
func TestMaxAnswer(t *testing.T) {
	long := map[string]bool{
		api.MethodSystemPing: true, api.MethodSystemInfo: true, api.MethodSystemStats: true, api.MethodPlaceList: true,
		api.MethodSessionList: true, api.MethodSessionInfo: true, api.MethodSessionScreen: true,
		api.MethodExecRun: true, api.MethodExecOutput: true, api.MethodExecInfo: true, api.MethodExecList: true,
	}
	for _, m := range service.New(service.Config{}).Methods() {
		want := 0
		if long[m.Name] {
			want = peer.LongAnswer
		}
		if got := maxAnswer(&m, json.RawMessage(`{"session_id":"s-1"}`)); got != want {
			t.Errorf("%s: %d, want %d", m.Name, got, want)
		}
		if m.Name != api.MethodExecRun {
			continue
		}
		for params, want := range map[string]int{
			`{"max_output_bytes":10}`: peer.LongAnswer, `{"max_output_bytes":null}`: peer.LongAnswer, `{"max_output_bytes":-1}`: peer.LongAnswer,
			`{"max_output_bytes":1048576}`: 13 << 20, `{"max_output_bytes":99999999999}`: 49 << 20,
		} {
			if got := maxAnswer(&m, json.RawMessage(params)); got != want {
				t.Errorf("%s: %d, want %d", params, got, want)
			}
		}
	}
}
