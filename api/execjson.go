package api

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// AppendJSON appends the same JSON as encoding/json, several times faster. For
// a short command the difference is a noticeable part of its time.
func (r *ExecResult) AppendJSON(b []byte) ([]byte, error) {
	var err error
	value := func(name string, v any) {
		if err == nil {
			b, err = appendPlain(appendName(b, name), v)
		}
	}
	text := func(name, v string) {
		if !utf8.ValidString(v) { // a directory name may be any bytes
			value(name, v)
			return
		}
		b = append(appendName(b, name), '"')
		b = append(appendEscaped(b, v), '"')
	}
	some := func(name, v string) {
		if v != "" {
			text(name, v)
		}
	}
	number := func(name string, v int64) { b = strconv.AppendInt(appendName(b, name), v, 10) }
	truth := func(name string, v bool) { b = strconv.AppendBool(appendName(b, name), v) }

	b = append(b, '{')
	text("exec_id", r.ExecID)
	text("session_id", r.SessionID)
	some("label", r.Label)
	text("state", string(r.State))
	text("outcome", string(r.Outcome))
	if r.ExitCode != nil {
		number("exit_code", int64(*r.ExitCode))
	} else {
		b = append(appendName(b, "exit_code"), "null"...)
	}
	some("signal", r.Signal)
	b = r.StartedAt.append(appendName(b, "started_at"))
	number("duration_ms", r.DurationMS)
	if r.QueuedMS != 0 {
		number("queued_ms", r.QueuedMS)
	}
	truth("timed_out", r.TimedOut)
	truth("cancelled", r.Cancelled)
	text("stdout", r.Stdout)
	text("stderr", r.Stderr)
	some("stdout_encoding", r.StdoutEncoding)
	some("stderr_encoding", r.StderrEncoding)
	number("stdout_bytes", r.StdoutBytes)
	number("stderr_bytes", r.StderrBytes)
	if r.Merged {
		truth("merged", true)
	}
	truth("truncated", r.Truncated)
	if r.DroppedBytes != 0 {
		number("dropped_bytes", r.DroppedBytes)
	}
	some("cwd", r.Cwd)
	if r.TTY != nil {
		value("tty", r.TTY)
	}
	if len(r.Survivors) > 0 {
		value("survivors", r.Survivors)
	}
	if r.RolledBack {
		truth("rolled_back", true)
	}
	some("rolled_back_to", r.RolledBackTo)
	if r.Usage != nil {
		value("usage", r.Usage)
	}
	return append(b, '}'), err
}

// appendPlain is appendValue without HTML escaping of < > and &.
func appendPlain(b []byte, v any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return append(b, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...), err
}
