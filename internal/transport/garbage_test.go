package transport

import (
	"bufio"
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// malformed returns a line that is malformed in one of many ways.
func malformed(rng *rand.Rand) []byte {
	valid := []byte(strings.TrimSuffix(runLine(rng.IntN(1000), "printf '%s\\n' \u00e9"), "\n"))
	var line []byte
	switch rng.IntN(8) {
	case 0: // random bytes
		line = make([]byte, rng.IntN(200))
		for i := range line {
			line[i] = byte(rng.UintN(256))
		}
	case 1: // cut
		line = valid[:rng.IntN(len(valid))]
	case 2: // bytes replaced
		line = valid
		for range 1 + rng.IntN(5) {
			line[rng.IntN(len(line))] = byte(rng.UintN(256))
		}
	case 3: // a piece taken out
		from := rng.IntN(len(valid))
		line = slices.Delete(valid, from, from+rng.IntN(len(valid)-from))
	case 4: // not UTF-8
		line = bytes.Replace(valid, []byte("printf"), []byte("\xc3\x28\xff"), 1)
	case 5: // deep
		open := []string{"[", `{"a":`, `{"jsonrpc":"2.0","id":1,"method":"session.create","params":{"limits":{"x":[`}[rng.IntN(3)]
		line = bytes.Repeat([]byte(open), 10_000)
		if rng.IntN(50) > 0 {
			line = line[:min(len(line), 2000)] // the deepest are the slowest; a few are enough
		}
	case 6: // huge
		line = bytes.Repeat([]byte{'"', 'x', '{', byte(rng.UintN(256))}, 1+rng.IntN(40_000)/(1+rng.IntN(50)))
	case 7: // of the wrong types
		line = []byte(`{"jsonrpc":"2.0","id":[],"method":{},"params":"x"}`)
		line[rng.IntN(len(line))] = '0'
	}
	return append(bytes.ReplaceAll(line, []byte("\n"), nil), '\n')
}

func TestGarbageLeavesTheServerAsItWas(t *testing.T) {
	const conns, lines = 8, 10_000 / 8
	_, path := start(t, Config{MaxRequestBytes: 64 << 10}, func(_ context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
		return &api.ExecResult{Stdout: p.Command}, nil
	})
	throw := func(seed uint64, n int) {
		rng := rand.New(rand.NewPCG(seed, 0))
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Error(err)
			return
		}
		defer nc.Close()
		var wg sync.WaitGroup
		wg.Go(func() {
			w := bufio.NewWriter(nc)
			for range n {
				if _, err := w.Write(malformed(rng)); err != nil {
					t.Errorf("seed %d: %v", seed, err)
					return
				}
			}
			w.WriteString(pingLine)
			if err := w.Flush(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
		for r := bufio.NewReader(nc); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Errorf("seed %d: the ping was not answered: %v", seed, err)
				break
			}
			if reply := decodeReply(t, line); string(reply.ID) == `"ping"` && reply.Error == nil {
				break
			}
		}
		wg.Wait()
	}
	throw(0, 200) // do one-time initialization now
	live := dial(t, path)
	live.ping()
	before := measure()
	var wg sync.WaitGroup
	for seed := range conns {
		wg.Go(func() { throw(uint64(seed), lines) })
	}
	wg.Wait()
	live.ping()
	// The last goroutines of the connections may still be exiting.
	after := measure()
	for range 100 {
		if after.goroutines <= before.goroutines+maxIdle {
			break
		}
		runtime.Gosched()
		after = measure()
	}
	if after.goroutines > before.goroutines+maxIdle || after.heap > before.heap+(4<<20) {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

type footprint struct {
	goroutines int
	heap       uint64
}

func measure() footprint {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return footprint{runtime.NumGoroutine(), m.HeapAlloc}
}
