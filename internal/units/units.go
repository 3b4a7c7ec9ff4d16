// Package units formats durations and sizes for people.
package units

import (
	"fmt"
	"strconv"
	"time"
)

// Duration formats d with two units at most.
func Duration(d time.Duration) string {
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

// Age formats how long ago something was, or how long it has lasted: as Duration,
// in whole seconds.
func Age(d time.Duration) string {
	if d < time.Second {
		return "0s"
	}
	return Duration(d.Truncate(time.Second))
}

// Milliseconds formats a duration of n milliseconds, as Duration does.
func Milliseconds(n int64) string { return Duration(time.Duration(n) * time.Millisecond) }

// Size formats n bytes as one word, because scripts split tables into columns.
func Size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%dB", n)
	}
	value, unit := float64(n)/(1<<10), 0
	for ; value >= 1<<10 && unit < 3; unit++ {
		value /= 1 << 10
	}
	return fmt.Sprintf("%.1f%ciB", value, "KMGT"[unit])
}
