package proxy

import (
	"bytes"
	"errors"
	"strings"
)

// head is what net/http does not show, or would accept, of the head of a request.
type head struct {
	method string
	target string   // of the request line, as it was sent
	hosts  []string // values of Host
	length []string // values of Content-Length
	coding []string // values of Transfer-Encoding
}

var (
	errLineEnd   = errors.New("a line of its head does not end in CR LF")
	errControl   = errors.New("its head contains a control character")
	errFirstLine = errors.New("its first line is not METHOD TARGET HTTP/1.1")
	errFieldName = errors.New("a header has an invalid name, a blank before its colon, or continues on a second line")
	errHosts     = errors.New("it has more than one Host header")
	errFraming   = errors.New("the length of its body is ambiguous")
)

// headEnd returns the length of a head that starts buf, or 0 if there is more to
// come. from is how much of buf an earlier call has seen. It refuses at once what no
// further byte can repair.
func headEnd(buf []byte, from int) (int, error) {
	for i := from; i < len(buf); i++ {
		switch c := buf[i]; {
		case c == '\n':
			if i == 0 || buf[i-1] != '\r' {
				return 0, errLineEnd
			}
			if i >= 3 && buf[i-2] == '\n' {
				return i + 1, nil
			}
		case i > 0 && buf[i-1] == '\r':
			return 0, errLineEnd
		case c < ' ' && c != '\t' && c != '\r' || c == 0x7f:
			return 0, errControl
		}
	}
	return 0, nil
}

// parseHead checks a complete head for everything that two programs may read in
// two ways. It returns the target even with an error, for messages.
func parseHead(text []byte) (head, error) {
	var h head
	first, fields, _ := bytes.Cut(text, []byte("\r\n"))
	method, rest, _ := strings.Cut(string(first), " ")
	at, version, _ := strings.Cut(rest, " ")
	h.method, h.target = method, at
	if !token(method) || at == "" || version != "HTTP/1.1" && version != "HTTP/1.0" {
		return h, errFirstLine
	}
	for line := range strings.SplitSeq(string(fields), "\r\n") {
		if line == "" {
			break // the end: text has no empty line before
		}
		name, value, colon := strings.Cut(line, ":")
		if !colon || !token(name) {
			return h, errFieldName
		}
		value = strings.Trim(value, " \t")
		switch strings.ToLower(name) {
		case "host":
			h.hosts = append(h.hosts, value)
		case "content-length":
			h.length = append(h.length, value)
		case "transfer-encoding":
			h.coding = append(h.coding, value)
		}
	}
	switch {
	case len(h.hosts) > 1:
		return h, errHosts
	case len(h.length)+len(h.coding) > 1,
		len(h.length) == 1 && !digits(h.length[0]),
		len(h.coding) == 1 && (!strings.EqualFold(h.coding[0], "chunked") || version == "HTTP/1.0"):
		return h, errFraming
	}
	return h, nil
}

// token reports whether text is a token of RFC 9110: a method, or the name of a
// header.
func token(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return text != ""
}

func digits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }
