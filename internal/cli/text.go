package cli

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/internal/printable"
)

// visible makes text of others fit for a terminal.
func visible(s string) string { return printable.Text(s) }

// table writes rows under their headings, in columns.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, headings ...string) *table {
	t := &table{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(headings) > 0 {
		t.row(headings...)
	}
	return t
}

// row adds a row. An empty cell is a dash, so that columns can be counted.
func (t *table) row(cells ...string) {
	for i, cell := range cells {
		if cell == "" {
			cell = "-"
		}
		if i > 0 {
			fmt.Fprint(t.w, "\t")
		}
		fmt.Fprint(t.w, visible(cell))
	}
	fmt.Fprintln(t.w)
}

func (t *table) flush() error { return t.w.Flush() }

// span is a duration as people say it: two units at the most.
func formatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', -1, 64) + "s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// milliseconds is a span on the wire as people say it.
func formatMilliseconds(n int64) string { return formatDuration(time.Duration(n) * time.Millisecond) }

// size is a number of bytes as people say it, in one word: it stands in tables
// that scripts cut into columns.
func formatSize(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%dB", n)
	}
	value, unit := float64(n)/(1<<10), 0
	for ; value >= 1<<10 && unit < 3; unit++ {
		value /= 1 << 10
	}
	return fmt.Sprintf("%.1f%ciB", value, "KMGT"[unit])
}

// firstGiven is the first of the flags that was given on the command line.
func firstSetFlag(cmd *cobra.Command, names ...string) string {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return name
		}
	}
	return ""
}

// durationFlag is a duration on the command line: 300ms, 30s, 1h30m, or a
// number of seconds.
type durationFlag struct {
	value time.Duration
	given bool
}

func durationVar(cmd *cobra.Command, d *durationFlag, name, usage string) {
	cmd.Flags().Var(d, name, usage)
}

func (d *durationFlag) String() string {
	if !d.given {
		return ""
	}
	return d.value.String()
}

// Type is what stands for the value in the help.
func (*durationFlag) Type() string { return "duration" }

// maxSeconds is what a time.Duration holds, with room to spare: 30 years.
const maxSeconds = 1e9

// Set reads the value.
func (d *durationFlag) Set(text string) error {
	value, err := time.ParseDuration(text)
	if err != nil {
		var seconds float64
		seconds, err = strconv.ParseFloat(text, 64)
		if !(seconds >= 0 && seconds <= maxSeconds) { // NaN is neither
			seconds = -1
		}
		value = time.Duration(seconds * float64(time.Second))
	}
	if err != nil || value < 0 {
		return fmt.Errorf("write a duration such as 300ms, 30s or 1h30m")
	}
	d.value, d.given = value, true
	return nil
}

// milliseconds is the value for the wire, nil if none was given.
func (d *durationFlag) milliseconds() *int64 {
	if !d.given {
		return nil
	}
	ms := d.value.Milliseconds()
	if ms == 0 && d.value > 0 {
		ms = 1 // 0 would mean none
	}
	return &ms
}
