package conformance

import (
	"encoding/base64"
	"reflect"
	"strings"
	"testing"
	"time"
)

// good is a result that satisfies every expectation in judgements.
var good = Result{
	ExecID: "e-1", State: "exited", Outcome: "exited", ExitCode: new(3),
	Stdout: "out\n", StdoutBytes: 4, Stderr: "err\n", StderrBytes: 4,
}

// judgements has, for every field of Expect, an expectation that good satisfies
// and at least one result that does not.
var judgements = []struct {
	field string // of Expect, or "" for checks that always apply
	want  Expect
	bad   []func(*Result)
	slow  bool // the bad result is good, but late
}{
	{field: "", bad: []func(*Result){
		func(r *Result) { r.State = "running" },
		func(r *Result) { r.State = "" },
		func(r *Result) { r.StdoutEncoding = "rot13" },
		func(r *Result) { r.StderrEncoding = "rot13" },
		func(r *Result) { r.Stdout, r.StdoutEncoding = "!", "base64" },
	}},
	{field: "ExitCode", want: Expect{ExitCode: new(3)}, bad: []func(*Result){
		func(r *Result) { r.ExitCode = new(0) },
		func(r *Result) { r.ExitCode = nil },
	}},
	{field: "ExitCodeIn", want: Expect{ExitCodeIn: []int{2, 3}}, bad: []func(*Result){
		func(r *Result) { r.ExitCode = new(4) },
		func(r *Result) { r.ExitCode = nil },
	}},
	{field: "ExitNonzero", want: Expect{ExitNonzero: true}, bad: []func(*Result){
		func(r *Result) { r.ExitCode = new(0) },
		func(r *Result) { r.ExitCode = nil },
	}},
	{field: "TimedOut", want: Expect{TimedOut: new(false)}, bad: []func(*Result){
		func(r *Result) { r.TimedOut = true },
	}},
	{field: "Stdout", want: Expect{Stdout: new("out\n")}, bad: []func(*Result){
		func(r *Result) { r.Stdout = "out" },
		func(r *Result) { r.Stdout = "" },
	}},
	{field: "StdoutB64", want: Expect{StdoutB64: []byte("out\n")}, bad: []func(*Result){
		func(r *Result) { r.Stdout = base64.StdEncoding.EncodeToString([]byte("out\n")) },
	}},
	{field: "StdoutContains", want: Expect{StdoutContains: new("ut")}, bad: []func(*Result){
		func(r *Result) { r.Stdout = "o" },
	}},
	{field: "StdoutLen", want: Expect{StdoutLen: new(int64(4))}, bad: []func(*Result){
		func(r *Result) { r.StdoutBytes = 3 },
	}},
	{field: "StdoutMaxLen", want: Expect{StdoutMaxLen: new(int64(4))}, bad: []func(*Result){
		func(r *Result) { r.StdoutBytes = 5 },
		func(r *Result) { r.Stdout = "out\n\n" },
	}},
	{field: "Stderr", want: Expect{Stderr: new("err\n")}, bad: []func(*Result){
		func(r *Result) { r.Stderr = "" },
	}},
	{field: "StderrContains", want: Expect{StderrContains: new("rr")}, bad: []func(*Result){
		func(r *Result) { r.Stderr = "r" },
	}},
	{field: "StderrNotContains", want: Expect{StderrNotContains: new("panic")}, bad: []func(*Result){
		func(r *Result) { r.Stderr = "a panic\n" },
	}},
	{field: "StderrLen", want: Expect{StderrLen: new(int64(4))}, bad: []func(*Result){
		func(r *Result) { r.StderrBytes = 5 },
	}},
	{field: "MaxMS", want: Expect{MaxMS: new(int64(1000))}, slow: true},
}

func TestJudge(t *testing.T) {
	for _, j := range judgements {
		if err := Judge(j.want, good, time.Second); err != nil {
			t.Errorf("%s: a good result is judged bad: %v", j.field, err)
		}
		for i, spoil := range j.bad {
			result := good
			spoil(&result)
			err := Judge(j.want, result, time.Second)
			if err == nil {
				t.Errorf("%s: bad result %d passes", j.field, i)
			}
			if judged("%v", err).Late {
				t.Errorf("%s: bad result %d is reported as late", j.field, i)
			}
		}
		if j.slow {
			err := Judge(j.want, good, time.Second+time.Millisecond)
			if err == nil {
				t.Errorf("%s: a late result passes", j.field)
			}
			if !judged("%v", err).Late {
				t.Errorf("%s: a late result is reported as wrong", j.field)
			}
		}
	}
}

// An expectation on which the judge never fails would be in the table but never
// checked.
func TestJudgeCanFailOnEveryField(t *testing.T) {
	covered := map[string]bool{}
	for _, j := range judgements {
		covered[j.field] = len(j.bad) > 0 || j.slow
	}
	for field := range reflect.TypeFor[Expect]().Fields() {
		if !covered[field.Name] {
			t.Errorf("no bad result for Expect.%s", field.Name)
		}
	}
}

func TestJudgeDecodesOutput(t *testing.T) {
	binary := []byte("a\x00b\xff")
	result := good
	result.Stdout, result.StdoutEncoding = base64.StdEncoding.EncodeToString(binary), "base64"
	if err := Judge(Expect{StdoutB64: binary}, result, 0); err != nil {
		t.Error(err)
	}
}

func TestClipKeepsMessagesShort(t *testing.T) {
	if got := clip([]byte(strings.Repeat("\n", 10_000))); len(got) > 400 || strings.Contains(got, "\n") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
