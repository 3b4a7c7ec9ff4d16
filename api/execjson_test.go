package api

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// indented formats JSON so that two encodings of one value compare equal.
func indented(t *testing.T, text []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", " "); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return b.String()
}

// same fails unless the result is encoded as by encoding/json, member by member
// and in the same order.
func same(t *testing.T, what string, r *ExecResult) {
	t.Helper()
	got, err := r.AppendJSON([]byte(`x`))
	if err != nil {
		t.Fatal(what, err)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		t.Fatal(what, err)
	}
	if diff := cmp.Diff(indented(t, bytes.TrimSpace(b.Bytes())), indented(t, got[1:])); diff != "" {
		t.Errorf("%s: run go test ./internal/contract -run Fresh -update, which writes api/execjson_fields.go (-encoding/json +AppendJSON):\n%s", what, diff)
	}
}

// fill sets a value to something that is not zero, recursively.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(1))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[Time]() {
			v.Set(reflect.ValueOf(Time{time.Date(2024, 2, 29, 23, 59, 1, 7e6, time.FixedZone("", 3600))}))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.String:
		v.SetString("é \"\\\n\t\x01 <&> " + v.Type().Name())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(-12345)
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(54321)
	case reflect.Float64:
		v.SetFloat(1.5)
	default:
		panic("how is a " + v.Kind().String() + " filled?")
	}
}

func TestExecResultJSON(t *testing.T) {
	same(t, "nothing", &ExecResult{})
	var all ExecResult
	fill(reflect.ValueOf(&all).Elem())
	same(t, "everything", &all)
	if t.Failed() {
		return // the rest would repeat it for each field
	}
	for i := range reflect.TypeFor[ExecResult]().NumField() {
		name := reflect.TypeFor[ExecResult]().Field(i).Name
		var only ExecResult
		fill(reflect.ValueOf(&only).Elem().Field(i))
		same(t, "only "+name, &only)
		but := all
		reflect.ValueOf(&but).Elem().Field(i).SetZero()
		same(t, "all but "+name, &but)
	}
	zero := 0
	same(t, "as most are", &ExecResult{
		ExecID: "e-1", SessionID: "s-1", State: ExecExited, Outcome: OutcomeExited, ExitCode: &zero,
		StartedAt: Time{time.Unix(1e9, 0)}, Stdout: strings.Repeat("line\n", 3000), Cwd: "/tmp",
	})
	same(t, "a directory that is no text", &ExecResult{Cwd: "/tmp/\xff\xfe", Survivors: []Process{{}}})
}

func TestTimeJSON(t *testing.T) {
	for _, at := range []time.Time{
		{},
		time.Unix(0, 0), time.Unix(1e9, 999_999_999), time.Unix(1e9, 1e6), time.Date(987, 1, 2, 3, 4, 5, 6e6, time.UTC),
		time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 99e6, time.FixedZone("", -3600)),
	} {
		if got, want := string(Time{at}.append(nil)), at.UTC().Format(`"`+timeLayout+`"`); got != want {
			t.Errorf("%v is %s, want %s", at, got, want)
		}
	}
}

func BenchmarkExecResult(b *testing.B) {
	zero := 0
	r := &ExecResult{
		ExecID: "e-aaaaaaaaaa", SessionID: "s-bbbbbbbbbb", State: ExecExited, Outcome: OutcomeExited, ExitCode: &zero,
		StartedAt: Time{time.Unix(1e9, 0)}, Cwd: "/home/someone",
	}
	b.Run("append", func(b *testing.B) {
		var buf []byte
		for b.Loop() {
			buf, _ = r.AppendJSON(buf[:0])
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		for b.Loop() {
			_, _ = json.Marshal(r)
		}
	})
}
