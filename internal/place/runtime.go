package place

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/terminal-runtime/trl/api"
)

// maxRuntime limits a runtime in bytes: the longest name of an image with a digest,
// behind a chain of hosts.
const maxRuntime = 512

// parsed is a runtime, such as ssh:build/docker:web.
type parsed struct {
	kind    kind
	first   string // the place: ssh:build
	address string // of the place: build
	rest    string // what to ask for in the place: docker:web; "" means its host
}

// parse splits a runtime into the place and what follows it. A chain goes on at the
// first slash that is followed by a known kind and a colon: addresses may have
// slashes too.
func parse(runtime string) (parsed, error) {
	name, address, found := strings.Cut(runtime, ":")
	k, known := kindOf(name)
	if !found || !known {
		return parsed{}, notFound(runtime, "unknown kind of runtime").WithHint("use host, or one of %s followed by a name", kindNames())
	}
	p := parsed{kind: k, first: runtime, address: address}
	if i := chainAt(address); i >= 0 && !k.whole {
		p.address, p.rest = address[:i], address[i+1:]
		p.first = name + ":" + p.address
	}
	wrong := checkAddress(p.address)
	switch {
	case len(runtime) > maxRuntime:
		wrong = fmt.Sprintf("is longer than %d bytes", maxRuntime)
	case wrong == "" && k.check != nil:
		wrong = k.check(p.address)
	}
	if wrong != "" {
		return parsed{}, notFound(runtime, "the runtime "+wrong).WithHint("use %s: followed by a name", name)
	}
	return p, nil
}

// CheckRuntime returns an error if runtime can't be that of a place.
func CheckRuntime(runtime string) error {
	if _, err := parse(runtime); err != nil {
		e := api.AsError(err)
		return fmt.Errorf("%s; %s", e.Message, e.Hint)
	}
	return nil
}

// chainAt returns the index of the slash at which a chain goes on, -1 without one.
func chainAt(address string) int {
	for i := range len(address) {
		if address[i] != '/' {
			continue
		}
		if name, _, found := strings.Cut(address[i+1:], ":"); found {
			if _, known := kindOf(name); known {
				return i
			}
		}
	}
	return -1
}

// checkAddress returns what is wrong with an address; "" if nothing is. Addresses
// become words of commands, where one with a dash would be an option.
func checkAddress(address string) string {
	switch {
	case address == "":
		return "has no address"
	case address[0] == '-':
		return "has an address that begins with a dash"
	case strings.ContainsFunc(address, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return "has a blank or a control character"
	}
	return ""
}

func notFound(runtime, message string) *api.Error {
	return api.Errorf(api.CodeRuntimeNotFound, "%s", message).With("runtime", runtime)
}

// allowed reports whether one of the patterns matches the whole runtime. There is no
// pattern: all are allowed. A star matches slashes too, unlike in path.Match: the
// names of images have them.
func allowed(patterns []string, runtime string) bool {
	for _, pattern := range patterns {
		if ok, err := path.Match(hideSlashes(pattern), hideSlashes(runtime)); ok && err == nil {
			return true
		}
	}
	return len(patterns) == 0
}

// CheckPattern returns an error if the pattern of allowed runtimes can match nothing.
func CheckPattern(pattern string) error {
	_, err := path.Match(hideSlashes(pattern), "")
	return err
}

// hideSlashes replaces slashes by a character that no runtime has.
func hideSlashes(s string) string { return strings.ReplaceAll(s, "/", "\x00") }
