// Package units formats durations and sizes for people, and reads what they
// type.
package units

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
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

// day is a unit that people type and package time does not have.
const day = 24 * time.Hour

var errDuration = errors.New("write a duration such as 300ms, 30s, 1h30m or 7d")

// ParseDuration reads a duration as people type it: what time.ParseDuration
// reads, with days in front, as in 1d12h. It must not be negative.
func ParseDuration(text string) (time.Duration, error) {
	var days time.Duration
	if count, rest, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseFloat(count, 64)
		if err != nil || !(n >= 0 && n < float64(math.MaxInt64/day)) { // also false for NaN
			return 0, errDuration
		}
		days = time.Duration(n * float64(day))
		if text = rest; text == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > math.MaxInt64-days {
		return 0, errDuration
	}
	return days + d, nil
}

// ExactDuration formats d without loss and without parts that are zero, so that
// ParseDuration reads it as the same value.
func ExactDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	text := ""
	if days := d / day; days > 0 {
		text, d = fmt.Sprintf("%dd", days), d%day
	}
	if d == 0 {
		return text
	}
	rest := d.String() // such as 1h0m0s
	if strings.HasSuffix(rest, "m0s") {
		rest = strings.TrimSuffix(rest, "0s")
	}
	if strings.HasSuffix(rest, "h0m") {
		rest = strings.TrimSuffix(rest, "0m")
	}
	return text + rest
}

// sizeUnits are the units of a size, by their names in lower case. A single
// letter and the names with i are powers of 1024, the others of 1000, as in
// dd(1).
var sizeUnits = map[string]float64{
	"b": 1,
	"k": 1 << 10, "kib": 1 << 10, "kb": 1e3,
	"m": 1 << 20, "mib": 1 << 20, "mb": 1e6,
	"g": 1 << 30, "gib": 1 << 30, "gb": 1e9,
	"t": 1 << 40, "tib": 1 << 40, "tb": 1e12,
}

var errSize = errors.New("write a size such as 64KiB, 256MiB or 1.5GiB")

// ParseSize reads a number of bytes as people type it, such as 256MiB. A number
// without a unit is in bytes. It must not be negative.
func ParseSize(text string) (int64, error) {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return n, nil
	}
	end := strings.LastIndexAny(text, "0123456789.") + 1
	unit, ok := sizeUnits[strings.ToLower(strings.TrimSpace(text[end:]))]
	n, err := strconv.ParseFloat(text[:end], 64)
	bytes := math.Round(n * unit)
	if !ok || err != nil || !(bytes >= 0 && bytes < math.MaxInt64) { // also false for NaN
		return 0, errSize
	}
	return int64(bytes), nil
}

// ExactSize formats n bytes without loss, in the largest unit that divides them,
// so that ParseSize reads it as the same value.
func ExactSize(n int64) string {
	unit := 0
	for ; n != 0 && n%(1<<10) == 0 && unit < 4; unit++ {
		n >>= 10
	}
	return strconv.FormatInt(n, 10) + [...]string{"B", "KiB", "MiB", "GiB", "TiB"}[unit]
}
