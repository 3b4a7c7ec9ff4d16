package session

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/ledger"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/state"
	"github.com/terminal-runtime/trl/internal/terminal"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fill sets every field below v, exported or not, to a value that is not zero.
func fill(v reflect.Value, n *int64) {
	if v.CanAddr() && !v.CanSet() {
		v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
	}
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint("text", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(*n)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n) / 3)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Struct:
		if t, ok := v.Addr().Interface().(*time.Time); ok {
			*t = time.Unix(0, 1_700_000_000_000_000_000+*n)
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	}
}

// notKept are the fields of persisted structs that are not persisted, each with the
// reason. Everything else must be restored.
var notKept = map[string]string{
	"exec.State.command.ID":            "the key of the record",
	"exec.State.command.Stdin":         "opened again, by its slot",
	"exec.State.command.Stdout":        "opened again, by its slot",
	"exec.State.command.Stderr":        "opened again, by its slot",
	"exec.State.command.Mark":          "follows from the number",
	"exec.State.command.Stop":          "of the process that runs it",
	"exec.State.command.Keys":          "of the process that runs it",
	"exec.State.command.StillRunning":  "of the process that runs it",
	"exec.State.command.CaughtUp":      "of the process that runs it",
	"exec.State.result.ExecID":         "the key of the record",
	"exec.State.result.SessionID":      "session",
	"exec.State.result.State":          "state",
	"exec.State.result.StartedAt":      "began",
	"exec.State.result.Stdout":         "in the journal",
	"exec.State.result.DroppedBytes":   "in the journal",
	"exec.State.result.Stderr":         "in the journal",
	"exec.State.result.StdoutEncoding": "follows from the output",
	"exec.State.result.StderrEncoding": "follows from the output",
	"exec.State.result.StdoutBytes":    "in the journal",
	"exec.State.result.StderrBytes":    "in the journal",
	"exec.State.result.Truncated":      "follows from what is asked for",
}

// clearNotKept zeroes the fields that are not persisted, and records them in seen.
func clearNotKept(v reflect.Value, path string, seen map[string]bool) {
	if notKept[path] != "" {
		seen[path] = true
		reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem().SetZero()
		return
	}
	if _, isTime := reflect.TypeAssert[time.Time](reflect.Zero(v.Type())); v.Kind() == reflect.Struct && !isTime {
		for i := range v.NumField() {
			clearNotKept(v.Field(i), path+"."+v.Type().Field(i).Name, seen)
		}
	}
}

// changed returns the paths of the fields in which two structs differ.
func changed(a, b reflect.Value, path string) (paths []string) {
	all := cmp.Exporter(func(reflect.Type) bool { return true })
	for i := range a.NumField() {
		f := a.Type().Field(i)
		x, y := a.Field(i), b.Field(i)
		x, y = reflect.NewAt(f.Type, unsafe.Pointer(x.UnsafeAddr())).Elem(), reflect.NewAt(f.Type, unsafe.Pointer(y.UnsafeAddr())).Elem()
		switch _, isTime := reflect.TypeAssert[time.Time](x); {
		case f.Type.Kind() == reflect.Struct && !isTime:
			paths = append(paths, changed(x, y, path+"."+f.Name)...)
		case f.Type.Kind() == reflect.Func || f.Type.Kind() == reflect.Chan:
		case !cmp.Equal(x.Interface(), y.Interface(), all):
			paths = append(paths, path+"."+f.Name)
		}
	}
	return paths
}

// TestEveryFieldIsKept: a field that is added to a persisted struct is written and
// read again, or notKept says why not. So a field of ExecResult or Session that is
// not persisted is found before a restart loses it.
func TestEveryFieldIsKept(t *testing.T) {
	seen := map[string]bool{}
	session, sessionGot := &sessionState{}, &sessionState{}
	ended, endedGot := &exec.State{}, &exec.State{}
	shown, shownGot := &terminal.Snapshot{}, &terminal.Snapshot{}
	in, inGot := &exec.InputState{}, &exec.InputState{}
	for name, c := range map[string]struct {
		file      string
		full, got any
		fields    func(*state.Coder)
		encode    func() []byte
	}{
		"sessionState": {"internal/session/stateformat_linux.go", session, sessionGot, sessionGot.fields, session.encode},
		"exec.State": {"internal/exec/state_linux.go", ended, endedGot, endedGot.Fields, func() []byte {
			// Of an exec that has ended more is persisted.
			reflect.NewAt(reflect.TypeFor[api.ExecState](), unsafe.Pointer(reflect.ValueOf(ended).Elem().FieldByName("state").UnsafeAddr())).Elem().SetString(string(api.ExecExited))
			return state.Encode(ended.Fields)
		}},
		"terminal.Snapshot": {"internal/terminal/state.go", shown, shownGot, shownGot.Fields, shown.Encode},
		"exec.InputState":   {"internal/exec/state_linux.go", in, inGot, inGot.Fields, in.Encode},
	} {
		t.Run(name, func(t *testing.T) {
			n := int64(0)
			v := reflect.ValueOf(c.full).Elem()
			fill(v, &n)
			clearNotKept(v, name, seen)
			if err := state.Decode(c.encode(), c.fields); err != nil {
				t.Fatal(err)
			}
			for _, path := range changed(v, reflect.ValueOf(c.got).Elem(), name) {
				t.Errorf("a restart loses %s: add it to the fields in %s, with the next tag, or to notKept with the reason", path, c.file)
			}
			all := cmp.Exporter(func(reflect.Type) bool { return true })
			if diff := cmp.Diff(c.full, c.got, all); diff != "" {
				t.Errorf("(-kept +found):\n%s", diff)
			}
		})
	}
	for path := range notKept {
		if !seen[path] {
			t.Errorf("notKept names %s, which does not exist", path)
		}
	}
}

