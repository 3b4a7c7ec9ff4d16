package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/caller"
)

// slowCaller has one output, and returns a piece of it each second.
type slowCaller struct {
	caller.Caller
	text  string
	piece int
}

func (s slowCaller) Call(context.Context, string, any, any) error {
	return errors.New("unexpected call")
}

func (s slowCaller) Attach(_ context.Context, params api.ExecAttachParams, fn func(c *api.Chunk, data []byte) bool) error {
	for at := int(params.From); at < len(s.text); {
		time.Sleep(time.Second) // pace: the clock is the bubble's
		data := s.text[at:min(at+s.piece, len(s.text))]
		c := &api.Chunk{Type: api.ChunkStdout, Offset: int64(at), Next: int64(at + len(data))}
		if !fn(c, []byte(data)) {
			return nil
		}
		at += len(data)
	}
	return nil
}

// If the search for error lines reaches its time limit, the reply says so, and where
// to continue.
func TestAScanThatStopsSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fine = "all is fine\n"
		quiet := strings.Repeat(fine, 100)
		for name, c := range map[string]struct {
			text           string
			stopped, found bool
		}{
			"in time":  {fine + "an error\n" + fine, false, true},
			"too late": {quiet + "an error\n" + fine, true, false},
			"both":     {fine + "an error\n" + quiet + "an error\n", true, true},
			"nothing":  {fine, false, false},
		} {
			s := &server{Config: Config{Caller: slowCaller{text: c.text, piece: 2 * len(fine)}}}
			whole := span{0, int64(len(c.text))}
			o := &shownOutput{leftOut: []span{whole}, page: whole}
			if err := s.findErrorLines(t.Context(), "e-1", "", whole, o); err != nil {
				t.Fatal(err)
			}
			r := &report{Exec: "e-1", Size: whole.To}
			r.show(o)
			notes := strings.Join(r.Notes, "\n")
			want := fmt.Sprintf(`stopped after 5s, at offset %d of %d; output {"exec": "e-1", "search": "(?i)error|fail|fatal|panic|exception|traceback", "from": %d} continues`,
				o.scannedTo, whole.To, o.scannedTo)
			if strings.Contains(notes, want) != c.stopped || strings.Contains(notes, "stopped") != c.stopped || (len(r.ErrorLines) > 0) != c.found {
				t.Errorf("%s: %q, and these lines: %v", name, notes, r.ErrorLines)
			}
		}
	})
}

// A search that stops can be continued where it says, and finds each line once.
func TestASearchGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		for i := range 400 {
			fmt.Fprintf(&text, "line %03d\n", i)
		}
		for _, piece := range []int{1, 7, 9, 18, 50, 1 << 20} {
			s := &server{Config: Config{Caller: slowCaller{text: text.String(), piece: piece}}}
			size := int64(text.Len())
			var found []string
			for from := int64(0); ; {
				r := &report{Exec: "e-1", Size: size}
				if err := s.search(t.Context(), &call{room: budget{head: 1 << 20}}, r, outputArguments{Search: "line [0-9]*$"}, from); err != nil {
					t.Fatal(err)
				}
				for _, l := range r.Found {
					found = append(found, l.Text)
				}
				notes := strings.Join(r.Notes, "\n")
				if r.Next == size {
					if strings.Contains(notes, "stopped") {
						t.Errorf("the search is complete, and says %q", notes)
					}
					break
				}
				if want := fmt.Sprintf(`the search stopped after 30s, at offset %d of %d; output {"exec": "e-1", "search": "line [0-9]*$", "from": %d} continues`, r.Next, size, r.Next); !strings.Contains(notes, want) {
					t.Fatalf("%q lacks %q", notes, want)
				}
				if r.Next <= from {
					t.Fatalf("no progress from offset %d", from)
				}
				from = r.Next
			}
			if len(found) != 400 || found[0] != "line 000" || found[399] != "line 399" {
				t.Errorf("in pieces of %d: found %d lines: %q", piece, len(found), found)
			}
		}
	})
}
