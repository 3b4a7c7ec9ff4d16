package cli

import (
	"context"
	"encoding/json"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/doctor"
)

// doctorScript runs the doctor of the TRL that runs the session: the parent of its
// shell is the holder, whose arguments name the socket. Its daemon reads no
// configuration of the user there.
const doctorScript = `socket=$(tr '\0' '\n' <"/proc/$PPID/cmdline" | sed -n '/^--socket$/{n;p;q;}')
exec "/proc/$PPID/exe" doctor --json --config /dev/null ${socket:+--socket "$socket"}`

// doctorTimeout is how long the checks in a place may take. Here they take less
// than a second; a place may be slow.
const doctorTimeout = time.Minute

// examinePlace runs the doctor in a place.
func (a *app) examinePlace(ctx context.Context, place string) ([]doctor.Finding, error) {
	c, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ttl := oneShotTTL.Milliseconds()
	session, err := c.CreateSession(ctx, api.SessionCreateParams{Runtime: place, Cwd: "/", Name: "trl doctor", IdleTTLMS: &ttl})
	if err != nil {
		return nil, err
	}
	defer a.endSession(c, session.SessionID)
	limit := doctorTimeout.Milliseconds()
	result, err := c.Run(ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{
		SessionID: session.SessionID, Command: doctorScript, TimeoutMS: &limit, Label: "trl doctor",
	}})
	if err != nil {
		return nil, err
	}
	return placeFindings(place, result)
}

// placeFindings reads what the doctor in a place printed. It exits with 1 if it
// found a problem.
func placeFindings(place string, result *api.ExecResult) ([]doctor.Finding, error) {
	var found struct {
		Checks []doctor.Finding `json:"checks"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &found); err != nil || len(found.Checks) == 0 {
		return nil, localError{api.Errorf(api.CodeRuntimeUnavailable, "the doctor did not run in %s (%s): %s", place, outcomeText(result), visible(result.Stderr)).
			WithHint("`trl place check %s` shows whether the place works; `trl run --place %s -- COMMAND` runs a command there", quote(place), quote(place))}
	}
	return found.Checks, nil
}