// sessionShown says where each field of api.Session comes from after a restart.
var sessionShown = map[string]string{
	"SessionID": "the key of the record", "Name": "name", "Tags": "tags", "Runtime": "always the same",
	"State": "follows from the execs", "Shell": "program", "Argv": "argv", "PID": "of the shell's record, or pid",
	"Cwd": "of the last exec, or asked of the kernel", "TTY": "tty", "CreatedAt": "created",
	"LastActivityAt": "of the last exec", "ExecCount": "of the execs", "TimeoutMS": "timeout", "IdleTTLMS": "idleTTL",
	"EnvKeys": "envKeys", "ExecID": "of the execs", "ExecLabel": "of the execs", "Held": "held", "Owner": "owner", "Login": "loggedIn", "Ending": "ending",
	"Unreadable": "why it can't be taken over", "Terminated": "terminated", "Parent": "parent", "WhileConnected": "connected",
	"Limits": "limits", "Isolation": "isolation",
}

// TestEveryFieldOfASessionIsKnown: a field that is added to api.Session must be
// added to sessionShown.
func TestEveryFieldOfASessionIsKnown(t *testing.T) {
	typ := reflect.TypeFor[api.Session]()
	for i := range typ.NumField() {
		if name := typ.Field(i).Name; sessionShown[name] == "" {
			t.Errorf("api.Session.%s: add it to sessionShown, with how it survives a restart, and to sessionState", name)
		}
	}
	if len(sessionShown) != typ.NumField() {
		t.Error("sessionShown names a field that does not exist")
	}
}

// golden returns the records of a ledger that a program of some format left.
func golden(t *testing.T, format int) map[string][]byte {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", fmt.Sprintf("format%d.ledger", format)))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all, damage, err := ledger.Read(int(file.Fd()))
	if err != nil || len(damage) > 0 {
		t.Fatal(damage, err)
	}
	return all
}

// TestGolden reads what programs of every format have left. The files were taken
// from daemons with sessions of every kind; the ledgers are never written again.
func TestGolden(t *testing.T) {
	for _, format := range []int{2, 3} {
		t.Run(fmt.Sprint(format), func(t *testing.T) {
			var r ledgerReader
			for key, value := range golden(t, format) {
				records := map[string][]byte{key: value}
				var err error
				if format == 2 {
					if records, err = Convert2(key, value); err != nil {
						t.Fatalf("%s: %v", key, err)
					}
				}
				for key, value := range records {
					if err := CheckRecord(key, value); err != nil {
						t.Errorf("%s: %v", key, err)
					}
					if err := r.add(key, value); err != nil {
						t.Errorf("%s: %v", key, err)
					}
				}
			}
			got := dumpFound(&r)
			name := filepath.Join("testdata", fmt.Sprintf("format%d.txt", format))
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// dumpFound prints everything that is not zero, one line each.
func dumpFound(r *ledgerReader) string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(r.sessions)) {
		f := r.sessions[id]
		fmt.Fprintf(&b, "session %s, tree %d\n", id, f.tree)
		dump(&b, reflect.ValueOf(f.state).Elem(), "  ")
		if command, ok := shell.UnderWay(f.shell); ok {
			fmt.Fprintf(&b, "  its shell runs %s\n", command)
		}
		if f.screen != nil {
			b.WriteString("  screen\n")
			dump(&b, reflect.ValueOf(f.screen).Elem(), "    ")
		}
		slices.SortFunc(f.execs, func(a, b foundExec) int { return strings.Compare(a.id, b.id) })
		for _, e := range f.execs {
			fmt.Fprintf(&b, "  exec %s\n", e.id)
			dump(&b, reflect.ValueOf(e.state).Elem(), "    ")
		}
	}
	return b.String()
}

func dump(b *strings.Builder, v reflect.Value, indent string) {
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Name, v.Field(i)
		for f.Kind() == reflect.Pointer && !f.IsNil() {
			f = f.Elem()
		}
		if f.IsZero() || f.Kind() == reflect.Func || f.Kind() == reflect.Chan {
			continue
		}
		if f.CanAddr() {
			f = reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
		}
		if at, ok := reflect.TypeAssert[time.Time](f); ok {
			fmt.Fprintf(b, "%s%s %s\n", indent, name, at.UTC().Format(time.RFC3339Nano))
			continue
		}
		switch f.Kind() {
		case reflect.Struct:
			fmt.Fprintf(b, "%s%s\n", indent, name)
			dump(b, f, indent+"  ")
		case reflect.String:
			fmt.Fprintf(b, "%s%s %q\n", indent, name, f.Interface())
		case reflect.Slice:
			verb := "%q"
			if f.Type().Elem().Kind() == reflect.Struct {
				verb = "%+v"
			}
			fmt.Fprintf(b, "%s%s "+verb+"\n", indent, name, f.Interface())
		default:
			fmt.Fprintf(b, "%s%s %v\n", indent, name, f.Interface())
		}
	}
}

// FuzzRecords: no bytes make reading a record panic.
func FuzzRecords(f *testing.F) {
	for _, format := range []int{2, 3} {
		file, err := os.Open(filepath.Join("testdata", fmt.Sprintf("format%d.ledger", format)))
		if err != nil {
			f.Fatal(err)
		}
		all, _, err := ledger.Read(int(file.Fd()))
		if err != nil {
			f.Fatal(err)
		}
		for key, value := range all {
			f.Add(key, value)
		}
		file.Close()
	}
	f.Fuzz(func(_ *testing.T, key string, value []byte) {
		_ = CheckRecord(key, value)
		if records, err := Convert2(key, value); err == nil {
			for key, value := range records {
				_ = CheckRecord(key, value)
			}
		}
	})
}
