// Package packaging_test checks the service files with the programs that read
// them.
package packaging_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) { trltest.Main(m) }

// installed is where the units expect the binary.
const installed = "/usr/bin/trl"

// verify lets systemd check units, with the path of the binary replaced by one
// that exists, and returns its complaints.
func verify(t *testing.T, edit func(string) string, scope string, units ...string) string {
	t.Helper()
	_, err := exec.LookPath("systemd-analyze")
	trltest.Need(t, err)
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{scope, "--man=no", "--recursive-errors=no", "verify"}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, filepath.Base(unit))
		if err := os.WriteFile(file, []byte(edit(strings.ReplaceAll(string(text), installed, binary))), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	cmd := exec.Command("systemd-analyze", args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir)
	output, err := cmd.CombinedOutput()
	if err != nil && len(output) == 0 {
		t.Fatal(err)
	}
	return string(output)
}

func TestUnits(t *testing.T) {
	asIs := func(text string) string { return text }
	for scope, units := range map[string][]string{
		"--system": {"systemd/trl.service", "systemd/trl.socket"},
		"--user":   {"systemd/user/trl.service", "systemd/user/trl.socket"},
	} {
		t.Run(scope, func(t *testing.T) {
			if output := verify(t, asIs, scope, units...); output != "" {
				t.Errorf("systemd says:\n%s", output)
			}
			// Check that a mistake is found.
			wrong := func(text string) string { return strings.Replace(text, "KillMode=mixed", "KillMood=mixed", 1) }
			if output := verify(t, wrong, scope, units...); !strings.Contains(output, "KillMood") {
				t.Errorf("systemd accepts an unknown key: %q", output)
			}
		})
	}
}

// Both units have the same settings, except for those that only one of them can
// have.
func TestUnitsAgree(t *testing.T) {
	setting := regexp.MustCompile(`(?m)^\w+=.*$`)
	of := func(file string) []string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return setting.FindAllString(string(text), -1)
	}
	machine, user := of("systemd/trl.service"), of("systemd/user/trl.service")
	for _, line := range user {
		if !slices.Contains(machine, line) && !strings.HasPrefix(line, "EnvironmentFile=") && !strings.HasPrefix(line, "WantedBy=") {
			t.Errorf("only the user's unit has %s", line)
		}
	}
}

// The launchd agents are valid property lists, and their commands valid shell code.
func TestPropertyLists(t *testing.T) {
	for name, keepAlive := range map[string]any{
		"dev.trl.forward": true,
		"dev.trl.serve":   map[string]any{"SuccessfulExit": false}, // `trl stop` stops it
	} {
		t.Run(name, func(t *testing.T) {
			output, err := exec.Command("python3", "-c",
				"import json, plistlib, sys; json.dump(plistlib.load(open(sys.argv[1], 'rb')), sys.stdout)", "launchd/"+name+".plist").Output()
			trltest.Need(t, err)
			var agent struct {
				Label            string
				ProgramArguments []string
				KeepAlive        any
				RunAtLoad        bool
			}
			if err := json.Unmarshal(output, &agent); err != nil {
				t.Fatal(err)
			}
			if agent.Label != name || !reflect.DeepEqual(agent.KeepAlive, keepAlive) || !agent.RunAtLoad || len(agent.ProgramArguments) != 3 {
				t.Fatalf("%+v", agent)
			}
			if output, err := exec.Command("sh", "-n", "-c", agent.ProgramArguments[2]).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
}
