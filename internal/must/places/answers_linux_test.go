package places

import (
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// TestLongAnswers runs a command whose result is as long as one can be: each byte
// takes six in JSON.
func TestLongAnswers(t *testing.T) {
	polite, _ := far(t, "k7")
	r := start(t, commandTable("pod", polite))
	s := r.create(api.SessionCreateParams{Runtime: "cmd:pod"})
	most := int64(4 << 20)
	params := runParams(s.SessionID, `head -c 4194304 /dev/zero | tr '\0' '\1'; head -c 4194304 /dev/zero | tr '\0' '\2' >&2`)
	params.MaxOutputBytes = &most
	res, err := r.client.Run(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if res.Stdout != strings.Repeat("\x01", 4<<20) || res.Stderr != strings.Repeat("\x02", 4<<20) {
		t.Errorf("%d and %d bytes", len(res.Stdout), len(res.Stderr))
	}
	// A page of output needs no permission.
	page := int64(1 << 20)
	var out api.ExecOutputResult
	r.call(api.MethodExecOutput, api.ExecOutputParams{ExecID: res.ExecID, MaxBytes: &page}, &out)
	got := 0
	for _, chunk := range out.Chunks {
		got += len(chunk.Data)
	}
	if got != 1<<20 {
		t.Errorf("%d bytes", got)
	}
	r.stop()
}
