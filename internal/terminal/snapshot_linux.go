package terminal

// snapshotStep is how many bytes a terminal shows between two snapshots. After a
// restart everything since the last but one is replayed: that is about what a
// terminal scrolls back, and takes a few milliseconds even if it is garbage.
const snapshotStep = 128 << 10

// persistScreen saves the current screen with its scrollback. The caller must hold
// mu.
func (t *Terminal) persistScreen() {
	if t.cfg.SaveScreen == nil || t.output == nil {
		return
	}
	t.nextSnapshot, t.sinceSnapshot = t.snapshot(scrollback), 0
	t.persistSnapshot()
}

// persistProgress counts n more bytes as shown. After every snapshotStep bytes it
// saves the previous snapshot and takes the next one. The caller must hold mu.
func (t *Terminal) persistProgress(n int) {
	if t.sinceSnapshot += n; t.cfg.SaveScreen == nil || t.sinceSnapshot < snapshotStep || !t.screen.Whole() {
		return
	}
	t.persistSnapshot()
	t.nextSnapshot, t.sinceSnapshot = t.snapshot(0), 0
}

func (t *Terminal) snapshot(scrollback int) *Snapshot {
	return &Snapshot{exec: t.output.Number(), offset: t.output.Journal().Size(), size: t.size(), ansi: t.screen.ANSI(scrollback)}
}

func (t *Terminal) persistSnapshot() {
	if t.persisted == t.nextSnapshot {
		return
	}
	t.persisted = t.nextSnapshot
	t.cfg.SaveScreen(t.persisted.Encode())
	t.persisted.ansi = nil // it is in the ledger
}
