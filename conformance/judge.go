package conformance

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"time"
)

// Result holds the fields of an exec.run answer that the runner uses.
type Result struct {
	ExecID         string `json:"exec_id"`
	State          string `json:"state"`
	Outcome        string `json:"outcome"`
	ExitCode       *int   `json:"exit_code"`
	TimedOut       bool   `json:"timed_out"`
	Merged         bool   `json:"merged"`
	Stdout         string `json:"stdout"`
	Stderr         string `json:"stderr"`
	StdoutEncoding string `json:"stdout_encoding"`
	StderrEncoding string `json:"stderr_encoding"`
	StdoutBytes    int64  `json:"stdout_bytes"`
	StderrBytes    int64  `json:"stderr_bytes"`
}

// Judge returns the first difference between the result and the expectation, or
// nil. took is how long the caller waited.
func Judge(want Expect, got Result, took time.Duration) error {
	stdout, err := decode(got.Stdout, got.StdoutEncoding)
	if err != nil {
		return fmt.Errorf("stdout: %w", err)
	}
	stderr, err := decode(got.Stderr, got.StderrEncoding)
	if err != nil {
		return fmt.Errorf("stderr: %w", err)
	}
	code := "null"
	if got.ExitCode != nil {
		code = fmt.Sprint(*got.ExitCode)
	}
	switch {
	// A caller that did not request an early answer must not get one.
	case got.State != "exited":
		return fmt.Errorf("state %q, want \"exited\"", got.State)
	case want.ExitCode != nil && (got.ExitCode == nil || *got.ExitCode != *want.ExitCode):
		return fmt.Errorf("exit_code %s, want %d (outcome %s, stderr %s)", code, *want.ExitCode, got.Outcome, clip(stderr))
	case want.ExitCodeIn != nil && (got.ExitCode == nil || !slices.Contains(want.ExitCodeIn, *got.ExitCode)):
		return fmt.Errorf("exit_code %s, want one of %v", code, want.ExitCodeIn)
	case want.ExitNonzero && (got.ExitCode == nil || *got.ExitCode == 0):
		return fmt.Errorf("exit_code %s, want non-zero", code)
	case want.TimedOut != nil && got.TimedOut != *want.TimedOut:
		return fmt.Errorf("timed_out %t, want %t", got.TimedOut, *want.TimedOut)
	case want.Stdout != nil && string(stdout) != *want.Stdout:
		return fmt.Errorf("stdout %s, want %s", clip(stdout), clip([]byte(*want.Stdout)))
	case want.StdoutB64 != nil && !bytes.Equal(stdout, want.StdoutB64):
		return fmt.Errorf("stdout %s, want %s", clip(stdout), clip(want.StdoutB64))
	case want.Stderr != nil && string(stderr) != *want.Stderr:
		return fmt.Errorf("stderr %s, want %s", clip(stderr), clip([]byte(*want.Stderr)))
	case want.StdoutContains != nil && !bytes.Contains(stdout, []byte(*want.StdoutContains)):
		return fmt.Errorf("stdout %s does not contain %q", clip(stdout), *want.StdoutContains)
	case want.StderrContains != nil && !bytes.Contains(stderr, []byte(*want.StderrContains)):
		return fmt.Errorf("stderr %s does not contain %q", clip(stderr), *want.StderrContains)
	case want.StderrNotContains != nil && bytes.Contains(stderr, []byte(*want.StderrNotContains)):
		return fmt.Errorf("stderr %s contains %q", clip(stderr), *want.StderrNotContains)
	case want.StdoutLen != nil && got.StdoutBytes != *want.StdoutLen:
		return fmt.Errorf("stdout_bytes %d, want %d", got.StdoutBytes, *want.StdoutLen)
	case want.StderrLen != nil && got.StderrBytes != *want.StderrLen:
		return fmt.Errorf("stderr_bytes %d, want %d", got.StderrBytes, *want.StderrLen)
	case want.StdoutMaxLen != nil && max(int64(len(stdout)), got.StdoutBytes) > *want.StdoutMaxLen:
		return fmt.Errorf("stdout %s of %d bytes, want at most %d", clip(stdout), max(int64(len(stdout)), got.StdoutBytes), *want.StdoutMaxLen)
	case want.MaxMS != nil && took.Milliseconds() > *want.MaxMS:
		return lateError{took.Milliseconds(), *want.MaxMS}
	}
	return nil
}

// lateError means that a result is correct but late.
type lateError struct{ took, most int64 } // in milliseconds

func (e lateError) Error() string { return fmt.Sprintf("took %d ms, want at most %d", e.took, e.most) }

func decode(data, encoding string) ([]byte, error) {
	switch encoding {
	case "":
		return []byte(data), nil
	case "base64":
		return base64.StdEncoding.DecodeString(data)
	default:
		return nil, fmt.Errorf("unknown encoding %q", encoding)
	}
}

// clip quotes output for a one-line message.
func clip(b []byte) string {
	const most = 120
	if len(b) > most {
		return fmt.Sprintf("%q… (%d bytes)", b[:most], len(b))
	}
	return fmt.Sprintf("%q", b)
}
