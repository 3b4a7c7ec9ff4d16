package front

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
)

// docs/operations.md lists exactly the metrics of TRL, with their types and labels,
// and its rules use no others.
func TestMetricsAreDocumented(t *testing.T) {
	m := newMetrics()
	m.collectFrom(func() State { return State{Sessions: map[api.State]int{api.StateIdle: 1}} })
	m.CountRequest("system.ping", "", time.Millisecond)
	m.ExecEnded(api.OutcomeExited, time.Second, true)
	m.SessionEnded(0)
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	served, known := map[string]string{}, []string{}
	for _, family := range families {
		known = append(known, family.GetName())
		if !strings.HasPrefix(family.GetName(), "trl_") {
			continue
		}
		var labels []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+label.GetName()+"`")
		}
		slices.Sort(labels)
		served[family.GetName()] = strings.ToLower(family.GetType().String()) + " | " + strings.Join(labels, ", ")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(trl_[a-z_]+)` \\| ([a-z]+ \\| [^|]*?) ?\\|").FindAllSubmatch(page, -1) {
		documented[string(row[1])] = string(row[2])
	}
	if diff := cmp.Diff(served, documented); diff != "" || len(served) == 0 {
		t.Errorf("served (-) and documented (+) differ: %s", diff)
	}
	for _, name := range regexp.MustCompile(`\b(trl|process)_[a-z_]+[({\[ ]`).FindAllString(string(page), -1) {
		name = strings.TrimRight(name, "({[ ")
		for _, part := range []string{"_bucket", "_count", "_sum"} {
			name = strings.TrimSuffix(name, part)
		}
		if !slices.Contains(known, name) {
			t.Errorf("docs/operations.md uses %s, which is not served", name)
		}
	}
}
