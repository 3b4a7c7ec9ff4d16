package engines

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// Hostility is what a hostile place does. Except for BannerForever, LongHello and
// Silent it begins with a hello, and except for Deaf it ends with its input.
type Hostility string

// The kinds of hostility.
const (
	BannerForever Hostility = "banner"    // it prints lines for ever
	LongHello     Hostility = "longhello" // a line of 1 GiB instead of the hello
	LongLine      Hostility = "longline"  // a line of 1 GiB as the answer to the first request
	OtherIDs      Hostility = "otherids"  // every answer has the ids of another place
	Unasked       Hostility = "unasked"   // answers with ids that no request has, and each answer twice
	Events        Hostility = "events"    // notifications of streams that were not opened here
	Digest        Hostility = "digest"    // the digest in the hello is not that of its program
	Deaf          Hostility = "deaf"      // it stops reading after the hello
	Silent        Hostility = "silent"    // no hello
	Polite        Hostility = "polite"    // none: the others answer requests like this one
)

// IDs are what a hostile place puts into its messages. Empty ones are invented.
type IDs struct {
	Node    string // its own, in the hello
	Session string
	Exec    string
	Stream  string
}

// HostilePlace returns the command line of a program that speaks the protocol of
// `trl connect` on its standard input and output, and misbehaves.
func HostilePlace(t testing.TB, kind Hostility, ids IDs) (argv []string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := programDigest()
	if err != nil {
		t.Fatal(err)
	}
	words, err := json.Marshal(hostileWords{ids, digest})
	if err != nil {
		t.Fatal(err)
	}
	return []string{program, hostileArg, string(kind), string(words)}
}

// hostileWords is the last argument of a hostile place.
type hostileWords struct {
	IDs
	Digest string // of its program: it takes a tenth of a second to compute, and places start often
}

// programDigest returns the digest of this program.
var programDigest = sync.OnceValues(func() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	program, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer program.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, program)
	return hex.EncodeToString(sum.Sum(nil)), err
})

// hostileArg is the first argument of a test binary that is a hostile place.
const hostileArg = "be-hostile-place"

// maxDeafness is longer than any test process runs: a place that does not read does
// not see the end of its input.
const maxDeafness = time.Hour

// longLine is the length of a line that no receiver may keep.
const longLine = 1 << 30

// hostile is a hostile place.
type hostile struct {
	kind Hostility
	hostileWords
	out *bufio.Writer
}

func beHostile(kind string, args []string) (code int) {
	h := hostile{kind: Hostility(kind), out: bufio.NewWriter(os.Stdout)}
	if len(args) > 0 {
		if err := json.Unmarshal([]byte(args[0]), &h.hostileWords); err != nil {
			return 2
		}
	}
	for _, id := range []struct {
		field    *string
		invented string
	}{
		{&h.Node, "evil"}, {&h.Session, "s-evil-aaaaaaaaaa"}, {&h.Exec, "e-evil-aaaaaaaaaa"}, {&h.Stream, "st-aaaaaaaaaa"},
	} {
		if *id.field == "" {
			*id.field = id.invented
		}
	}
	switch h.kind {
	case BannerForever:
		for {
			if _, err := os.Stdout.WriteString("Welcome to this machine.\n"); err != nil {
				return 0
			}
		}
	case LongHello:
		return h.writeLongLine()
	case Silent:
		_, _ = io.Copy(io.Discard, os.Stdin) // until the caller goes away
		return 0
	}
	h.send(map[string]any{"method": "system.hello", "params": h.hello()})
	if h.kind == Deaf {
		time.Sleep(maxDeafness)
		return 0
	}
	return h.serve()
}

// hello returns the parameters of the first message.
func (h *hostile) hello() map[string]any {
	digest := h.Digest
	if h.kind == Digest {
		digest = hex.EncodeToString(sha256.New().Sum(nil)) // of nothing
	}
	return map[string]any{
		"version": "v0.0.0-hostile", "protocol": api.Protocol, "digest": digest,
		"os": runtime.GOOS, "arch": runtime.GOARCH, "node": h.Node, "boot": "hostile", "user": "root",
	}
}

// send writes a message. An error is that of a caller that went away, which ends the
// input too.
func (h *hostile) send(message map[string]any) {
	message["jsonrpc"] = "2.0"
	line, err := json.Marshal(message)
	if err != nil {
		panic(err) // it is built from plain values
	}
	_, _ = h.out.Write(append(line, '\n'))
	_ = h.out.Flush()
}

func (h *hostile) writeLongLine() (code int) {
	part := strings.Repeat("x", 1<<20)
	for range longLine / len(part) {
		if _, err := os.Stdout.WriteString(part); err != nil {
			return 0
		}
	}
	_, _ = os.Stdout.WriteString("\n")
	return 0
}

// serve answers requests until the end of the input.
func (h *hostile) serve() (code int) {
	for in := bufio.NewReader(os.Stdin); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue // a heartbeat
		}
		var request struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.Unmarshal(line, &request); err != nil {
			return 1
		}
		switch h.kind {
		case LongLine:
			return h.writeLongLine()
		case Unasked:
			for _, id := range []any{0, -1, 1 << 40, "unasked", nil} {
				h.send(map[string]any{"id": id, "result": h.result()})
			}
			h.send(map[string]any{"id": request.ID, "result": h.result()})
		case Events:
			h.forge()
		}
		h.send(map[string]any{"id": request.ID, "result": h.result()})
	}
}

// result returns an answer that fits every method: the ids are those of the caller's
// request only by accident, and for OtherIDs those of another place.
func (h *hostile) result() map[string]any {
	own := h.IDs
	if h.kind != OtherIDs {
		own.Session, own.Exec = "s-"+own.Node+"-bbbbbbbbbb", "e-"+own.Node+"-bbbbbbbbbb"
	}
	now := time.Now().UTC().Format(time.RFC3339Nano)
	session := map[string]any{
		"session_id": own.Session, "runtime": "host", "state": "idle", "created_at": now, "last_activity_at": now,
	}
	exec := map[string]any{
		"exec_id": own.Exec, "session_id": own.Session, "state": "exited", "outcome": "completed", "exit_code": 0,
		"started_at": now, "stdout": "hostile\n", "stderr": "",
	}
	all := map[string]any{
		"protocol": api.Protocol, "version": "v0.0.0-hostile", "stream_id": own.Stream,
		"sessions": []any{session}, "execs": []any{exec}, "session": session,
	}
	for _, part := range []map[string]any{session, exec} {
		for name, value := range part {
			all[name] = value
		}
	}
	return all
}

// forge sends notifications of another place's sessions and execs.
func (h *hostile) forge() {
	now := time.Now().UTC().Format(time.RFC3339Nano)
	for _, event := range []api.SessionEventType{api.EventCreated, api.EventState, api.EventHeld, api.EventDestroyed} {
		h.send(map[string]any{"method": api.NotifySessionEvent, "params": map[string]any{
			"stream_id": h.Stream, "type": event, "session_id": h.Session, "exec_id": h.Exec, "state": "terminated", "at": now,
		}})
	}
	for _, kind := range []string{"stdout", "exit"} {
		h.send(map[string]any{"method": api.NotifyExecChunk, "params": map[string]any{
			"stream_id": h.Stream, "exec_id": h.Exec, "type": kind, "offset": 0, "data": "forged\n", "next": 7,
		}})
	}
}
