package shell

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/freelist"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/state"
)

// DriverConfig configures a Driver. The zero value is usable.
type DriverConfig struct {
	Log *slog.Logger // default: discarded
	// Keeper holds what shells open by path. Default: this process, so that the
	// shells end with it.
	Keeper holder.Keeper
}

// Driver is what all shells of a daemon share: the status pipe, the boot scripts,
// and spare descriptors. An idle shell costs the daemon one descriptor, the writing
// end of its control pipe.
type Driver struct {
	log    *slog.Logger
	keeper keeper
	router router
	clock  *clock

	bootScripts   map[string]heldFD // those of this version, by name
	loadedScripts map[string]heldFD // all that were loaded, by key; see scriptKey
	copyPool      freelist.List[*copyFDs]
	scripts       scriptPool

	mu         sync.Mutex // guards closed, and keeps begin out of Close
	closed     bool
	goroutines sync.WaitGroup
}

// OpenDriver makes a driver and starts it. The caller must close it.
func OpenDriver(cfg DriverConfig) (*Driver, error) {
	d, err := makeDriver(cfg, nil)
	if err == nil {
		d.Start()
	}
	return d, err
}

// AdoptDriver takes over the driver that an earlier daemon has saved the state of.
// Boot scripts that the earlier one did not have are loaded; those that this one does
// not know stay. The caller must adopt the driver's shells and then call Start.
//
// On an error everything that is held stays held.
func AdoptDriver(cfg DriverConfig, saved []byte) (*Driver, error) {
	var st driverState
	if err := state.Decode(saved, st.fields); err != nil {
		return nil, fmt.Errorf("read the state of the driver: %w", err)
	}
	return makeDriver(cfg, &st)
}

// makeDriver makes a driver with new pipes, or with those of an earlier one.
func makeDriver(cfg DriverConfig, saved *driverState) (*Driver, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Keeper == nil {
		cfg.Keeper = holder.NewLocalKeeper()
	}
	d := &Driver{
		log: cfg.Log, keeper: keeper{cfg.Keeper}, clock: newClock(),
		bootScripts: map[string]heldFD{}, loadedScripts: map[string]heldFD{},
	}
	d.router = router{log: cfg.Log, statusW: noFD, statusR: noFD, begin: d.begin, inboxes: map[string]*inbox{}}
	d.copyPool.Make, d.copyPool.End = d.keeper.openCopyFDs, d.keeper.closeCopyFDs
	d.scripts.Make, d.scripts.End = d.keeper.openScript, func(t *script) { d.keeper.drop(t.heldFD) }
	undo := d.Close
	var err error
	if saved == nil {
		err = d.openPipes()
	} else {
		a := &adoption{keeper: d.keeper}
		undo = func() error { return d.release(a) }
		err = d.adoptPipes(a, saved)
	}
	if err == nil {
		err = d.loadBootScripts()
	}
	if err != nil {
		return nil, errors.Join(err, undo())
	}
	return d, nil
}

// openPipes makes the status pipe and the ring.
func (d *Driver) openPipes() error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("status pipe: %w", err)
	}
	r := &d.router
	r.statusR.fd, r.statusW.fd = p[0], p[1]
	if err := unix.SetNonblock(p[0], true); err != nil {
		return err
	}
	for _, end := range []*heldFD{&r.statusR, &r.statusW} {
		h, err := d.keeper.keepFD(end.fd)
		if err != nil {
			return err
		}
		*end = h
	}
	ring, err := d.keeper.openRing()
	r.ring = ring
	return err
}

// adoptPipes takes over the status pipe, the ring and the boot scripts.
func (d *Driver) adoptPipes(a *adoption, saved *driverState) error {
	r := &d.router
	r.statusR, r.statusW = a.take(saved.statusR), a.take(saved.statusW)
	reports := a.take(saved.ring)
	if a.err != nil {
		return a.err
	}
	if !r.statusR.valid() || !r.statusW.valid() || !reports.valid() {
		return errors.New("the state of the driver does not name its pipes")
	}
	for _, s := range saved.scripts {
		d.loadedScripts[s.key] = d.keeper.heldSlot(s.slot)
	}
	ring, err := mapRing(reports)
	r.ring = ring
	return err
}

