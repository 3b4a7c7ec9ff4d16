package exec

import (
	"fmt"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/shell"
)

// mapLedger is a Ledger in memory.
type mapLedger map[string][]byte

func (m mapLedger) Put(key string, value []byte) { m[key] = append([]byte(nil), value...) }
func (m mapLedger) Erase(key string)             { delete(m, key) }

// TestEchoSurvives: what a result repeats of the params is there again after a
// restart, whether the command was queued, was running or had ended.
func TestEchoSurvives(t *testing.T) {
	store := journal.NewStore(journal.Config{Dir: t.TempDir()})
	defer store.Close()
	ledger := mapLedger{}
	env := NewEnv(Config{Keeper: holder.NewLocalKeeper(), Journals: store, Ledger: ledger, Log: slog.New(slog.DiscardHandler)})
	defer env.Close()

	var params api.ExecCommand
	for i, f := range reflect.VisibleFields(reflect.TypeFor[api.ExecCommand]()) {
		switch v := reflect.ValueOf(&params).Elem().FieldByIndex(f.Index); v.Kind() {
		case reflect.String:
			v.SetString(fmt.Sprint("text", i))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(int64(i + 1))
		}
	}
	repeated := reflect.ValueOf(echo(&params))
	if repeated.IsZero() {
		t.Fatal("the result repeats nothing")
	}
	for _, state := range []api.ExecState{api.ExecQueued, api.ExecRunning, api.ExecExited} {
		e := New(env, Spec{ID: "e-" + string(state), SessionID: "s-1", Params: params})
		e.SetNumber(1, 1)
		if state != api.ExecQueued {
			e.Begin(time.Now())
		}
		if state == api.ExecExited {
			e.FinishInShell(shell.Result{}, nil, "/", nil, nil)
		}
		e.Persist()
		r, err := DecodeState(ledger[StatePrefix+e.id])
		if err != nil {
			t.Fatal(err)
		}
		again := Restore(env, e.id, r, nil, 1, nil)
		got := reflect.ValueOf(again.Result()).Elem()
		if is := again.State(); is != state {
			t.Errorf("a command that was %s is %s after a restart", state, is)
		}
		for i := range repeated.NumField() {
			name := repeated.Type().Field(i).Name
			if want := repeated.Field(i); !want.IsZero() && !reflect.DeepEqual(want.Interface(), got.Field(i).Interface()) {
				t.Errorf("a restart while a command is %s loses api.ExecResult.%s: it is %#v, want %#v; add it to State.Fields (not to resultFields), internal/exec/state_linux.go",
					state, name, got.Field(i).Interface(), want.Interface())
			}
		}
		again.ReleaseOutput()
		e.ReleaseOutput()
	}
}
