package transport

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// echoServer is a minimal Unix socket server.
func echoServer(b *testing.B) string {
	path := filepath.Join(b.TempDir(), "echo.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		buf := make([]byte, 4096)
		for {
			n, err := nc.Read(buf)
			if err != nil {
				return
			}
			if _, err := nc.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	return path
}

func roundTrip(b *testing.B, p *peer, line, buf []byte) {
	if _, err := p.Write(line); err != nil {
		b.Fatal(err)
	}
	for {
		n, err := p.Read(buf)
		if err != nil {
			b.Fatal(err)
		}
		if buf[n-1] == '\n' {
			return
		}
	}
}

// BenchmarkPing compares system.ping with a bare echo of the same line over the
// same kind of socket. The two alternate, so that other load on the machine
// affects both.
func BenchmarkPing(b *testing.B) {
	_, path := start(b, Config{}, nil)
	ping, echo := dial(b, path), dial(b, echoServer(b))
	for _, p := range []*peer{ping, echo} {
		_ = p.SetDeadline(time.Time{})
	}
	line, buf := []byte(pingLine), make([]byte, 4096)
	const turn = 200
	for range turn { // warm up both
		roundTrip(b, ping, line, buf)
		roundTrip(b, echo, line, buf)
	}
	var pings, echoes time.Duration
	var n int
	b.ReportAllocs()
	for b.Loop() {
		if n++; n%turn != 1 {
			continue
		}
		at := time.Now()
		for range turn {
			roundTrip(b, ping, line, buf)
		}
		pings += time.Since(at)
		at = time.Now()
		for range turn {
			roundTrip(b, echo, line, buf)
		}
		echoes += time.Since(at)
	}
	trips := float64((n + turn - 1) / turn * turn)
	b.ReportMetric(float64(pings.Nanoseconds())/trips, "ns/ping")
	b.ReportMetric(float64(echoes.Nanoseconds())/trips, "ns/echo")
	b.ReportMetric(float64(pings)/float64(echoes), "ping/echo")
}
