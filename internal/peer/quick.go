package peer

import (
	"bytes"
	"strconv"
)

// quickNotification splits a notification in the form that the daemon writes,
// so that a large one is parsed only once.
func quickNotification(line []byte) (method string, params []byte, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"jsonrpc":"2.0","method":"`))
	if !ok {
		return "", nil, false
	}
	name, rest, ok := bytes.Cut(rest, []byte(`","params":`))
	if !ok {
		return "", nil, false
	}
	params, ok = bytes.CutSuffix(bytes.TrimRight(rest, "\r\n"), []byte(`}`))
	return string(name), params, ok
}

// quickStream returns the stream id from the place where the daemon writes it.
func quickStream(params []byte) (string, bool) {
	rest, ok := bytes.CutPrefix(params, []byte(`{"stream_id":"`))
	if !ok {
		return "", false
	}
	id, _, ok := bytes.Cut(rest[:min(len(rest), 64)], []byte(`"`))
	return string(id), ok && !bytes.Contains(id, []byte(`\`))
}

// quickID returns the id from the place where the daemon writes it, so that a
// large answer is not parsed twice.
func quickID(line []byte) (uint64, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"jsonrpc":"2.0","id":`))
	if !ok {
		return 0, false
	}
	digits, _, ok := bytes.Cut(rest[:min(len(rest), 24)], []byte(","))
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseUint(string(digits), 10, 64)
	return id, err == nil
}
