package must

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	// fromUpgrades is how often each daemon is upgraded under its sessions.
	fromUpgrades = 10
	// formatTwo names the last commit whose daemons write state of format 2. That
	// format stays readable forever, so this commit stays the reference.
	formatTwo = "testdata/format2-commit"
)

// upgradedFrom returns how many daemons of each earlier binary are upgraded.
func upgradedFrom() int {
	if os.Getenv("TRL_LONG") == "1" {
		return 10
	}
	return 1
}

// TestMustUpgradeFrom starts daemons of earlier commits and lets the binary of
// this one take over, with a hundred sessions, half of which run a command; and
// back, if the earlier one can read what this one writes. If it can't, the
// upgrade must be refused while the daemon continues. A checkout without the
// earlier commits fails.
func TestMustUpgradeFrom(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures, and needs the machine for itself")
	}
	two, err := os.ReadFile(formatTwo)
	if err != nil {
		t.Fatal(err)
	}
	for round := range upgradedFrom() {
		for _, from := range []struct{ name, commit string }{
			{"format 2", strings.TrimSpace(string(two))},
			{"the commit before", "HEAD~1"},
		} {
			t.Run(fmt.Sprintf("%s/%d", from.name, round), func(t *testing.T) { upgradeFrom(t, from.commit) })
		}
	}
}

// release is a binary that daemons are upgraded to.
type release struct {
	path, version  string
	oldest, newest int // the state formats that it reads
}

// upgradeFrom upgrades one daemon.
func upgradeFrom(t *testing.T, name string) {
	commit, err := trltest.Commit(name)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "trl")
	old, err := trltest.EarlierBinary(commit)
	if err == nil {
		err = trltest.Install(old, path)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := startWith(t, trltest.Config{Binary: path, Args: []string{"--max-sessions", "100", "--grace-ms", "1000"}})
	earlier, now, other := r.release(trltest.EarlierBinary(commit)), r.release(trltest.Binary()), r.release(trltest.OtherBinary())
	if earlier.version != commit {
		t.Fatalf("the binary of %s reports version %s", commit, earlier.version)
	}
	if earlier.newest < now.oldest {
		t.Fatalf("this program reads the formats %d to %d, and not %d, which commit %s writes", now.oldest, now.newest, earlier.newest, commit)
	}
	back := earlier.oldest <= now.newest && now.newest <= earlier.newest
	all, end := r.beginWitnesses(witnessKinds())
	if err := r.checkWitnesses(all, positions(all)); err != nil {
		t.Fatal(err)
	}
	began, is := time.Now(), earlier
	var took []int64
	for i := range fromUpgrades {
		to := now
		switch {
		case i == 1, i > 1 && i%2 == 0 && !back:
			to = other
		case i > 1 && i%2 == 0:
			to = earlier
		}
		ms, err := r.upgradeTo(all, path, is, to)
		if err != nil {
			t.Fatalf("upgrade %d, from %s to %s: %v", i, is.version, to.version, err)
		}
		took, is = append(took, ms), to
		if !back && (i == 0 || i == fromUpgrades-1) {
			if err := r.refuse(all, path, earlier, is); err != nil {
				t.Fatalf("after upgrade %d: %v", i, err)
			}
		}
	}
	end()
	bytes, err := r.finishWitnesses(all)
	if err != nil {
		t.Error(err)
	}
	way := "back and forth"
	if !back {
		way = fmt.Sprintf("and back refused (format %d, which it does not read)", now.newest)
	}
	gauge.Figures(t, "%d upgrades from %.12s, %s, under %d sessions, half of them running a command (%d KiB): no session, command or byte lost; they took %v ms, all together %s",
		len(took), commit, way, len(all), bytes>>10, took, time.Since(began).Round(time.Millisecond))
	r.reconnect()
	r.stop()
}

// canRead matches the output in which a program reports which formats it reads;
// see daemon.Check. A holder of format 2 asks this way, without more arguments,
// so this answer stays the same forever.
var canRead = regexp.MustCompile(`^trl-can-read (\d+) (\d+) (\S+)`)

// release asks a binary for its version and formats.
func (r *rig) release(path string, err error) release {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := r.command(path, "be-daemon", "check", "serve", "--socket", r.Socket).CombinedOutput()
	said := canRead.FindStringSubmatch(string(out))
	if err != nil || said == nil {
		r.t.Fatalf("%s does not report which formats it reads: %s, %v", path, out, err)
	}
	oldest, err1 := strconv.Atoi(said[1])
	newest, err2 := strconv.Atoi(said[2])
	if err := errors.Join(err1, err2); err != nil {
		r.t.Fatal(err)
	}
	return release{path: path, version: said[3], oldest: oldest, newest: newest}
}

// upgradeTo installs a binary and upgrades to it, and returns how many
// milliseconds that took.
func (r *rig) upgradeTo(all []*witness, path string, from, to release) (int64, error) {
	if err := trltest.Install(to.path, path); err != nil {
		return 0, err
	}
	was := positions(all)
	out, err := r.command(path, "upgrade", "--json").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	var said struct {
		From, To string
		Sessions int
		TookMS   int64 `json:"took_ms"`
	}
	if err := json.Unmarshal(out, &said); err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	if said.From != from.version || said.To != to.version || said.Sessions != len(all) {
		return 0, fmt.Errorf("upgrade printed %s, want %d sessions", out, len(all))
	}
	return said.TookMS, r.checkWitnesses(all, was)
}

// refuse installs a binary that can't read the state, and requests an upgrade in
// every way. The daemon must continue each time.
func (r *rig) refuse(all []*witness, path string, earlier, is release) error {
	if err := trltest.Install(earlier.path, path); err != nil {
		return err
	}
	pid, holder := daemonOf(r.PID), r.PID
	for _, way := range []struct {
		name string
		ask  func() error
	}{
		{"trl upgrade of the earlier binary", func() error { return r.refused(path) }},
		{"trl upgrade", func() error { return r.refused(is.path) }},
		{"SIGHUP", func() error {
			before := strings.Count(r.Log(), notRestarted)
			if err := unix.Kill(holder, unix.SIGHUP); err != nil {
				return err
			}
			return eventually(20*time.Second, func() error {
				if strings.Count(r.Log(), notRestarted) == before {
					return errors.New("the log does not report the refusal")
				}
				return nil
			})
		}},
	} {
		was := positions(all)
		if err := way.ask(); err != nil {
			return fmt.Errorf("%s to format %d from %d: %w", way.name, earlier.newest, is.newest, err)
		}
		if now := daemonOf(holder); now != pid {
			return fmt.Errorf("%s was refused, and the daemon's pid is %d, was %d", way.name, now, pid)
		}
		if err := r.checkWitnesses(all, was); err != nil {
			return fmt.Errorf("after %s was refused: %w", way.name, err)
		}
	}
	return trltest.Install(is.path, path)
}

// notRestarted is the event by which the log reports that an upgrade was refused.
const notRestarted = "not_restarted"

// refused runs `trl upgrade` with a binary, which must fail.
func (r *rig) refused(binary string) error {
	out, err := r.command(binary, "upgrade").CombinedOutput()
	if err == nil {
		return fmt.Errorf("the upgrade was not refused: %s", out)
	}
	return nil
}
