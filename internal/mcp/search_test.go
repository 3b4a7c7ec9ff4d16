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
)

// slow is a runtime with one output, of which it hands out a piece each second.
type slow struct {
	text  string
	piece int
}

func (s slow) Call(context.Context, string, any, any) error { return errors.New("not asked here") }

func (s slow) Attach(_ context.Context, params api.ExecAttachParams, fn func(c *api.Chunk, data []byte) bool) error {
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

// A reply that does not show a reason because there was no time to look for one
// says so, and from where to go on.
func TestAScanThatStopsSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fine = "all is fine\n"
		quiet := strings.Repeat(fine, 100)
		for name, c := range map[string]struct {
			text        string
			told, found bool
		}{
			"in time":  {fine + "an error\n" + fine, false, true},
			"too late": {quiet + "an error\n" + fine, true, false},
			"both":     {fine + "an error\n" + quiet + "an error\n", true, true},
			"nothing":  {fine, false, false},
		} {
			s := &server{Config: Config{Runtime: slow{c.text, 2 * len(fine)}}}
			whole := span{0, int64(len(c.text))}
			o := &shown{leftOut: []span{whole}, page: whole}
			if err := s.telling(t.Context(), "e-1", "", whole, o); err != nil {
				t.Fatal(err)
			}
			r := &report{Exec: "e-1", Size: whole.To}
			r.show(o)
			notes := strings.Join(r.Notes, "\n")
			want := fmt.Sprintf(`stopped after 5s, at offset %d of %d; output {"exec": "e-1", "search": "(?i)error|fail|fatal|panic|exception|traceback", "from": %d} goes on`,
				o.looked, whole.To, o.looked)
			if strings.Contains(notes, want) != c.told || strings.Contains(notes, "stopped") != c.told || (len(r.Telling) > 0) != c.found {
				t.Errorf("%s: %q, and these lines: %v", name, notes, r.Telling)
			}
		}
	})
}

// A search that stops is gone on with where it says, and meets each line once.
func TestASearchGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		for i := range 400 {
			fmt.Fprintf(&text, "line %03d\n", i)
		}
		for _, piece := range []int{1, 7, 9, 18, 50, 1 << 20} {
			s := &server{Config: Config{Runtime: slow{text.String(), piece}}}
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
						t.Errorf("it is through, and says %q", notes)
					}
					break
				}
				if want := fmt.Sprintf(`the search stopped after 30s, at offset %d of %d; output {"exec": "e-1", "search": "line [0-9]*$", "from": %d} goes on`, r.Next, size, r.Next); !strings.Contains(notes, want) {
					t.Fatalf("%q lacks %q", notes, want)
				}
				if r.Next <= from {
					t.Fatalf("it does not get on from %d", from)
				}
				from = r.Next
			}
			if len(found) != 400 || found[0] != "line 000" || found[399] != "line 399" {
				t.Errorf("in pieces of %d it found %d lines: %q", piece, len(found), found)
			}
		}
	})
}
