package daemon

import (
	"bytes"
	"os"
	"testing"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/ledger"
	"github.com/terminal-runtime/trl/internal/state"
)

// TestCheckLedger reads ledgers of every format, and expects an error for one with a
// damaged record.
func TestCheckLedger(t *testing.T) {
	for _, name := range []string{"format2.ledger", "format3.ledger"} {
		t.Run(name, func(t *testing.T) {
			file, err := os.Open("../session/testdata/" + name)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if err := checkLedger(int(file.Fd())); err != nil {
				t.Error(err)
			}
			all, damage, err := ledger.Read(int(file.Fd()))
			if err != nil || len(damage) > 0 {
				t.Fatal(damage, err)
			}
			for key, value := range all {
				if len(value) < 8 {
					continue
				}
				l := openLedger(t)
				for k, v := range all {
					if k == key {
						v = bytes.Repeat([]byte{0xff}, len(v))
					}
					if err := l.Put(k, v); err != nil {
						t.Fatal(err)
					}
				}
				copied, err := l.Copy()
				if err != nil {
					t.Fatal(err)
				}
				f := os.NewFile(uintptr(copied), "ledger")
				if err := checkLedger(copied); err == nil {
					t.Errorf("a damaged record %q is accepted", key)
				}
				f.Close()
			}
		})
	}
}

func openLedger(t *testing.T) *ledger.Ledger {
	t.Helper()
	l, err := ledger.New(holder.NewLocalKeeper())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestEveryFieldOfTheDaemonIsKept covers the daemon's own persisted state.
func TestEveryFieldOfTheDaemonIsKept(t *testing.T) {
	listen, web := listenState{1, 2, "/run/trl.sock"}, webState{3, "127.0.0.1:0", true}
	var gotListen listenState
	var gotWeb webState
	if err := state.Decode(state.Encode(listen.fields), gotListen.fields); err != nil || gotListen != listen {
		t.Errorf("%+v, %v", gotListen, err)
	}
	if err := state.Decode(state.Encode(web.fields), gotWeb.fields); err != nil || gotWeb != web {
		t.Errorf("%+v, %v", gotWeb, err)
	}
}
