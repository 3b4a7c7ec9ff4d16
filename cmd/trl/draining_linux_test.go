package main_test

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// A client that connects to a draining daemon gets an error that says so.
func TestDrainingIsReported(t *testing.T) {
	t.Parallel()
	d, err := trltest.Start(trltest.Config{HTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	before := dial(t, d.Socket)
	s, err := before.CreateSession(t.Context(), api.SessionCreateParams{})
	if err != nil {
		t.Fatal(err)
	}
	// The command ignores SIGTERM, so the daemon drains for its grace period. It is a
	// program: a loop of the session's shell can be aborted between two sleeps.
	stubborn := api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: `sh -c 'trap "" TERM; echo up; while :; do sleep 0.1; done'`}, YieldMS: 500}
	if res, err := before.Run(t.Context(), stubborn); err != nil || res.Stdout != "up\n" {
		t.Fatalf("%+v, %v", res, err)
	}
	if status := health(t, d.HTTP); status != http.StatusOK {
		t.Errorf("healthz: %d", status)
	}
	if err := syscall.Kill(d.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); health(t, d.HTTP) != http.StatusServiceUnavailable; <-time.After(pollInterval) {
		if time.Now().After(deadline) {
			t.Fatal("healthz still reports ok")
		}
	}
	for _, address := range []string{d.Socket, "http://" + d.HTTP} {
		c, err := client.DialWith(t.Context(), address, client.Options{Token: d.Token})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := c.CreateSession(t.Context(), api.SessionCreateParams{}); !api.IsCode(err, api.CodeShuttingDown) {
			t.Errorf("%s: %v", address, err)
		}
		if info, err := c.SessionInfo(t.Context(), api.SessionParams{SessionID: s.SessionID}); err != nil || !info.Ending {
			t.Errorf("%s: %+v, %v", address, info, err)
		}
	}
	if err := d.AwaitExit(); err != nil {
		t.Error(err)
	}
}

func health(t *testing.T, address string) int {
	t.Helper()
	response, err := http.Get("http://" + address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}
