package shell

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/state"
)

// TestEveryFieldOfAStateIsKept: every field of a shellState is written and read.
func TestEveryFieldOfAStateIsKept(t *testing.T) {
	var full, got shellState
	n := 0
	fillState(reflect.ValueOf(&full).Elem(), &n)
	if err := state.Decode(state.Encode(full.fields), got.fields); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full, got, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Errorf("a restart loses this (-saved +restored):\n%s", diff)
	}
}

func fillState(v reflect.Value, n *int) {
	v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Slice:
		v.SetBytes([]byte("bytes"))
	case reflect.Array:
		for i := range v.Len() {
			fillState(v.Index(i), n)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fillState(v.Field(i), n)
		}
	default:
		v.SetInt(int64(*n))
	}
}

// TestAnotherSetOfScripts: a version with one more script takes over from one that
// did not have it, and one that does not know a script keeps it.
func TestAnotherSetOfScripts(t *testing.T) {
	keep := holder.NewLocalKeeper()
	d, err := OpenDriver(DriverConfig{Keeper: keep})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var st driverState
	if err := state.Decode(d.State(), st.fields); err != nil {
		t.Fatal(err)
	}
	// A script of a newer version takes the place of one that no other refers to.
	at := slices.IndexFunc(st.scripts, func(s scriptState) bool { return strings.HasPrefix(s.key, "gone-") })
	removed := st.scripts[at]
	st.scripts[at].key = "later"
	again, err := AdoptDriver(DriverConfig{Keeper: keep}, state.Encode(st.fields))
	if err != nil {
		t.Fatal(err)
	}
	if k := again.loadedScripts[removed.key]; !k.valid() || k.slot == removed.slot {
		t.Errorf("script %s was not loaded: %+v", removed.key, k)
	}
	var now driverState
	if err := state.Decode(again.State(), now.fields); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(now.scripts, st.scripts[at]) || len(now.scripts) != len(st.scripts)+1 {
		t.Errorf("scripts %v, before %v", now.scripts, st.scripts)
	}
	again.clock.close()
	if err := again.router.ring.unmap(); err != nil {
		t.Error(err)
	}
	keep.Drop(again.loadedScripts[removed.key].slot)
	if err := closeFDs(again.router.statusR.fd, again.router.statusW.fd, again.router.ring.fd); err != nil {
		t.Error(err)
	}
}

// TestFailedAdoptionKeepsTheState: what cannot be adopted stays as it was, for
// a version that can adopt it.
func TestFailedAdoptionKeepsTheState(t *testing.T) {
	keep := &counting{Keeper: holder.NewLocalKeeper()}
	d, err := OpenDriver(DriverConfig{Keeper: keep})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var st driverState
	if err := state.Decode(d.State(), st.fields); err != nil {
		t.Fatal(err)
	}
	for name, saved := range map[string][]byte{
		"damaged": d.State()[:5],
		"empty":   nil,
		"no ring": func() []byte {
			bad := st
			bad.ring = 1 << 20 // an empty slot
			return state.Encode(bad.fields)
		}(),
	} {
		keep.dropped = nil
		if _, err := AdoptDriver(DriverConfig{Keeper: keep}, saved); err == nil {
			t.Errorf("%s: adopted", name)
		}
		if len(keep.dropped) > 0 {
			t.Errorf("%s: released %v", name, keep.dropped)
		}
	}
	for name, change := range map[string]func(*shellState){
		"another driver": func(st *shellState) { st.driver = 1 << 20 },
		"no control":     func(st *shellState) { st.control = 1 << 20 },
		"no text":        func(st *shellState) { st.hasRun, st.command.scripts[1] = true, 1<<20 },
	} {
		keep.dropped = nil
		saved := shellState{token: "t", pid: 1, control: st.statusW, pendingStandby: copyFDsState{st.ring, st.ring}, promotionScript: st.ring}
		change(&saved)
		if _, err := d.Adopt(Config{Program: Program{Family: Dash}}, state.Encode(saved.fields)); err == nil || errors.Is(err, unix.EFAULT) {
			t.Errorf("%s: error %v", name, err)
		}
		if len(keep.dropped) > 0 || d.router.inboxes["t"] != nil {
			t.Errorf("%s: released %v", name, keep.dropped)
		}
	}
}

// counting records what is dropped.
type counting struct {
	holder.Keeper
	dropped []holder.Slot
}

func (c *counting) Drop(slot holder.Slot) {
	c.dropped = append(c.dropped, slot)
	c.Keeper.Drop(slot)
}

// TestUnderWay: a command that is over is not under way.
func TestUnderWay(t *testing.T) {
	for _, st := range []shellState{
		{},
		{hasRun: true, command: commandState{id: "e-1", stage: stageOver}},
		{hasRun: true, command: commandState{stage: stageSent}}, // of the driver itself
	} {
		if id, ok := UnderWay(state.Encode(st.fields)); ok {
			t.Errorf("%+v: %q is under way", st, id)
		}
	}
	st := shellState{hasRun: true, command: commandState{id: "e-1", stage: stageSending}}
	if id, ok := UnderWay(state.Encode(st.fields)); !ok || id != "e-1" {
		t.Errorf("%q, %v", id, ok)
	}
}

// TestUnknownFamily: a shell of a family that this version does not know is refused,
// and nothing of it is released: a newer version may be able to drive it.
func TestUnknownFamily(t *testing.T) {
	keep := &counting{Keeper: holder.NewLocalKeeper()}
	d, err := OpenDriver(DriverConfig{Keeper: keep})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var st driverState
	if err := state.Decode(d.State(), st.fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []Family{"", "fish", "Dash"} {
		cfg := Config{Program: Program{Path: "/bin/sh", Family: name, Argv0: "sh"}}
		saved := shellState{token: "t", pid: 1, control: st.statusW}
		if _, err := d.Adopt(cfg, state.Encode(saved.fields)); !errors.Is(err, errUnknownFamily) {
			t.Errorf("adopt %q: %v", name, err)
		}
		if _, err := d.Open(t.Context(), cfg); !errors.Is(err, errUnknownFamily) {
			t.Errorf("open %q: %v", name, err)
		}
		if cfg.Program.IsDriven("sh -c . /proc/1/fd/3 sh") || cfg.Program.VersionArgs() != nil {
			t.Errorf("%q is treated as a known family", name)
		}
	}
	if len(keep.dropped) > 0 || len(d.router.inboxes) > 0 {
		t.Errorf("released %v", keep.dropped)
	}
}
