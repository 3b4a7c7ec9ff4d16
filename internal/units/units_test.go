package units

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDurationAndSize(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "0s", 0: "0ms", 999 * time.Millisecond: "999ms", 1500 * time.Millisecond: "1.5s", 59 * time.Second: "59s",
		90 * time.Second: "1m30s", 3*time.Hour + 4*time.Minute: "3h04m", 50 * time.Hour: "2d02h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1536: "1.5KiB", 5 << 20: "5.0MiB", 3 << 40: "3.0TiB", 5 << 50: "5120.0TiB"} {
		if got := Size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "0s", 0: "0s", 999 * time.Millisecond: "0s", 1900 * time.Millisecond: "1s", 90 * time.Second: "1m30s", 50 * time.Hour: "2d02h",
	} {
		if got := Age(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "300ms": 300 * time.Millisecond, "30s": 30 * time.Second, "1h30m": 90 * time.Minute, "1.5h": 90 * time.Minute,
		"7d": 7 * 24 * time.Hour, "1d12h": 36 * time.Hour, "0.5d": 12 * time.Hour,
	} {
		if got, err := ParseDuration(text); got != want || err != nil {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "soon", "30", "-1s", "d", "-1d", "NaNd", "1dd", "200000d", "106751d24h", "1d1", "1 s"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is read as %s", text, got)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "9223372036854775807": 1<<63 - 1, "12B": 12, "64KiB": 64 << 10, "64k": 64 << 10, "64 kb": 64_000,
		"256MiB": 256 << 20, "256M": 256 << 20, "256MB": 256_000_000, "1.5GiB": 3 << 29, "8G": 8 << 30, "2TiB": 2 << 40,
	} {
		if got, err := ParseSize(text); got != want || err != nil {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "many", "-1", "-1KiB", "1PiB", "MiB", "1Ki", "9000000TiB", "1e3", "0x10", "1MiB2"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}

func TestExactIsShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 5 * time.Second: "5s", 10 * time.Minute: "10m", time.Hour: "1h", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s",
		7 * 24 * time.Hour: "7d", 36 * time.Hour: "1d12h", 1500 * time.Millisecond: "1.5s", 250 * time.Millisecond: "250ms",
	} {
		if got := ExactDuration(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0B", 1: "1B", 1000: "1000B", 64 << 10: "64KiB", 8 << 30: "8GiB", 1536: "1536B", 1 << 50: "1024TiB"} {
		if got := ExactSize(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// What is shown can be typed.
func TestExactIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(0, 1<<40).Draw(t, "milliseconds")
		d := time.Duration(ms) * time.Millisecond
		if got, err := ParseDuration(ExactDuration(d)); got != d || err != nil {
			t.Errorf("%s: %s, %v", ExactDuration(d), got, err)
		}
		n := rapid.Int64Range(0, 1<<52).Draw(t, "bytes")
		if got, err := ParseSize(ExactSize(n)); got != n || err != nil {
			t.Errorf("%s: %d, %v", ExactSize(n), got, err)
		}
	})
}