// release closes the descriptors of a driver that could not be adopted.
func (d *Driver) release(a *adoption) error {
	d.clock.close()
	var err error
	if ring := d.router.ring; ring != nil {
		err = ring.unmap()
	}
	return errors.Join(err, a.undo())
}

// Start begins to read reports. The caller of AdoptDriver calls it when all shells
// have been adopted and before it uses any of them: reports for unknown shells are
// dropped.
func (d *Driver) Start() {
	d.router.start()
	for _, s := range d.router.attachedShells() {
		s.driverStarted()
	}
}

// begin runs f in a goroutine that Close waits for. After Close it does not run f,
// and returns false. All goroutines of the package except the clock's begin here.
func (d *Driver) begin(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.goroutines.Go(f)
	return true
}

// Close stops the driver and releases what it holds. All shells must have been
// closed.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.clock.close()
	err := d.router.stop()
	d.goroutines.Wait()
	if ring := d.router.ring; ring != nil {
		err = errors.Join(err, ring.unmap())
		d.keeper.drop(ring.heldFD)
	}
	d.keeper.drop(d.router.statusW)
	d.keeper.drop(d.router.statusR)
	for _, h := range d.loadedScripts {
		d.keeper.drop(h)
	}
	d.copyPool.Close()
	d.scripts.Close()
	return err
}

// State returns what AdoptDriver needs. It changes only when AdoptDriver has loaded
// boot scripts.
func (d *Driver) State() []byte {
	r := &d.router
	st := driverState{statusR: r.statusR.slotOrZero(), statusW: r.statusW.slotOrZero(), ring: r.ring.slotOrZero()}
	for _, key := range slices.Sorted(maps.Keys(d.loadedScripts)) {
		st.scripts = append(st.scripts, scriptState{key, d.loadedScripts[key].slotOrZero()})
	}
	return state.Encode(st.fields)
}

// Slots returns the slots that the driver and its shells use, after all shells have
// been adopted and before Start. The others that an earlier daemon kept for them can
// be dropped.
func (d *Driver) Slots() []holder.Slot {
	held := d.router.held()
	for _, h := range d.loadedScripts {
		held = append(held, h)
	}
	for _, s := range d.router.attachedShells() {
		held = append(held, s.held()...)
	}
	return slotsOf(held)
}

// loadBootScripts puts the embedded scripts that are not loaded yet into memfds, with
// the paths filled in.
func (d *Driver) loadBootScripts() error {
	paths := []string{"@STATUS@", d.router.statusW.path}
	for _, b := range bootScripts() {
		contents, err := bootFiles.ReadFile("boot/" + b.file)
		if err != nil {
			return err
		}
		text := strings.NewReplacer(b.fill...).Replace(string(contents))
		text = strings.NewReplacer(paths...).Replace(text)
		key := scriptKey(b.name, text)
		if _, loaded := d.loadedScripts[key]; !loaded { // by an earlier daemon
			fd, err := sealedMemfd(b.name, text)
			if err != nil {
				return err
			}
			if d.loadedScripts[key], err = d.keeper.keepAndClose(fd); err != nil {
				return err
			}
		}
		d.bootScripts[b.name] = d.loadedScripts[key]
		paths = append(paths, "@"+strings.ToUpper(b.name)+"@", d.loadedScripts[key].path)
	}
	return d.keeper.Sync()
}

// scriptKey identifies a boot script by its contents: a version with another script
// of the same name loads its own, and shells that use the older one still find it.
func scriptKey(name, contents string) string {
	sum := sha256.Sum256([]byte(contents))
	return fmt.Sprintf("%s-%x", name, sum[:8])
}
