package service

import (
	"strconv"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/spelling"
)

// The errors of invalid parameters. Each has the detail "field" if one field is
// to blame, and a hint that lets a model correct the call without reading a
// manual.

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (d *decoder) invalid(format string, args ...any) *api.Error {
	return api.Errorf(api.CodeInvalidParams, d.method+": "+format, args...)
}

func (d *decoder) wrong(path, format string, args ...any) *api.Error {
	return d.invalid("%q "+format, append([]any{path}, args...)...).With("field", path)
}

func (d *decoder) wrongType(n *node, path string) *api.Error {
	return d.wrong(path, "must be %s", n.expected()).With("expected", n.expected()).
		WithHint("call %s again with %s as %s", d.method, path, n.expected())
}

// outOfRange returns the error for a number that is too small or too large.
func (d *decoder) outOfRange(n *node, path, what string) *api.Error {
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	from := number(n.min)
	if n.max < maxExact {
		return d.wrong(path, what).WithHint("leave %s out, or send a number from %s to %s", path, from, number(n.max))
	}
	return d.wrong(path, what).WithHint("leave %s out, or send a number from %s up", path, from)
}

// maxExact is where JSON numbers stop to be exact in every language; a maximum from
// here on is not worth a hint.
const maxExact = 1<<53 - 1

func (d *decoder) malformed(err error) *api.Error {
	return d.invalid("params are not JSON: %w", err).WithHint("send params as one JSON object in UTF-8")
}

// known lists the fields of an object, for a hint.
func (d *decoder) known(n *node) string {
	if len(n.names) == 0 {
		return "it takes none"
	}
	return "it takes " + strings.Join(n.names, ", ")
}

func (d *decoder) unknown(n *node, path, key string) *api.Error {
	at := join(path, clip(key))
	err := d.invalid("unknown field %q", at).With("field", at)
	if best, ok := spelling.Closest(key, n.names); ok {
		return err.WithHint("did you mean %s? %s", join(path, best), d.known(n))
	}
	return err.WithHint("leave it out; %s", d.known(n))
}

func missing(method, path, what string) *api.Error {
	err := api.Errorf(api.CodeInvalidParams, "%s: %s", method, what).With("field", path)
	switch path {
	case "session_id":
		return err.WithHint("call session.create, which returns a session_id, or session.list to see existing sessions")
	case "exec_id":
		return err.WithHint("call exec.run, which returns an exec_id, or exec.list to see the execs of a session")
	default:
		return err.WithHint("call %s again with %s", method, path)
	}
}
