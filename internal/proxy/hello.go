package proxy

import (
	"encoding/binary"
	"errors"
)

const (
	// maxHello bounds the first message of TLS. Key shares that resist quantum
	// computers make it about 2 KiB; tickets add some more.
	maxHello = 32 << 10
	// maxHelloRaw bounds the records that it comes in, each with 5 bytes of its own.
	maxHelloRaw = 2 * maxHello
	maxRecord   = 1 << 14 // from RFC 8446

	recordHeader     = 5
	recordHandshake  = 22
	messageHeader    = 4
	messageHello     = 1
	extensionSNI     = 0
	sniTypeHostname  = 0
	firstRecordType  = 20 // change_cipher_spec
	lastRecordType   = 23 // application_data
	tlsMajorVersion  = 3
	legacyHelloFixed = 2 + 32 // version and random
)

var errBadHello = errors.New("the first TLS message is malformed or too long")

// tlsLike reports whether a stream begins as TLS does. It needs two bytes, or one
// that is not the type of a record.
func tlsLike(first []byte) (is, known bool) {
	if len(first) == 0 {
		return false, false
	}
	if first[0] < firstRecordType || first[0] > lastRecordType {
		return false, true
	}
	if len(first) == 1 {
		return false, false
	}
	return first[1] == tlsMajorVersion, true
}

// hello collects the first message of a TLS client, which may come in any number of
// records and segments.
type hello struct {
	raw     []byte // every byte so far
	parsed  int    // of raw: complete records
	message []byte // their contents
}

// add reports whether the message is complete. It reads each byte once, however
// small the pieces are.
func (h *hello) add(p []byte) (complete bool, err error) {
	h.raw = append(h.raw, p...)
	for {
		record := h.raw[h.parsed:]
		if len(record) > 0 && record[0] != recordHandshake || len(record) > 1 && record[1] != tlsMajorVersion {
			return false, errBadHello
		}
		if len(record) < recordHeader {
			break
		}
		length := int(binary.BigEndian.Uint16(record[3:]))
		if length == 0 || length > maxRecord {
			return false, errBadHello
		}
		if len(record) < recordHeader+length {
			break
		}
		h.message = append(h.message, record[recordHeader:recordHeader+length]...)
		h.parsed += recordHeader + length
		if complete, err := h.enough(); complete || err != nil {
			return complete, err
		}
	}
	if len(h.raw) > maxHelloRaw {
		return false, errBadHello
	}
	return false, nil
}

func (h *hello) enough() (bool, error) {
	if h.message[0] != messageHello {
		return false, errBadHello
	}
	if len(h.message) < messageHeader {
		return false, nil
	}
	length := messageHeader + int(h.message[1])<<16 + int(binary.BigEndian.Uint16(h.message[2:]))
	switch {
	case length > maxHello || len(h.message) > length: // a record may not continue after the message
		return false, errBadHello
	default:
		return len(h.message) == length, nil
	}
}

// serverName returns the SNI of a complete message; "" means that there is none.
func (h *hello) serverName() (string, error) {
	body := bytesReader(h.message[messageHeader:])
	_, ok := body.take(legacyHelloFixed)
	for _, size := range []int{1, 2, 1} { // session id, cipher suites, compression methods
		if ok {
			_, ok = body.block(size)
		}
	}
	if !ok {
		return "", errBadHello
	}
	if len(body) == 0 {
		return "", nil // TLS 1.0 to 1.2 without extensions
	}
	extensions, ok := body.block(2)
	if !ok || len(body) != 0 {
		return "", errBadHello
	}
	name, found := "", false
	for len(extensions) > 0 {
		kind, hasKind := extensions.take(2)
		content, ok := extensions.block(2)
		if !hasKind || !ok {
			return "", errBadHello
		}
		if binary.BigEndian.Uint16(kind) != extensionSNI {
			continue
		}
		if found {
			return "", errBadHello
		}
		if name, found = content.onlyName(); !found {
			return "", errBadHello
		}
	}
	return name, nil
}

// bytesReader takes fields from its beginning.
type bytesReader []byte

func (r *bytesReader) take(n int) ([]byte, bool) {
	if len(*r) < n {
		return nil, false
	}
	field := (*r)[:n]
	*r = (*r)[n:]
	return field, true
}

// block takes a field after its length, which has size bytes.
func (r *bytesReader) block(size int) (bytesReader, bool) {
	prefix, ok := r.take(size)
	if !ok {
		return nil, false
	}
	n := 0
	for _, b := range prefix {
		n = n<<8 | int(b)
	}
	return r.take(n)
}

// onlyName reads the content of an SNI extension with exactly one host name.
func (r *bytesReader) onlyName() (string, bool) {
	list, ok := r.block(2)
	if !ok || len(*r) != 0 {
		return "", false
	}
	kind, ok := list.take(1)
	if !ok || kind[0] != sniTypeHostname {
		return "", false
	}
	name, ok := list.block(2)
	return string(name), ok && len(list) == 0 && len(name) > 0
}
