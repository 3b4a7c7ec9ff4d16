package api

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestErrorOnTheWire(t *testing.T) {
	sent := Errorf(CodeSessionBusy, "busy: %w", io.ErrUnexpectedEOF).With("exec_id", "e-1").WithHint("wait %d", 1)
	b, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"code":-32007,"message":"busy: unexpected EOF","data":{"code":"SESSION_BUSY","exec_id":"e-1","hint":"wait 1"}}`
	if string(b) != want {
		t.Errorf("got %s", b)
	}
	var got Error
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*sent, got, cmpopts.IgnoreFields(Error{}, "Cause")); diff != "" {
		t.Error(diff)
	}
	if !errors.Is(sent, io.ErrUnexpectedEOF) || !IsCode(sent, CodeSessionBusy) || IsCode(io.EOF, CodeSessionBusy) {
		t.Error("the cause or the code is lost")
	}
	if e := AsError(io.EOF); e.Code != CodeInternal || !errors.Is(e, io.EOF) {
		t.Errorf("got %+v", e)
	}
	if !strings.Contains(sent.Error(), "wait 1") {
		t.Errorf("the hint is not in %q", sent.Error())
	}
}

func TestForeignErrorKeepsItsMeaning(t *testing.T) {
	var got Error
	if err := json.Unmarshal([]byte(`{"code":-32601,"message":"Method not found"}`), &got); err != nil || got.Code != CodeMethodNotFound {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestNumbersAreUnique(t *testing.T) {
	seen := map[int]Code{}
	for code, n := range Codes() {
		if other, ok := seen[n]; ok {
			t.Errorf("%s and %s are both %d", code, other, n)
		}
		seen[n] = code
	}
}

func TestTime(t *testing.T) {
	at := Time{time.Date(2026, 1, 2, 3, 4, 5, 6_789_000, time.FixedZone("", 3600))}
	b, err := json.Marshal(at)
	if err != nil || string(b) != `"2026-01-02T02:04:05.006Z"` {
		t.Errorf("got %s, %v", b, err)
	}
	var back Time
	if err := json.Unmarshal(b, &back); err != nil || !back.Equal(at.Truncate(time.Millisecond)) {
		t.Errorf("got %v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`"yesterday"`), &back); err == nil {
		t.Error("no error")
	}
}

func TestBytes(t *testing.T) {
	for in, encoding := range map[string]string{"": "", "text é\n": "", "a\x00b": Base64, "\xff": Base64} {
		data, enc := EncodeBytes([]byte(in))
		if enc != encoding {
			t.Errorf("%q: encoding %q", in, enc)
		}
		if back, err := DecodeBytes(data, enc); err != nil || string(back) != in {
			t.Errorf("%q came back as %q, %v", in, back, err)
		}
	}
	for _, bad := range [][2]string{{"!", Base64}, {"x", "hex"}} {
		if _, err := DecodeBytes(bad[0], bad[1]); !IsCode(err, CodeInvalidParams) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
