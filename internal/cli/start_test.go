package cli

import (
	"slices"
	"testing"
)

func TestDaemonVariables(t *testing.T) {
	got := daemonVariables([]string{
		"HOME=/h", "XDG_RUNTIME_DIR=/r", "TRL_SOCKET=/s", "SSH_AUTH_SOCK=/agent", "DOCKER_HOST=tcp://a:1",
		"TRL_SECRET_KEY=x", "TRL_TOKEN=x", "TRL_ADDRESS=x", "GITHUB_TOKEN=x",
	})
	want := []string{"HOME=/h", "XDG_RUNTIME_DIR=/r", "TRL_SOCKET=/s", "TRL_FOR_PLACES_SSH_AUTH_SOCK=/agent", "TRL_FOR_PLACES_DOCKER_HOST=tcp://a:1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
