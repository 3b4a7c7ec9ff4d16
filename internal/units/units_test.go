package units

import (
	"testing"
	"time"
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
