package client_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// TestSessionInPlace: the place behind the command is this machine with another home.
func TestSessionInPlace(t *testing.T) {
	home := t.TempDir()
	config := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "[place.here]\ncommand = [\"env\", \"HOME=%s\"]\ndeliver = true\n", home), 0o600); err != nil {
		t.Fatal(err)
	}
	realDaemon(t, "--config", config)
	c, err := client.Dial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), trltest.Patience)
		defer cancel()
		if _, err := c.RemovePlace(ctx, api.PlaceRemoveParams{Runtime: "cmd:here", Force: true}); err != nil {
			t.Error(err)
		}
	}()
	s, err := c.NewSession(t.Context(), api.SessionCreateParams{Runtime: "cmd:here"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Run(t.Context(), "echo $HOME"); err != nil || r.Stdout != home+"\n" {
		t.Errorf("got %+v, %v", r, err)
	}
	// In JSON each byte takes six.
	most := int64(4 << 20)
	long := api.ExecRunParams{ExecCommand: api.ExecCommand{Command: `head -c 4194304 /dev/zero | tr '\0' '\1'`}, MaxOutputBytes: &most}
	if r, err := s.RunWith(t.Context(), long); err != nil || int64(len(r.Stdout)) != most {
		t.Errorf("the longest result: %v", err)
	}
	beside, err := c.NewSession(t.Context(), api.SessionCreateParams{Parent: s.ID()})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []*client.Session{s, beside} {
		if info, err := in.Info(t.Context()); err != nil || info.Runtime != "cmd:here" {
			t.Errorf("got %+v, %v", info, err)
		}
	}
}
